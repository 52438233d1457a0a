"""Which domain each node is in that counts: topologies, and the eligibilities that they share."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import filterfalse
from typing import TYPE_CHECKING, Final

from app.framework.counts import Inclusion
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node

if TYPE_CHECKING:
    from app.cache.domains import Domains

_TOPOLOGY_BYTES: Final = 8000
_NODE_BYTES: Final = 50
_ELIGIBLE_BYTES: Final = 1500
"""For each part of a node affinity or toleration: more than it takes, since a node that comes is judged by them all."""

_MAX_UNIONS: Final = 32
"""Of one topology: what lies outside of some of its domains, as when zones take turns in being full."""

_FEW_DOMAINS: Final = 64
"""So many may be full in so few ways at a time that a union of the others is worth keeping."""

_STAMPS: Final = itertools.count(1)
"""No stamp is given out twice, whatever is given up and made anew."""

TopologyKey = tuple[str, frozenset[str], Inclusion]
EligibilityKey = tuple[frozenset[str], Inclusion]


def new_stamp() -> int:
    return next(_STAMPS)


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

    def piece(self, most: int) -> int:
        """How many nodes are looked at in one piece, ``most`` if each costs a look-up."""
        return most if self._made is not None else 1 + most // (1 + self.size)

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
        self.stamp = new_stamp()
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
        self.stamp = new_stamp()
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
