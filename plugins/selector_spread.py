"""Prefers nodes, and zones, with fewer pods of the same Services and controller. In kube-scheduler up to 1.28."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

from app.framework.cycle_state import CycleState, StateKey
from app.framework.default_selectors import KINDS, DefaultSelectors
from app.framework.interface import MAX_NODE_SCORE, Handle, PluginArgs, PluginSpec, PreScorePlugin, ScorePlugin
from app.framework.node_info import Candidates
from app.framework.score_classes import ScoreClasses
from app.framework.status import SKIP, SUCCESS, Status
from app.kube.core_v1 import LABELS, SPREAD, Pod
from app.kube.kinds import Kind
from app.kube.selectors import EVERYTHING, Selector

NAME: Final = "SelectorSpread"

_ZONE: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION: Final = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
"""Labels in the order in which they are looked for."""

_ZONE_WEIGHT: Final = 2.0 / 3.0
"""How much the zone counts where there are any, against the node."""

_Zone: TypeAlias = tuple[str, str]
_NOWHERE: Final = ("", "")


class SelectorSpreadArgs(PluginArgs):
    """Takes no arguments."""


class _Peers(dict[_Zone, int]):
    """What PreScore and Score leave: the ``selector`` of the pod's peers, and how many of them are in each zone."""

    def __init__(self, selector: Selector) -> None:
        super().__init__()
        self.selector = selector

    def clone(self) -> _Peers:
        return self


_PEERS: Final[StateKey[_Peers]] = StateKey("PreScoreSelectorSpread")


@final
class SelectorSpread(PreScorePlugin, ScorePlugin):
    """Source of the rules: ``framework/plugins/selectorspread`` of Kubernetes 1.28, the last that has it.

    A class of nodes is a number of peers and a zone. A pod with constraints of its own scores 0 everywhere.
    """

    def __init__(self, args: SelectorSpreadArgs, handle: Handle) -> None:
        self._counts = handle.counts
        self._selectors = DefaultSelectors(handle.objects)

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        if not {LABELS, SPREAD}.isdisjoint(pod.spec.oversized):
            return SKIP
        if not pod.spec.spread:
            state.write(_PEERS, _Peers(self._selectors.of(pod)))
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        if pod.spec.spread:
            return ScoreClasses.by_value([0] * len(nodes))
        peers = state.read(_PEERS)
        found = {} if peers.selector == EVERYTHING else self._counts.pods_by_node(pod.namespace, peers.selector)
        zones, regions = self._labels(nodes, _ZONE), self._labels(nodes, _REGION)
        of: list[Hashable] = []
        scores: dict[tuple[int, _Zone], int] = {}
        peers.clear()
        for name, region, zone in zip(nodes.names, regions, zones, strict=True):
            count, place = found.get(name, 0), (region, zone)
            of.append(key := (count, place))
            scores[key] = count
            if place != _NOWHERE:
                peers[place] = peers.get(place, 0) + count
        return ScoreClasses(of, scores, all_used=True)

    def _labels(self, nodes: Candidates, keys: tuple[str, str]) -> Sequence[str]:
        """Of each node the value of the first of both labels that it has; empty without."""
        first, second = (nodes.values(key, self._counts.values(key)) for key in keys)
        if not first:
            return [second.get(name, "") for name in nodes.names]
        return [first[name] if name in first else second.get(name, "") for name in nodes.names]

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        """Floats, and cut off in the end, as in-tree."""
        if pod.spec.spread:
            return scores
        in_zones = state.read(_PEERS)
        most, most_in_zone = max(scores.values(), default=0), max(in_zones.values(), default=0)

        def normalized(key: tuple[int, _Zone]) -> int:
            count, place = key
            score = _share(most - count, most)
            if place != _NOWHERE:
                zone_score = _share(most_in_zone - in_zones[place], most_in_zone)
                score = (score * (1.0 - _ZONE_WEIGHT)) + (_ZONE_WEIGHT * zone_score)
            return int(score)

        return {key: normalized(key) for key in scores}

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        if pod.spec.spread or pod.namespace != other.namespace:
            return False
        selector = self._selectors.of(pod)
        return selector != EVERYTHING and selector.matches(other.labels)


def _share(free: int, most: int) -> float:
    """How far below the most, of 100; all where nobody has any."""
    return float(MAX_NODE_SCORE) * (float(free) / float(most)) if most > 0 else float(MAX_NODE_SCORE)


def _kinds(_args: SelectorSpreadArgs) -> tuple[Kind[Any], ...]:
    return KINDS


SPEC: Final = PluginSpec(NAME, SelectorSpreadArgs, SelectorSpread, kinds=_kinds)
