"""Prefers nodes that have the pod's images, weighted by image size and by the share of nodes with the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.listers import ImageState
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import MAX_NODE_SCORE, ScorePlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.kube.core_v1 import Pod
from app.kube.extras import PodImages

NAME: Final = "ImageLocality"

_MIB: Final = 1 << 20
_LEAST: Final = 23 * _MIB
_MOST_OF_A_CONTAINER: Final = 1000 * _MIB
"""Limits in bytes for the sum of a node's scaled image sizes. The score is 0 up to ``_LEAST``, and 100 from
``_MOST_OF_A_CONTAINER`` per container or init container of the pod.
"""

_INT64: Final = 1 << 64
_INT64_MAX: Final = (1 << 63) - 1


class ImageLocalityArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class ImageLocality(ScorePlugin):
    """Scores nodes by the sizes of the pod's images that they already have.

    Source of the rules: ``framework/plugins/imagelocality`` of Kubernetes 1.36. Image volumes are scored in every
    profile; kube-scheduler 1.35 would ignore them.

    The raw score is a bit set of the pod's images on the node. It depends on that node alone, so it can be cached.
    Normalize computes the score of each distinct bit set from the image sizes and from the share of nodes that have
    each image.
    """

    def __init__(self, args: ImageLocalityArgs, handle: Handle) -> None:
        self._nodes = handle.nodes
        self._latest: PodImages | None = None
        self._bits: dict[str, int] = {}

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        bits, present = self._bits_of(pod.spec.images), node.node.images
        return sum([bits[name] for name in bits.keys() & present.keys()])

    def _bits_of(self, images: PodImages) -> dict[str, int]:
        """Return the bit of each image in a raw score, by image name. The latest result is cached."""
        if images is not self._latest:
            self._latest = images
            self._bits = {name: 1 << index for index, name in enumerate(dict.fromkeys(images.names))}
        return self._bits

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        images = pod.spec.images
        sizes = self._scaled_sizes(images)
        worth = {raw: _score(_sum(raw, sizes), images.containers) for raw in set(scores.values())}
        return {key: worth[raw] for key, raw in scores.items()}

    def _scaled_sizes(self, images: PodImages) -> list[int]:
        """Return the size of each image times the share of nodes that have it, in the order of the bits.

        A size is multiplied by the number of times that the pod names the image.
        """
        bits, nodes = self._bits_of(images), len(self._nodes.list())
        known = self._nodes.images(bits)
        return [_scaled(known[name], nodes) * images.names.count(name) if name in known else 0 for name in bits]


def _scaled(state: ImageState, nodes: int) -> int:
    return _int64(int(state.size * (state.nodes / nodes)))


def _int64(value: int) -> int:
    """Return ``value``, or the smallest int64 if it is above the largest, like Go's conversion of floats on amd64."""
    return value if value <= _INT64_MAX else -_INT64_MAX - 1


def _sum(raw: int, sizes: list[int]) -> int:
    """Return the sum of the ``sizes`` of the images whose bits are set in ``raw``, wrapped to an int64."""
    total = 0
    while raw:
        lowest = raw & -raw
        total += sizes[lowest.bit_length() - 1]
        raw ^= lowest
    return (total + _INT64_MAX + 1) % _INT64 - _INT64_MAX - 1


def _score(size: int, containers: int) -> int:
    most = _MOST_OF_A_CONTAINER * containers
    size = _LEAST if size < _LEAST else min(size, most)
    return MAX_NODE_SCORE * (size - _LEAST) // (most - _LEAST)


SPEC: Final = PluginSpec(NAME, ImageLocalityArgs, ImageLocality, reads=Reads.NODE, parts=(Part.IMAGES,))
