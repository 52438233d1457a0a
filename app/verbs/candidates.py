"""Finds the ``NodeInfo`` of each node in a request, which contains either node names or whole node objects."""

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
from app.verbs.context import decode_limited
from app.verbs.stepwise import yield_to_loop
from app.wire.extender_v1 import MalformedRequest, NodesRequest, decode_args

UNKNOWN_NODE: Final[Status] = unresolvable("node(s) were not known to Homeport yet")
UNREADABLE_NODE: Final[Status] = unresolvable("node(s) could not be read by Homeport")


class RequestedNodes(Struct, frozen=True):
    """Nodes of a request.

    ``names``: all requested names, in the order of the request; with whole nodes, each name once, and unreadable nodes
    last. ``unknown``: status of each name that is not a candidate; empty if names were not looked up
    (``nodes_to_search``). ``raw``: the received node objects, if the request has whole nodes.
    """

    names: Sequence[str]
    candidates: Candidates
    unknown: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None

    def with_unknown(self, passed: Sequence[str], rejected: Mapping[str, Status]) -> Mapping[str, Status]:
        """Return the status of each requested name that did not pass: from ``rejected`` or ``unknown``, otherwise
        ``UNKNOWN_NODE``.
        """
        if len(passed) + len(rejected) == len(self.names):
            return rejected
        known = {*passed, *rejected, *self.unknown}
        unknown = dict.fromkeys(filterfalse(known.__contains__, self.names), UNKNOWN_NODE)
        return {**rejected, **self.unknown, **unknown}


class SentNode(Struct, frozen=True):
    """Whole node of a request.

    ``node`` is ``None`` if the snapshot has the node in this ``resource_version``, or if the node exceeds the limits of
    ``node_decoding``.
    """

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
_STEP: Final = 256
"""Number of nodes decoded per event-loop iteration. This takes about 2 ms for nodes of 12 KB."""


async def read_sent(items: Sequence[Raw], nodes: Mapping[str, NodeInfo], core: CoreV1 = PLAIN) -> list[SentNode]:
    """Read whole nodes in steps before the decision, so that 60 MB of nodes do not block other requests.

    Nodes that the snapshot has in the sent version are not decoded. Raises ``MalformedRequest``.
    """
    sent: list[SentNode] = []
    for start in range(0, len(items), _STEP):
        await yield_to_loop()
        sent.extend(_read(item, nodes, core) for item in items[start : start + _STEP])
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
    """Decode a node; return ``None`` if it is oversized, because one oversized node must not fail the whole request.

    Raises ``MalformedRequest``.
    """
    try:
        return core.decode_node(item)
    except OversizedNode:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequest(f"Nodes.items: {error}") from None


def _is_known(known: NodeInfo | None, resource_version: str) -> bool:
    """Return true if the snapshot has the node in this version; false if the version is empty."""
    return known is not None and known.node.resource_version == resource_version != ""


async def read_nodes(args: NodesRequest, nodes: Mapping[str, NodeInfo], core: CoreV1 = PLAIN) -> list[SentNode] | None:
    """Return the result of ``read_sent``; ``None`` if the request has names. Raises ``MalformedRequest``."""
    return None if args.names is not None else await read_sent(args.nodes or (), nodes, core)


async def requested_hosts(body: bytes | memoryview, nodes: Mapping[str, NodeInfo]) -> Sequence[str]:
    """Return the node names in a request; empty if it cannot be decoded."""
    try:
        try:
            args = decode_args(body)
        except MalformedRequest as refused:
            args = await decode_limited(decode_args, body, refused)
        if args.names is not None:
            return tuple(dict.fromkeys(args.names))
        return tuple(node.name for node in await read_nodes(args, nodes) or ())
    except MalformedRequest:
        return ()


def requested_nodes(
    names: Sequence[str] | None,
    sent: Sequence[SentNode] | None,
    nodes: Mapping[str, NodeInfo],
    unreadable: Collection[str] = (),
    core: CoreV1 = PLAIN,
) -> RequestedNodes:
    """Return the candidates, based on the current snapshot.

    ``names``: node names of the request; ``None`` if it has whole nodes (``sent``). Names in ``unreadable`` are not
    candidates. A whole node is evaluated with the content that the request has, even if it is in ``unreadable``.
    Raises ``MalformedRequest`` for a malformed whole node.
    """
    if names is None:
        return _by_object(sent or (), nodes, core)
    if not unreadable:
        return _by_name(names, nodes)
    readable = _by_name([name for name in names if name not in unreadable], nodes)
    refused = {name: UNREADABLE_NODE for name in names if name in unreadable}
    return RequestedNodes(names, readable.candidates, {**readable.unknown, **refused})


def nodes_to_search(names: Sequence[str] | None, sent: Sequence[SentNode] | None, cluster: Cluster) -> RequestedNodes:
    """Like ``requested_nodes``, but names are looked up only if the snapshot has unreadable nodes.

    The search itself ignores unknown names.
    """
    unreadable = unreadable_nodes(cluster)
    if names is None or unreadable:
        return requested_nodes(names, sent, cluster.nodes, unreadable, cluster.core)
    return RequestedNodes(names, Candidates(names, cluster.nodes.__getitem__), {})


def unreadable_nodes(cluster: Cluster) -> Collection[str]:
    """Return the names of nodes whose newest version could not be decoded. Pods must not be placed on these nodes."""
    return cluster.unreadable.names(NODES) if cluster.unreadable else ()


def _by_name(names: Sequence[str], nodes: Mapping[str, NodeInfo]) -> RequestedNodes:
    candidates = Candidates(names, nodes.__getitem__)
    each = candidates.name_set
    if len(each) == len(names) and nodes.keys() >= each:
        return RequestedNodes(names, candidates, {})
    unique = dict.fromkeys(names)
    known = [name for name in unique if name in nodes]
    unknown = {name: UNKNOWN_NODE for name in unique if name not in nodes}
    return RequestedNodes(names, Candidates(known, nodes.__getitem__), unknown)


def _by_object(items: Sequence[SentNode], nodes: Mapping[str, NodeInfo], core: CoreV1) -> RequestedNodes:
    """Return the candidates of a request with whole nodes.

    The snapshot's node is used if it has the ``resource_version`` of the sent node.
    """
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
    return RequestedNodes([*infos, *unreadable], candidates, unreadable, {item.name: item.raw for item in items})
