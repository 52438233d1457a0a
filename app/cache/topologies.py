"""Topology domains of nodes.

A ``Topology`` maps nodes to the domains of one topology key. Its ``Eligibility`` selects the nodes that are included.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import filterfalse
from typing import TYPE_CHECKING, Final

from app.cache.bounded import NODE_BYTES
from app.framework.counts import Inclusion
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Node

if TYPE_CHECKING:
    from app.cache.domains import Domains

_TOPOLOGY_BYTES: Final = 8000
"""Estimated bytes of a topology without nodes."""

_ELIGIBLE_BYTES: Final = 1500
"""Estimated bytes of an eligibility for each part of its node affinity, and for each of its tolerations.

More than the size in memory, because it also covers the time to match every new node against the eligibility.
"""

_MAX_UNIONS: Final = 32
"""Maximum number of cached node sets of one topology, each for one set of excluded domains (``unions``)."""

_FEW_DOMAINS: Final = 64
"""Maximum number of domains of a topology that caches node sets.

If a topology has more domains, the same set of excluded domains rarely recurs.
"""

_STAMPS: Final = itertools.count(1)
"""Source of stamps. Numbers never repeat, so an entry that is evicted and built again gets new stamps."""

TopologyKey = tuple[str, frozenset[str], Inclusion]
"""Topology key, required label keys, and node inclusion policies of a topology."""

EligibilityKey = tuple[frozenset[str], Inclusion]
"""Required label keys, and node inclusion policies, of an eligibility."""


def new_stamp() -> int:
    """Return a number that no other stamp of this process has."""
    return next(_STAMPS)


class Eligibility:
    """Rule that selects the nodes of a topology: required label keys and node inclusion policies.

    ``topologies``: all topologies with this rule, by topology key; they share this ``Eligibility``.
    ``reads``: label keys that the rule reads. ``size``: number of parts of the node affinity, plus tolerations.
    """

    __slots__ = ("_admits", "_complete", "inclusion", "reads", "required", "size", "topologies")

    def __init__(self, required: frozenset[str], inclusion: Inclusion) -> None:
        self.required = required
        self.inclusion = inclusion
        self.topologies: dict[str, Topology] = {}
        affinity, tolerations = inclusion.affinity, inclusion.tolerations
        self.reads = required | (affinity.label_keys() if affinity else frozenset())
        self.size = (affinity.size() if affinity else 0) + len(tolerations or ())
        self._admits = inclusion.compiled()
        self._complete: Topology | None = None

    def reads_taints(self) -> bool:
        """Return true if the rule excludes nodes with untolerated taints."""
        return self.inclusion.tolerations is not None

    def piece(self, most: int) -> int:
        """Return the number of nodes that one step handles.

        The number is ``most`` if a complete topology already knows the included nodes. Otherwise each node must be
        matched against the rule, so the number decreases with the ``size`` of the rule.
        """
        return most if self._complete is not None else 1 + most // (1 + self.size)

    def place(self, topology: Topology, name: str, node: Node) -> None:
        """Add a node to a topology that is being built, if the rule includes it and no event has added it before."""
        complete = self._complete
        if name not in topology.domain and (self.includes(node) if complete is None else name in complete.domain):
            topology.place(name, node.labels.get(topology.key, ""))

    def update(self, name: str, node: Node | None) -> None:
        """Apply a change of a node to the rule's topologies. ``node``: its new version; ``None`` if it was deleted."""
        labels = node.labels if node is not None and self.includes(node) else None
        if labels is None and self._complete is not None and name not in self._complete.domain:
            return
        for key, topology in self.topologies.items():
            topology.move(name, None if labels is None else labels.get(key, ""))

    def finished(self, topology: Topology) -> None:
        """Record that ``topology`` is complete, so that other topologies of this rule can copy its choice of nodes."""
        self._complete = self._complete or topology

    def remove(self, topology: Topology) -> None:
        """Remove a topology, because it was evicted."""
        del self.topologies[topology.key]
        if self._complete is topology:
            self._complete = next((it for it in self.topologies.values() if it.rest is None), None)

    def includes(self, node: Node) -> bool:
        """Return true if the node has the required labels and the inclusion policies admit it."""
        return self.required <= node.labels.keys() and self._admits(node)


class Topology:
    """Domain of each included node, by one topology key. Implements ``SteppedEntry``.

    The domain is the value of the label. If the key is not required, nodes without the label are in the domain ``""``.
    ``sizes``: number of nodes by domain. ``members``: nodes by domain; ``None`` until requested. ``renamed``: number of
    nodes whose domain differs from their name. ``unions``: nodes outside of some domains, cached by these domains.
    ``users``: counts by the domains of this topology. ``stamp``: number that changes whenever ``move`` adds or removes
    a node, or changes its domain.
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
        """Return the estimated bytes, with this topology's share of the bytes of its eligibility."""
        names = len(self.domain) + sum(map(len, self.unions.values()))
        shared = _ELIGIBLE_BYTES * self.eligibility.size // max(1, len(self.eligibility.topologies))
        return _TOPOLOGY_BYTES + shared + NODE_BYTES * (names + len(self.sizes))

    def place(self, name: str, value: str) -> None:
        """Add a node to the domain ``value``. Use this method only while the topology is being built, before its first
        use.
        """
        self.domain[name] = value
        self.renamed += name != value
        self.sizes[value] = self.sizes.get(value, 0) + 1

    def move(self, name: str, new: str | None) -> None:
        """Add or move a node, with the counts of its pods, to the domain ``new``; ``None``: remove the node."""
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
        """Add (``sign`` 1) or subtract (-1) the pods of a node in the counts of the domain ``value``."""
        for user in self.users:
            count = user.selection.nodes.get(name)
            if count:
                user.add(value, sign * count)

    def nodes_in(self, value: str) -> Collection[str]:
        """Return the nodes of a domain."""
        if self.members is None:
            self.members = {}
            for name, at in self.domain.items():
                self.members.setdefault(at, set()).add(name)
        return self.members.get(value, ())

    def outside(self, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Return the included nodes among ``names``, in order, that are in none of the domains ``blocked``."""
        if not blocked:
            return list(filter(self.domain.__contains__, names))
        if not self.renamed:  # each node is its own domain, which is usual for the hostname label
            full = blocked if isinstance(blocked, Set) else frozenset(blocked)
            return list(filterfalse(full.__contains__, filter(self.domain.__contains__, names)))
        if len(self.sizes) <= _FEW_DOMAINS:
            return list(filter(self._union_outside(frozenset(blocked)).__contains__, names))
        excluded = {None, *blocked}
        return [name for name, at in zip(names, map(self.domain.get, names), strict=True) if at not in excluded]

    def differences(self, nodes: Mapping[str, NodeInfo]) -> Iterator[str]:
        """Compare the topology with a recount of ``nodes``. Each step yields the name of a wrong part, or ``""``."""
        for name in tuple(nodes):
            info = nodes.get(name)
            yield "places" if info is not None and self._domain_of(info.node) != self.domain.get(name) else ""
        yield "places" if self.domain.keys() - nodes.keys() else ""
        yield "" if self._is_sound() else "domains"
        for blocked in tuple(self.unions):
            cached = self.unions.get(blocked)
            outside = {name for name, value in self.domain.items() if value not in blocked}
            yield "unions" if cached not in (None, outside) else ""

    def _domain_of(self, node: Node) -> str | None:
        """Return the domain that the node should have; ``None`` if the node is not included."""
        return node.labels.get(self.key, "") if self.eligibility.includes(node) else None

    def _is_sound(self) -> bool:
        """Return true if ``members``, ``sizes`` and ``renamed`` agree with ``domain``."""
        members: dict[str, set[str]] = {}
        for name, value in self.domain.items():
            members.setdefault(value, set()).add(name)
        cached = members if self.members is None else {value: names for value, names in self.members.items() if names}
        renamed = sum(name != value for name, value in self.domain.items())
        sizes = {value: len(names) for value, names in members.items()}
        return cached == members and self.renamed == renamed and self.sizes == sizes

    def _union_outside(self, blocked: frozenset[str]) -> set[str]:
        """Return the included nodes that are in none of the domains ``blocked``, and cache this set in ``unions``."""
        outside = self.unions.get(blocked)
        if outside is None:
            if len(self.unions) >= _MAX_UNIONS:
                self.unions.clear()
            outside = set[str]().union(*(self.nodes_in(value) for value in self.sizes if value not in blocked))
            self.unions[blocked] = outside
        return outside
