"""NodeAffinity plugin: filters nodes by required terms, and scores them by the weights of matching preferred terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from msgspec import Struct

from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.normalize import default_normalize
from app.framework.parts import Part
from app.framework.points import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.spec import PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, error, unresolvable
from app.kube.core_v1 import NODE_SELECTOR, Pod
from app.kube.node_affinity import (
    AFFINITY,
    ANY_NODE,
    NodeMatcher,
    Preferences,
    PreferredNodeAffinity,
    RequiredNodeAffinity,
)
from plugins.in_tree.node_affinity.args import NodeAffinityArgs

NAME: Final = "NodeAffinity"

REASON_POD: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT: Final = "pod affinity terms conflict"
REASON_LONG_AFFINITY: Final = TOO_LONG.format(AFFINITY)
REASON_LONG_SELECTOR: Final = TOO_LONG.format(NODE_SELECTOR)

_UNMATCHED: Final = unresolvable(REASON_POD).by(NAME)
_ENFORCED: Final = unresolvable(REASON_ENFORCED).by(NAME)
_CONFLICT: Final = unresolvable(REASON_CONFLICT).by(NAME)
_UNREAD: Final = {
    AFFINITY: unresolvable(REASON_LONG_AFFINITY).by(NAME),
    NODE_SELECTOR: unresolvable(REASON_LONG_SELECTOR).by(NAME),
}


class InvalidTerm(ValueError):
    """A preferred term of the pod cannot be parsed."""


class _Preferred(Struct, frozen=True):
    """Preferred terms of the pod, which PreScore compiles for Score."""

    preferences: Preferences

    def clone(self) -> _Preferred:
        return self


_PREFERRED: Final[StateKey[_Preferred]] = StateKey("PreScoreNodeAffinity")


@final
class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Matches nodes against the terms of the pod and the terms that the profile adds.

    Source of the rules: ``framework/plugins/nodeaffinity`` of Kubernetes 1.36; 1.35 has the same rules.
    """

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        self._added = args.required()
        self._added_preferences = args.preferences()
        self._latest: tuple[RequiredNodeAffinity, NodeMatcher] = (ANY_NODE, ANY_NODE.compiled())

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        affinity = pod.spec.affinity
        if self._added is None and affinity == ANY_NODE and _unread(pod) is None:
            return SKIP, None
        names = affinity.names()
        return (_CONFLICT, None) if names is not None and not names else (SUCCESS, names)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        name, labels = node.node.name, node.node.labels
        if self._added is not None and not self._added.matches(name, labels):
            return _ENFORCED
        if not self._matcher(pod.spec.affinity).matches(name, labels):
            return _UNMATCHED
        return _unread(pod) or SUCCESS

    def _matcher(self, affinity: RequiredNodeAffinity) -> NodeMatcher:
        """Return the compiled affinity. The latest result is cached, because Filter needs it for each node."""
        if affinity is not self._latest[0]:
            self._latest = (affinity, affinity.compiled())
        return self._latest[1]

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        preferred = pod.spec.preferred_affinity
        if preferred.invalid:
            return error(preferred.invalid)
        if AFFINITY in pod.spec.oversized or (preferred.terms is None and self._added_preferences is None):
            return SKIP
        state.write(_PREFERRED, _Preferred(preferred.compiled()))
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        try:
            preferences = state.read(_PREFERRED).preferences
        except StateNotFound:
            preferences = _compiled(pod.spec.preferred_affinity)
        name, labels = node.node.name, node.node.labels
        score = preferences.score(name, labels)
        return score if self._added_preferences is None else score + self._added_preferences.score(name, labels)

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return default_normalize(scores)


def _unread(pod: Pod) -> Status | None:
    """Return the rejection of a pod whose affinity or node selector is oversized; ``None`` for all other pods."""
    oversized = pod.spec.oversized
    return next((_UNREAD[part] for part in oversized if part in _UNREAD), None) if oversized else None


def _compiled(preferred: PreferredNodeAffinity) -> Preferences:
    """Return the compiled terms, for a Score that runs without PreScore. Raises ``InvalidTerm``."""
    if preferred.invalid:
        raise InvalidTerm(preferred.invalid)
    return preferred.compiled()


SPEC: Final = PluginSpec(
    NAME,
    NodeAffinityArgs,
    NodeAffinity,
    reads=Reads.NODE,
    parts=(Part.AFFINITY, Part.PREFERRED_AFFINITY),
)
