"""Optional parts of a node, decoded only if a plugin declares them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.declared_features import declared_features_of
from app.kube.decoding import Decoder, Int64
from app.kube.extras import Extra
from app.kube.meta_v1 import MetadataObject
from app.kube.node_state import NO_NODE_ANNOTATIONS, NodeState, annotations_of_node, node_state_of
from app.kube.requests import ResourceList, allocatable_of

_LARGEST_IMAGES: Final = 1 << 20
"""Maximum bytes of ``status.images``, twenty times what a kubelet reports by default. A longer list is not read."""


class NodeParts(Struct, frozen=True):
    """Optional parts of a node. A part that no plugin declares is ``None``, but ``annotations`` are then empty.

    ``extras``: all declared parts, including parts of pods. ``images`` maps each name of each image to the image's size
    in bytes. ``annotations``: annotations of the node with the keys that plugins declare.
    """

    extras: frozenset[Extra] = frozenset()
    allocatable: ResourceList | None = None
    images: Mapping[str, int] | None = None
    features: frozenset[str] | None = None
    state: NodeState | None = None
    annotations: Mapping[str, str] = NO_NODE_ANNOTATIONS


NOTHING_OF_NODE: Final = NodeParts()


class NodeStatusObject(Struct, rename="camel"):
    """``status`` of a node in JSON, reduced to the fields that are read."""

    allocatable: Raw = Raw()
    images: Raw = Raw()
    declared_features: Raw = Raw()
    conditions: Raw = Raw()
    node_info: Raw = Raw()


class _ImageObject(Struct, rename={"size_bytes": "sizeBytes"}):
    names: list[str] | None = None
    size_bytes: Int64 | None = None


_IMAGES: Final[Decoder[list[_ImageObject] | None]] = Decoder(list[_ImageObject] | None)


def _parse_images(data: bytes) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for image in _IMAGES.decode(data) or ():
        for name in image.names or ():
            sizes.setdefault(sys.intern(name), image.size_bytes or 0)
    return sizes


def node_parts(
    extras: frozenset[Extra], annotations: Collection[str] | None, meta: MetadataObject, status: NodeStatusObject
) -> NodeParts:
    """Decode the parts in ``extras``, and the node annotations with the keys ``annotations`` (``None``: all keys).

    If the list of images exceeds ``_LARGEST_IMAGES``, it is treated as empty, because images affect only scores. Raises
    ``Oversized`` or ``msgspec.ValidationError``.
    """
    return NodeParts(
        extras,
        allocatable_of(status.allocatable) if Extra.RESOURCES in extras else None,
        _images_of_node(status.images) if Extra.IMAGES in extras else None,
        declared_features_of(status.declared_features) if Extra.FEATURES in extras else None,
        _state(meta, status) if Extra.NODE_STATE in extras else None,
        annotations_of_node(meta.annotations, annotations),
    )


def _state(meta: MetadataObject, status: NodeStatusObject) -> NodeState:
    return node_state_of(status.conditions, status.node_info, terminating=bool(meta.deletion_timestamp))


def _images_of_node(raw: Raw) -> Mapping[str, int]:
    """Return the sizes by image name; empty if ``status.images`` exceeds ``_LARGEST_IMAGES``.

    There is no cache, because two nodes rarely have equal lists.
    """
    data = bytes(raw) or b"null"
    if len(data) > _LARGEST_IMAGES:
        return {}
    try:
        return _parse_images(data)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.images: {error}") from None
