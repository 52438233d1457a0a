"""Types for the JSON of nodes, and their conversion to ``Node``."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.core_v1 import Node
from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, Oversized, labels_of, required, shared
from app.kube.node_parts import NOTHING_OF_NODE, NodeParts, NodeStatusObject
from app.kube.taints import Taint


class OversizedNode(msgspec.ValidationError):
    """Raised if a part of a node, for example its labels or taints, exceeds its size limit."""


class _NodeSpecObject(Struct):
    taints: Raw = Raw()
    unschedulable: bool | None = None


class NodeObject(Struct):
    """Node in JSON, without its status."""

    metadata: MetadataObject
    spec: _NodeSpecObject | None = None


class WholeNodeObject(NodeObject):
    """Node in JSON, with the status, because optional parts are decoded from the status."""

    status: NodeStatusObject | None = None


class _TaintObject(Struct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> Taint:
        return Taint(self.key or "", self.effect or "", self.value or "")


_TAINTS: Final[Decoder[list[_TaintObject] | None]] = Decoder(list[_TaintObject] | None)


def _parse_taints(data: bytes) -> tuple[Taint, ...]:
    return tuple(it.slim() for it in _TAINTS.decode(data) or ())


_taints_of: Final = shared("spec.taints", _parse_taints)


def slim_node(node: NodeObject, parts: NodeParts = NOTHING_OF_NODE) -> Node:
    """Convert the wire form of a node to ``Node``.

    Raises ``msgspec.ValidationError``, which names the invalid field. Raises ``OversizedNode`` for oversized labels or
    taints, because a node without its labels or taints would give wrong results for all pods.
    """
    meta, spec = node.metadata, node.spec or _NodeSpecObject()
    try:
        labels, taints = labels_of(meta.labels), _taints_of(spec.taints)
    except Oversized as error:
        raise OversizedNode(str(error)) from None
    return Node(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels,
        taints=taints,
        unschedulable=bool(spec.unschedulable),
        parts=parts,
    )
