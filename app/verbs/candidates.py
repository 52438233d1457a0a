"""Turns the nodes of a request, names or whole objects, into node infos."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import filterfalse
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.cache.cluster import Cluster
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import Status, unresolvable
from app.kube.core_decoding import PLAIN, CoreV1
from app.kube.core_v1 import Node
from app.kube.decoding import Decoder
from app.kube.kinds import NODES
from app.kube.node_decoding import OversizedNode
from app.verbs.context import without_depth
from app.verbs.slices import turn
from app.wire.extender_v1 import ExtenderArgs, MalformedRequest, decode_args

UNKNOWN_NODE: Final[Status] = unresolvable("node(s) were not known to Homeport yet")
UNREADABLE_NODE: Final[Status] = unresolvable("node(s) could not be read by Homeport")


class Asked(Struct, frozen=True):
    """``names`` as they were asked, in order; ``unknown`` are those that are no candidates, with the reason."""

    names: Sequence[str]
    candidates: Candidates
    unknown: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None

    def with_unknown(self, passed: Sequence[str], rejected: Mapping[str, Status]) -> Mapping[str, Status]:
        """``rejected``, and every other name that did not pass: these are of no node."""
        if len(passed) + len(rejected) == len(self.names):
            return rejected
        known = {*passed, *rejected, *self.unknown}
        unknown = dict.fromkeys(filterfalse(known.__contains__, self.names), UNKNOWN_NODE)
        return {**rejected, **self.unknown, **unknown}


class SentNode(Struct, frozen=True):
    """A whole node of a request, read no further than needed. ``node`` is decoded where the picture differed."""

    name: str
    resource_version: str
    raw: Raw
    node: Node | None


class _NodeIdentity(Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _NodeIdentityObject(Struct):
    metadata: _NodeIdentity


_IDENTITY: Final = Decoder[_NodeIdentityObject](_NodeIdentityObject)
_SLICE: Final = 256
"""Nodes read before others get their turn: some 2 ms for nodes of 12 KB."""


async def read_sent(items: Sequence[Raw], nodes: Mapping[str, NodeInfo], core: CoreV1 = PLAIN) -> list[SentNode]:
    """Read whole nodes in slices, before the decision, so that 60 MB of them hold up nobody.

    Raises ``MalformedRequest``.
    """
    sent: list[SentNode] = []
    for start in range(0, len(items), _SLICE):
        await turn()
        sent.extend(_read(item, nodes, core) for item in items[start : start + _SLICE])
    return sent


def _read(item: Raw, nodes: Mapping[str, NodeInfo], core: CoreV1) -> SentNode:
    try:
        identity = _IDENTITY.decode(item).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"Nodes.items: {error}") from None
    version = identity.resource_version
    node = None if _is_known(nodes.get(identity.name), version) else _decoded(item, core)
    return SentNode(identity.name, version, item, node)


def _decoded(item: Raw, core: CoreV1) -> Node | None:
    """``None`` for one that is oversized: whoever may write one node is not to stop the pods of all."""
    try:
        return core.decode_node(item)
    except OversizedNode:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"Nodes.items: {error}") from None


def _is_known(known: NodeInfo | None, resource_version: str) -> bool:
    return known is not None and known.node.resource_version == resource_version != ""


async def read_nodes(args: ExtenderArgs, nodes: Mapping[str, NodeInfo], core: CoreV1 = PLAIN) -> list[SentNode] | None:
    """The whole nodes of a request; ``None`` for one that names them. Raises ``MalformedRequest``."""
    return None if args.names is not None else await read_sent(args.nodes or (), nodes, core)


async def asked_hosts(body: bytes | memoryview, nodes: Mapping[str, NodeInfo]) -> Sequence[str]:
    """The names that a request asks about; none where it cannot be read."""
    try:
        args = await _read_args(body)
        if args.names is not None:
            return tuple(dict.fromkeys(args.names))
        return tuple(node.name for node in await read_nodes(args, nodes) or ())
    except MalformedRequest:
        return ()


async def _read_args(body: bytes | memoryview) -> ExtenderArgs:
    try:
        return decode_args(body)
    except MalformedRequest as refused:
        return await without_depth(decode_args, body, refused)


def asked_nodes(
    names: Sequence[str] | None,
    sent: Sequence[SentNode] | None,
    nodes: Mapping[str, NodeInfo],
    unreadable: Collection[str] = (),
    core: CoreV1 = PLAIN,
) -> Asked:
    """The candidates, on the picture as it is at this moment.

    Those of ``names`` that are ``unreadable`` are none; a whole node is judged by what was sent.
    """
    if names is None:
        return _by_object(sent or (), nodes, core)
    if not unreadable:
        return _by_name(names, nodes)
    found = _by_name([name for name in names if name not in unreadable], nodes)
    refused = {name: UNREADABLE_NODE for name in names if name in unreadable}
    return Asked(names, found.candidates, {**found.unknown, **refused})


def searched_nodes(names: Sequence[str] | None, sent: Sequence[SentNode] | None, cluster: Cluster) -> Asked:
    """The same for a search, which finds out by itself which names are of no node."""
    unreadable = unreadable_nodes(cluster)
    if names is None or unreadable:
        return asked_nodes(names, sent, cluster.nodes, unreadable, cluster.core)
    return Asked(names, Candidates(names, cluster.nodes.__getitem__), {})


def unreadable_nodes(cluster: Cluster) -> Collection[str]:
    """Nodes of which there is a newer form than the picture could take in: nothing may go there."""
    return cluster.unreadable.names(NODES) if cluster.unreadable else ()


def _by_name(names: Sequence[str], nodes: Mapping[str, NodeInfo]) -> Asked:
    candidates = Candidates(names, nodes.__getitem__)
    each = candidates.name_set
    if len(each) == len(names) and nodes.keys() >= each:
        return Asked(names, candidates, {})
    unique = dict.fromkeys(names)
    known = [name for name in unique if name in nodes]
    unknown = {name: UNKNOWN_NODE for name in unique if name not in nodes}
    return Asked(names, Candidates(known, nodes.__getitem__), unknown)


def _by_object(items: Sequence[SentNode], nodes: Mapping[str, NodeInfo], core: CoreV1) -> Asked:
    """A node the picture has in the same version is taken from there; any other is judged by what was sent."""
    infos: dict[str, NodeInfo] = {}
    unreadable: dict[str, Status] = {}
    sent: dict[str, NodeInfo] = {}
    for item in items:
        known = nodes.get(item.name)
        if known is None or not _is_known(known, item.resource_version):
            node = item.node if item.node is not None else _decoded(item.raw, core)
            if node is None:
                unreadable[item.name] = UNREADABLE_NODE
                continue
            known = sent[item.name] = NodeInfo(node) if known is None else known.with_node(node)
        infos[item.name] = known
    candidates = Candidates(list(infos), infos.__getitem__, sent)
    return Asked([*infos, *unreadable], candidates, unreadable, {item.name: item.raw for item in items})
