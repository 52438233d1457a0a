"""Restricts a pod to its owner's home, as the policy demands. The first bind of an owner's pod makes the home.

Besides taking decisions, the leader runs these loops:

    homes      write to each owner the time at which its home became unusable, and report changes
    pods       wake waiting pods once the verdict of filter might have changed, because kube-scheduler
               does not wake pods when time passes or a home is moved
    refusals   report why a usable home rejects the pod that waits for it
    reconcile  correct the recorded homes whenever an owner, a controller of pods or a Home changes
    repair     write homes that a bind or a crash left unwritten, then reconcile, every ``repairInterval``

The loops work in short steps. They compare all owners or all waiting pods at most once a second, mostly after changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Final, final

import structlog
from msgspec.structs import replace

from app.framework.background import run_together
from app.framework.cycle_state import CycleState, StateKey
from app.framework.explanation import Explanation, Figure
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import (
    MAX_NODE_SCORE,
    BackgroundPlugin,
    ClusterFilterPlugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.framework.spec import Needs, PluginSpec, Writes
from app.framework.status import SKIP, SUCCESS, Status, unresolvable
from app.homes.protocol import SHORTEST_GRACE, Home, HomesPlugin, Keeper, Policy
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, Kind
from plugins.sticky_node.annotations import (
    Claim,
    PendingHomes,
    home_pod,
    no_claim_annotations,
    pod_annotations,
    recorded_home,
)
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import HomeScan
from plugins.sticky_node.events import report_edits
from plugins.sticky_node.explaining import explain_home, explain_missing, explain_refused
from plugins.sticky_node.grace import GraceClocks, HomeAttempts
from plugins.sticky_node.home_state import KINDS, PARTS, HomeStates, node_annotations
from plugins.sticky_node.owners import HOMES, Missing, Owner, Owners, keepers_of, kinds_of
from plugins.sticky_node.pods import ActivePods, is_target
from plugins.sticky_node.policy import Action, Decider, Decision, Policies, Reason, is_held, kinds_of_policies
from plugins.sticky_node.reconciler import Reconciler
from plugins.sticky_node.recorder import Recorder
from plugins.sticky_node.reports import Listing, NodeStateMetrics, PodStateMetrics
from plugins.sticky_node.unusable_homes import UnusableHomes
from plugins.sticky_node.waiting_pods import PodWaker

_LOG: Final = structlog.get_logger(__name__)
NAME: Final = "StickyNode"
REASON_NOT_HOME: Final = Reason.NOT_HOME.value
REASON_AWAY: Final = Reason.AWAY.value
REASON_GONE: Final = Reason.GONE.value
REASON_GRACE: Final = Reason.GRACE.value
REASON_OWNER_UNKNOWN: Final = "node(s) can't be judged before the pod's owner is known"
REFUSALS: Final = {it: unresolvable(it.value).by(NAME) for it in Reason}
NOT_HOME: Final = REFUSALS[Reason.NOT_HOME]
OWNER_UNKNOWN: Final = unresolvable(REASON_OWNER_UNKNOWN).by(NAME)

_AT_ONCE_SECONDS: Final = 2.0
"""If ``run`` restarts within this time after a fault, the grace periods in memory stay valid. A Lease usually lasts
longer, so no other process was leader in between.
"""


_DECIDED: Final[StateKey[Decision]] = StateKey("PreFilterStickyNode")
_TRIED: Final[StateKey[Decision]] = StateKey("PreScoreStickyNode")


@final
class StickyNode(
    PreFilterPlugin,
    ClusterFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    PostBindPlugin,
    BackgroundPlugin,
    HomesPlugin,
):
    """Plugin that keeps homes. A home is recorded on its owner, or pending until it is recorded. A pending home applies
    from Reserve on, and is dropped if the bind fails.
    """

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        if args.policy is Policy.GRACE and args.grace_period < SHORTEST_GRACE:
            _LOG.warning("grace period too short", seconds=args.grace_period, least=SHORTEST_GRACE)
        self._failback = args.failback
        self._handle = handle
        self._owners = Owners(args.owners, handle.objects)
        self._active = ActivePods(handle.objects)
        self._pending = PendingHomes()
        self._recorder = Recorder(self._owners, self._active, self._pending, handle)
        scan = HomeScan(self._owners, handle.objects)
        self._pod_state_metrics = PodStateMetrics(scan, handle.objects, self._pending)
        self._home_states = HomeStates(args, handle)
        self._policies = Policies(args, handle.objects)
        self._node_state_metrics = NodeStateMetrics(scan, self._home_states, self._policies)
        self._clocks = clocks = GraceClocks(self._home_states, self._owners, handle)
        self._failed_at = -inf
        self._decider = Decider(args, self._policies, self._home_states, clocks, handle.timing.wall_clock)
        self._listing = Listing(scan, self._policies, self._home_states, clocks, self._decider, handle)
        self._keepers = tuple(
            Keeper(it.api_version, it.kind, self._owners.is_per_ordinal(it)) for it in self._owners.keepers()
        )
        self._attempts = HomeAttempts(handle.timing.clock, handle.timing.wall_clock)
        self._reconciler = Reconciler(
            args, self._owners, self._active, self._pending, self._recorder, handle, is_off=self._policies.is_off
        )
        kinds = _kinds(args)
        self._unusable_homes = UnusableHomes(self._owners, self._home_states, self._policies, clocks, handle, kinds)
        self._waiting_pods = PodWaker(self._owners, handle, self._verdict, self._ends_at, self._decision, kinds, clocks)

    def required_objects(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
        """Return the object to read before a decision: one of the owner chain that the watch has not delivered yet, or
        a missing home node. Empty if none is missing.
        """
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return ((owner.kind, owner.namespace, owner.name),)
        home = "" if owner is None else recorded_home(owner)
        return ((NODES, "", home),) if home and self._handle.objects.misses_node(home) else ()

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            self._note_answer(pod, str(owner))
            return OWNER_UNKNOWN, None
        if owner is None:
            return SKIP, None
        decision = self._decision(owner, pod)
        if decision.action is Action.ALL:
            return SKIP, None
        self._note_answer(pod, self._basis(pod, decision))
        state.write(_DECIDED, decision)
        return SUCCESS, None

    def _note_answer(self, pod: Pod, verdict: Hashable) -> None:
        if not self._handle.is_asked():
            self._waiting_pods.answered(pod, verdict)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        decision = state.read(_DECIDED)
        return SUCCESS if self._admits(decision, pod, node) else REFUSALS[decision.reason]

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        decision = state.read(_DECIDED)
        home, refusal = decision.home, REFUSALS[decision.reason]
        if decision.action is Action.TRY_HOME:
            return FilterResult(nodes.names, {})
        if decision.action is Action.HOME and home in nodes.names:
            return FilterResult((home,), lambda: dict.fromkeys((it for it in nodes.names if it != home), refusal))
        if decision.action in (Action.HOME, Action.WAIT):
            return FilterResult((), lambda: dict.fromkeys(nodes.names, refusal))
        passed = [it.name for it in nodes if self._admits(decision, pod, it)]
        return FilterResult(passed, lambda: dict.fromkeys({*nodes.names}.difference(passed), refusal))

    def _admits(self, decision: Decision, pod: Pod, node: NodeInfo) -> bool:
        match decision.action:
            case Action.HOME:
                return node.name == decision.home
            case Action.NOT_HOME:
                return node.name != decision.home
            case Action.VOLUME:
                return self._home_states.reaches_volumes(pod, node.node)
            case Action.WAIT:
                return False
            case _:
                return True

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        """If the pod has a soft home that passed all filters, allow only this node, unless a bind to it has failed.

        If the scheduler's request has only a sample of the nodes, without the home, reject the pod while the attempt to
        nominate it is running. Otherwise all nodes of ``passed`` stay allowed.
        """
        decision = state.read(_DECIDED)
        home = decision.home
        if decision.action is not Action.TRY_HOME or self._attempts.has_failed(pod.uid, home):
            return FilterResult(passed, {})
        if home in passed:
            return FilterResult((home,), lambda: dict.fromkeys((it for it in passed if it != home), NOT_HOME))
        if home in nodes.names or not self._handle.profile.is_sample(len(nodes.names)) or self._is_tried(pod, home):
            return FilterResult(passed, {})
        return FilterResult((), lambda: dict.fromkeys(passed, NOT_HOME))

    def _is_tried(self, pod: Pod, home: str) -> bool:
        """Return true if the attempt to nominate the pod to its home has ended; if there was none, begin it.

        A read-only query gets true and begins none. Call this only if the request lacks the home. If a nominated pod is
        offered other nodes, an in-tree filter rejected the home, or preemption freed another node.
        """
        if self._handle.is_asked() or self._attempts.is_over(pod.uid, home):
            return True
        if pod.nominated_node_name:
            self._attempts.end(pod.uid, home)
            return True
        return not self._attempts.begin(pod.uid, home)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Apply the filter. Its verdict also holds if the bind of a pending home fails: the bind of ``pod`` then makes
        the same node the home.
        """
        return self.filter(state, pod, node)

    def signature(self, pod: Pod) -> Hashable | None:
        """Return the values that determine the verdicts; ``None`` if verdicts must not be shared between pods.

        They must not be shared while the owner is missing, because each call must look it up again, nor if they depend
        on volumes.
        """
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return None
        if owner is None:
            return ""
        decision = self._decision(owner, pod)
        if decision.action is Action.VOLUME:
            return None
        if decision.action is not Action.TRY_HOME:
            return decision.verdict
        return (self._basis(pod, decision), bool(pod.nominated_node_name))

    def _verdict(self, pod: Pod) -> Hashable:
        """Return what filter's answer for the pod depends on, apart from the nodes. Raises ``Unreadable``."""
        owner = self._owners.of(pod)
        return self._basis(pod, self._decision(owner, pod)) if isinstance(owner, Owner) else str(owner)

    def _basis(self, pod: Pod, decision: Decision) -> Hashable:
        """Return the decision's verdict, and true if the attempt to nominate the pod to its soft home is over."""
        is_tried = decision.action is Action.TRY_HOME and self._attempts.is_over(pod.uid, decision.home)
        return (decision.verdict, is_tried)

    def _ends_at(self, pod: Pod) -> float | None:
        """Return the time, in seconds since 1970, at which filter's answer can change without any other event; ``None``
        if there is no such time. It can be past. Raises ``Unreadable``.
        """
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner):
            return None
        decision = self._decision(owner, pod)
        tried = self._attempts.ends_at(pod.uid, decision.home)
        ends = [it for it in (tried, None if decision.over else decision.ends_at) if it is not None]
        return min(ends, default=None)

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Prepare the score for callers that did not filter: a soft home scores best, unless a bind to it failed."""
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner):
            return SKIP
        decision = self._decision(owner, pod)
        home = decision.home
        if (
            decision.action is not Action.TRY_HOME
            or home not in nodes.name_set
            or self._attempts.has_failed(pod.uid, home)
        ):
            return SKIP
        state.write(_TRIED, decision)
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        home = state.read(_TRIED).home
        best = {home: MAX_NODE_SCORE} if home in nodes.name_set else {}
        return ScoreClasses(SparseClasses(nodes.names, 0, best), {0: 0, MAX_NODE_SCORE: MAX_NODE_SCORE})

    def _decision(self, owner: Owner, pod: Pod) -> Decision:
        return self._decider.of(owner, pod, self._home(owner, pod))

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """Return true if both pods have the same owner, because the first bind makes the home for both.

        The other pod's owner is looked up last, because it can belong to another tenant and be unreadable.
        """
        if pod.namespace != other.namespace or not self._owners.may_be_shared(pod, other):
            return False
        mine, theirs = self._owners.of(pod), self._owners.of(other)
        return isinstance(mine, Owner) and isinstance(theirs, Owner) and mine.key == theirs.key

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        owner = self._owners.of(pod)
        if isinstance(owner, Missing):
            return OWNER_UNKNOWN
        if owner is None:
            return SUCCESS
        recorded = recorded_home(owner)
        decision = self._decider.of(owner, pod, recorded)
        if decision.makes_home(node_name, failback=self._failback):
            decides = self._active.decides(pod, node_name, owner.controller)
            self._pending.begin(Claim(pod, node_name, owner, home_pod(owner), decides, replaces=recorded))
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._pending.drop(pod)
        owner = self._owners.of(pod)
        if isinstance(owner, Owner) and recorded_home(owner) == node_name:
            self._attempts.fail(pod.uid, node_name)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Add the pod's claim, if any, to the Binding. A pod that follows a pending home also carries a claim, because
        the bind that makes this home can fail.

        The target pod of a migration carries the virtual machine's open claim, because the pod that made the claim will
        be deleted.
        """
        claim = self._pending.of(pod)
        if claim is not None and not self._is_current(claim):
            self._pending.drop(pod)
            claim = None
        if is_target(pod) and isinstance(owner := self._owners.of(pod), Owner):
            claim = self._recorder.open_claim(owner)
        state.annotations.update(
            no_claim_annotations(pod.annotations) if claim is None else pod_annotations(claim, pod.annotations)
        )
        return SUCCESS

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        claim = self._pending.of(pod)
        if claim is not None:
            self._pending.pod_bound(claim)
            await self._recorder.record(claim)

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        owner = self._owners.of(pod)
        if owner is None:
            return Explanation()
        if isinstance(owner, Missing):
            return explain_missing(owner)
        claim = None if recorded_home(owner) else self._pending.holds(owner, pod) or self._pending.of(pod)
        made = claim is not None and self._pending.is_made(claim.pod)
        decision = self._decision(owner, pod)
        explanation = explain_home(owner, decision, nodes, claim=claim, made=made, cause=self._recorder.cause(owner))
        return (
            replace(explanation, later=partial(self._refused, pod))
            if self._may_be_refused(pod, decision)
            else explanation
        )

    def _may_be_refused(self, pod: Pod, decision: Decision) -> bool:
        return not pod.node_name and is_held(decision)

    async def _refused(self, pod: Pod, feasible: Collection[str]) -> Explanation:
        """Explain why a usable home rejects the waiting pod, and what would help."""
        owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or not self._may_be_refused(pod, decision := self._decision(owner, pod)):
            return Explanation()
        verdict = await self._handle.profile.why(pod, decision.home) if decision.home in feasible else None
        return explain_refused(owner, decision, verdict, tried=bool(pod.unschedulable_since))

    def object_changed(self, kind: Kind[Any], old: Any, new: Any) -> None:
        if old is not None:
            report_edits(kind, old, new, self._handle.event_recorder)

    def figures(self) -> Iterator[Figure | None]:
        yield from self._pod_state_metrics.figures()
        yield from self._node_state_metrics.figures()

    async def run(self) -> None:
        """Run all background loops until cancelled.

        Clears the grace periods in memory, except on a restart right after a fault: no other process was leader
        meanwhile.
        """
        if self._handle.timing.clock() > self._failed_at + _AT_ONCE_SECONDS:
            self._clocks.begin()
        try:
            await run_together(self._watch, self._reconciler.run, self._repair_each_interval)
        except Exception:
            self._failed_at = self._handle.timing.clock()
            raise

    async def _watch(self) -> None:
        """Report unusable homes and wake pods until cancelled. Writes run concurrently, so they do not delay pods."""
        self._unusable_homes.begin()
        await self._waiting_pods.begin()
        await run_together(self._waiting_pods.run, self._unusable_homes.run, self._waiting_pods.refused.run)

    def homes(self) -> Iterator[Home | None]:
        return self._listing.homes()

    def home_of(self, pod: Pod) -> Home | None:
        owner = self._owners.of(pod)
        return self._listing.home_of(owner, pod) if isinstance(owner, Owner) else None

    def keepers(self) -> Iterable[Keeper]:
        return self._keepers

    def share_memory(self, deciding: HomesPlugin) -> None:
        if isinstance(deciding, StickyNode):
            self._share(deciding)

    def _share(self, deciding: StickyNode) -> None:
        self._pending.share(deciding._pending)
        self._clocks.share(deciding._clocks)
        self._attempts.share(deciding._attempts)

    async def _repair_each_interval(self) -> None:
        """Repair at once and then every interval, until cancelled."""
        while True:
            await self._repair()
            await self._handle.timing.sleep(self._handle.timing.repair_interval)

    async def _repair(self) -> None:
        """Write homes that were made but not recorded; then run one reconcile round."""
        await self._recorder.record_open()
        await self._reconciler.round()

    def _home(self, owner: Owner, pod: Pod) -> str:
        """Return the pending home that the pod has to follow, else the recorded home; empty if there is none."""
        claim = self._pending.holds(owner, pod)
        return recorded_home(owner) if claim is None else claim.node

    def _is_current(self, claim: Claim) -> bool:
        """Return false if the recorded home or pod has changed since the claim was created, so it makes no home."""
        owner = self._owners.newest(claim.owner)
        return owner is None or claim.makes(owner)


def _kinds(args: StickyNodeArgs) -> tuple[Kind[Any], ...]:
    if not args.owners:
        return ()
    return tuple(dict.fromkeys((*kinds_of(args.owners), *KINDS, *kinds_of_policies(args))))


def _writes(args: StickyNodeArgs) -> tuple[Writes, ...]:
    homes = tuple(Writes(kind, "the home of their pods") for kind in keepers_of(args.owners))
    if not any(it.by_name for it in args.owners):
        return homes
    return (*homes, Writes(HOMES, "remembered homes", whole=True))


def _needs(args: StickyNodeArgs) -> Needs:
    return Needs(
        kinds=_kinds(args),
        writes=_writes(args),
        parts=() if args.claims is None else (Part.VOLUMES,),
        node_annotations=node_annotations(args),
    )


SPEC: Final = PluginSpec(
    NAME,
    StickyNodeArgs,
    StickyNode,
    parts=PARTS,
    needs=_needs,
)
