"""Rejects nodes whose ``status.declaredFeatures`` lack a feature that the pod needs."""

from __future__ import annotations

from typing import Final, final

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.declared_features import RESTART_RULES

NAME: Final = "NodeDeclaredFeatures"

REASON_FEATURES: Final = "node(s) didn't match Pod's required features"
REASON_LONG_RULES: Final = TOO_LONG.format(RESTART_RULES)

_LACKING: Final = unresolvable(REASON_FEATURES).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_RULES).by(NAME)


class NodeDeclaredFeaturesArgs(PluginArgs):
    """The plugin takes no arguments."""


class _Needed(Struct, frozen=True):
    """Names of the features that the pod needs, which PreFilter stores for Filter."""

    features: frozenset[str]

    def clone(self) -> _Needed:
        return self


_NEEDED: Final[StateKey[_Needed]] = StateKey("PreFilterNodeDeclaredFeatures")


@final
class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Compares the features that a node declares with those that the pod needs.

    Source of the rules: ``framework/plugins/nodedeclaredfeatures`` of Kubernetes 1.36. In 1.35, the plugin is off by
    default. As in kube-scheduler, features are inferred from the pod's spec even if their feature gates are off.
    """

    def __init__(self, args: NodeDeclaredFeaturesArgs, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if RESTART_RULES in pod.spec.oversized:
            return _UNREAD, None
        needed = pod.spec.features
        if not needed:
            return SKIP, None
        state.write(_NEEDED, _Needed(needed))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        try:
            needed = state.read(_NEEDED).features
        except StateNotFound:
            raise StateNotFound(f'error reading "{_NEEDED.name}" from cycle-state: not found') from None
        return SUCCESS if needed <= node.node.features else _LACKING


SPEC: Final = PluginSpec(NAME, NodeDeclaredFeaturesArgs, NodeDeclaredFeatures, reads=Reads.NODE, parts=(Part.FEATURES,))
