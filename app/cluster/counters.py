"""Kept counts: how many pods a selector matches, by node and by topology domain, up to date after every event.

Three levels, so that an event costs one look-up however many constraints are alive, and pods are never walked again:

    Group       (namespace, label set)                        -> node -> pods       fed by pod events
    Selection   (namespace, selector)                         -> node -> pods       fed by the groups it matches
    Topology    (topology key, required keys, inclusion)      node -> domain        fed by node events
    Domains     Selection x Topology                          -> domain -> pods     fed by both

Counted are pods that are neither terminating nor finished. Counts are sparse: a domain that exists without a pod is
known to its Topology alone, so that thousands of hostname constraints do not each hold every node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import filterfalse
from typing import Any, Final, Generic, TypeVar

from app.framework.interface import ALL_NODES, Inclusion
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node, Pod
from app.kube.labels import LabelSet
from app.kube.selectors import IN, Selector

_MAX_SELECTIONS: Final = 8192
_MAX_DOMAINS: Final = 16384
_MAX_TOPOLOGIES: Final = 4096
_MAX_UNIONS: Final = 32
"""Of one topology: what lies outside of some of its domains, as when zones take turns in being full."""

_FEW_DOMAINS: Final = 64
"""So many may be full in so few ways at a time that a union of the others is worth keeping."""

_MAX_LIMITS: Final = 4
"""Limits of one Domains whose crossings are watched: each costs every event a comparison."""

_STAMPS: Final = itertools.count(1)
"""No stamp is given out twice, whatever is given up and made anew."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Group:
    """All pods of one namespace with one label set. ``selections`` are those that match it."""

    __slots__ = ("labels", "nodes", "selections")

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.nodes: dict[str, int] = {}
        self.selections: list[Selection] = []


class Selection:
    """Pods that one selector matches in one namespace, by node."""

    __slots__ = ("domains", "namespace", "nodes", "selector")

    def __init__(self, namespace: str, selector: Selector) -> None:
        self.namespace = namespace
        self.selector = selector
        self.nodes: dict[str, int] = {}
        self.domains: list[Domains] = []

    def add(self, node: str, delta: int) -> None:
        nodes = self.nodes
        count = nodes.get(node, 0) + delta
        if count:
            nodes[node] = count
        else:
            nodes.pop(node, None)
        for domains in self.domains:
            value = domains.topology.domain.get(node)
            if value is not None:
                domains.add(value, delta)


class Topology:
    """Which domain each counted node is in, for one topology key, set of required keys and inclusion."""

    __slots__ = ("domain", "inclusion", "key", "members", "renamed", "required", "sizes", "stamp", "unions", "users")

    def __init__(self, key: str, required: frozenset[str], inclusion: Inclusion) -> None:
        self.key = key
        self.required = required
        self.inclusion = inclusion
        self.domain: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.members: dict[str, set[str]] | None = None
        self.renamed = 0
        self.unions: dict[frozenset[str], set[str]] = {}
        self.users: list[Domains] = []
        self.stamp = next(_STAMPS)

    def reads_labels(self) -> frozenset[str]:
        affinity = self.inclusion.affinity
        return self.required | {self.key} | (affinity.label_keys() if affinity else frozenset())

    def reads_taints(self) -> bool:
        return self.inclusion.tolerations is not None

    def place(self, node: Node) -> str | None:
        """The domain of ``node``, or ``None`` if it does not count. Without the key, where allowed: ``""``."""
        if not self.required <= node.labels.keys() or not self.inclusion.admits(node):
            return None
        return node.labels.get(self.key, "")

    def update(self, name: str, node: Node | None) -> None:
        """Move a node to where it belongs now (``None``: it is gone), and its pods with it."""
        old, new = self.domain.get(name), None if node is None else self.place(node)
        if old == new:
            return
        self.stamp = next(_STAMPS)
        self.unions.clear()
        if old is not None:
            self._leave(name, old)
        if new is not None:
            self._enter(name, new)

    def _leave(self, name: str, value: str) -> None:
        del self.domain[name]
        self.renamed -= name != value
        self.sizes[value] -= 1
        if not self.sizes[value]:
            del self.sizes[value]
        if self.members is not None:
            self.members[value].discard(name)
        self._move_pods(name, value, -1)

    def _enter(self, name: str, value: str) -> None:
        self.domain[name] = value
        self.renamed += name != value
        self.sizes[value] = self.sizes.get(value, 0) + 1
        if self.members is not None:
            self.members.setdefault(value, set()).add(name)
        self._move_pods(name, value, 1)

    def _move_pods(self, name: str, value: str, sign: int) -> None:
        for user in self.users:
            count = user.selection.nodes.get(name)
            if count:
                user.add(value, sign * count)

    def nodes_in(self, value: str) -> Collection[str]:
        if self.members is None:
            self.members = {}
            for name, at in self.domain.items():
                self.members.setdefault(at, set()).add(name)
        return self.members.get(value, ())

    def outside(self, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Those of ``names``, in order, that count here and are in none of the domains ``blocked``."""
        if not blocked:
            return list(filter(self.domain.__contains__, names))
        if not self.renamed:  # as by host: each node is its own domain
            full = blocked if isinstance(blocked, Set) else frozenset(blocked)
            return list(filterfalse(full.__contains__, filter(self.domain.__contains__, names)))
        if len(self.sizes) <= _FEW_DOMAINS:
            return list(filter(self._union_outside(frozenset(blocked)).__contains__, names))
        left_out = {None, *blocked}
        return [name for name, at in zip(names, map(self.domain.get, names), strict=True) if at not in left_out]

    def differences(self, nodes: Mapping[str, NodeInfo]) -> Iterator[str]:
        """What differs from a recount, by name; empty for each step in which nothing does."""
        for name in tuple(nodes):
            info = nodes.get(name)
            yield "places" if info is not None and self.place(info.node) != self.domain.get(name) else ""
        yield "places" if self.domain.keys() - nodes.keys() else ""
        yield "" if self._is_sound() else "domains"
        for blocked in tuple(self.unions):
            kept = self.unions.get(blocked)
            outside = {name for name, value in self.domain.items() if value not in blocked}
            yield "unions" if kept not in (None, outside) else ""

    def _is_sound(self) -> bool:
        """Whether the domains say of their nodes what the nodes say of their domains."""
        members: dict[str, set[str]] = {}
        for name, value in self.domain.items():
            members.setdefault(value, set()).add(name)
        kept = members if self.members is None else {value: names for value, names in self.members.items() if names}
        renamed = sum(name != value for name, value in self.domain.items())
        sizes = {value: len(names) for value, names in members.items()}
        return kept == members and self.renamed == renamed and self.sizes == sizes

    def _union_outside(self, blocked: frozenset[str]) -> set[str]:
        found = self.unions.get(blocked)
        if found is None:
            if len(self.unions) >= _MAX_UNIONS:
                self.unions.clear()
            found = set[str]().union(*(self.nodes_in(value) for value in self.sizes if value not in blocked))
            self.unions[blocked] = found
        return found


class Domains:
    """Counts of one selection by the domains of one topology. ``by_count`` holds the domains by their count.

    ``stamps`` holds, for the limits asked for last, a number that moves when a domain crosses the limit.
    """

    __slots__ = ("by_count", "counts", "selection", "stamps", "topology")

    def __init__(self, selection: Selection, topology: Topology) -> None:
        self.selection = selection
        self.topology = topology
        self.counts: dict[str, int] = {}
        self.by_count: dict[int, set[str]] = {}
        self.stamps: dict[int, int] = {}
        for node, count in selection.nodes.items():
            value = topology.domain.get(node)
            if value is not None:
                self.counts[value] = self.counts.get(value, 0) + count
        for value, count in self.counts.items():
            self.by_count.setdefault(count, set()).add(value)

    def key(self) -> DomainsKey:
        selection, topology = self.selection, self.topology
        return selection.namespace, selection.selector, topology.key, topology.required, topology.inclusion

    def add(self, value: str, delta: int) -> None:
        counts, by_count = self.counts, self.by_count
        old = counts.get(value, 0)
        new = old + delta
        if old:
            bucket = by_count[old]
            if len(bucket) == 1:
                del by_count[old]
            else:
                bucket.remove(value)
        if not new:
            del counts[value]
        else:
            counts[value] = new
            if new in by_count:
                by_count[new].add(value)
            else:
                by_count[new] = {value}
        if self.stamps:
            self._move_stamps(old, new)

    def _move_stamps(self, old: int, new: int) -> None:
        for limit in self.stamps:
            if (old > limit) != (new > limit):
                self.stamps[limit] = next(_STAMPS)

    def stamp(self, limit: int) -> int:
        found = self.stamps.get(limit)
        if found is None:
            if len(self.stamps) >= _MAX_LIMITS:
                del self.stamps[next(iter(self.stamps))]
            found = self.stamps[limit] = next(_STAMPS)
        return found

    def count(self, value: str) -> int:
        return self.counts.get(value, 0)

    def size(self) -> int:
        return len(self.topology.sizes)

    def nodes_by_domain(self) -> Mapping[str, int]:
        return self.topology.sizes

    def domain_of(self, node: str) -> str | None:
        return self.topology.domain.get(node)

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        if deltas:
            return self._minimum_with(deltas)
        if len(self.counts) < len(self.topology.sizes):
            return 0
        return min(self.by_count, default=0)

    def _minimum_with(self, deltas: Mapping[str, int]) -> int:
        """The smallest changed count, against the smallest of the domains left alone."""
        counts, sizes = self.counts, self.topology.sizes
        found = [counts.get(value, 0) + delta for value, delta in deltas.items()]
        others = len(sizes) - sum(value in sizes for value in deltas)
        others_with_pods = len(counts) - sum(value in counts for value in deltas)
        if others > others_with_pods:
            found.append(0)
        else:
            untouched = (
                count for count in sorted(self.by_count) if any(it not in deltas for it in self.by_count[count])
            )
            found.extend(next(((count,) for count in untouched), ()))
        return min(found)

    def above(self, limit: int) -> Collection[str]:
        buckets = [values for count, values in self.by_count.items() if count > limit]
        return buckets[0] if len(buckets) == 1 else [value for values in buckets for value in values]

    def differences(self, counted: Mapping[str, int]) -> Iterator[str]:
        """What differs from ``counted``, the pods by node, in words."""
        counts: dict[str, int] = {}
        for node, count in counted.items():
            value = self.topology.domain.get(node)
            if value is not None:
                counts[value] = counts.get(value, 0) + count
        by_count: dict[int, set[str]] = {}
        for value, count in counts.items():
            by_count.setdefault(count, set()).add(value)
        where = f"{self.topology.key} of {self.selection.selector} in {self.selection.namespace}"
        parts = {"counts": self.counts == counts, "buckets": self.by_count == by_count}
        yield from (f"{name} by {where} differ from a recount" for name, right in parts.items() if not right)


class Bounded(Generic[K, V]):
    """The entries used last. ``on_evict`` is told of each that has to go; hits and misses are counted."""

    def __init__(self, limit: int, make: Callable[[K], V], on_evict: Callable[[V], None]) -> None:
        self._entries: dict[K, V] = {}
        self._limit = limit
        self._make = make
        self._on_evict = on_evict
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries.values())

    def get(self, key: K) -> V:
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            entry = self._make(key)
            if len(self._entries) >= self._limit:
                self._on_evict(self._entries.pop(next(iter(self._entries))))
        else:
            self.hits += 1
        self._entries[key] = entry
        return entry

    def touch(self, key: K) -> None:
        """Count as used what another entry stands on."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry

    def items(self) -> Sequence[tuple[K, V]]:
        """The entries as they are now. Others may come and go: see ``has``."""
        return tuple(self._entries.items())

    def has(self, key: K, entry: V) -> bool:
        """Whether it is still this entry."""
        return self._entries.get(key) is entry

    def forget(self, key: K) -> None:
        """Take out an entry that lost what it stands on. ``on_evict`` is not told."""
        self._entries.pop(key, None)


DomainsKey = tuple[str, Selector, str, frozenset[str], Inclusion]
SelectionKey = tuple[str, Selector]
TopologyKey = tuple[str, frozenset[str], Inclusion]


class Recount:
    """Pods counted anew, as plainly as can be. Changes while it is made are told to it, so that it ends up exact.

    ``groups`` are counts by node of each namespace and label set, ``selections`` those of the selections given.
    """

    def __init__(self, selections: Iterable[SelectionKey]) -> None:
        self.groups: dict[tuple[str, LabelSet], dict[str, int]] = {}
        self.selections: dict[SelectionKey, dict[str, int]] = {key: {} for key in selections}
        self._by_namespace: dict[str, list[Selector]] = {}
        for namespace, selector in self.selections:
            self._by_namespace.setdefault(namespace, []).append(selector)
        self._rows: dict[tuple[str, LabelSet], list[dict[str, int]]] = {}
        self._seen: set[str] = set()

    def see(self, pod: Pod) -> None:
        """A pod as it is now. Once is enough: what happens to it later is told."""
        if pod.uid not in self._seen:
            self._seen.add(pod.uid)
            self._add(pod, 1)

    def moved(self, old: Pod | None, new: Pod | None) -> None:
        """A pod changed from one form to another, came (``old`` is None) or went (``new`` is None)."""
        for pod, delta in ((old, -1), (new, 1)):
            if pod is not None and (delta > 0 or pod.uid in self._seen):
                self._add(pod, delta)
            if pod is not None:
                self._seen.add(pod.uid)

    def _add(self, pod: Pod, delta: int) -> None:
        if not pod.node_name or pod.terminating:
            return
        for row in self._rows_of((pod.namespace, pod.labels)):
            count = row.get(pod.node_name, 0) + delta
            if count:
                row[pod.node_name] = count
            else:
                del row[pod.node_name]

    def _rows_of(self, group: tuple[str, LabelSet]) -> list[dict[str, int]]:
        """Where pods of a group are counted; each label set is asked against each selector once."""
        rows = self._rows.get(group)
        if rows is None:
            namespace, labels = group
            matching = [it for it in self._by_namespace.get(namespace, ()) if it.matches(labels)]
            self.groups[group] = {}
            rows = self._rows[group] = [self.groups[group], *(self.selections[namespace, it] for it in matching)]
        return rows


class Counters:
    """Implements ``framework.Counts`` over the node infos of a picture, which tells it of every change."""

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self._nodes = nodes
        self._groups: dict[str, dict[LabelSet, Group]] = {}
        self._by_pair: dict[tuple[str, ...], dict[Selection, None]] = {}
        self._by_label: dict[str, dict[Topology, None]] = {}
        self._by_taints: dict[Topology, None] = {}
        self._selections = Bounded[SelectionKey, Selection](_MAX_SELECTIONS, self._new_selection, self._drop_selection)
        self._topologies = Bounded[TopologyKey, Topology](_MAX_TOPOLOGIES, self._new_topology, self._drop_topology)
        self._domains = Bounded[DomainsKey, Domains](_MAX_DOMAINS, self._new_domains, self._drop_domains)

    def pods_by_node(self, namespace: str, selector: Selector) -> Mapping[str, int]:
        return self._selections.get((namespace, selector)).nodes

    def domains(
        self,
        namespace: str,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> Domains:
        self._selections.touch((namespace, selector))
        self._topologies.touch((topology_key, required_keys, inclusion))
        return self._domains.get((namespace, selector, topology_key, required_keys, inclusion))

    def values(self, topology_key: str) -> Mapping[str, str]:
        return self._plain(topology_key).domain

    def nodes_in(self, topology_key: str, value: str) -> Collection[str]:
        return self._plain(topology_key).nodes_in(value)

    def on_every_node(self, topology_key: str) -> bool:
        return len(self._plain(topology_key).domain) == len(self._nodes)

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        return self._plain(topology_key).outside(blocked, names)

    def stamp(self, topology_key: str) -> int:
        return self._plain(topology_key).stamp

    def _plain(self, topology_key: str) -> Topology:
        return self._topologies.get((topology_key, frozenset((topology_key,)), ALL_NODES))

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """A counted pod came to (1) or left (-1) ``node``, which the picture need not know."""
        for selection in self._grouped(pod, node, delta):
            selection.add(node, delta)

    def relabelled(self, old: Pod, new: Pod, node: str) -> None:
        """A counted pod on ``node`` has other labels now. Nothing moves where both are selected."""
        before, after = self._grouped(old, node, -1), self._grouped(new, node, 1)
        if before == after:
            return
        for selection in before:
            if selection not in after:
                selection.add(node, -1)
        for selection in after:
            if selection not in before:
                selection.add(node, 1)

    def _grouped(self, pod: Pod, node: str, delta: int) -> list[Selection]:
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

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """A node was added (``old`` is None), changed, or removed (``new`` is None)."""
        for topology in self._touched(old, new):
            topology.update(name, new)

    def _touched(self, old: Node | None, new: Node | None) -> Iterable[Topology]:
        if old is None or new is None:
            return self._topologies
        touched = dict(self._by_taints) if old.taints != new.taints else {}
        if old.labels is not new.labels:
            changed = {key for key, _ in old.labels.items() ^ new.labels.items()}
            for key in changed:
                touched.update(self._by_label.get(key, {}))
        return touched

    def _new_group(self, namespace: str, labels: LabelSet) -> Group:
        group = Group(labels)
        candidates = dict(self._by_pair.get((namespace,), {}))
        for key, value in labels.items():
            candidates.update(self._by_pair.get((namespace, key, value), {}))
        group.selections = [it for it in candidates if it.selector.matches(labels)]
        return group

    def _drop_group(self, namespace: str, groups: dict[LabelSet, Group], group: Group) -> None:
        del groups[group.labels]
        if not groups:
            del self._groups[namespace]

    def _new_selection(self, key: SelectionKey) -> Selection:
        namespace, selector = key
        selection = Selection(namespace, selector)
        nodes, matches = selection.nodes, selector.matches
        for group in self._groups.get(namespace, {}).values():
            if matches(group.labels):
                group.selections.append(selection)
                for node, count in group.nodes.items():
                    nodes[node] = nodes.get(node, 0) + count
        for pair in self._pairs_of(selection):
            self._by_pair.setdefault(pair, {})[selection] = None
        return selection

    def _drop_selection(self, selection: Selection) -> None:
        for group in self._groups.get(selection.namespace, {}).values():
            if selection in group.selections:
                group.selections.remove(selection)
        for pair in self._pairs_of(selection):
            del self._by_pair[pair][selection]
            if not self._by_pair[pair]:
                del self._by_pair[pair]
        for domains in selection.domains:
            domains.topology.users.remove(domains)
            self._domains.forget(domains.key())

    def _pairs_of(self, selection: Selection) -> list[tuple[str, ...]]:
        """Where a label set never seen finds the selection: by a pair that it must have, else by the namespace."""
        required = next((it for it in selection.selector.requirements if it.operator == IN), None)
        if required is None:
            return [(selection.namespace,)]
        return [(selection.namespace, required.key, value) for value in required.values]

    def _new_topology(self, key: TopologyKey) -> Topology:
        topology = Topology(*key)
        for name, info in self._nodes.items():
            topology.update(name, info.node)
        for label in topology.reads_labels():
            self._by_label.setdefault(label, {})[topology] = None
        if topology.reads_taints():
            self._by_taints[topology] = None
        return topology

    def _drop_topology(self, topology: Topology) -> None:
        for label in topology.reads_labels():
            self._by_label[label].pop(topology, None)
            if not self._by_label[label]:
                del self._by_label[label]
        self._by_taints.pop(topology, None)
        for domains in topology.users:
            domains.selection.domains.remove(domains)
            self._domains.forget(domains.key())

    def _new_domains(self, key: DomainsKey) -> Domains:
        namespace, selector, topology_key, required, inclusion = key
        selection = self._selections.get((namespace, selector))
        topology = self._topologies.get((topology_key, required, inclusion))
        domains = Domains(selection, topology)
        selection.domains.append(domains)
        topology.users.append(domains)
        return domains

    def _drop_domains(self, domains: Domains) -> None:
        domains.selection.domains.remove(domains)
        domains.topology.users.remove(domains)

    def statistics(self) -> dict[str, dict[str, int]]:
        """Entries, hits and misses of each level."""
        levels: dict[str, Bounded[Any, Any]] = {
            "selection": self._selections,
            "topology": self._topologies,
            "domains": self._domains,
        }
        return {
            name: {"entries": len(level), "hits": level.hits, "misses": level.misses} for name, level in levels.items()
        }

    def recount(self) -> Recount:
        """A recount to be told of every pod, for ``differences``. What is asked for later is no part of it."""
        return Recount(key for key, _ in self._selections.items())

    def differences(self, recount: Recount) -> Iterator[str]:
        """What differs from a recount that has all pods, in words; empty for each step in which nothing does.

        Between steps everything may change, the recount with it.
        """
        for namespace, labels in self._groups_of(recount):
            group = self._groups.get(namespace, {}).get(labels)
            kept = {} if group is None else group.nodes
            yield "" if kept == recount.groups.get((namespace, labels), {}) else "groups differ from a recount"
        for key, selection in self._selections.items():
            yield from self._selection_differences(key, selection, recount)
        for topology_key, topology in self._topologies.items():
            for found in topology.differences(self._nodes):
                alive = found and self._topologies.has(topology_key, topology)
                yield f"{found} of {topology.key} differ from a recount" if alive else ""
        for domains_key, domains in self._domains.items():
            counted = recount.selections.get(domains_key[:2])
            if counted is not None and self._domains.has(domains_key, domains):
                yield from domains.differences(counted)
            yield ""

    def _groups_of(self, recount: Recount) -> Iterator[tuple[str, LabelSet]]:
        yield from tuple(recount.groups)
        for namespace in tuple(self._groups):
            for labels in tuple(self._groups.get(namespace, {})):
                if (namespace, labels) not in recount.groups:
                    yield namespace, labels

    def _selection_differences(self, key: SelectionKey, selection: Selection, recount: Recount) -> Iterator[str]:
        counted = recount.selections.get(key)
        wrong = counted is not None and self._selections.has(key, selection) and counted != selection.nodes
        yield f"selection {selection.selector} in {selection.namespace} differs from a recount" if wrong else ""

    def _snapshot(self) -> dict[tuple[str, LabelSet], dict[str, int]]:
        return {(ns, labels): group.nodes for ns, groups in self._groups.items() for labels, group in groups.items()}
