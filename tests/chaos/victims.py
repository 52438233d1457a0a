"""Judges preemptions for topology spread. As ``checker``, it imports nothing of the product.

Its input is the history, and the Evictions that the product sent, from the API server's audit log. A victim is a pod
that became terminating when the API server answered an Eviction of the product for it. Its preemptor is the pod that
was nominated to its node last: the product nominates a pod before it evicts for it, and evicts for one pod at a time.

Some victims are lost for a reason that the product's documentation names: its process was killed, another pod took the
place, a later Eviction was refused, or the preemptor was deleted. These are counted apart, by reason. The other pod has
a higher priority, or an owner created it on its node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from math import inf
from typing import Final, TypeAlias

from tests.chaos.checker import FINISHED, Event, Json, Violation, fits, hard_constraints, ordered

PREEMPTING: Final = "homeport.dev/preempting"
NEVER_EVICT: Final = "homeport.dev/never-evict"
BOUND_SECONDS: Final = 30.0
"""Maximum time from the last Eviction of a plan to the bind of its pod."""

_UNSURE_SECONDS: Final = 1.0
"""Difference between the time of the audit log and the time at which the observer received an event."""

PLAN_SECONDS: Final = 10.0
"""Maximum duration of a plan, by the documentation."""

_ATTEMPTS: Final = 3
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ERRORS: Final = range(400, 500)

Reasons: TypeAlias = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Sent:
    """Eviction that the product sent, without dry runs. ``at``: time of the answer, monotonic seconds."""

    pod: str
    status: int
    at: float


@dataclass(frozen=True, slots=True)
class Victim:
    """Pod that became terminating by an Eviction, at this revision and time."""

    pod: Json
    revision: int
    at: float

    @property
    def name(self) -> str:
        return name_of(self.pod)


@dataclass(frozen=True, slots=True)
class Plan:
    """Evictions for one pod on one node, without Evictions for it on another node between them."""

    preemptor: str
    node: str
    victims: tuple[Victim, ...]

    def __str__(self) -> str:
        return f"{self.preemptor} on {self.node}: {', '.join(it.name for it in self.victims)}"


@dataclass(slots=True)
class Preemptor:
    """Pod that was nominated. Times and revisions are infinite for what did not happen."""

    pod: Json
    nominations: list[tuple[int, float, str]] = field(default_factory=list)
    node: str = ""
    bound: tuple[float, float] = (inf, inf)
    gone: float = inf
    victims: list[Victim] = field(default_factory=list)

    def is_nominated_for(self, victim: Json) -> bool:
        """Return true if its last nomination was to the victim's node, and one of its constraints counts the victim."""
        return self.nominations[-1][2] == node_of(victim) and _concerns(self.pod, victim)


@dataclass(slots=True)
class VictimJudgement:
    """``second``: second plans. ``alone``: victims without a bound preemptor. The same with ``_by``: counted apart."""

    evicted: int = 0
    preemptors: int = 0
    largest_plan: int = 0
    overrun: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)
    without_preemptor: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    second_by: Reasons = field(default_factory=lambda: defaultdict(list))
    alone: list[str] = field(default_factory=list)
    alone_by: Reasons = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)


class _Replay:
    """Pods, nominations, evictions and binds, in the order of acceptance."""

    def __init__(self, sent: Sequence[Sent], judgement: VictimJudgement) -> None:
        self._answered: defaultdict[str, list[float]] = defaultdict(list)
        for it in sent:
            if it.status not in _ERRORS:
                self._answered[it.pod].append(it.at)
        self._judgement = judgement
        self._pods: dict[str, Json] = {}
        self._budgets: dict[str, Json] = {}
        self.nodes: dict[str, Json] = {}
        self.node_of: dict[str, str] = {}
        self.preemptors: dict[str, Preemptor] = {}
        self.binds: list[tuple[int, float, Json]] = []
        self.created: list[tuple[float, Json]] = []

    def apply(self, event: Event) -> None:
        if event.kind == "PodDisruptionBudget":
            self._budgets[event.uid] = event.found
        elif event.kind == "Node":
            self.nodes[event.found["metadata"]["name"]] = event.found
        elif event.kind == "Pod":
            self._apply_pod(event)

    def _apply_pod(self, event: Event) -> None:
        before, pod = self._pods.get(event.uid), event.found
        self._pods[event.uid] = pod
        self.node_of[name_of(pod)] = node_of(pod)
        if event.change == "DELETED":
            del self._pods[event.uid]
        if event.change == "ADDED" and node_of(pod):
            self.created.append((event.received, pod))
        nominee = _annotations(pod).get(PREEMPTING)
        if nominee and (before is None or nominee != _annotations(before).get(PREEMPTING)):
            preemptor = self.preemptors.setdefault(event.uid, Preemptor(pod))
            preemptor.nominations.append((event.revision, event.received, nominee))
        if before is not None and not node_of(before) and node_of(pod):
            self.binds.append((event.revision, event.received, pod))
            if event.uid in self.preemptors:
                self.preemptors[event.uid].node = node_of(pod)
                self.preemptors[event.uid].bound = (event.revision, event.received)
        if before is not None and not _ends(before) and (_ends(pod) or event.change == "DELETED"):
            if event.uid in self.preemptors:
                self.preemptors[event.uid].gone = event.received
            answers = self._answered.get(name_of(pod), ())
            if node_of(before) and any(abs(at - event.received) <= _UNSURE_SECONDS for at in answers):
                self._evict(Victim(before, event.revision, event.received))

    def _evict(self, victim: Victim) -> None:
        self._judgement.evicted += 1
        guards = [it for it in self._budgets.values() if _selects(it["spec"]["selector"], victim.pod)]
        for budget in guards if is_healthy(victim.pod) else ():
            left = healthy(budget, self._pods.values())
            if left < int(budget["spec"]["minAvailable"]):
                self._judgement.overrun.append(f"{victim.name}: {left} healthy pods left for {name_of(budget)}")
        nominated = [it for it in self.preemptors.values() if it.is_nominated_for(victim.pod)]
        if not nominated:
            self._judgement.without_preemptor.append(victim.name)
            return
        preemptor = max(nominated, key=lambda it: it.nominations[-1][0])
        preemptor.victims.append(victim)
        if NEVER_EVICT in _annotations(victim.pod) or priority(victim.pod) >= priority(preemptor.pod):
            self._judgement.protected.append(f"{victim.name} for {name_of(preemptor.pod)}")


def judge_victims(history: Iterable[Event], sent: Sequence[Sent], kills: Sequence[float]) -> VictimJudgement:
    """Judge every eviction. ``kills``: times at which the product's process was killed, monotonic seconds."""
    judgement = VictimJudgement()
    replay = _Replay(sent, judgement)
    for event in ordered(history):
        replay.apply(event)
    for preemptor in replay.preemptors.values():
        plans = [
            Plan(name_of(preemptor.pod), node, tuple(victims))
            for node, victims in groupby(preemptor.victims, key=lambda it: node_of(it.pod))
        ]
        if plans:
            judgement.preemptors += 1
            judgement.largest_plan = max(judgement.largest_plan, *(len(it.victims) for it in plans))
            _judge_plans(_Reasons(replay, preemptor, sent, kills), plans, judgement)
    return judgement


def _judge_plans(reasons: _Reasons, plans: Sequence[Plan], judgement: VictimJudgement) -> None:
    preemptor = reasons.preemptor
    for plan, following in pairwise(plans):
        reason = reasons.of(plan, following.victims[0].at)
        (judgement.second_by[reason] if reason else judgement.second).append(f"{plan}; then {following}")
    for victim in preemptor.victims:
        if victim.revision > preemptor.bound[0]:
            judgement.second.append(f"{name_of(preemptor.pod)}: {victim.name} after the bind to {preemptor.node}")
    for plan in plans:
        last = plan.victims[-1].at
        waited = preemptor.bound[1] - last
        if waited <= BOUND_SECONDS and preemptor.node == plan.node:
            judgement.seconds.append(max(0.0, waited))
            continue
        until = min(last + BOUND_SECONDS, preemptor.bound[1])
        reason = reasons.of(plan, until)
        if waited <= BOUND_SECONDS:
            reason = reasons.of_other_node(plan.node)
        names = [f"{it.name} for {plan.preemptor} on {plan.node}" for it in plan.victims]
        (judgement.alone_by[reason] if reason else judgement.alone).extend(names)


@dataclass(frozen=True, slots=True)
class _Reasons:
    """Reasons for which a plan of one pod ends without its bind."""

    replay: _Replay
    preemptor: Preemptor
    sent: Sequence[Sent]
    kills: Sequence[float]

    def of(self, plan: Plan, until: float) -> str:
        """Return the reason from the nomination to ``until``, or an empty string."""
        first = plan.victims[0]
        begins = max(at for revision, at, _ in self.preemptor.nominations if revision < first.revision)
        if self.preemptor.gone <= until + _UNSURE_SECONDS:
            return "the preemptor was deleted"
        higher = [(at, it) for _, at, it in self.replay.binds if priority(it) > priority(self.preemptor.pod)]
        if self._is_overtaken(plan.node, begins, until, higher):
            return "a higher pod took the place"
        if self._is_overtaken(plan.node, begins, until, self.replay.created):
            return "a pod that was created on its node took the place"
        if self._is_refused(plan, begins, until):
            return "a later eviction was refused"
        is_killed = any(begins <= at <= min(until, begins + PLAN_SECONDS) for at in self.kills)
        return "Homeport was killed" if is_killed else ""

    def of_other_node(self, node: str) -> str:
        """Return the reason for a plan on this node whose pod was bound to another node."""
        domains = [_labels(self.replay.nodes[it]) for it in (node, self.preemptor.node)]
        keys = {it["topologyKey"] for it in hard_constraints(self.preemptor.pod)}
        is_same = any(domains[0].get(key) == domains[1].get(key) for key in keys)
        return f"its pod was bound to another node of {'the' if is_same else 'another'} domain"

    def _is_overtaken(self, node: str, begins: float, until: float, others: Iterable[tuple[float, Json]]) -> bool:
        """Return true if one of these pods came into the domain. Each has the time from which it had a node."""
        pod, nodes = self.preemptor.pod, self.replay.nodes
        keys = {it["topologyKey"] for it in hard_constraints(pod)}
        places = [
            _labels(nodes[node_of(other)]) for at, other in others if begins <= at <= until and _concerns(pod, other)
        ]
        return any(place.get(key) == _labels(nodes[node]).get(key) for place in places for key in keys)

    def _is_refused(self, plan: Plan, begins: float, until: float) -> bool:
        """Return true if a pod of the node was not evicted. A conflict is retried twice."""
        statuses: defaultdict[str, list[int]] = defaultdict(list)
        for it in self.sent:
            if begins <= it.at <= until + _UNSURE_SECONDS and self.replay.node_of.get(it.pod) == plan.node:
                statuses[it.pod].append(it.status)
        final = (it[-1] for it in statuses.values() if it[-1] != _CONFLICT or len(it) >= _ATTEMPTS)
        return any(it in _ERRORS and it != _NOT_FOUND for it in final)


def not_of_owners(history: Iterable[Event], violations: Iterable[Violation]) -> tuple[list[Violation], list[Violation]]:
    """Split violations. In the second list, a pod that an owner created on its node came just before the bind.

    Such a pod can come while a bind is in flight, and nothing can prevent it.
    """
    events = ordered(history)
    nodes = {it.found["metadata"]["name"]: it.found for it in events if it.kind == "Node"}
    pods = [it for it in events if it.kind == "Pod"]
    binds = {it.revision: it for it in pods}
    created = [it for it in pods if it.change == "ADDED" and node_of(it.found)]
    lists: tuple[list[Violation], list[Violation]] = [], []
    for violation in violations:
        bind = binds[violation.revision]
        places = [
            _labels(nodes[node_of(it.found)])
            for it in created
            if it.revision < bind.revision
            and bind.received - it.received <= _UNSURE_SECONDS
            and _concerns(bind.found, it.found)
        ]
        keys = {it["topologyKey"] for it in hard_constraints(bind.found)}
        here = _labels(nodes[node_of(bind.found)])
        lists[any(place.get(key) == here.get(key) for place in places for key in keys)].append(violation)
    return lists


def let_in(present: Sequence[Event]) -> list[str]:
    """Return the waiting pods that fit on a node, or would after evictions that all rules allow, with the node."""
    pods = [it.found for it in present if it.kind == "Pod"]
    nodes = {it.found["metadata"]["name"]: it.found for it in present if it.kind == "Node"}
    budgets = [it.found for it in present if it.kind == "PodDisruptionBudget"]
    placed = [it for it in pods if node_of(it)]
    found = []
    for pod in pods:
        if node_of(pod) or _ends(pod):
            continue
        for name, node in nodes.items():
            if fits(pod, node, nodes, placed):
                found.append(f"{name_of(pod)} fits on {name}")
                break
            victims = {it["metadata"]["uid"] for it in _evictable(pod, name, placed, budgets)}
            if victims and fits(pod, node, nodes, [it for it in placed if it["metadata"]["uid"] not in victims]):
                found.append(f"{name_of(pod)} fits on {name} after evictions")
                break
    return found


def _evictable(pod: Json, node: str, placed: Iterable[Json], budgets: Sequence[Json]) -> Iterator[Json]:
    """Yield pods of the node that can be evicted together for this one."""
    placed = list(placed)
    taken: Counter[str] = Counter()
    for other in placed:
        if node_of(other) != node or _ends(other) or priority(other) >= priority(pod):
            continue
        if NEVER_EVICT in _annotations(other) or not _concerns(pod, other):
            continue
        guards = [it for it in budgets if _selects(it["spec"]["selector"], other)]
        taken.update(name_of(it) for it in guards)
        if all(healthy(it, placed) - taken[name_of(it)] >= int(it["spec"]["minAvailable"]) for it in guards):
            yield other


def healthy(budget: Json, pods: Iterable[Json]) -> int:
    """Return the number of healthy pods that a budget selects."""
    return sum(is_healthy(it) and _selects(budget["spec"]["selector"], it) for it in pods)


def is_healthy(pod: Json) -> bool:
    """Return true if the pod runs and does not terminate. In this scenario, each running pod is ready."""
    return pod["status"].get("phase") == "Running" and not _ends(pod)


def _concerns(pod: Json, other: Json) -> bool:
    """Return true if one of the pod's hard constraints counts the other pod."""
    return any(_selects(it["labelSelector"], other) for it in hard_constraints(pod))


def _selects(selector: Json, pod: Json) -> bool:
    return bool(selector["matchLabels"].items() <= _labels(pod).items())


def _ends(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in FINISHED


def priority(pod: Json) -> int:
    return int(pod["spec"].get("priority") or 0)


def name_of(found: Json) -> str:
    return str(found["metadata"]["name"])


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _labels(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def _annotations(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}
