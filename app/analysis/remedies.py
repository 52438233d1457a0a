"""Single changes that would open nodes for a pod, each proved by judging the pod again with the change applied.

A change of the pod is judged on the nodes that only the changed rule rejects. A change of a node is judged on that
node. Deleted pods are left out by an overlay. Nothing is shown that was not judged, and nothing in the cluster changes.

Not here: the verdict that the remedies start from (``app.analysis.judging``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.judging import MOST_ATTEMPTS, Judge, Judgement
from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.kube.core_v1 import DO_NOT_SCHEDULE, HONOR, SCHEDULE_ANYWAY, Node, Pod, PodSpec, TopologySpreadConstraint
from app.kube.extras import NotDecoded
from app.kube.node_affinity import ANY_NODE
from app.kube.quantity import round_amount, shown_amount
from app.kube.selectors import Selector
from app.kube.taints import UNSCHEDULABLE, Taint, Tolerance, Toleration
from app.runtime.guard import PluginError
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS

MOST_SHOWN: Final = 5
"""Maximum number of remedies of one explanation."""

MOST_TRIED: Final = 24
"""Maximum number of changes that are judged for one explanation."""

_MOST_OF_A_SORT: Final = 12
_MOST_TRIED_OF_A_SORT: Final = 4
_MOST_NAMED: Final = 10
_MOST_PODS: Final = 5000
"""Maximum number of pods of a namespace that are searched for pods that a constraint counts."""

_NODES_PER_STEP: Final = 128
_PODS_PER_STEP: Final = 512
_IN_TREE: Final = frozenset(KUBE_SCHEDULER_DEFAULTS)
_CORDON: Final = frozenset({"NodeUnschedulable", "TaintToleration"})
_FIT: Final = frozenset({"NodeResourcesFit", "DynamicResources"})
_AFFINITY: Final = frozenset({"NodeAffinity"})
_SPREAD: Final = frozenset({"PodTopologySpread"})
_HOME: Final = frozenset({"StickyNode"})
_CROWDED: Final = _FIT | {"NodePorts", "NodeVolumeLimits", "VolumeRestrictions", "InterPodAffinity"}
"""Plugins that can reject a node because of the pods on it."""

_SOFT: Final = "ScheduleAnyway"


class Remedy(Struct, frozen=True):
    """One change after which nodes fit. ``change``: what to do. ``opens``: number of nodes that fit then.

    ``nodes``: the first of these nodes. ``sort``: constant name of the sort of change, for programs. ``pods``: names of
    the pods that the change deletes, in the namespace of the explained pod.
    """

    sort: str
    change: str
    opens: int
    nodes: tuple[str, ...]
    pods: tuple[str, ...] = ()


class _Change(Struct, frozen=True):
    """Change to try, and the ``pod`` after it. ``without``: pods that it deletes. ``node``: the node that it changes.

    ``names``: nodes that can fit after it. ``others``: nodes that can fit too, and are judged only if some of ``names``
    fit. ``ignores``: plugins that reject no node after it. ``reads``: in-tree plugins that read what it changes.
    """

    sort: str
    text: str
    pod: Pod
    names: Collection[str]
    others: Collection[str] = ()
    without: tuple[Pod, ...] = ()
    node: Node | None = None
    ignores: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()


class Remedies:
    """Finds the remedies for pods of one profile on one snapshot. Its methods work in short steps."""

    def __init__(self, cluster: Cluster, judge: Callable[[Collection[str]], Judge]) -> None:
        """``judge``: returns a judge that leaves out the given plugins."""
        self._cluster = cluster
        self._judge = judge

    def steps(self, pod: Pod, judgement: Judgement, remedies: list[Remedy]) -> Iterator[None]:
        """Try changes, and add those that open nodes to ``remedies``. ``best`` chooses among them."""
        by_plugins = judgement.by_plugins()
        yield
        tried = Counter[str]()
        seen: set[tuple[str, tuple[str, ...]]] = set()
        if any(status.plugin in _HOME for status in judgement.everywhere):
            return  # the pod's owner must exist first, and no change of a node or of the pod helps
        for change in self._changes(pod, by_plugins, remedies):
            if isinstance(change, _Change):
                key = (change.text, tuple(it.uid for it in change.without))
                if key not in seen and tried[change.sort] < _MOST_OF_A_SORT and tried.total() < MOST_TRIED:
                    seen.add(key)
                    tried[change.sort] += 1
                    yield from self._prove(change, remedies)
            yield

    def _prove(self, change: _Change, remedies: list[Remedy]) -> Iterator[None]:
        """Judge a change, and add it to ``remedies`` if nodes fit after it."""
        if change.node is not None:
            fitting: list[str] = []
            for _ in range(MOST_ATTEMPTS):
                try:
                    fitting = [change.node.name] if self._fits_on(change.pod, change.node) else []
                    break
                except Unprepared as missing:
                    yield from missing.steps
                except PluginError:
                    break  # a plugin that failed gave no verdict, which proves nothing
        else:
            fitting = yield from self._fitting(change, change.names)
            if fitting and change.others:
                judged = {*change.names}
                fitting += yield from self._fitting(change, [it for it in change.others if it not in judged])
        if fitting:
            nodes, pods = tuple(sorted(fitting)[:_MOST_NAMED]), tuple(it.name for it in change.without)
            remedies.append(Remedy(change.sort, change.text, len(fitting), nodes, pods))

    def _fitting(self, change: _Change, names: Collection[str]) -> Generator[None, None, list[str]]:
        """Return which of the nodes ``names`` fit after a change."""
        left = [*names]
        for ignored in self._rounds(change):
            after = Judgement()
            yield from self._judge(ignored).steps(change.pod, after, left, without=change.without)
            left = [] if after.faults else after.feasible
        return left

    def _rounds(self, change: _Change) -> Iterator[Collection[str]]:
        """Yield the plugins to ignore in each round of judging a change.

        In the first round, ``change.reads`` and all plugins that are not in-tree judge. The other plugins accept these
        nodes, and read nothing that the change replaces. If the change deletes pods, all plugins judge in a second
        round.
        """
        yield change.ignores | (_IN_TREE - change.reads)
        if change.without:
            yield change.ignores

    def _fits_on(self, pod: Pod, node: Node) -> bool:
        return node.name in self._cluster.nodes and self._judge(()).fits_on(pod, node)

    def _changes(
        self, pod: Pod, by_plugins: Mapping[frozenset[str], list[str]], remedies: list[Remedy]
    ) -> Iterator[_Change | None]:
        """Yield the changes to try, those of the cluster before those of the pod; ``None`` after a long search.

        ``remedies``: what has been proved so far.
        """
        yield from self._uncordon(pod, _nodes_within(by_plugins, _CORDON | _HOME))
        yield from self._release(pod, _nodes_within(by_plugins, _HOME))
        yield None
        spread = _nodes_within(by_plugins, _SPREAD)
        yield from self._fewer_pods(pod, spread, _tied(by_plugins, _CROWDED), remedies)
        yield from self._policies(pod, spread, remedies)
        counted = (*spread, *_tied(by_plugins, _CORDON)) if _reads_taints(pod) else ()
        yield from self._tolerate(pod, _nodes_within(by_plugins, _CORDON), counted)
        yield from self._request_less(pod, _nodes_within(by_plugins, _FIT))
        affinity = _nodes_within(by_plugins, _AFFINITY)
        if affinity and pod.spec.affinity is not ANY_NODE:
            anywhere = _with_spec(pod, affinity=ANY_NODE)
            text = "remove the pod's node selector and required node affinity"
            others = (*spread, *_tied(by_plugins, _AFFINITY))
            yield _Change("NodeAffinity", text, anywhere, affinity, others, reads=_AFFINITY | _SPREAD)

    def _uncordon(self, pod: Pod, names: Sequence[str]) -> Iterator[_Change]:
        if _reads_taints(pod):
            return  # without its taint, a node could count for the constraints, but the counts are not changed here
        nodes = (self._cluster.nodes[name].node for name in names if name in self._cluster.nodes)
        for node in islice((it for it in nodes if it.unschedulable), _MOST_TRIED_OF_A_SORT):
            taints = tuple(it for it in node.taints if it.key != UNSCHEDULABLE.key)
            open_again = replace(node, unschedulable=False, taints=taints)
            yield _Change("Uncordon", f"uncordon {node.name}", pod, (node.name,), node=open_again)

    def _release(self, pod: Pod, names: tuple[str, ...]) -> Iterator[_Change]:
        if names:
            yield _Change("ReleaseHome", "release the home", pod, names, ignores=_HOME)

    def _fewer_pods(
        self, pod: Pod, names: Sequence[str], crowded: Sequence[str], remedies: list[Remedy]
    ) -> Iterator[_Change | None]:
        """Delete one pod that a hard constraint counts, else two or three, in each of the domains with the most nodes.

        ``names``: nodes that only the constraints reject. ``crowded``: other nodes that fit if also their own pods are
        deleted. ``remedies``: what has been proved so far. A pod that several constraints count can open nodes outside
        its domain.
        """
        several = sum(it.when_unsatisfiable == DO_NOT_SCHEDULE for it in pod.spec.spread) > 1
        for constraint in pod.spec.spread if names or crowded else ():
            if constraint.when_unsatisfiable != DO_NOT_SCHEDULE or constraint.selector is None:
                continue
            domains: dict[str, list[str]] = {}
            yield from self._by_domain(names, constraint.topology_key, domains)
            for domain in {self._domain(it, constraint.topology_key) for it in crowded}:
                domains.setdefault(domain, [])
            yield None
            counted: dict[str, list[Pod]] = {}
            yield from self._count_pods(pod, constraint, constraint.selector, counted)
            for domain in sorted(domains, key=lambda it: (-len(domains[it]), it))[:_MOST_TRIED_OF_A_SORT]:
                pods = counted.get(domain, ())
                most, proved = min(3, len(pods)) if domain else 0, len(remedies)
                for number in (most, *range(1, most)) if most else ():  # if the most do not help, fewer do not either
                    deleted = tuple(pods[:number])
                    emptier = {it.node_name for it in deleted}.intersection(crowded)
                    inside, others = (*domains[domain], *emptier), names if several else ()
                    text = (
                        f"{'one pod' if number == 1 else f'{number} pods'} less in {constraint.topology_key}={domain}"
                    )
                    yield _Change("FewerPods", text, pod, inside, others, deleted, reads=_SPREAD)
                    if len(remedies) == proved:
                        break
                    if len(remedies) > proved + 1:
                        del remedies[proved]  # fewer pods do
                        break

    def _count_pods(
        self, pod: Pod, constraint: TopologySpreadConstraint, selector: Selector, counted: dict[str, list[Pod]]
    ) -> Iterator[None]:
        """Add the pods that a constraint counts to ``counted``, by domain, newest first."""
        labels = pod.labels
        pairs = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
        merged = selector.with_labels(pairs) if pairs else selector
        for number, other in enumerate(tuple(islice(self._cluster.pods_in(pod.namespace), _MOST_PODS))):
            if other.node_name and not other.terminating and other.uid != pod.uid and merged.matches(other.labels):
                counted.setdefault(self._domain(other.node_name, constraint.topology_key), []).append(other)
            if number % _PODS_PER_STEP == _PODS_PER_STEP - 1:
                yield None
        for pods in counted.values():
            pods.sort(key=lambda it: it.created, reverse=True)

    def _by_domain(self, names: Iterable[str], key: str, domains: dict[str, list[str]]) -> Iterator[None]:
        for number, name in enumerate(names):
            domains.setdefault(self._domain(name, key), []).append(name)
            if number % _PODS_PER_STEP == _PODS_PER_STEP - 1:
                yield None

    def _domain(self, name: str, key: str) -> str:
        info = self._cluster.nodes.get(name)
        return "" if info is None else info.node.labels.get(key, "")

    def _policies(self, pod: Pod, names: tuple[str, ...], remedies: Sequence[Remedy]) -> Iterator[_Change]:
        """Change a field of a constraint. If no node fits even with a soft constraint, no other change can help."""
        for number, constraint in enumerate(pod.spec.spread if names else ()):
            if constraint.when_unsatisfiable != DO_NOT_SCHEDULE:
                continue
            where = f"in the constraint over {constraint.topology_key}"
            proved = len(remedies)
            for sort, text, changed in (
                (_SOFT, f"whenUnsatisfiable: ScheduleAnyway {where}", _soft(constraint)),
                ("TaintsPolicy", f"nodeTaintsPolicy: Honor {where}", replace(constraint, node_taints_policy=HONOR)),
                (
                    "MaxSkew",
                    f"maxSkew: {constraint.max_skew + 1} {where}",
                    replace(constraint, max_skew=constraint.max_skew + 1),
                ),
                ("MinDomains", f"no minDomains {where}", replace(constraint, min_domains=None)),
            ):
                if changed != constraint and (sort == _SOFT or len(remedies) > proved):
                    spread = (*pod.spec.spread[:number], changed, *pod.spec.spread[number + 1 :])
                    yield _Change(sort, text, _with_spec(pod, spread=spread), names, reads=_SPREAD)

    def _tolerate(self, pod: Pod, names: Sequence[str], counted: Sequence[str]) -> Iterator[_Change | None]:
        """Tolerate a taint. ``counted``: nodes that constraints reject, and perhaps taints, but no other plugin."""
        tolerance = Tolerance(pod.spec.tolerations)
        tainted: dict[Taint, list[str]] = {}
        for number, name in enumerate(names):
            if number % _NODES_PER_STEP == _NODES_PER_STEP - 1:
                yield None
            info = self._cluster.nodes.get(name)
            for taint in () if info is None else info.node.taints:
                if taint.keeps_out and taint.key != UNSCHEDULABLE.key and not tolerance.tolerates(taint):
                    tainted.setdefault(taint, []).append(name)
        for taint in sorted(tainted, key=lambda it: (-len(tainted[it]), it.key, it.value))[:_MOST_TRIED_OF_A_SORT]:
            more = Toleration(taint.key, "Equal", taint.value, taint.effect)
            text = f"tolerate the taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
            tolerant = _with_spec(pod, tolerations=(*pod.spec.tolerations, more))
            yield _Change("Tolerate", text, tolerant, tainted[taint], counted, reads=_CORDON | _SPREAD)

    def _request_less(self, pod: Pod, names: tuple[str, ...]) -> Iterator[_Change | None]:
        """Lower the request for one resource to the amount that is free on the best of the nodes, unless that is 0."""
        try:
            resources = pod.spec.resources
            requests = resources.requests
        except NotDecoded:
            return
        most = dict.fromkeys(requests, 0)
        for number, node in enumerate(names):
            info = self._cluster.nodes.get(node)
            for name, left in info.free(requests).items() if info is not None else ():
                most[name] = max(most[name], left)
            if number % _NODES_PER_STEP == _NODES_PER_STEP - 1:
                yield None
        for name, wanted in requests.items():
            free = round_amount(name, most[name])
            if 0 < free < wanted:
                fewer = replace(resources, requests={**resources.requests, name: free})
                text = f"request {shown_amount(name, free)} {name} instead of {shown_amount(name, wanted)}"
                smaller = _with_spec(pod, parts=replace(pod.spec.parts, resources=fewer))
                yield _Change("RequestLess", text, smaller, names, reads=_FIT)


def best(remedies: Iterable[Remedy]) -> list[Remedy]:
    """Return at most ``MOST_SHOWN`` remedies, first those that open the most nodes; equal ones keep their order.

    The change to a soft constraint comes last, because it opens all nodes and gives up the purpose of the constraint.
    """
    return sorted(remedies, key=lambda it: (it.sort == _SOFT, -it.opens))[:MOST_SHOWN]


def _nodes_within(by_plugins: Mapping[frozenset[str], list[str]], plugins: frozenset[str]) -> tuple[str, ...]:
    """Return the nodes that only these plugins reject, sorted, so that each process tries the same changes."""
    return tuple(sorted(name for key, names in by_plugins.items() if key <= plugins for name in names))


def _tied(by_plugins: Mapping[frozenset[str], list[str]], plugins: frozenset[str]) -> tuple[str, ...]:
    """Return the nodes that constraints reject together with some of these plugins, and with no others."""
    return tuple(it for key in by_plugins if _SPREAD < key <= _SPREAD | plugins for it in by_plugins[key])


def _with_spec(pod: Pod, **changes: Any) -> Pod:
    """Return the pod with some fields of its spec replaced, and without its nomination."""
    spec: PodSpec = replace(pod.spec, **changes)
    return replace(pod, spec=spec)


def _reads_taints(pod: Pod) -> bool:
    return any(it.node_taints_policy == HONOR for it in pod.spec.spread)


def _soft(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    return replace(constraint, when_unsatisfiable=SCHEDULE_ANYWAY, min_domains=None)
