"""State of a node (readiness, pressure, systemUUID, deletion) and its annotations, two optional parts of a node.

Fields that change with every heartbeat of the kubelet are dropped, so that a heartbeat does not change the state.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import parse_map

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

PRESSURE: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""Conditions of a node. While one of them is True, the node has a NoSchedule taint that new pods must tolerate."""

_READY: Final = "Ready"
_LONGEST_MACHINE: Final = 253
"""Maximum characters of a systemUUID. A longer one is ignored."""

_LONGEST_VALUE: Final = 1 << 10
"""Maximum characters of an annotation's value. Longer values are truncated."""


class NodeState(Struct, frozen=True, gc=False):
    """State of a node.

    ``ready`` is the status of the Ready condition (``True``, ``False`` or ``Unknown``); empty if not reported yet.
    ``pressure`` lists the conditions of ``PRESSURE`` that are True. ``terminating`` is true if the Node has a
    deletionTimestamp. ``machine`` is ``status.nodeInfo.systemUUID`` in lower case; empty if absent or too long.
    """

    ready: str = ""
    pressure: tuple[str, ...] = ()
    terminating: bool = False
    machine: str = ""


class _NodeConditionObject(Struct):
    type: str | None = None
    status: str | None = None


class _NodeInfoObject(Struct, rename={"system_uuid": "systemUUID"}):
    system_uuid: str | None = None


_CONDITIONS: Final[Decoder[list[_NodeConditionObject] | None]] = Decoder(list[_NodeConditionObject] | None)
_NODE_INFO: Final[Decoder[_NodeInfoObject | None]] = Decoder(_NodeInfoObject | None)


def node_state_of(conditions: Raw, node_info: Raw, *, terminating: bool) -> NodeState:
    """Decode the state of a node. Raises ``msgspec.ValidationError``, but never ``Oversized``."""
    statuses = _conditions(conditions)
    pressure = tuple(it for it in PRESSURE if statuses.get(it) == TRUE)
    return NodeState(_ready(statuses.get(_READY)), pressure, terminating, _machine(node_info))


class UndeclaredAnnotation(LookupError):
    """Raised if a plugin reads a node annotation that no plugin declares. Such annotations are not decoded."""

    def __init__(self, key: object) -> None:
        super().__init__(f'annotation "{key}" of a node: not decoded, name it in Needs.node_annotations')


class NodeAnnotations(Mapping[str, str]):
    """Annotations of a node that plugins declare. Reading another key raises ``UndeclaredAnnotation``."""

    __slots__ = ("_declared", "_present")

    def __init__(self, declared: Collection[str] | None, present: Mapping[str, str]) -> None:
        """Create the mapping. ``declared``: keys that plugins declare; ``None`` means all keys."""
        self._declared = declared
        self._present = present

    def __getitem__(self, key: str) -> str:
        value = self._present.get(key)
        if value is not None:
            return value
        if self._declared is not None and key not in self._declared:
            raise UndeclaredAnnotation(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._present)

    def __len__(self) -> int:
        return len(self._present)

    def __repr__(self) -> str:
        return repr(self._present)


NO_NODE_ANNOTATIONS: Final = NodeAnnotations((), {})


def annotations_of_node(raw: Raw, keys: Collection[str] | None) -> Mapping[str, str]:
    """Return the annotations with these keys; ``None`` stands for all keys. Raises ``msgspec.ValidationError``."""
    data = bytes(raw) or b"null"
    if keys is not None and not any(key.encode() in data for key in keys):
        return NodeAnnotations(keys, {})
    try:
        annotations = parse_map(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    wanted = sorted(annotations if keys is None else keys)
    present = {sys.intern(key): (annotations[key] or "")[:_LONGEST_VALUE] for key in wanted if key in annotations}
    return NodeAnnotations(keys, present)


def _conditions(raw: Raw) -> Mapping[str, str]:
    """Return the status by condition type. The first condition of a type takes precedence, as in kube-scheduler."""
    try:
        decoded = _CONDITIONS.decode(bytes(raw) or b"null") or ()
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.conditions: {error}") from None
    statuses: dict[str, str] = {}
    for condition in decoded:
        statuses.setdefault(condition.type or "", condition.status or "")
    return statuses


def _ready(status: str | None) -> str:
    """Return the status of the Ready condition, with Unknown for any invalid value; empty if it is not reported."""
    if status is None:
        return ""
    return status if status in (TRUE, FALSE) else UNKNOWN


def _machine(raw: Raw) -> str:
    try:
        info = _NODE_INFO.decode(bytes(raw) or b"null")
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.nodeInfo: {error}") from None
    machine = (info and info.system_uuid) or ""
    return machine.lower() if len(machine) <= _LONGEST_MACHINE else ""
