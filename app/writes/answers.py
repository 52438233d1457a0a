"""Checks that an answer comes from the API server and belongs to the request.

The checks are needed because a proxy, load balancer or captive portal can answer with any status and body.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from app.kube.api_errors import ApiUnavailable
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.kube.kinds import KubeObject

Object = TypeVar("Object", bound=KubeObject)


class PodState(Struct, frozen=True):
    """Fields of a stored pod that show the outcome of its Binding. ``node_name`` is empty for a pending pod."""

    uid: str
    resource_version: str
    node_name: str


class _StatusAnswer(Struct):
    kind: str | None = None
    status: str | None = None


class _PodMetadata(Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _PodBindingSpec(Struct, rename="camel"):
    node_name: str | None = None


class _PodAnswer(Struct):
    kind: str
    metadata: _PodMetadata
    spec: _PodBindingSpec


_STATUS: Final[Decoder[_StatusAnswer]] = Decoder(_StatusAnswer)
_POD: Final[Decoder[_PodAnswer]] = Decoder(_PodAnswer)


def as_requested(answer: Object, namespace: str, name: str) -> Object:
    """Return ``answer`` if it has the requested namespace and name; raise ``ApiUnavailable`` otherwise."""
    if answer.key != (namespace, name):
        _refuse((namespace, name), answer.key)
    return answer


def is_success(raw: bytes) -> bool:
    """Return true if the answer is a ``Status`` with Success, which the API server returns for a created Binding."""
    try:
        status = _STATUS.decode(raw)
    except msgspec.DecodeError:
        return False
    return (status.kind, status.status) == ("Status", "Success")


def pod_state(raw: bytes, pod: Pod) -> PodState:
    """Decode UID, version and node from an answer to a read or patch of ``pod``.

    Only these fields are decoded, so that an invalid value in another field causes no error. Raises ``ApiUnavailable``
    if the answer is not a stored pod of that name and namespace. The caller must compare the UID, which can differ.
    """
    try:
        stored = _POD.decode(raw)
    except msgspec.DecodeError as cause:
        raise ApiUnavailable(f"the answer about pod {pod} is not a Pod: {cause}") from None
    meta = stored.metadata
    if stored.kind != "Pod" or not meta.uid or not meta.resource_version:
        raise ApiUnavailable(f"the answer about pod {pod} is not a stored Pod")
    if (meta.namespace, meta.name) != pod.key:
        _refuse(pod.key, (meta.namespace, meta.name))
    return PodState(meta.uid, meta.resource_version, stored.spec.node_name or "")


def _refuse(wanted: tuple[str, str], answered: tuple[str, str]) -> None:
    wanted_name, answered_name = ("/".join(filter(None, key)) for key in (wanted, answered))
    raise ApiUnavailable(f"requested {wanted_name}, the answer is about {answered_name}")
