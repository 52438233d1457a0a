"""Changes that could open nodes which topology spread constraints reject: fewer pods, or changed constraints.

Not here: the counts in a decision (the plugin PodTopologySpread).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from app.analysis.change import MOST_TRIED_OF_A_KIND, PODS_PER_STEP, SPREAD, Change, Trials, with_spec
from app.analysis.judging import MOST_ATTEMPTS, Judge
from app.cache.cluster import Cluster
from app.framework.counts import DomainCounts, Inclusion, Unprepared, inclusion_of
from app.kube.core_v1 import HONOR, SCHEDULE_ANYWAY, Node, Pod, TopologySpreadConstraint
from app.kube.extras import NotDecoded
from app.kube.selectors import EVERYTHING, NOTHING, Selector

SOFT: Final = "ScheduleAnyway"
"""``Change.sort`` of the change that makes a constraint soft."""

_MOST_DELETED: Final = 3
"""Maximum number of pods that one change deletes."""

_MOST_PODS: Final = 5000
"""Maximum number of pods of a namespace that are searched for pods that a constraint counts."""

T = TypeVar("T")


class SpreadChanges:
    """Finds changes to try for pods of one profile on one snapshot. ``untried``: true if changes were left out."""

    def __init__(self, cluster: Cluster, judge: Callable[[Collection[str]], Judge]) -> None:
        """``judge``: returns a judge that leaves out the given plugins."""
        self._cluster = cluster
        self._judge = judge
        self.untried = False

    def fewer_pods(self, pod: Pod, names: Sequence[str], crowded: Collection[str]) -> Trials:
        """Yield the changes that delete one to three pods that a hard constraint counts, in the domains with the most
        nodes of ``names``.

        The largest number is tried first. If it opens nodes, the smallest number that also does is shown. ``names``:
        nodes that only the constraints reject. ``crowded``: nodes that other filters reject, too, perhaps because of
        the pods on them. Deleting a pod that several constraints count can open nodes outside its domain.
        """
        several = sum(it.is_hard for it in pod.spec.spread) > 1
        for constraint in pod.spec.spread if names or crowded else ():
            selector = _counted(constraint, pod)
            if not constraint.is_hard or selector is NOTHING:
                continue
            key = constraint.topology_key
            domains: dict[str, list[str]] = {}
            yield from self._by_domain(names, key, domains)
            for domain in {self._domain(it, key) for it in crowded}:
                domains.setdefault(domain, [])
            domains.pop("", None)
            yield None
            counted: dict[str, list[Pod]] = {}
            yield from self._count_pods(pod, key, selector, counted)
            yield None
            largest = sorted(domains, key=lambda it: (-len(domains[it]), it))
            self.untried |= len(largest) > MOST_TRIED_OF_A_KIND
            yield None
            for domain in largest[:MOST_TRIED_OF_A_KIND]:
                pods: list[Pod] = []
                yield from self._choose(pod, counted.get(domain, ()), crowded, pods)
                most = len(pods)
                for number in (most, *range(1, most)) if pods else ():
                    deleted = tuple(pods[:number])
                    emptier = {it.node_name for it in deleted}.intersection(crowded)
                    inside, others = (*domains[domain], *emptier), names if several else ()
                    text = f"{'one pod' if number == 1 else f'{number} pods'} less in {key}={domain}"
                    fitting: Sequence[str] = yield Change(
                        "FewerPods", text, pod, inside, others, deleted, reads=SPREAD, instead=number < most
                    )
                    if bool(fitting) != (number == most):
                        break  # this smaller number suffices, or even the largest does not help

    def _choose(self, pod: Pod, counted: Sequence[Pod], crowded: Collection[str], chosen: list[Pod]) -> Iterator[None]:
        """Add up to ``_MOST_DELETED`` of ``counted`` to ``chosen``, first those that make room on ``crowded`` nodes."""
        for number, other in enumerate(counted):
            if len(chosen) == _MOST_DELETED:
                return
            if other.node_name in crowded and self._makes_room(other, pod):
                chosen.append(other)
            if number % PODS_PER_STEP == PODS_PER_STEP - 1:
                yield None
        known = {it.uid for it in chosen}
        chosen += islice((it for it in counted if it.uid not in known), _MOST_DELETED - len(chosen))

    def _makes_room(self, other: Pod, pod: Pod) -> bool:
        """Return True if the requests of ``pod`` fit the node of ``other`` without ``other``; False if unknown."""
        info = self._cluster.nodes.get(other.node_name)
        try:
            wanted, gained = pod.spec.resources.requests, other.spec.resources.requested
        except NotDecoded:
            return False
        return info is not None and all(
            free + gained.get(name, 0) >= wanted[name] for name, free in info.free(wanted).items()
        )

    def _count_pods(self, pod: Pod, key: str, selector: Selector, counted: dict[str, list[Pod]]) -> Iterator[None]:
        """Add the pods that a constraint counts to ``counted``, by domain, newest first."""
        for number, other in enumerate(self._cluster.pods_in(pod.namespace)[: _MOST_PODS + 1]):
            if number == _MOST_PODS:
                self.untried = True
                break
            if other.node_name and not other.terminating and other.uid != pod.uid and selector.matches(other.labels):
                counted.setdefault(self._domain(other.node_name, key), []).append(other)
            if number % PODS_PER_STEP == PODS_PER_STEP - 1:
                yield None
        for pods in counted.values():
            pods.sort(key=lambda it: it.created, reverse=True)

    def _by_domain(self, names: Iterable[str], key: str, domains: dict[str, list[str]]) -> Iterator[None]:
        """Add the nodes ``names`` to ``domains``, by domain; nodes without the label have the domain ``""``."""
        for number, name in enumerate(names):
            domains.setdefault(self._domain(name, key), []).append(name)
            if number % PODS_PER_STEP == PODS_PER_STEP - 1:
                yield None

    def _domain(self, name: str, key: str) -> str:
        info = self._cluster.nodes.get(name)
        return "" if info is None else info.node.labels.get(key, "")

    def policies(self, pod: Pod, names: Sequence[str]) -> Trials:
        """Yield the changes of each hard constraint: ``ScheduleAnyway``, another policy or skew, or no ``minDomains``.

        Making the constraint soft is tried first. If no node fits even then, no other change of the constraint can
        help.
        """
        for number, constraint in enumerate(pod.spec.spread if names else ()):
            if not constraint.is_hard:
                continue
            where = f"in the constraint over {constraint.topology_key}"
            before, after = pod.spec.spread[:number], pod.spec.spread[number + 1 :]
            soft = replace(constraint, when_unsatisfiable=SCHEDULE_ANYWAY, min_domains=None)
            softer = with_spec(pod, spread=(*before, soft, *after))
            also = " without minDomains" if constraint.min_domains is not None else ""
            text = f"whenUnsatisfiable: ScheduleAnyway{also} {where}"
            fitting: Sequence[str] = yield Change(SOFT, text, softer, names, reads=SPREAD)
            if not fitting:
                continue
            skew = yield from self._least_skew(pod, constraint, fitting)
            for sort, text, changed in (
                ("TaintsPolicy", f"nodeTaintsPolicy: Honor {where}", replace(constraint, node_taints_policy=HONOR)),
                ("MaxSkew", f"maxSkew: {skew} {where}", replace(constraint, max_skew=skew)),
                ("MinDomains", f"no minDomains {where}", replace(constraint, min_domains=None)),
            ):
                if changed != constraint:
                    spread = (*before, changed, *after)
                    yield Change(sort, text, with_spec(pod, spread=spread), names, reads=SPREAD)

    def _least_skew(
        self, pod: Pod, constraint: TopologySpreadConstraint, names: Iterable[str]
    ) -> Generator[None, Any, int]:
        """Return the smallest ``maxSkew`` with which the constraint accepts one of ``names``.

        ``names``: nodes that fit if the constraint is soft. The result is never smaller than the present ``maxSkew``,
        and equal to it if no value is found.
        """
        domains: dict[str, list[str]] = {}
        yield from self._by_domain(names, constraint.topology_key, domains)
        domains.pop("", None)  # without the label, no skew helps
        if not domains:
            return constraint.max_skew

        def least() -> int:
            counts, _ = self._counts(pod, constraint)
            minimum = counts.minimum() if counts.size() >= (constraint.min_domains or 1) else 0
            is_counted = _counted(constraint, pod).matches(pod.labels)
            return max(constraint.max_skew, min(map(counts.count, domains)) + is_counted - minimum)

        skew = yield from self._prepared(pod, least)
        return constraint.max_skew if skew is None else skew

    def counts_stay(self, pod: Pod, node: Node, changed: Node) -> Generator[None, Any, bool]:
        """Return True if all hard constraints have the same counts with the ``changed`` node; False if this is unknown.

        The counts ignore the changed nodes of an overlay. So if a constraint counts the node only after the change, the
        change can be proved only if the node adds neither a domain nor pods.
        """
        honoring = [it for it in pod.spec.spread if it.is_hard and it.honours_taints]
        stay = yield from self._prepared(pod, lambda: all(self._stays(pod, it, node, changed) for it in honoring))
        return bool(stay)

    def _stays(self, pod: Pod, constraint: TopologySpreadConstraint, node: Node, changed: Node) -> bool:
        """Return True if the counts of a constraint do not change when ``changed`` replaces ``node``."""
        counts, inclusion = self._counts(pod, constraint)
        if inclusion.admits(node) == inclusion.admits(changed):
            return True
        if node.labels.get(constraint.topology_key) not in counts.nodes_by_domain():
            return False
        selector, info = _counted(constraint, pod), self._cluster.nodes.get(node.name)
        pods = () if info is None else info.pods.values()
        return not any(it.namespace == pod.namespace and selector.matches(it.labels) for it in pods)

    def _counts(self, pod: Pod, constraint: TopologySpreadConstraint) -> tuple[DomainCounts, Inclusion]:
        """Return the counts of a hard constraint, and the rule that says which nodes count. Raises ``Unprepared``."""
        keys = frozenset(it.topology_key for it in pod.spec.spread if it.is_hard)
        inclusion = inclusion_of(
            pod.spec, honours_affinity=constraint.honours_affinity, honours_taints=constraint.honours_taints
        )
        selector, key = _counted(constraint, pod), constraint.topology_key
        return self._cluster.counts.domains(pod.namespace, selector, key, keys, inclusion), inclusion

    def _prepared(self, pod: Pod, compute: Callable[[], T]) -> Generator[None, Any, T | None]:
        """Return the result of ``compute`` on the judge's snapshot; ``None`` if the counts do not stay cached."""
        for _ in range(MOST_ATTEMPTS):
            try:
                with self._judge(()).seen(pod):
                    return compute()
            except Unprepared as missing:
                yield from missing.steps
        return None


def _counted(constraint: TopologySpreadConstraint, pod: Pod) -> Selector:
    """Return the selector of the pods that a constraint counts, with the pod's values of its ``matchLabelKeys``.

    As in kube-scheduler, an empty selector counts no pods.
    """
    if constraint.selector is None:
        return NOTHING
    pairs = [(key, pod.labels[key]) for key in constraint.match_label_keys if key in pod.labels]
    selector = constraint.selector.with_labels(pairs) if pairs else constraint.selector
    return NOTHING if selector == EVERYTHING else selector
