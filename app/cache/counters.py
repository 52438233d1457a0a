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

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import filterfalse, islice
from typing import Any, Final, Generic, Protocol, TypeVar

from app.cache.pins import PINS
from app.framework.interface import ALL_NODES, DomainCounts, Inclusion, Unprepared, all_prepared
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node
from app.kube.labels import LabelSet
from app.kube.selectors import IN, Selector

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
_AT_LEAST: Final = 8
"""After so many pod events such a part of the entries is weighed anew, or so many: they grow with what they count."""

_MOST_OF_A_GROUP: Final = 128
_MOST_OF_A_SELECTION: Final = 32
"""Selections that match one label set, and domains of one selection: an event changes all of them. Of more than that
those that were made first are given up. A label set has one or two, and a selection one for each topology key. One pod
asks for no more than that, or it would never have all that it needs.
"""

_AT_AN_EVENT: Final = 1024
"""Requirements that a label set never seen is compared with at once, as it comes; with more, before the next answer."""

_ENTRY_BYTES: Final = 1000
_TOPOLOGY_BYTES: Final = 8000
_NODE_BYTES: Final = 50
_COUNT_BYTES: Final = 150
_REQUIREMENT_BYTES: Final = 500
_ELIGIBLE_BYTES: Final = 1500
"""For each part of a node affinity or toleration: more than it takes, since a node that comes is judged by them all."""

_MAX_UNIONS: Final = 32
"""Of one topology: what lies outside of some of its domains, as when zones take turns in being full."""

_FEW_DOMAINS: Final = 64
"""So many may be full in so few ways at a time that a union of the others is worth keeping."""

_MOST_PAIRS: Final = 16
"""Of a selection: one with more is looked at for every label set of its namespace."""

_MAX_LIMITS: Final = 4
"""Limits of one Domains whose crossings are watched: each costs every event a comparison."""

_OVER: Final = object()

_STAMPS: Final = itertools.count(1)
"""No stamp is given out twice, whatever is given up and made anew."""

EVERYWHERE: Final = ""
"""The scope of all namespaces: none has this name."""

Scope = str | frozenset[str]
"""A namespace, some of them, or ``EVERYWHERE``."""

K = TypeVar("K", bound=Hashable)
Answer = TypeVar("Answer")


def covers(scope: Scope, namespace: str) -> bool:
    return namespace in scope if isinstance(scope, frozenset) else scope in (namespace, EVERYWHERE)


class Labelled(Protocol):
    """What is counted by its labels: a pod."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> LabelSet: ...


class Placed(Labelled, Protocol):
    """The same with all that a recount asks of it."""

    @property
    def uid(self) -> str: ...
    @property
    def node_name(self) -> str: ...
    @property
    def terminating(self) -> bool: ...


def new_stamp() -> int:
    return next(_STAMPS)


class Made(Protocol):
    """An entry that is made in pieces. ``rest`` makes one more at each step; ``None``: it is whole, or given up."""

    rest: Iterator[None] | None

    def weight(self) -> int: ...


Entry = TypeVar("Entry", bound=Made)


class Group:
    """All pods of one namespace with one label set. ``selections`` are those that match it."""

    __slots__ = ("labels", "nodes", "selections")

    def __init__(self, labels: LabelSet) -> None:
        self.labels = labels
        self.nodes: dict[str, int] = {}
        self.selections: dict[Selection, None] = {}


class Selection:
    """Pods that one selector matches in a scope, by node. ``rest``: what is still to be counted."""

    __slots__ = ("domains", "groups", "kept", "namespace", "nodes", "rest", "selector")

    def __init__(self, namespace: Scope, selector: Selector) -> None:
        self.namespace = namespace
        self.selector = selector
        self.nodes: dict[str, int] = {}
        self.groups: dict[Group, None] = {}
        self.domains: dict[Domains, None] = {}
        self.rest: Iterator[None] | None = None
        self.kept = True

    def weight(self) -> int:
        """Bytes, and something for the requirements: each label set never seen is judged by all of them."""
        asked = sum(_REQUIREMENT_BYTES + _NODE_BYTES * len(it.values) for it in self.selector.requirements)
        asked += _NODE_BYTES * len(self.namespace)
        return _ENTRY_BYTES + asked + _COUNT_BYTES * (len(self.nodes) + len(self.groups))

    def join(self, group: Group) -> None:
        """Count the pods of a group that it matches, from now on too."""
        group.selections[self] = None
        self.groups[group] = None
        nodes = self.nodes
        for node, count in group.nodes.items():
            nodes[node] = nodes.get(node, 0) + count

    def join_late(self, group: Group) -> None:
        """The same once there may be domains, which count them then."""
        group.selections[self] = None
        self.groups[group] = None
        for node, count in group.nodes.items():
            self.add(node, count)

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


class Eligibility:
    """Which nodes count, for one set of required keys and inclusion; asked once a node, whatever the topology keys."""

    __slots__ = ("_admits", "_made", "inclusion", "reads", "required", "size", "topologies")

    def __init__(self, required: frozenset[str], inclusion: Inclusion) -> None:
        self.required = required
        self.inclusion = inclusion
        self.topologies: dict[str, Topology] = {}
        affinity, tolerations = inclusion.affinity, inclusion.tolerations
        self.reads = required | (affinity.label_keys() if affinity else frozenset())
        self.size = (affinity.size() if affinity else 0) + len(tolerations or ())
        self._admits = inclusion.compiled()
        self._made: Topology | None = None

    def reads_taints(self) -> bool:
        return self.inclusion.tolerations is not None

    def piece(self) -> int:
        """How many nodes are looked at in one piece."""
        return _PIECE if self._made is not None else 1 + _PIECE // (1 + self.size)

    def place(self, topology: Topology, name: str, node: Node) -> None:
        """Put a node where it belongs in a topology that is being made, unless an event has done so."""
        made = self._made
        if name not in topology.domain and (self.counts(node) if made is None else name in made.domain):
            topology.place(name, node.labels.get(topology.key, ""))

    def update(self, name: str, node: Node | None) -> None:
        """A node came, changed, or is gone (``None``)."""
        labels = node.labels if node is not None and self.counts(node) else None
        if labels is None and self._made is not None and name not in self._made.domain:
            return
        for key, topology in self.topologies.items():
            topology.move(name, None if labels is None else labels.get(key, ""))

    def finished(self, topology: Topology) -> None:
        """All nodes are in their places in ``topology``: what others are made from."""
        self._made = self._made or topology

    def left_by(self, topology: Topology) -> None:
        del self.topologies[topology.key]
        if self._made is topology:
            self._made = next((it for it in self.topologies.values() if it.rest is None), None)

    def counts(self, node: Node) -> bool:
        return self.required <= node.labels.keys() and self._admits(node)


class Topology:
    """Which domain each node that counts is in. Without the key, where that is allowed: ``""``.

    ``rest``: what is still to be looked at.
    """

    __slots__ = (
        "domain",
        "eligibility",
        "key",
        "members",
        "renamed",
        "rest",
        "sizes",
        "stamp",
        "unions",
        "users",
    )

    def __init__(self, key: str, eligibility: Eligibility) -> None:
        self.key = key
        self.eligibility = eligibility
        self.domain: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.members: dict[str, set[str]] | None = None
        self.renamed = 0
        self.unions: dict[frozenset[str], set[str]] = {}
        self.users: dict[Domains, None] = {}
        self.stamp = next(_STAMPS)
        self.rest: Iterator[None] | None = None

    def weight(self) -> int:
        """Bytes, and its part of what judges a node: a node that comes is judged by all of it."""
        names = len(self.domain) + sum(map(len, self.unions.values()))
        shared = _ELIGIBLE_BYTES * self.eligibility.size // max(1, len(self.eligibility.topologies))
        return _TOPOLOGY_BYTES + shared + _NODE_BYTES * (names + len(self.sizes))

    def place(self, name: str, value: str) -> None:
        """Put a node in while nobody uses it yet."""
        self.domain[name] = value
        self.renamed += name != value
        self.sizes[value] = self.sizes.get(value, 0) + 1

    def move(self, name: str, new: str | None) -> None:
        """Move a node to the domain ``new`` (``None``: to none), and its pods with it."""
        old = self.domain.get(name)
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
            yield "places" if info is not None and self._belongs(info.node) != self.domain.get(name) else ""
        yield "places" if self.domain.keys() - nodes.keys() else ""
        yield "" if self._is_sound() else "domains"
        for blocked in tuple(self.unions):
            kept = self.unions.get(blocked)
            outside = {name for name, value in self.domain.items() if value not in blocked}
            yield "unions" if kept not in (None, outside) else ""

    def _belongs(self, node: Node) -> str | None:
        return node.labels.get(self.key, "") if self.eligibility.counts(node) else None

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
        self.stamps: dict[int, int] = {}
        self.counts, self.by_count = self._counted(selection.nodes)

    def _counted(self, nodes: Mapping[str, int]) -> tuple[dict[str, int], dict[int, set[str]]]:
        """``nodes`` by domain, and the domains by their count. Weights of both signs may come to nothing."""
        counts: dict[str, int] = {}
        by_count: dict[int, set[str]] = {}
        domain = self.topology.domain
        for node, count in nodes.items():
            value = domain.get(node)
            if value is not None:
                counts[value] = counts.get(value, 0) + count
        if 0 in counts.values():
            counts = {value: count for value, count in counts.items() if count}
        for value, count in counts.items():
            by_count.setdefault(count, set()).add(value)
        return counts, by_count

    def key(self) -> DomainsKey:
        selection, topology = self.selection, self.topology
        eligibility = topology.eligibility
        return selection.namespace, selection.selector, topology.key, eligibility.required, eligibility.inclusion

    def weight(self) -> int:
        """Bytes."""
        return _ENTRY_BYTES + _COUNT_BYTES * len(self.counts)

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

    def is_empty(self) -> bool:
        return not self.counts

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

    def skew(self) -> int:
        """By how many pods the fullest domain is ahead of the emptiest."""
        return max(self.by_count, default=0) - self.minimum()

    def _minimum_with(self, deltas: Mapping[str, int]) -> int:
        """The smallest changed count, against the smallest of the domains left alone."""
        counts, sizes = self.counts, self.topology.sizes
        found = [counts.get(value, 0) + delta for value, delta in deltas.items()]
        if max(deltas.values()) <= 0:  # what any of them was before is no smaller than what it is now
            return min(self.minimum(), *found)
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
        counts, by_count = self._counted(counted)
        where = f"{self.topology.key} of {self.selection.selector} in {self.selection.namespace}"
        parts = {"counts": self.counts == counts, "buckets": self.by_count == by_count}
        yield from (f"{name} by {where} differ from a recount" for name, right in parts.items() if not right)


class Weighed(Protocol):
    """What a level holds."""

    def weight(self) -> int:
        """Bytes, as estimated; moves with what is counted."""
        ...


V = TypeVar("V", bound=Weighed)


class Bounded(Generic[K, V]):
    """The entries used last, as many as weigh ``limit()`` bytes together, and at least one.

    ``on_evict`` is told of each that has to go; hits and misses are counted. What is pinned stays, whatever it weighs.
    """

    def __init__(self, limit: Callable[[], int], make: Callable[[K], V], on_evict: Callable[[V], None]) -> None:
        self._entries: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._due: list[K] = []
        self._limit = limit
        self._make = make
        self._on_evict = on_evict
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[V]:
        return iter(self._entries.values())

    def get(self, key: K) -> V:
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            return self.put(key, self._make(key))
        self.hits += 1
        self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V) -> V:
        """Keep a new entry, or what it has become."""
        self._entries[key] = entry
        self._weigh(key, entry)
        self._shrink()
        return entry

    def has(self, key: K) -> bool:
        return key in self._entries

    def holds(self, key: K, entry: V) -> bool:
        """Whether this very entry is there."""
        return self._entries.get(key) is entry

    def touch(self, key: K) -> None:
        """Count as used what another entry stands on."""
        if PINS.noting:
            PINS.keys.add(key)
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry

    def items(self) -> Sequence[tuple[K, V]]:
        """The entries as they are now. Others may come and go: see ``holds``."""
        return tuple(self._entries.items())

    def forget(self, key: K) -> None:
        """Take out an entry that lost what it stands on. ``on_evict`` is not told."""
        if self._entries.pop(key, None) is not None:
            self.bytes -= self._weights.pop(key)

    def give_up(self, key: K) -> bool:
        """Whether there was such an entry that is not pinned: there is none any more."""
        if key in PINS.keys or key not in self._entries:
            return False
        self._evict(key)
        return True

    def weigh(self, part: int = 1) -> None:
        """Weigh one of so many parts of the entries anew, and at least some: another part each time."""
        if not self._due:
            self._due = list(self._entries)
        for _ in range(min(len(self._due), _AT_LEAST + len(self._entries) // part)):
            key = self._due.pop()
            entry = self._entries.get(key)
            if entry is not None:
                self._weigh(key, entry)
        self._shrink()

    def _weigh(self, key: K, entry: V) -> None:
        weight = entry.weight()
        self.bytes += weight - self._weights.get(key, 0)
        self._weights[key] = weight

    def _shrink(self) -> None:
        """Never the newest: whoever asks has it in hand."""
        while self.bytes > self._limit() and len(self._entries) > 1:
            others = islice(self._entries, len(self._entries) - 1)
            key = next(filterfalse(PINS.keys.__contains__, others), None)
            if key is None:
                return
            self._evict(key)

    def _evict(self, key: K) -> None:
        entry = self._entries.pop(key)
        self.bytes -= self._weights.pop(key)
        self._on_evict(entry)


DomainsKey = tuple[Scope, Selector, str, frozenset[str], Inclusion]
SelectionKey = tuple[Scope, Selector]
TopologyKey = tuple[str, frozenset[str], Inclusion]
EligibilityKey = tuple[frozenset[str], Inclusion]


def at_once(ask: Callable[[], Answer]) -> Answer:
    """The answer, whatever it takes: for who holds up nobody."""
    while True:
        try:
            return ask()
        except Unprepared as missing:
            for _ in missing.steps:
                pass


def pairs_of(namespaces: Collection[str], selector: Selector) -> list[tuple[str, ...]]:
    """Under what a selector is to be found by the pods that it may match: by a pair that these must have, else by the
    namespace alone. Of many namespaces: under ``EVERYWHERE``.
    """
    required = [it for it in selector.requirements if it.operator == IN]
    fewest = min(required, key=lambda it: len(it.values), default=None)
    scopes = namespaces if len(namespaces) <= _MOST_PAIRS else (EVERYWHERE,)
    if fewest is None or len(fewest.values) > _MOST_PAIRS:
        return [(it,) for it in scopes]
    return [(it, fewest.key, value) for it in scopes for value in fewest.values]


def found_under(namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """All ``pairs_of`` under which there may be selectors that match a pod."""
    for scope in (namespace, EVERYWHERE):
        yield (scope,)
        for key, value in labels.items():
            yield (scope, key, value)


class Recount:
    """Pods counted anew, as plainly as can be. Changes while it is made are told to it, so that it ends up exact.

    ``groups`` are counts by node of each namespace and label set, ``selections`` those of the selections given.
    """

    def __init__(self, selections: Iterable[SelectionKey], *, terminating: bool = False) -> None:
        """``terminating``: whether such pods are counted, too."""
        self._terminating = terminating
        self.groups: dict[tuple[str, LabelSet], dict[str, int]] = {}
        self.selections: dict[SelectionKey, dict[str, int]] = {key: {} for key in selections}
        self._by_scope: dict[Scope, list[Selector]] = {}
        for scope, selector in self.selections:
            self._by_scope.setdefault(scope, []).append(selector)
        self._wide = [it for it in self._by_scope if isinstance(it, frozenset) or it == EVERYWHERE]
        self._rows: dict[tuple[str, LabelSet], list[dict[str, int]]] = {}
        self._seen: set[str] = set()

    def see(self, pod: Placed) -> None:
        """A pod as it is now. Once is enough: what happens to it later is told."""
        if pod.uid not in self._seen:
            self._seen.add(pod.uid)
            self._add(pod, 1)

    def moved(self, old: Placed | None, new: Placed | None) -> None:
        """A pod changed from one form to another, came (``old`` is None) or went (``new`` is None)."""
        for pod, delta in ((old, -1), (new, 1)):
            if pod is not None and (delta > 0 or pod.uid in self._seen):
                self._add(pod, delta)
            if pod is not None:
                self._seen.add(pod.uid)

    def _add(self, pod: Placed, delta: int) -> None:
        if not pod.node_name or (pod.terminating and not self._terminating):
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
            scopes = (namespace, *(it for it in self._wide if covers(it, namespace)))
            keys = ((scope, it) for scope in scopes for it in self._by_scope.get(scope, ()) if it.matches(labels))
            self.groups[group] = {}
            rows = self._rows[group] = [self.groups[group], *(self.selections[key] for key in keys)]
        return rows


class Changes(Protocol):
    """What is laid over the counts while a picture is read without some pods, or with others."""

    def pods_by_node(self, namespace: Scope, selector: Selector, kept: Mapping[str, int]) -> Mapping[str, int]: ...
    def domains(self, kept: Domains) -> DomainCounts: ...


class Counters:
    """Implements ``framework.Counts`` over the node infos of a picture, which tells it of every change.

    ``overlay`` changes what is answered and nothing that is kept: what is counted first is counted without it.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self.overlay: Changes | None = None
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
        self._require_joined()
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
        return _joined(selection, topology)

    def _join_own(self, selection: Selection, topology_key: str) -> Iterator[None]:
        """In one piece, as ``_join``."""
        yield
        topology = self._topologies.get((topology_key, frozenset((topology_key,)), ALL_NODES))
        known = any(it.topology is topology for it in selection.domains)
        if topology.rest is None and selection.kept and not known:
            _joined(selection, topology)
            yield

    def leave(self, selection: Selection) -> None:
        """A selection that is kept elsewhere is given up there."""
        selection.kept = False
        for domains in selection.domains:
            del domains.topology.users[domains]
        selection.domains.clear()

    def _selection(self, namespace: Scope, selector: Selector) -> Selection:
        """A whole one. Raises ``Unprepared``."""
        self._require_joined()
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
            advance(made)
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

    def pod(self, pod: Labelled, node: str, delta: int) -> None:
        """A counted pod came to (1) or left (-1) ``node``, which the picture need not know."""
        self._moves += 1
        if self._moves >= _WEIGH_EVERY:
            self._weigh()
        for selection in self._grouped(pod, node, delta):
            selection.add(node, delta)

    def relabelled(self, old: Labelled, new: Labelled, node: str) -> None:
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

    def _grouped(self, pod: Labelled, node: str, delta: int) -> dict[Selection, None]:
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

    def _require_joined(self) -> None:
        """Raises ``Unprepared``."""
        if self._unjoined:
            raise Unprepared(self._joining())

    def _thin_out(self, group: Group, newest: Selection) -> None:
        """Give up selections of a group that has too many. Not the newest, and none that is pinned."""
        if len(group.selections) > _MOST_OF_A_GROUP:
            for it in tuple(group.selections):
                if it is not newest and self._selections.give_up((it.namespace, it.selector)):
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
        advance(selection)
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
        advance(topology)
        return topology

    def _index(self, eligibility: Eligibility, labels: Iterable[str]) -> None:
        for label in labels:
            self._by_label.setdefault(label, {})[eligibility] = None

    def _place(self, topology: Topology) -> Iterator[None]:
        """Look at every node, piece by piece. Nodes that change meanwhile are placed by what is told of them."""
        eligibility = topology.eligibility
        left = eligibility.piece()
        for name in tuple(self._nodes):
            info = self._nodes.get(name)
            if info is not None:
                eligibility.place(topology, name, info.node)
            left -= 1
            if not left:
                yield
                left = eligibility.piece()
        eligibility.finished(topology)

    def _drop_topology(self, topology: Topology) -> None:
        topology.rest = None
        eligibility = topology.eligibility
        eligibility.left_by(topology)
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
        found = _joined(selection, topology)
        if len(selection.domains) > _MOST_OF_A_SELECTION:
            next((it for it in tuple(selection.domains) if self._domains.give_up(it.key())), None)
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

    def recount(self, *, terminating: bool = False) -> Recount:
        """A recount to be told of every pod, for ``differences``. What is asked for later is no part of it.

        ``terminating``: whether this is told of such pods, too.
        """
        whole = (key for key, selection in self._selections.items() if selection.rest is None)
        return Recount(whole, terminating=terminating)

    def differences(self, recount: Recount) -> Iterator[str]:
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

    def _groups_of(self, recount: Recount) -> Iterator[tuple[str, LabelSet]]:
        yield from tuple(recount.groups)
        for namespace in tuple(self._groups):
            for labels in tuple(self._groups.get(namespace, {})):
                if (namespace, labels) not in recount.groups:
                    yield namespace, labels

    def _selection_differences(self, key: SelectionKey, selection: Selection, recount: Recount) -> Iterator[str]:
        """One that is half made, since it was given up and asked for anew, is no part of it."""
        counted = recount.selections.get(key) if selection.rest is None else None
        wrong = counted is not None and self._selections.holds(key, selection) and counted != selection.nodes
        yield f"selection {selection.selector} in {selection.namespace} differs from a recount" if wrong else ""

    def _snapshot(self) -> dict[tuple[str, LabelSet], dict[str, int]]:
        return {(ns, labels): group.nodes for ns, groups in self._groups.items() for labels, group in groups.items()}


def advance(made: Made) -> None:
    """Make one piece more."""
    if made.rest is not None:
        try:
            next(made.rest)
        except StopIteration:
            made.rest = None


def _joined(selection: Selection, topology: Topology) -> Domains:
    domains = Domains(selection, topology)
    selection.domains[domains] = None
    topology.users[domains] = None
    return domains
