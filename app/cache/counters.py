"""Kept counts: how many pods a selector matches, by node and by topology domain, up to date after every event.

Levels, so that an event costs one look-up however many constraints are alive, and pods are never walked again:

    Group        (namespace, label set)               -> node -> pods       fed by pod events
    Selection    (namespace, selector)                -> node -> pods       fed by the groups it matches
    Eligibility  (required keys, inclusion)           which nodes count     fed by node events
    Topology     Eligibility x topology key           node -> domain        fed by its eligibility
    Domains      Selection x Topology                 -> domain -> pods     fed by both

Counted are pods that are neither terminating nor finished. Counts are sparse: a domain that exists without a pod is
known to its Topology alone, so that thousands of hostname constraints do not each hold every node.

What is asked for the first time is made in pieces. The first piece is made at once, which is all there is in the usual
case; beyond that ``Unprepared`` is raised, and the rest is made step by step between the turns of others, kept up to
date by events meanwhile. What nobody asks for is given up: each level holds so many bytes, the entries used last.

One pod may ask for more than that: 16 selections of label sets by the ten thousand. Such a decision takes its place in
a line (``slices.prepared``), and what the first of it asks for is not given up before it has decided: a level then
holds more by what one pod needs, 16 constraints with an entry each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from app.cache.bounded import Bounded
from app.cache.domains import Domains, DomainsKey, join_domains
from app.cache.recount import PodRecount
from app.cache.selections import (
    EVERYWHERE,
    Group,
    LabelledPod,
    Scope,
    Selection,
    SelectionKey,
    SteppedEntry,
    covers,
    found_under,
    pairs_of,
    run_next_step,
)
from app.cache.topologies import Eligibility, EligibilityKey, Topology, TopologyKey
from app.framework.counts import ALL_NODES, DomainCounts, Inclusion, Unprepared, all_prepared
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node
from app.kube.labels import LabelSet
from app.kube.selectors import Selector

_MOST_SELECTION_BYTES: Final = 96 << 20
_MOST_TOPOLOGY_BYTES: Final = 96 << 20
_MOST_DOMAINS_BYTES: Final = 96 << 20
"""Of all entries of a level together, as estimated by their weight."""

_LARGEST_SHAPE: Final = 32
"""So many topologies and counts always have room, however many nodes there are: more than one pod can ask for."""

_PIECE: Final = 384
"""Nodes, pods by node, or requirements that are looked at in one piece: some tenths of a millisecond."""

_SKEWS: Final = 64
"""Counts whose skew is looked at in one step: a tenth of a millisecond where they are large."""

_WEIGH_EVERY: Final = 64
_ROUND: Final = 128
"""After so many pod events such a part of the entries is weighed anew: they grow with what they count."""

_MOST_OF_A_GROUP: Final = 128
_MOST_OF_A_SELECTION: Final = 32
"""Selections that match one label set, and domains of one selection: an event changes all of them. Of more than that
those that were made first are given up. A label set has one or two, and a selection one for each topology key. One pod
asks for no more than that, or it would never have all that it needs.
"""

_AT_AN_EVENT: Final = 1024
"""Requirements that a label set never seen is compared with at once, as it comes; with more, before the next answer."""

_NODE_BYTES: Final = 50
_COUNT_BYTES: Final = 150

_OVER: Final = object()

K = TypeVar("K")
Answer = TypeVar("Answer")
Entry = TypeVar("Entry", bound=SteppedEntry)


def run_prepared(ask: Callable[[], Answer]) -> Answer:
    """The answer, whatever it takes: for who holds up nobody."""
    while True:
        try:
            return ask()
        except Unprepared as missing:
            for _ in missing.steps:
                pass


class CountOverlay(Protocol):
    """What is laid over the counts while a picture is read without some pods, or with others."""

    def pods_by_node(self, namespace: Scope, selector: Selector, kept: Mapping[str, int]) -> Mapping[str, int]: ...
    def domains(self, kept: Domains) -> DomainCounts: ...


class Counters:
    """Implements ``framework.Counts`` over the node infos of a picture, which tells it of every change.

    ``overlay`` changes what is answered and nothing that is kept: what is counted first is counted without it.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self.overlay: CountOverlay | None = None
        self._nodes = nodes
        self._groups: dict[str, dict[LabelSet, Group]] = {}
        self._by_pair: dict[tuple[str, ...], dict[Selection, None]] = {}
        self._unjoined: dict[Group, Iterator[None]] = {}
        self._eligibilities: dict[EligibilityKey, Eligibility] = {}
        self._by_label: dict[str, dict[Eligibility, None]] = {}
        self._by_taints: dict[Eligibility, None] = {}
        self._selections = Bounded[SelectionKey, Selection](
            self._limit(_MOST_SELECTION_BYTES, _COUNT_BYTES), self._new_selection, self._drop_selection
        )
        self._topologies = Bounded[TopologyKey, Topology](
            self._limit(_MOST_TOPOLOGY_BYTES, _NODE_BYTES), self._new_topology, self._drop_topology
        )
        self._domains = Bounded[DomainsKey, Domains](
            self._limit(_MOST_DOMAINS_BYTES, _COUNT_BYTES), self._new_domains, self._drop_domains
        )
        self._moves = 0

    def _limit(self, most: int, a_node: int) -> Callable[[], int]:
        """Of a level: what one pod asks for must find room beside what others do, in the largest cluster too."""
        a_node *= _LARGEST_SHAPE
        return lambda: max(most, a_node * len(self._nodes))

    def pods_by_node(self, namespace: Scope, selector: Selector) -> Mapping[str, int]:
        kept = self._selection(namespace, selector).nodes
        return kept if self.overlay is None else self.overlay.pods_by_node(namespace, selector, kept)

    def domains(
        self,
        namespace: Scope,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> DomainCounts:
        self._requirejoined()
        self._selections.touch((namespace, selector))
        self._topologies.touch((topology_key, required_keys, inclusion))
        kept = self._domains.get((namespace, selector, topology_key, required_keys, inclusion))
        return kept if self.overlay is None else self.overlay.domains(kept)

    def domains_of(self, selection: Selection, topology_key: str) -> Domains:
        """Counts of a selection that is kept elsewhere, over all nodes with the label: to be asked for at each use.

        Raises ``Unprepared``.
        """
        topology = self._plain(topology_key)
        found = next((it for it in selection.domains if it.topology is topology), None)
        if found is not None:
            return found
        if len(selection.nodes) > _PIECE:
            raise Unprepared(self._join_own(selection, topology_key))
        return join_domains(selection, topology)

    def _join_own(self, selection: Selection, topology_key: str) -> Iterator[None]:
        """In one piece, as ``_join``."""
        yield
        topology = self._topologies.get((topology_key, frozenset((topology_key,)), ALL_NODES))
        known = any(it.topology is topology for it in selection.domains)
        if topology.rest is None and selection.is_cached and not known:
            join_domains(selection, topology)
            yield

    def leave(self, selection: Selection) -> None:
        """A selection that is kept elsewhere is given up there."""
        selection.is_cached = False
        for domains in selection.domains:
            del domains.topology.users[domains]
        selection.domains.clear()

    def _selection(self, namespace: Scope, selector: Selector) -> Selection:
        """A whole one. Raises ``Unprepared``."""
        self._requirejoined()
        found = self._selections.get((namespace, selector))
        if found.rest is not None:
            raise Unprepared(self._finish(found, self._selections, (namespace, selector)))
        return found

    def _topology(self, key: TopologyKey) -> Topology:
        """A whole one. Raises ``Unprepared``."""
        found = self._topologies.get(key)
        if found.rest is not None:
            raise Unprepared(self._finish(found, self._topologies, key))
        return found

    def _finish(self, made: Entry, level: Bounded[K, Entry], key: K) -> Iterator[None]:
        """Make the rest of an entry; several may do so in turns. One that is given up meanwhile has none."""
        while made.rest is not None:
            run_next_step(made)
            yield
        if level.holds(key, made):
            level.put(key, made)

    def values(self, topology_key: str) -> Mapping[str, str]:
        return self._plain(topology_key).domain

    def on_every_node(self, topology_key: str) -> bool:
        return len(self._plain(topology_key).domain) == len(self._nodes)

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        return self._plain(topology_key).outside(blocked, names)

    def stamp(self, topology_key: str) -> int:
        return self._plain(topology_key).stamp

    def _plain(self, topology_key: str) -> Topology:
        return self._topology((topology_key, frozenset((topology_key,)), ALL_NODES))

    def pod(self, pod: LabelledPod, node: str, delta: int) -> None:
        """A counted pod came to (1) or left (-1) ``node``, which the picture need not know."""
        self._moves += 1
        if self._moves >= _WEIGH_EVERY:
            self._weigh()
        for selection in self._grouped(pod, node, delta):
            selection.add(node, delta)

    def relabelled(self, old: LabelledPod, new: LabelledPod, node: str) -> None:
        """A counted pod on ``node`` has other labels now. Nothing moves where both are selected."""
        before, after = self._grouped(old, node, -1), self._grouped(new, node, 1)
        if before.keys() == after.keys():
            return
        for selection in before:
            if selection not in after:
                selection.add(node, -1)
        for selection in after:
            if selection not in before:
                selection.add(node, 1)

    def _grouped(self, pod: LabelledPod, node: str, delta: int) -> dict[Selection, None]:
        """Count the pod in its group; returns what selects the group."""
        groups = self._groups.setdefault(pod.namespace, {})
        group = groups.get(pod.labels)
        if group is None:
            group = groups[pod.labels] = self._new_group(pod.namespace, pod.labels)
        count = group.nodes.get(node, 0) + delta
        if count:
            group.nodes[node] = count
        else:
            del group.nodes[node]
            if not group.nodes:
                self._drop_group(pod.namespace, groups, group)
        return group.selections

    def _weigh(self) -> None:
        """Entries grow with what they count: what has become too much is given up."""
        self._moves = 0
        for level in self._levels().values():
            level.weigh(_ROUND)

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """A node was added (``old`` is None), changed, or removed (``new`` is None)."""
        for eligibility in self._touched(old, new):
            eligibility.update(name, new)

    def _touched(self, old: Node | None, new: Node | None) -> Iterable[Eligibility]:
        if old is None or new is None:
            return self._eligibilities.values()
        touched = dict(self._by_taints) if old.taints != new.taints else {}
        if old.labels is not new.labels:
            changed = {key for key, _ in old.labels.items() ^ new.labels.items()}
            for key in changed:
                touched.update(self._by_label.get(key, {}))
        return touched

    def _new_group(self, namespace: str, labels: LabelSet) -> Group:
        """Selected at once, or, where many may select it, before anything is answered next."""
        group = Group(labels)
        joining = self._join_group(namespace, group)
        if not self._is_compared_soon(namespace, labels):
            self._unjoined[group] = joining
        else:
            for _ in joining:
                pass
        return group

    def _is_compared_soon(self, namespace: str, labels: LabelSet) -> bool:
        left = _AT_AN_EVENT
        for pair in found_under(namespace, labels):
            for selection in self._by_pair.get(pair, ()):
                left -= 1 + len(selection.selector.requirements)
                if left < 0:
                    return False
        return True

    def _join_group(self, namespace: str, group: Group) -> Iterator[None]:
        """Have a group that came joined by all that select it, piece by piece; pods may come to it meanwhile.

        A selection that comes meanwhile joins it by itself.
        """
        labels, looked_at = group.labels, 0
        for pair in found_under(namespace, labels):
            for selection in tuple(self._by_pair.get(pair, ())):
                looked_at += 1 + len(selection.selector.requirements)
                if self._selects(selection, namespace, group) and selection in self._by_pair.get(pair, ()):
                    looked_at += len(group.nodes) * (1 + len(selection.domains))
                    selection.join_late(group)
                    self._thin_out(group, selection)
                if looked_at >= _PIECE:
                    looked_at = 0
                    yield

    def _selects(self, selection: Selection, namespace: str, group: Group) -> bool:
        """Whether it is to join the group, and has not."""
        if selection in group.selections or not covers(selection.namespace, namespace):
            return False
        return selection.selector.matches(group.labels)

    def _joining(self) -> Iterator[None]:
        """Have all groups that came joined; several may do so in turns."""
        while self._unjoined:
            group, joining = next(iter(self._unjoined.items()))
            if next(joining, _OVER) is _OVER:
                self._unjoined.pop(group, None)
            yield

    def _requirejoined(self) -> None:
        """Raises ``Unprepared``."""
        if self._unjoined:
            raise Unprepared(self._joining())

    def _thin_out(self, group: Group, newest: Selection) -> None:
        """Give up selections of a group that has too many. Not the newest, and none that is pinned."""
        if len(group.selections) > _MOST_OF_A_GROUP:
            for it in tuple(group.selections):
                if it is not newest and self._selections.evict((it.namespace, it.selector)):
                    return

    def _drop_group(self, namespace: str, groups: dict[LabelSet, Group], group: Group) -> None:
        self._unjoined.pop(group, None)
        for selection in group.selections:
            del selection.groups[group]
        del groups[group.labels]
        if not groups:
            del self._groups[namespace]

    def _new_selection(self, key: SelectionKey) -> Selection:
        selection = Selection(*key)
        for pair in self._pairs_of(selection):
            self._by_pair.setdefault(pair, {})[selection] = None
        selection.rest = self._count(selection)
        run_next_step(selection)
        return selection

    def _count(self, selection: Selection) -> Iterator[None]:
        """Join every group that matches, piece by piece. Groups that come meanwhile join by themselves."""
        matches = selection.selector.matches
        a_group = 1 + len(selection.selector.requirements) // 2
        looked_at = 0
        for namespace in self._namespaces(selection.namespace):
            groups = self._groups.get(namespace, {})
            for labels, group in tuple(groups.items()):
                if groups.get(labels) is group and matches(labels) and selection not in group.selections:
                    selection.join(group)
                    self._thin_out(group, selection)
                    looked_at += len(group.nodes)
                looked_at += a_group
                if looked_at >= _PIECE:
                    looked_at = 0
                    yield

    def _namespaces(self, scope: Scope) -> Collection[str]:
        if isinstance(scope, frozenset):
            return scope
        return tuple(self._groups) if scope == EVERYWHERE else (scope,)

    def _drop_selection(self, selection: Selection) -> None:
        selection.rest = None
        for group in selection.groups:
            del group.selections[selection]
        for pair in self._pairs_of(selection):
            del self._by_pair[pair][selection]
            if not self._by_pair[pair]:
                del self._by_pair[pair]
        for domains in selection.domains:
            del domains.topology.users[domains]
            self._domains.forget(domains.key())

    def _pairs_of(self, selection: Selection) -> list[tuple[str, ...]]:
        """Where a label set never seen finds the selection: by a pair that it must have, else by the namespace."""
        scope = selection.namespace
        return pairs_of((scope,) if isinstance(scope, str) else scope, selection.selector)

    def _new_topology(self, key: TopologyKey) -> Topology:
        topology_key, required, inclusion = key
        eligibility = self._eligibilities.get((required, inclusion))
        if eligibility is None:
            eligibility = self._eligibilities[required, inclusion] = Eligibility(required, inclusion)
            self._index(eligibility, eligibility.reads)
            if eligibility.reads_taints():
                self._by_taints[eligibility] = None
        topology = eligibility.topologies[topology_key] = Topology(topology_key, eligibility)
        self._index(eligibility, (topology_key,))
        topology.rest = self._place(topology)
        run_next_step(topology)
        return topology

    def _index(self, eligibility: Eligibility, labels: Iterable[str]) -> None:
        for label in labels:
            self._by_label.setdefault(label, {})[eligibility] = None

    def _place(self, topology: Topology) -> Iterator[None]:
        """Look at every node, piece by piece. Nodes that change meanwhile are placed by what is told of them."""
        eligibility = topology.eligibility
        left = eligibility.piece(_PIECE)
        for name in tuple(self._nodes):
            info = self._nodes.get(name)
            if info is not None:
                eligibility.place(topology, name, info.node)
            left -= 1
            if not left:
                yield
                left = eligibility.piece(_PIECE)
        eligibility.finished(topology)

    def _drop_topology(self, topology: Topology) -> None:
        topology.rest = None
        eligibility = topology.eligibility
        eligibility.remove(topology)
        if not eligibility.topologies:
            del self._eligibilities[eligibility.required, eligibility.inclusion]
            self._by_taints.pop(eligibility, None)
            self._unindex(eligibility, eligibility.reads | {topology.key})
        elif topology.key not in eligibility.reads:
            self._unindex(eligibility, (topology.key,))
        for domains in topology.users:
            del domains.selection.domains[domains]
            self._domains.forget(domains.key())

    def _unindex(self, eligibility: Eligibility, labels: Iterable[str]) -> None:
        for label in labels:
            del self._by_label[label][eligibility]
            if not self._by_label[label]:
                del self._by_label[label]

    def _new_domains(self, key: DomainsKey) -> Domains:
        """The domains of the key are asked for beside them: whoever judges nodes asks for these next."""
        namespace, selector, topology_key, required, inclusion = key
        try:
            self._plain(topology_key)
            selection = self._selection(namespace, selector)
            topology = self._topology((topology_key, required, inclusion))
        except Unprepared:
            all_prepared(
                (
                    partial(self._plain, topology_key),
                    partial(self._selection, namespace, selector),
                    partial(self._topology, (topology_key, required, inclusion)),
                )
            )
            raise
        if len(selection.nodes) > _PIECE:
            raise Unprepared(self._join(key, selection, topology))
        return self._counted_by(selection, topology)

    def _counted_by(self, selection: Selection, topology: Topology) -> Domains:
        """Its domains of that topology, which need not be known to the level yet. It has to keep few others."""
        found = join_domains(selection, topology)
        if len(selection.domains) > _MOST_OF_A_SELECTION:
            next((it for it in tuple(selection.domains) if self._domains.evict(it.key())), None)
        return found

    def _join(self, key: DomainsKey, selection: Selection, topology: Topology) -> Iterator[None]:
        """In one piece, some ten milliseconds for 65,000 nodes: unless one of the two was given up."""
        yield
        namespace, selector, topology_key, required, inclusion = key
        there = self._selections.holds((namespace, selector), selection)
        there = there and self._topologies.holds((topology_key, required, inclusion), topology)
        if there and not self._domains.has(key):
            self._domains.put(key, self._counted_by(selection, topology))
            yield

    def _drop_domains(self, domains: Domains) -> None:
        del domains.selection.domains[domains]
        del domains.topology.users[domains]

    def _levels(self) -> dict[str, Bounded[Any, Any]]:
        return {"selection": self._selections, "topology": self._topologies, "domains": self._domains}

    def statistics(self) -> dict[str, dict[str, int]]:
        """Entries, hits, misses and estimated bytes of each level."""
        return {
            name: {"entries": len(level), "hits": level.hits, "misses": level.misses, "bytes": level.bytes}
            for name, level in self._levels().items()
        }

    def skews(self, found: dict[str, int]) -> Iterator[None]:
        """Fill ``found``, by topology key: by how many pods the fullest domain is ahead of the emptiest, of all that is
        counted now. In short steps.
        """
        for number, (key, domains) in enumerate(self._domains.items()):
            if number % _SKEWS == _SKEWS - 1:
                yield
            if self._domains.holds(key, domains) and domains.size():
                topology_key = domains.topology.key
                found[topology_key] = max(found.get(topology_key, 0), domains.skew())

    def recount(self, *, terminating: bool = False) -> PodRecount:
        """A recount to be told of every pod, for ``differences``. What is asked for later is no part of it.

        ``terminating``: whether this is told of such pods, too.
        """
        whole = (key for key, selection in self._selections.items() if selection.rest is None)
        return PodRecount(whole, terminating=terminating)

    def differences(self, recount: PodRecount) -> Iterator[str]:
        """What differs from a recount that has all pods, in words; empty for each step in which nothing does.

        Between steps everything may change, the recount with it. What is still being made is no part of it.
        """
        for namespace, labels in self._groups_of(recount):
            group = self._groups.get(namespace, {}).get(labels)
            kept = {} if group is None else group.nodes
            yield "" if kept == recount.groups.get((namespace, labels), {}) else "groups differ from a recount"
        for key, selection in self._selections.items():
            yield from ("" for _ in self._joining())
            yield from self._selection_differences(key, selection, recount)
        for topology_key, topology in self._topologies.items():
            if topology.rest is None:
                for found in topology.differences(self._nodes):
                    alive = found and self._topologies.holds(topology_key, topology)
                    yield f"{found} of {topology.key} differ from a recount" if alive else ""
        for domains_key, domains in self._domains.items():
            yield from ("" for _ in self._joining())
            counted = recount.selections.get(domains_key[:2])
            if counted is not None and self._domains.holds(domains_key, domains):
                yield from domains.differences(counted)
            yield ""

    def _groups_of(self, recount: PodRecount) -> Iterator[tuple[str, LabelSet]]:
        yield from tuple(recount.groups)
        for namespace in tuple(self._groups):
            for labels in tuple(self._groups.get(namespace, {})):
                if (namespace, labels) not in recount.groups:
                    yield namespace, labels

    def _selection_differences(self, key: SelectionKey, selection: Selection, recount: PodRecount) -> Iterator[str]:
        """One that is half made, since it was given up and asked for anew, is no part of it."""
        counted = recount.selections.get(key) if selection.rest is None else None
        wrong = counted is not None and self._selections.holds(key, selection) and counted != selection.nodes
        yield f"selection {selection.selector} in {selection.namespace} differs from a recount" if wrong else ""
