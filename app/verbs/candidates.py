"""Turns the nodes of a request, names or whole objects, into node infos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import Status, unresolvable
from app.kube.core_v1 import decode_node
from app.wire.extender_v1 import ExtenderArgs, MalformedRequest

UNKNOWN_NODE: Final[Status] = unresolvable("node(s) were not known to Homeport yet")


class Asked(Struct, frozen=True):
    """``names`` as they were asked, in order; ``unknown`` are those that the picture does not have."""

    names: Sequence[str]
    candidates: Candidates
    unknown: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None


class _NodeIdentity(Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _NodeIdentityObject(Struct):
    metadata: _NodeIdentity


_IDENTITY: Final = msgspec.json.Decoder(_NodeIdentityObject)


def asked_nodes(args: ExtenderArgs, nodes: Mapping[str, NodeInfo]) -> Asked:
    """The nodes of the request. Raises ``MalformedRequest`` if a node object cannot be read."""
    return _by_name(args.names, nodes) if args.names is not None else _by_object(args.nodes or (), nodes)


def _by_name(names: Sequence[str], nodes: Mapping[str, NodeInfo]) -> Asked:
    unique = dict.fromkeys(names)
    if unique.keys() <= nodes.keys():
        return Asked(names, Candidates(list(unique), nodes.__getitem__), {})
    known = [name for name in unique if name in nodes]
    unknown = {name: UNKNOWN_NODE for name in unique if name not in nodes}
    return Asked(names, Candidates(known, nodes.__getitem__), unknown)


def _by_object(items: Sequence[Raw], nodes: Mapping[str, NodeInfo]) -> Asked:
    """A node the picture has in the same version is taken from there, one in another version is read as it was sent."""
    infos: dict[str, NodeInfo] = {}
    unknown: dict[str, Status] = {}
    raw: dict[str, Raw] = {}
    for item in items:
        try:
            identity = _IDENTITY.decode(item).metadata
            known = nodes.get(identity.name)
            if known is None:
                unknown[identity.name] = UNKNOWN_NODE
            else:
                infos[identity.name] = _info_for(identity, item, known)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedRequest(f"Nodes.items: {error}") from None
        raw[identity.name] = item
    return Asked(list(raw), Candidates(list(infos), infos.__getitem__), unknown, raw)


def _info_for(identity: _NodeIdentity, item: Raw, known: NodeInfo) -> NodeInfo:
    if known.node.resource_version == identity.resource_version != "":
        return known
    return NodeInfo(decode_node(item), known.pods)
