"""Pods that a simulation adds and removes, their names and UIDs, and errors in the objects of a request."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.kube.kinds import Kind

_LONGEST: Final = 1024
"""Maximum characters of untrusted text in a message."""

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names in Kubernetes."""

_SUFFIX: Final = 5
_NAMES: Final = len(_ALPHABET) ** _SUFFIX
_STRIDE: Final = 6_700_417
"""Prime that does not divide ``_NAMES``, so that the suffixes of different numbers differ."""

_LONGEST_BASE: Final = 58
"""Maximum characters of a generated name before its suffix."""

_HASH: Final = 10
"""Length of a template hash in characters."""

_NAMESPACE: Final = uuid.UUID("3f6c0f57-5d0b-4f6c-9d7c-6e0f7f1c2a11")
"""Namespace of the version 5 UUIDs of simulated objects."""


class TemplateError(ValueError):
    """Raised if pods cannot be built from an object.

    ``index``: position of the object in ``objects`` of ``pods_of``, or ``templates`` of ``scaled``, from 0; -1 if the
    error is not about an object. ``field``: path of the wrong field in this object, for example
    ``spec.template.spec.containers``; it can be empty.
    """

    def __init__(self, index: int, field: str, message: str) -> None:
        self.index = index
        self.field = printable(field)
        self.message = printable(message)
        super().__init__(f"{self.field}: {self.message}" if self.field else self.message)


class SimulatedPod(Struct, frozen=True):
    """Pod of a manifest or of a scale-up, or a pod of such a workload that waits already. ``pod`` has no node.

    ``workload``: for example ``Deployment/shop/web``; empty for a bare Pod. ``approximate``: why the real pod can
    differ from ``pod``, or that it waits already; else empty.
    """

    pod: Pod
    workload: str
    approximate: str = ""


class ScaledWorkload(Struct):
    """Pods that a new number of replicas adds and removes.

    ``removed``: existing pods in the order in which they are removed. ``objects``: objects that the added pods need,
    for example claims and controllers. They must be in the snapshot before the pods. ``approximate``: why the real
    controller could remove other pods; empty if no reason is known.
    """

    added: list[SimulatedPod]
    removed: list[Pod]
    objects: list[tuple[Kind[Any], Any]]
    approximate: str = ""


class ManifestPods(ScaledWorkload):
    """Pods that the manifests of a request add and remove.

    ``ignored``: objects that have no effect in a simulation, such as ``ConfigMap/shop/web``. ``notes``: assumptions,
    and objects that exist in the cluster already or start no pods, as sentences.
    """

    ignored: list[str] = []
    notes: list[str] = []


def generated_name(base: str, number: int) -> str:
    """Return a name as the API server generates it from ``generateName``. Different numbers give different suffixes."""
    value = (_seed(base) + number * _STRIDE) % _NAMES
    suffix = ""
    for _ in range(_SUFFIX):
        value, digit = divmod(value, len(_ALPHABET))
        suffix += _ALPHABET[digit]
    return base[:_LONGEST_BASE] + suffix


def template_hash(template: bytes) -> str:
    """Return a value for the label ``pod-template-hash``. Equal templates have equal values."""
    digest = hashlib.blake2b(template, digest_size=_HASH).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest)


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return the UID of a simulated object. Equal arguments give equal UIDs. No object of the cluster has this UID."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{namespace}/{name}"))


def _seed(base: str) -> int:
    return int.from_bytes(hashlib.blake2b(base.encode(errors="replace"), digest_size=8).digest(), "big")


def printable(text: str) -> str:
    """Return untrusted text for a message: unprintable characters are escaped, and long text is cut."""
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return shown if shown.isprintable() else "".join(it if it.isprintable() else ascii(it)[1:-1] for it in shown)
