"""What a Node says of itself beside labels, taints and the cordon: whether it is well, which machine it is, its end.

Decoded on demand. Of what changes with every heartbeat nothing is kept, hence a heartbeat changes nothing here.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import parse_map

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

PRESSURE: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""Conditions of a node, each of which keeps pods away while it is True."""

_READY: Final = "Ready"
_LONGEST_MACHINE: Final = 253
_LONGEST_VALUE: Final = 1 << 10
"""Characters of an annotation that are kept: of a longer one the beginning."""


class NodeState(Struct, frozen=True, gc=False):
    """``ready``: the status of the condition Ready, which is ``True``, ``False`` or ``Unknown``; empty where nobody has
    said anything yet · ``pressure``: those of ``PRESSURE`` that are True · ``terminating``: the Node has a
    deletionTimestamp · ``machine``: ``status.nodeInfo.systemUUID`` in lower case, empty where there is none.
    """

    ready: str = ""
    pressure: tuple[str, ...] = ()
    terminating: bool = False
    machine: str = ""


class _ConditionObject(Struct):
    type: str | None = None
    status: str | None = None


class _NodeInfoObject(Struct, rename={"system_uuid": "systemUUID"}):
    system_uuid: str | None = None


_CONDITIONS: Final[Decoder[list[_ConditionObject] | None]] = Decoder(list[_ConditionObject] | None)
_NODE_INFO: Final[Decoder[_NodeInfoObject | None]] = Decoder(_NodeInfoObject | None)


def node_state_of(conditions: Raw, node_info: Raw, *, terminating: bool) -> NodeState:
    """What ``status`` says, of whatever length. Raises ``msgspec.ValidationError``."""
    found = _conditions(conditions)
    pressure = tuple(it for it in PRESSURE if found.get(it) == TRUE)
    return NodeState(_ready(found.get(_READY)), pressure, terminating, _machine(node_info))


def annotations_of_node(raw: Raw, keys: Collection[str]) -> Mapping[str, str]:
    """Those of ``keys`` that are there. Raises ``msgspec.ValidationError``."""
    data = bytes(raw)
    if not any(key.encode() in data for key in keys):
        return {}
    try:
        found = parse_map(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    return {sys.intern(key): (found[key] or "")[:_LONGEST_VALUE] for key in sorted(keys) if key in found}


def _conditions(raw: Raw) -> Mapping[str, str]:
    """Status by type. There is one of each; of several the first counts, as in-tree."""
    try:
        found = _CONDITIONS.decode(bytes(raw) or b"null") or ()
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.conditions: {error}") from None
    statuses: dict[str, str] = {}
    for it in found:
        statuses.setdefault(it.type or "", it.status or "")
    return statuses


def _ready(status: str | None) -> str:
    if status is None:
        return ""
    return status if status in (TRUE, FALSE) else UNKNOWN


def _machine(raw: Raw) -> str:
    try:
        found = _NODE_INFO.decode(bytes(raw) or b"null")
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.nodeInfo: {error}") from None
    machine = (found and found.system_uuid) or ""
    return machine.lower() if len(machine) <= _LONGEST_MACHINE else ""
