"""PriorityClasses, from which the API server computes the priority of new pods."""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder, Int32
from app.kube.meta_v1 import MetadataObject, ObjectKey, required

SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Priorities of the classes that every cluster has."""


class PriorityClass(Struct, frozen=True, gc=False):
    """PriorityClass. ``policy``: ``preemptionPolicy``, empty if absent.

    ``is_default``: ``globalDefault``. Pods without a class get the default class, the one of lowest value if there are
    several.
    """

    name: str
    uid: str
    resource_version: str
    value: int
    is_default: bool
    policy: str

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class _PriorityClassObject(Struct, rename="camel"):
    metadata: MetadataObject
    value: Int32 | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


_DECODER: Final = Decoder[_PriorityClassObject](_PriorityClassObject)


def decode_priority_class(raw: bytes | Raw) -> PriorityClass:
    """Decode one PriorityClass. Raises ``msgspec.DecodeError``."""
    wire = _DECODER.decode(raw)
    return PriorityClass(
        name=sys.intern(required(wire.metadata.name, "metadata.name")),
        uid=wire.metadata.uid or "",
        resource_version=wire.metadata.resource_version or "",
        value=wire.value or 0,
        is_default=bool(wire.global_default),
        policy=sys.intern(wire.preemption_policy or ""),
    )
