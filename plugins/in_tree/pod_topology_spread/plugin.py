"""PodTopologySpread plugin: filters nodes by hard constraints, and scores them by soft constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, final

from msgspec.structs import replace

from app.framework.cycle_state import CycleState, StateNotFound
from app.framework.default_selectors import KINDS, DefaultSelectors
from app.framework.events import Reference
from app.framework.explanation import Explanation
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin, PreScorePlugin, ReservePlugin, ScorePlugin
from app.framework.score_classes import ScoreClasses
from app.framework.spec import Needs, PluginSpec
from app.framework.status import SKIP, SUCCESS, Status, error
from app.kube.core_v1 import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    TOLERATIONS,
    Pod,
    PodSpec,
    TopologySpreadConstraint,
)
from app.kube.deletion_cost import DELETION_COST
from app.kube.labels import LabelSet
from app.kube.memo import MISSING, Memo, Newest
from app.kube.names import shown
from app.kube.selectors import EVERYTHING
from plugins.in_tree.pod_topology_spread.args import HOSTNAME, NAME, PodTopologySpreadArgs
from plugins.in_tree.pod_topology_spread.constraints import (
    Constraint,
    InvalidConstraint,
    default_constraints,
    own_constraints,
    unread_part,
)
from plugins.in_tree.pod_topology_spread.explaining import explained
from plugins.in_tree.pod_topology_spread.fallback import Softening
from plugins.in_tree.pod_topology_spread.filtering import HARD, UNREAD, evaluate_all, hard_state
from plugins.in_tree.pod_topology_spread.ranking import SCALE_DOWN, Ranks, is_ranked
from plugins.in_tree.pod_topology_spread.relaxed import counted_by
from plugins.in_tree.pod_topology_spread.scoring import SOFT, SoftState, normalized, soft_state

_MEMO_BYTES: Final = 32 << 20
_ENTRY_BYTES: Final = 2000
_PART_BYTES: Final = 200
"""Maximum size of the cache of constraints, and estimated sizes of an entry and of each of its parts, in bytes."""

_MOST_REPORTED: Final = 1024
"""Maximum number of remembered pods, for which the Event ``DeletionCostIgnored`` was emitted."""

_INVALID_COST: Final = (
    "the annotation {} is ignored, because {} is not a 32-bit integer: the pod gets its rank among the pods of its "
    "ReplicaSet, if it has one"
)


class PodTopologySpread(PreFilterPlugin, ClusterFilterPlugin, PreScorePlugin, ScorePlugin):
    """Compares the numbers of matching pods in the domains of each constraint.

    Source of the rules: ``framework/plugins/podtopologyspread`` of Kubernetes 1.36.
    """

    takes_any_names: ClassVar[bool] = True

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        self._counts = handle.counts
        self._hard_state = partial(hard_state, counted_by(args.beyond), handle.counts)
        self._defaults = args.constraints()
        self._missing = args.missing
        fallback = None if args.beyond is None else args.beyond.fallback
        self._softening = None if fallback is None else Softening(handle.profile.fallbacks, fallback.after)
        self._known_domains = handle.profile.known_domains
        if args.beyond is not None and (args.beyond.domains or args.beyond.remember is not None):
            self._known_domains.declare(args.beyond.domains, args.beyond.remember)
        self._constraints = self._plain_constraints if self._softening is None else self._plain_or_softened
        self._always_reads_tolerations = args.beyond is not None and args.beyond.reads_tolerations
        self._system_defaulted = args.system_defaulted
        self._selectors = DefaultSelectors(handle.objects)
        self._own = Memo[tuple[LabelSet, PodSpec, str], tuple[Constraint, ...]](_MEMO_BYTES)

    @property
    def fills_fields(self) -> bool:
        """True if the profile fills in fields of constraints."""
        return self._missing is not None

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        unread = self._unread(pod)
        if unread:
            return UNREAD[unread], None
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except InvalidConstraint as invalid:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {invalid}"
            return error(text), None
        if not constraints:
            return SKIP, None
        state.write(HARD, self._hard_state(pod, constraints))
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        return self._shift(state, pod, added, node, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        return self._shift(state, pod, removed, node, -1)

    def _shift(self, state: CycleState, pod: Pod, other: Pod, node: NodeInfo, delta: int) -> Status:
        if other.namespace == pod.namespace:
            for constraint in state.read(HARD).constraints:
                constraint.shift(other, node.name, delta)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        statuses = (constraint.evaluate(node) for constraint in state.read(HARD).constraints)
        return next((status for status in statuses if not status.is_success), SUCCESS)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        return evaluate_all(state.read(HARD).constraints, self._counts, nodes)

    def signature(self, pod: Pod) -> tuple[int, ...] | None:
        """Return two stamps for each hard constraint; ``None`` if a selector cannot be parsed.

        For a pod with an oversized part that the constraints depend on, the result is the index of the part in
        ``UNREAD``.

        One stamp changes if the domain of any node changes. The other changes if the limit changes, or the set of
        domains above the limit. So most changes of the number of pods change neither stamp.
        """
        unread = self._unread(pod)
        if unread:
            return (list(UNREAD).index(unread),)  # differs from all other signatures, whose length is even
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except InvalidConstraint:
            return None
        if not constraints:
            return ()
        hard = self._hard_state(pod, constraints).constraints
        return tuple(stamp for it in hard for stamp in (self._counts.stamp(it.constraint.topology_key), it.stamp()))

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return self._counts_for(pod, other, DO_NOT_SCHEDULE)

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        return self._counts_for(pod, other, SCHEDULE_ANYWAY)

    def _counts_for(self, pod: Pod, other: Pod, when: str) -> bool:
        if pod.namespace != other.namespace:
            return False
        try:
            constraints = self._constraints(pod, when)
        except InvalidConstraint:
            return False
        return any(constraint.counted.matches(other.labels) for constraint in constraints)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        peers = [other for other in in_flight if other.namespace == pod.namespace and not other.terminating]
        statuses = (constraint.evaluate_certain(node, peers) for constraint in state.read(HARD).constraints)
        return next((status for status in statuses if not status.is_success), SUCCESS)

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        try:
            constraints = self._constraints(pod, SCHEDULE_ANYWAY)
        except InvalidConstraint as invalid:
            text = f"calculating preScoreState: obtaining pod's soft topology spread constraints: {invalid}"
            return error(text)
        if not constraints:
            return SKIP
        require_all = bool(pod.spec.spread) or not self._system_defaulted
        state.write(SOFT, soft_state(pod, constraints, nodes, self._counts, require_all=require_all))
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        return _soft(state).raw_scores(nodes.names)

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return normalized(scores)

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        try:
            hard, soft = (self._explained(pod, when) for when in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY))
        except InvalidConstraint as invalid:
            return Explanation(unblock=(f"the pod's constraints cannot be read: {invalid}",))
        unread = self._unread(pod)
        if unread:
            return Explanation(unblock=(f"{unread} is too long, so Homeport does not read it: make it shorter",))
        return explained(pod, self._hard_state(pod, hard), soft, self._counts)

    def _explained(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        """Return the hard or soft constraints (``when``) with notes for ``explain``. Raises ``InvalidConstraint``."""
        constraints = tuple(map(self._with_missing_domains, self._constraints(pod, when)))
        return constraints if self._softening is None else self._softening.noted(pod, constraints, when)

    def _with_missing_domains(self, constraint: Constraint) -> Constraint:
        key = constraint.topology_key
        missing = () if key == HOSTNAME else self._known_domains.missing(key, set(self._counts.values(key).values()))
        return constraint.with_note(f"without a node: {', '.join(missing)}") if missing else constraint

    def _plain_or_softened(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        """Like ``_plain_constraints``, but a hard constraint that ``Softening`` relaxes is soft."""
        every = pod.spec.spread or self._defaults
        softened = None if self._softening is None or pod.spec.oversized else self._softening.softened(pod, every)
        if softened is None:
            return self._plain_constraints(pod, when)
        if pod.spec.spread:
            return own_constraints(replace(pod, spec=replace(pod.spec, spread=softened)), when, self._missing)
        selector = self._selectors.of(pod)
        return () if selector == EVERYTHING else default_constraints(softened, pod, when, selector)

    def _plain_constraints(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        """Return the pod's own hard or soft constraints (``when``), or the default ones if the pod has no constraints.

        The result is empty if the pod has an oversized part that the constraints depend on. Then PreScore skips, and
        PreFilter rejects the pod unless only soft default constraints apply. Raises ``InvalidConstraint``.
        """
        if pod.spec.oversized and self._unread_part(pod, pod.spec.spread or self._defaults):
            return ()
        if pod.spec.spread:
            return self._own_constraints(pod, when)
        if not any(it.when_unsatisfiable == when for it in self._defaults):
            return ()
        selector = self._selectors.of(pod)
        return () if selector == EVERYTHING else default_constraints(self._defaults, pod, when, selector)

    def _own_constraints(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        """Return the pod's own hard or soft constraints (``when``), cached for all pods with equal labels and spec."""
        key = (pod.labels, pod.spec, when)
        constraints: tuple[Constraint, ...] = self._own.young.get(key, MISSING)
        if constraints is MISSING:
            constraints = self._own.get(key)
        if constraints is MISSING:
            constraints = own_constraints(pod, when, self._missing)
            self._own.put(key, constraints, _weight(pod, constraints))
        return constraints

    def _unread(self, pod: Pod) -> str:
        """Return the name of an oversized part that the pod's own constraints (hard or soft) depend on; else empty.

        For a pod without constraints of its own, the hard default constraints are decisive.
        """
        if not pod.spec.oversized:
            return ""
        hard_defaults = [it for it in self._defaults if it.when_unsatisfiable == DO_NOT_SCHEDULE]
        return self._unread_part(pod, pod.spec.spread or hard_defaults)

    def _unread_part(self, pod: Pod, constraints: Sequence[TopologySpreadConstraint]) -> str:
        reads_tolerations = self._always_reads_tolerations and constraints and TOLERATIONS in pod.spec.oversized
        return unread_part(pod, constraints) or (TOLERATIONS if reads_tolerations else "")


@final
class RankingPodTopologySpread(PodTopologySpread, ReservePlugin):
    """PodTopologySpread with the option ``scaleDown: Spread``: also sets the deletion costs of pods, see ``Ranks``."""

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._events = handle.event_recorder
        self._ranks = Ranks(handle.counts, handle.objects)
        self._serves = handle.profile.serves
        self.reranks = args.beyond is not None and args.beyond.rerank
        self._reported = Newest[str, None](_MOST_REPORTED)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Add the deletion cost to the Binding if the pod has a rank, and no valid cost yet. Report an invalid cost."""
        if pod.deletion_cost.value is not None:
            return SUCCESS
        rank = self._ranks.give(pod, node_name, self._every(pod))
        if rank is not None:
            state.annotations[DELETION_COST] = str(-rank)
        if pod.deletion_cost.invalid and pod.uid not in self._reported:
            self._reported.put(pod.uid, None)
            note = _INVALID_COST.format(DELETION_COST, shown(pod.deletion_cost.invalid))
            self._events.event(Reference.to_pod(pod), None, "Warning", "DeletionCostIgnored", "Binding", note)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Do nothing: a rank counts only while the pod is on the node, and the outcome of a Binding can be unknown."""

    def deletion_cost_on(self, pod: Pod, node_name: str) -> int | None:
        """Return the deletion cost that the pod would get on the node, for what-ifs; ``None`` if it would get none."""
        rank = None if pod.deletion_cost.value is not None else self._ranks.rank(pod, node_name, self._every(pod))
        return None if rank is None else -rank

    def misranked(self) -> Iterator[tuple[Pod, int] | None]:
        """Yield pods of the profile with their new deletion costs, and ``None`` after each ReplicaSet.

        At most one pod is yielded for each domain of a ReplicaSet.
        """
        for uid in self._ranks.replica_sets():
            pod = self._ranks.newest(uid)
            if pod is not None and self._serves(pod.spec.scheduler_name):
                for other, rank in self._ranks.misranked(uid, self._every(pod)):
                    yield other, -rank
            yield None

    def _every(self, pod: Pod) -> Sequence[TopologySpreadConstraint]:
        return pod.spec.spread or self._defaults

    def _explained(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        constraints = super()._explained(pod, when)
        if not is_ranked(pod):
            return constraints
        widest = self._ranks.widest_key(self._every(pod))
        return tuple(it.with_note(SCALE_DOWN) if it.topology_key == widest else it for it in constraints)


def _weight(pod: Pod, constraints: tuple[Constraint, ...]) -> int:
    """Return the estimated size in bytes of cached constraints, including the labels and spec in the cache key."""
    values = sum(1 + len(it.values) for constraint in constraints for it in constraint.selector.requirements)
    spec = pod.spec
    return _ENTRY_BYTES + _PART_BYTES * (values + len(pod.labels) + spec.affinity.size() + len(spec.tolerations))


def _soft(state: CycleState) -> SoftState:
    """Return the state that PreScore wrote. Raises ``StateNotFound`` with kube-scheduler's text."""
    try:
        return state.read(SOFT)
    except StateNotFound as missing:
        raise StateNotFound(f"error {missing}") from None


def _needs(args: PodTopologySpreadArgs) -> Needs:
    kinds = KINDS if args.constraints() else ()
    return Needs(kinds=kinds, parts=(Part.DELETION_COST,) if args.scales_down_spread else ())


def _variant(args: PodTopologySpreadArgs) -> type[PodTopologySpread]:
    return RankingPodTopologySpread if args.scales_down_spread else PodTopologySpread


SPEC: Final = PluginSpec(NAME, PodTopologySpreadArgs, PodTopologySpread, needs=_needs, variant=_variant)
