"""Decoders for pods and nodes, with the optional parts that plugins declare."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from msgspec import Raw, Struct

from app.kube.core_v1 import Node, Pod
from app.kube.decoding import Decoder
from app.kube.extras import NODE_ONLY, Extra
from app.kube.meta_v1 import Oversized
from app.kube.node_decoding import NodeObject, OversizedNode, WholeNodeObject, slim_node
from app.kube.node_parts import NodeStatusObject, node_parts
from app.kube.pod_decoding import PodObject, WaitingPodObject, WholePodObject, slim_pod, whole_pods

_POD_DECODER: Final = Decoder[PodObject](PodObject)
_NODE_DECODER: Final = Decoder[NodeObject](NodeObject)


def _decode_plain_pod(raw: bytes | Raw) -> Pod:
    return slim_pod(_POD_DECODER.decode(raw))


def _decode_plain_node(raw: bytes | Raw) -> Node:
    return slim_node(_NODE_DECODER.decode(raw))


class CoreV1(Struct, frozen=True, eq=False):
    """Decoders for pods and nodes, with the optional parts in ``extras``.

    ``pod_object`` is the type of the wire form of a pod, for callers that decode a pod inside another document.
    ``slim_pod`` converts the wire form to a ``Pod``. ``node_annotations`` are the keys of the node annotations that are
    decoded; empty if all or none are decoded. All decoders raise ``msgspec.DecodeError``; ``OversizedNode`` is a
    subclass of it.
    """

    extras: frozenset[Extra]
    pod_object: type[PodObject]
    slim_pod: Callable[[Any], Pod]
    decode_pod: Callable[[bytes | Raw], Pod]
    decode_node: Callable[[bytes | Raw], Node]
    node_annotations: frozenset[str] = frozenset()


PLAIN: Final = CoreV1(frozenset(), PodObject, slim_pod, _decode_plain_pod, _decode_plain_node)
"""Decoders that decode no optional parts and no node annotations."""

POD_OBJECTS: Final[tuple[type[PodObject], ...]] = (PodObject, WaitingPodObject, WholePodObject)
"""All types that ``CoreV1.pod_object`` can have."""


def core_v1(extras: Collection[Extra], node_annotations: Collection[str] | None = ()) -> CoreV1:
    """Return decoders for pods and nodes with the optional parts ``extras``.

    ``node_annotations``: keys of the node annotations that are decoded; ``None`` for all.
    """
    if not extras and node_annotations is not None and not node_annotations:
        return PLAIN
    wanted, keys = frozenset(extras), frozenset(node_annotations or ())
    decode_node = _node_decoder(wanted, None if node_annotations is None else keys)
    if wanted <= NODE_ONLY:
        return CoreV1(wanted, PodObject, slim_pod, _decode_plain_pod, decode_node, keys)
    pod_object, slim_whole = whole_pods(wanted)
    pods = Decoder[PodObject](pod_object)

    def decode_whole(raw: bytes | Raw) -> Pod:
        return slim_whole(pods.decode(raw))

    return CoreV1(wanted, pod_object, slim_whole, decode_whole, decode_node, keys)


def _node_decoder(wanted: frozenset[Extra], annotations: frozenset[str] | None) -> Callable[[bytes | Raw], Node]:
    nodes = Decoder[WholeNodeObject](WholeNodeObject)

    def decode(raw: bytes | Raw) -> Node:
        node = nodes.decode(raw)
        try:
            parts = node_parts(wanted, annotations, node.metadata, node.status or NodeStatusObject())
        except Oversized as error:
            raise OversizedNode(str(error)) from None
        return slim_node(node, parts)

    return decode


_WHOLE: Final = core_v1([*Extra], None)


def decode_pod(raw: bytes | Raw) -> Pod:
    """Decode one Pod with all optional parts. Raises ``msgspec.DecodeError``."""
    return _WHOLE.decode_pod(raw)


def decode_node(raw: bytes | Raw) -> Node:
    """Decode one Node with all optional parts and all annotations. Raises ``msgspec.DecodeError``."""
    return _WHOLE.decode_node(raw)
