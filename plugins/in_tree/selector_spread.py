"""Prefers nodes and zones with fewer pods of the pod's Services and controller, like kube-scheduler up to 1.28."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey
from app.framework.default_selectors import KINDS, DefaultSelectors
from app.framework.handle import Handle
from app.framework.node_info import Candidates
from app.framework.points import MAX_NODE_SCORE, PreScorePlugin, ScorePlugin
from app.framework.score_classes import ScoreClasses
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.status import SKIP, SUCCESS, Status
from app.kube.core_v1 import LABELS, SPREAD, Pod
from app.kube.selectors import EVERYTHING

NAME: Final = "SelectorSpread"

_ZONE: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
"""Keys of region labels, the deprecated one first. The first label that a node has is used, as for the zone labels in
``_ZONE``.
"""

_ZONE_WEIGHT: Final = 2.0 / 3.0
"""Share of the zone score in the score of a node with a zone or region. The rest depends on the number of peers on the
node.
"""

_Zone: TypeAlias = tuple[str, str]
_NOWHERE: Final = ("", "")
"""(region, zone) of a node without such labels."""


class SelectorSpreadArgs(PluginArgs):
    """The plugin takes no arguments."""


class _Peers(Struct, frozen=True):
    """Peers of the pod: pods that match the selectors of its Services and controller. PreScore counts them for Score.

    ``on_node`` and ``in_zone``: number of peers by node name and by zone; in zones, only peers on candidates count.
    ``zones``: (region, zone) of each candidate.
    """

    on_node: Mapping[str, int]
    in_zone: Mapping[_Zone, int]
    zones: Mapping[str, _Zone]

    def clone(self) -> _Peers:
        return self


_PEERS: Final[StateKey[_Peers]] = StateKey("PreScoreSelectorSpread")


@final
class SelectorSpread(PreScorePlugin, ScorePlugin):
    """Scores nodes by the number of the pod's peers (see ``_Peers``) on the node and in its zone.

    Source of the rules: ``framework/plugins/selectorspread`` of Kubernetes 1.28, the last release with this plugin.

    A pod with its own topology spread constraints scores 0 on every node.
    """

    def __init__(self, args: SelectorSpreadArgs, handle: Handle) -> None:
        self._counts = handle.counts
        self._selectors = DefaultSelectors(handle.objects)

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        if not {LABELS, SPREAD}.isdisjoint(pod.spec.oversized):
            return SKIP
        if pod.spec.spread:
            return SUCCESS
        selector = self._selectors.of(pod)
        on_node = {} if selector == EVERYTHING else self._counts.pods_by_node(pod.namespace, selector)
        places = zip(self._labels(nodes, _REGION), self._labels(nodes, _ZONE), strict=True)
        zones = dict(zip(nodes.names, places, strict=True))
        in_zone: dict[_Zone, int] = {}
        for name, zone in zones.items():
            in_zone[zone] = in_zone.get(zone, 0) + on_node.get(name, 0)
        in_zone.pop(_NOWHERE, None)
        state.write(_PEERS, _Peers(on_node, in_zone, zones))
        return SUCCESS

    def _labels(self, nodes: Candidates, keys: tuple[str, str]) -> Sequence[str]:
        """Return for each node the value of ``keys[0]``, or of ``keys[1]`` if the node lacks ``keys[0]``; empty if it
        lacks both.
        """
        first, second = (nodes.values(key, self._counts.values(key)) for key in keys)
        if not first:
            return [second.get(name, "") for name in nodes.names]
        return [first[name] if name in first else second.get(name, "") for name in nodes.names]

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """Return the number of peers on each node.

        Each node is a class of its own, because nodes with equal numbers can be in different zones.
        """
        peers: Mapping[str, int] = {} if pod.spec.spread else state.read(_PEERS).on_node
        return ScoreClasses(nodes.names, {name: peers.get(name, 0) for name in nodes.names}, all_used=True)

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        """Convert numbers of peers to scores from 0 to 100. Floats are truncated at the end, like in kube-scheduler."""
        if pod.spec.spread:
            return scores
        peers = state.read(_PEERS)
        most, most_in_zone = max(scores.values(), default=0), max(peers.in_zone.values(), default=0)
        known: dict[tuple[int, _Zone], int] = {}
        for name, count in scores.items():
            kind = (count, peers.zones[name])
            if kind not in known:
                score = _share(most - count, most)
                if kind[1] != _NOWHERE:
                    zone_score = _share(most_in_zone - peers.in_zone[kind[1]], most_in_zone)
                    score = (score * (1.0 - _ZONE_WEIGHT)) + (_ZONE_WEIGHT * zone_score)
                known[kind] = int(score)
        return {name: known[count, peers.zones[name]] for name, count in scores.items()}

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        if pod.spec.spread or pod.namespace != other.namespace:
            return False
        selector = self._selectors.of(pod)
        return selector != EVERYTHING and selector.matches(other.labels)


def _share(free: int, most: int) -> float:
    """Return ``free`` as a share of ``most``, scaled to 100; 100 if ``most`` is 0."""
    return float(MAX_NODE_SCORE) * (float(free) / float(most)) if most > 0 else float(MAX_NODE_SCORE)


def _needs(_args: SelectorSpreadArgs) -> Needs:
    return Needs(kinds=KINDS)


SPEC: Final = PluginSpec(NAME, SelectorSpreadArgs, SelectorSpread, needs=_needs)
