"""Finds why topology spread constraints keep a pod waiting, for the Event on the pod.

The numbers of pods are those that the decisions use. In the domains that the constraints allow, the filters of explain
give the reasons why no node fits the pod. Only nodes in these domains are judged. With the option ``fallback``, nodes
outside of them are judged too, to find the constraints that alone keep the pod waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nlargest, nsmallest
from typing import Final

from msgspec import Struct

from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.judging import RUN_SECONDS, Judge, Judgement
from app.framework.explanation import DomainLimit
from app.framework.node_info import Candidates
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.names import shown
from app.memory.fallbacks import FallbackTable, assumed_relaxed
from app.runtime.framework import Framework
from app.runtime.read_only import read_only
from app.verbs.context import VerbContext, require_snapshot
from app.verbs.stepwise import decide_prepared, run_stepwise

SPREAD: Final = "PodTopologySpread"
"""Plugin whose constraints are described."""

MOST_LIMITS: Final = 3
"""Maximum number of constraints in a note."""

MOST_DOMAINS: Final = 6
"""Maximum number of domains of a constraint whose pods a note counts: those with the fewest pods."""

MOST_REASONS: Final = 3
"""Maximum number of reasons, and of domains for each, that a note gives for a constraint."""

LONGEST_REASON: Final = 100
"""Maximum characters of a reason that a note gives in full. A longer reason is cut."""

LONGEST_NOTE: Final = 900
"""Maximum length of a note in characters. The note of an Event can have 1,024 bytes."""

_STEP: Final = 1024
_SELECTION: Final = frozenset({"NodeAffinity", "NodeName"})
"""Plugins that reject a node because of the pod's node selector, node affinity or ``nodeName``."""

_WELL_KNOWN: Final = ("topology.kubernetes.io/", "kubernetes.io/")
"""Prefixes that a note omits from label keys."""


class SpreadBlock(Struct, frozen=True):
    """Cause that keeps a pod waiting. ``note``: text of the Event, with numbers.

    ``verdict``: constraints and reasons, without numbers of pods and nodes. While it is equal, no further Event is
    written. ``alone``: topology key of each constraint without which a node would fit while all others stay hard. It is
    computed only if the profile has the option ``fallback``, and is empty if a filter gave no verdict.
    """

    verdict: Hashable
    note: str
    alone: frozenset[str] = frozenset()


class MainReasonInDomain(Struct, frozen=True):
    """Most frequent reason in a domain without a feasible node. It rejects ``count`` of ``total`` nodes there.

    ``total`` leaves out nodes that the pod itself excludes, unless it excludes all nodes of the domain.
    """

    reason: str
    count: int
    total: int

    def __str__(self) -> str:
        text = self.reason
        if not text.isprintable() or len(text) > LONGEST_REASON:
            text = shown(text)
        return text if self.count == self.total else f"{text} ({self.count} of {self.total} nodes)"


_Rejections = tuple[Status, ...]
Reasons = Mapping[str, MainReasonInDomain]
"""Main reason by domain, for the domains of one constraint."""


class SpreadBlocks:
    """Describes why constraints keep pods waiting. ``context``: that of the verbs. ``snapshot``: that of explain.

    ``fallbacks``: says which profiles have the option ``fallback``.
    """

    def __init__(self, context: VerbContext, snapshot: ExplainSnapshot, fallbacks: FallbackTable) -> None:
        self._context = context
        self._snapshot = snapshot
        self._fallbacks = fallbacks

    async def of(self, pod: Pod) -> SpreadBlock | None:
        """Return why the pod waits; ``None`` if a node fits, or if each hard constraint has domains, but no full one.

        Also return ``None`` if the profile lacks PodTopologySpread. If a filter gives no verdict, no node is considered
        to fit. Raises ``VerbFailure`` and ``PluginError``.
        """
        require_snapshot(self._context.problem)
        require_snapshot(self._snapshot.problem)
        framework = self._context.require_framework(pod)
        if SPREAD not in framework.plugins:
            return None
        with read_only(), assumed_relaxed():
            limits = await decide_prepared(partial(self._limits, framework, pod))
            blocking = [it for it in limits if it.full or not it.pods]
            if not blocking:
                return None
            return await self._described(framework, pod, limits, blocking)

    def _limits(self, framework: Framework, pod: Pod) -> Sequence[DomainLimit]:
        """Return the pods per domain of each hard constraint, as the decisions count them."""
        cluster = self._context.cluster
        with cluster.without(pod.uid, pod.key):
            limits = framework.explain_with(SPREAD, pod, Candidates.of(cluster.nodes)).limits
            return [it for it in limits if it.is_hard]

    async def _described(
        self, framework: Framework, pod: Pod, limits: Sequence[DomainLimit], blocking: Sequence[DomainLimit]
    ) -> SpreadBlock | None:
        values = [self._context.cluster.counts.values(it.key) for it in limits]
        open_nodes: list[str] = []
        await run_stepwise(_open_nodes(limits, values, open_nodes))
        judgement, unknown = await self._judged(framework, pod, open_nodes)
        if judgement.feasible and not unknown:
            return None
        reasons: list[Reasons] = []
        await run_stepwise(_reasons(blocking, limits, values, judgement, reasons))
        verdict = tuple(
            (limit.key, limit.terms, frozenset(it.reason for it in by_domain.values()))
            for limit, by_domain in zip(blocking, reasons, strict=True)
        )
        alone = await self._alone(framework, pod, blocking, dict(zip((it.key for it in limits), values, strict=True)))
        return SpreadBlock(verdict, note_of(blocking, reasons), alone)

    async def _alone(
        self,
        framework: Framework,
        pod: Pod,
        blocking: Sequence[DomainLimit],
        values: Mapping[str, Mapping[str, str]],
    ) -> frozenset[str]:
        """Return the topology key of each constraint without which a node fits the pod while all others stay hard.

        Empty if the profile does not have the option ``fallback``, or if a verdict is missing. ``values``: domain of
        each node, by topology key.
        """
        alone: set[str] = set()
        for limit in blocking if self._fallbacks.after(framework.scheduler_name) is not None else ():
            domain_of = values[limit.key]
            names = [it for it in self._context.cluster.nodes if it not in domain_of or domain_of[it] in limit.full]
            with assumed_relaxed((limit.key,)):
                judgement, unknown = await self._judged(framework, pod, names)
            if unknown:
                return frozenset()
            if judgement.feasible:
                alone.add(limit.key)
        return frozenset(alone)

    async def _judged(self, framework: Framework, pod: Pod, names: Sequence[str]) -> tuple[Judgement, bool]:
        """Judge the nodes ``names`` with the filters of explain. Return the judgement, and whether it is incomplete.

        It is incomplete if a filter gave no verdict, if the snapshot of explain lacks the pod, or if ``names`` is
        empty.
        """
        judgement, name = Judgement(), framework.scheduler_name
        cluster = self._snapshot.cluster
        whole = cluster.pod(*pod.key)
        if whole is None or whole.uid != pod.uid or not names:
            return judgement, True
        unknown = self._snapshot.not_judged(name, whole)
        judge = Judge(self._snapshot.frameworks[name], cluster, unknown, self._snapshot.in_flight())
        await run_stepwise(judge.steps(whole, judgement, names), RUN_SECONDS)
        return judgement, bool(unknown or judgement.faults)


def _open_nodes(limits: Sequence[DomainLimit], values: Sequence[Mapping[str, str]], names: list[str]) -> Iterator[None]:
    """Add the nodes in domains that all ``limits`` allow. ``values``: for each limit, the domain of each node."""
    first, *others = zip(limits, values, strict=True)
    passed = [name for name, value in first[1].items() if value not in first[0].full]
    for limit, domain_of in others:
        yield
        passed = [name for name in passed if name in domain_of and domain_of[name] not in limit.full]
    names += passed


def _reasons(
    blocking: Sequence[DomainLimit],
    limits: Sequence[DomainLimit],
    values: Sequence[Mapping[str, str]],
    judgement: Judgement,
    reasons: list[Reasons],
) -> Iterator[None]:
    """Add to ``reasons``, for each constraint in ``blocking``, the main reasons that ``_reasons_by_domain`` finds."""
    groups = judgement.by_reasons()
    for limit, domain_of in zip(limits, values, strict=True):
        if limit in blocking:
            by_domain: dict[str, MainReasonInDomain] = {}
            yield from _reasons_by_domain(limit, domain_of, judgement.feasible, groups, by_domain)
            reasons.append(by_domain)


def _reasons_by_domain(
    limit: DomainLimit,
    domain_of: Mapping[str, str],
    feasible: Sequence[str],
    groups: Mapping[_Rejections, Sequence[str]],
    reasons: dict[str, MainReasonInDomain],
) -> Iterator[None]:
    """Add the main reason of each domain in which all judged nodes are rejected, unless only spread rejects them.

    ``groups``: nodes by their rejections.
    """
    nodes: dict[str, dict[int, int]] = {}
    for number, names in enumerate(groups.values()):
        for name in names:
            of_domain = nodes.setdefault(domain_of.get(name, ""), {})
            of_domain[number] = of_domain.get(number, 0) + 1
        yield
    fits = {domain_of.get(name) for name in feasible}
    rejections = tuple(groups)
    known: dict[tuple[tuple[int, int], ...], MainReasonInDomain | None] = {}
    for number, domain in enumerate(limit.pods):
        if number % _STEP == _STEP - 1:
            yield
        if domain in fits or domain not in nodes:
            continue
        key = tuple(nodes[domain].items())
        if key not in known:
            known[key] = _main_reason([(rejections[group], count) for group, count in key])
        if (reason := known[key]) is not None:
            reasons[domain] = reason


def _main_reason(groups: Sequence[tuple[_Rejections, int]]) -> MainReasonInDomain | None:
    """Return the most frequent reason of plugins other than spread; ``None`` if there is none.

    ``groups``: rejections, each with its number of nodes. Nodes that the pod's node selector, node affinity or
    ``nodeName`` excludes are ignored, unless all are excluded.
    """
    selected = [it for it in groups if _SELECTION.isdisjoint(status.plugin for status in it[0])] or groups
    nodes_by_reason = Counter[str]()
    for statuses, count in selected:
        for reason in {reason for it in statuses if it.plugin != SPREAD for reason in it.reasons}:
            nodes_by_reason[reason] += count
    if not nodes_by_reason:
        return None
    reason, count = min(nodes_by_reason.items(), key=lambda it: (-it[1], it[0]))
    return MainReasonInDomain(reason, count, sum(count for _, count in selected))


def note_of(limits: Sequence[DomainLimit], reasons: Sequence[Reasons]) -> str:
    """Return the note of the Event, for example ``zone: c 1, a 3; maxSkew 1; c: Insufficient cpu``."""
    clauses = [_clause(*it) for it in zip(limits[:MOST_LIMITS], reasons, strict=False)]
    more = len(limits) - len(clauses)
    text = ". ".join((*clauses, f"{more} more constraint{'s'[: more > 1]}") if more else clauses)
    return text if len(text) <= LONGEST_NOTE else f"{text[: LONGEST_NOTE - 1]}…"


def _clause(limit: DomainLimit, reasons: Reasons) -> str:
    """Return the part of the note about one constraint: pods by domain, parameters such as ``maxSkew``, and reasons."""

    def order(domain: str) -> tuple[int, str]:
        return limit.pods[domain], domain

    key = next((limit.key.removeprefix(it) for it in _WELL_KNOWN if limit.key.startswith(it)), limit.key)
    fewest = nsmallest(MOST_DOMAINS, limit.pods, order)
    numbers = ", ".join(f"{it} {limit.pods[it]}" for it in fewest) or "no counted node has the label"
    more = len(limit.pods) - len(fewest)
    if more:
        numbers += f" and {more} more with up to {max(limit.pods.values())}"
    by_reason: dict[str, list[str]] = {}
    for domain, reason in reasons.items():
        by_reason.setdefault(str(reason), []).append(domain)
    others = [
        f"{_named(nsmallest(MOST_REASONS, domains, order), len(domains))}: {reason}"
        for reason, domains in nlargest(MOST_REASONS, by_reason.items(), lambda it: len(it[1]))
    ]
    return "; ".join((f"{key}: {numbers}", ", ".join(limit.terms), *others))


def _named(domains: Sequence[str], total: int) -> str:
    return ", ".join(domains) + (f" and {total - len(domains)} more" if total > len(domains) else "")
