"""Checks that an answer of the API server is what the request asked for: a 2xx alone proves nothing.

A proxy, a load balancer or a captive portal can answer in the API server's place, with any status code and any body.
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
    """The fields of a stored pod that decide what became of a Binding. ``node_name`` is empty for a pending pod."""

    uid: str
    resource_version: str
    node_name: str


class _Status(Struct):
    kind: str | None = None
    status: str | None = None


class _Metadata(Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str


class _Spec(Struct, rename="camel"):
    node_name: str | None = None


class _Pod(Struct):
    kind: str
    metadata: _Metadata
    spec: _Spec


_STATUS: Final[Decoder[_Status]] = Decoder(_Status)
_POD: Final[Decoder[_Pod]] = Decoder(_Pod)


def as_asked(found: Object, namespace: str, name: str) -> Object:
    """Return ``found`` if it has that namespace and name. Raises ``ApiUnavailable`` if it has another."""
    if found.key != (namespace, name):
        _refuse((namespace, name), found.key)
    return found


def is_success(raw: bytes) -> bool:
    """Return whether the answer is a Status that says Success, which the API server sends for a Binding."""
    try:
        found = _STATUS.decode(raw)
    except msgspec.DecodeError:
        return False
    return (found.kind, found.status) == ("Status", "Success")


def pod_state(raw: bytes, pod: Pod) -> PodState:
    """Read from an answer how the pod of that name is stored. Raises ``ApiUnavailable`` if the answer is no such pod.

    Reads so few fields that no content of the pod can make it unreadable.
    """
    try:
        found = _POD.decode(raw)
    except msgspec.DecodeError as cause:
        raise ApiUnavailable(f"the answer about pod {pod} is not a Pod: {cause}") from None
    meta = found.metadata
    if found.kind != "Pod" or not meta.uid or not meta.resource_version:
        raise ApiUnavailable(f"the answer about pod {pod} is not a stored Pod")
    if (meta.namespace, meta.name) != pod.key:
        _refuse(pod.key, (meta.namespace, meta.name))
    return PodState(meta.uid, meta.resource_version, found.spec.node_name or "")


def _refuse(wanted: tuple[str, str], answered: tuple[str, str]) -> None:
    wanted_name, answered_name = ("/".join(filter(None, key)) for key in (wanted, answered))
    raise ApiUnavailable(f"asked for {wanted_name}, was answered {answered_name}")
