"""Rejects nodes with an untolerated ``NoSchedule`` or ``NoExecute`` taint.

Among the remaining nodes, it prefers those with fewer untolerated ``PreferNoSchedule`` taints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.normalize import default_normalize
from app.framework.parts import Part
from app.framework.points import FilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable
from app.kube.core_v1 import TOLERATIONS, Pod
from app.kube.taints import LatestTolerance, Tolerance

NAME: Final = "TaintToleration"

REASON_UNTOLERATED: Final = "node(s) had untolerated taint(s)"
REASON_LONG_TOLERATIONS: Final = TOO_LONG.format(TOLERATIONS)

_UNTOLERATED: Final = unresolvable(REASON_UNTOLERATED).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_TOLERATIONS).by(NAME)


class TaintTolerationArgs(PluginArgs):
    """The plugin takes no arguments."""


class _Tolerant(Struct, frozen=True):
    """Tolerations of the pod, which PreScore compiles for Score."""

    tolerance: Tolerance

    def clone(self) -> _Tolerant:
        return self


_TOLERANT: Final[StateKey[_Tolerant]] = StateKey("PreScoreTaintToleration")


@final
class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters and scores nodes by their taints that the pod does not tolerate.

    Source of the rules: ``framework/plugins/tainttoleration`` of Kubernetes 1.36; 1.35 has the same rules.
    """

    def __init__(self, args: TaintTolerationArgs, handle: Handle) -> None:
        self._tolerance = LatestTolerance()

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        taints = node.node.taints
        if not taints or self._tolerance.of(pod.spec.tolerations).tolerates_all(taints):
            return SUCCESS
        return _UNREAD if TOLERATIONS in pod.spec.oversized else _UNTOLERATED

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        if TOLERATIONS in pod.spec.oversized:
            return SKIP
        state.write(_TOLERANT, _Tolerant(self._tolerance.of(pod.spec.tolerations)))
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        try:
            return state.read(_TOLERANT).tolerance.untolerated_preferences(node.node.taints)
        except StateNotFound:
            raise StateNotFound(f'failed to read "{_TOLERANT.name}" from cycleState: not found') from None

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return default_normalize(scores, reverse=True)


SPEC: Final = PluginSpec(NAME, TaintTolerationArgs, TaintToleration, reads=Reads.NODE, parts=(Part.TOLERATIONS,))
