"""InterPodAffinity plugin: filters nodes by required terms, and scores them mainly by preferred terms."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, final

from pydantic import Field

from app.framework.counts import Unprepared, all_prepared
from app.framework.cycle_state import CycleState, StateNotFound
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.score_classes import ScoreClasses
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.status import SKIP, SUCCESS, Status, error, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES
from app.kube.labels import NO_LABELS
from app.kube.pod_affinity import Newcomer, PodAffinityTerm
from plugins.in_tree.inter_pod_affinity.filtering import (
    NAME,
    REQUIRED,
    UNREAD,
    RequiredState,
    existing_keys,
    required_state,
)
from plugins.in_tree.inter_pod_affinity.own import OwnTermsOf
from plugins.in_tree.inter_pod_affinity.scoring import PREFERRED, normalized, preferred_state


class InterPodAffinityArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``hardPodAffinityWeight``: weight in Score of an existing pod's required affinity term that matches the incoming
    pod. ``ignorePreferredTermsOfExistingPods``: true to skip Score for incoming pods without preferred terms.
    """

    hard_pod_affinity_weight: Annotated[int, Field(ge=0, le=100)] = Field(default=1, alias="hardPodAffinityWeight")
    ignore_preferred_terms_of_existing_pods: bool = Field(default=False, alias="ignorePreferredTermsOfExistingPods")


@final
class InterPodAffinity(PreFilterPlugin, ClusterFilterPlugin, PreScorePlugin, ScorePlugin):
    """Matches the terms of the incoming pod against existing pods, and the terms of existing pods against the incoming
    pod.

    Source of the rules: ``framework/plugins/interpodaffinity`` of Kubernetes 1.36; 1.35 has equivalent rules.
    """

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_others = args.ignore_preferred_terms_of_existing_pods
        self._counts = handle.counts
        self._terms = handle.terms
        self._objects = handle.objects
        self._own = OwnTermsOf(handle.objects)

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        unread = _unread(pod)
        if unread is not None:
            return unread, None
        invalid = pod.spec.pod_affinity.invalid
        if invalid:
            return unresolvable(f"parsing pod: {invalid}"), None
        required = self._required(pod)
        if not required.can_reject:
            return SKIP, None
        all_prepared(partial(self._counts.values, key) for key in required.topology_keys())
        state.write(REQUIRED, required)
        return SUCCESS, None

    def _required(self, pod: Pod) -> RequiredState:
        return required_state(pod, self._own.of(pod), self._newcomer(pod), self._terms)

    def _newcomer(self, pod: Pod) -> Newcomer:
        namespace = self._objects.get(NAMESPACES, "", pod.namespace)
        return Newcomer(pod.namespace, NO_LABELS if namespace is None else namespace.labels, pod.labels)

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        _required_of(state).shift(added, node, 1)
        return SUCCESS

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        _required_of(state).shift(removed, node, -1)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return _required_of(state).evaluate(node)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        return _required_of(state).evaluate_all(nodes, self._counts)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        return _required_of(state).evaluate_certain(node, in_flight)

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        try:
            own = self._own.of(pod)
        except Unprepared:
            return True  # assumed until PreFilter has matched the namespaces of the pod's terms
        return (
            own.matches_affinity(other)
            or own.matches_anti_affinity(other)
            or bool(existing_keys(other, self._newcomer(pod)))
        )

    def signature(self, pod: Pod) -> Hashable | None:
        """Return a key that changes if the set of domains with matching pods changes, or the domain of any node.

        The key does not change if a domain merely gets more or fewer matching pods. For a pod with oversized parts or
        invalid terms, it never changes. Raises ``Unprepared``.
        """
        unread = _unread(pod)
        if unread is not None:
            return unread.reasons
        invalid = pod.spec.pod_affinity.invalid
        if invalid:
            return invalid
        required = self._required(pod)
        return required.stamp(), tuple(map(self._counts.stamp, required.topology_keys()))

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        affinity = pod.spec.pod_affinity
        if _unread(pod) is not None or (self._ignores_others and not affinity.has_preferred):
            return SKIP
        if affinity.invalid:
            return error(f"failed to parse pod: {affinity.invalid}")
        preferred = preferred_state(self._own.of(pod), self._newcomer(pod), self._hard_weight, self._terms)
        if preferred is None:
            return SKIP
        all_prepared(partial(self._counts.values, key) for key in preferred.topology_keys())
        state.write(PREFERRED, preferred)
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        try:
            return state.read(PREFERRED).raw_scores(nodes, self._counts)
        except StateNotFound:
            raise StateNotFound(f'failed to read "{PREFERRED.name}" from cycleState: not found') from None

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return normalized(scores)

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        if self._ignores_others and not pod.spec.pod_affinity.has_preferred:
            return False
        try:
            if self._own.of(pod).matches_preferred(other):
                return True
        except Unprepared:
            return True
        newcomer = self._newcomer(pod)
        return any(it.within(other.namespace).matches(newcomer) for it in self._weighed_terms(other))

    def _weighed_terms(self, other: Pod) -> list[PodAffinityTerm]:
        affinity = other.spec.pod_affinity
        return [*(affinity.required if self._hard_weight else ()), *(it.term for it in affinity.preferred)]


def _required_of(state: CycleState) -> RequiredState:
    try:
        return state.read(REQUIRED)
    except StateNotFound as missing:
        raise StateNotFound(f"error {missing}") from None


def _unread(pod: Pod) -> Status | None:
    """Return the rejection of a pod whose terms or labels are oversized; ``None`` for all other pods."""
    oversized = pod.spec.oversized
    return next((status for part, status in UNREAD.items() if part in oversized), None) if oversized else None


def _needs(_args: InterPodAffinityArgs) -> Needs:
    return Needs(kinds=(NAMESPACES,))


SPEC: Final = PluginSpec(NAME, InterPodAffinityArgs, InterPodAffinity, parts=(Part.POD_AFFINITY,), needs=_needs)
