"""Interfaces of the pod counts that the snapshot maintains, so that no plugin iterates over pods on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Final, NoReturn, Protocol

from msgspec import Struct

from app.kube.core_v1 import Node, PodSpec
from app.kube.extras import Extra, NotDecoded
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.pod_affinity import Newcomer, Peers
from app.kube.selectors import Selector
from app.kube.taints import UNSCHEDULABLE, Tolerance, Toleration


class Inclusion(Struct, frozen=True, gc=False, cache_hash=True):
    """Conditions that a node must meet to be counted, in addition to having the required label keys.

    ``affinity``: ``None`` to count nodes whatever their labels and names. ``tolerations``: ``None`` to count nodes
    whatever their taints. ``uncordoned``: true to leave out cordoned nodes.
    """

    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    uncordoned: bool = False

    def admits(self, node: Node) -> bool:
        """Return True if the node meets these conditions. For many nodes, ``compiled`` is faster."""
        return self.compiled()(node)

    def compiled(self) -> Callable[[Node], bool]:
        """Return ``admits`` as a function that is fast for many nodes."""
        matcher = None if self.affinity is None else self.affinity.compiled()
        tolerance = None if self.tolerations is None else Tolerance(self.tolerations)

        def admits(node: Node) -> bool:
            if matcher is not None and not matcher.matches(node.name, node.labels):
                return False
            return tolerance is None or not node.taints or tolerance.tolerates_all(node.taints)

        return (lambda node: not node.unschedulable and admits(node)) if self.uncordoned else admits

    def without_closed_nodes(self, spec: PodSpec) -> Inclusion:
        """Return this inclusion without nodes that have a NoSchedule or NoExecute taint that the pod does not tolerate.

        Cordoned nodes are left out too, unless the pod tolerates the taint of a cordon. ``spec``: spec of the pod.
        """
        tolerates_cordon = Tolerance(spec.tolerations).tolerates(UNSCHEDULABLE)
        return Inclusion(self.affinity, _distinct(spec.tolerations), uncordoned=not tolerates_cordon)


ALL_NODES: Final = Inclusion()
"""Inclusion without conditions."""


def inclusion_of(spec: PodSpec, *, honours_affinity: bool, honours_taints: bool) -> Inclusion:
    """Return the inclusion for the node inclusion policies of one of the pod's constraints.

    ``honours_affinity``: ``nodeAffinityPolicy`` is ``Honor``. It has no effect if the pod has no nodeSelector and no
    required node affinity, so that more pods share cached counts. ``honours_taints``: ``nodeTaintsPolicy`` is
    ``Honor``.
    """
    affinity = spec.affinity
    restricts = bool(affinity.node_selector) or affinity.terms is not None
    return Inclusion(
        affinity=affinity if honours_affinity and restricts else None,
        tolerations=_distinct(spec.tolerations) if honours_taints else None,
    )


def _distinct(tolerations: Iterable[Toleration]) -> tuple[Toleration, ...]:
    return tuple(sorted(set(tolerations)))


class Unprepared(Exception):  # a request to run steps first, not an error
    """Request to compute data first, because computing it at once would block the event loop for too long.

    Raised for example by ``Counts``; a plugin must let it propagate. The caller of the engine runs the ``steps``, and
    then repeats the decision. Each step is short, and other requests can run between two steps.
    """

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("not counted yet")
        self.steps = steps


def all_prepared(asks: Iterable[Callable[[], object]]) -> None:
    """Call all functions. If any raise ``Unprepared``, raise one ``Unprepared`` that has the steps of all of these."""
    missing: list[Iterator[None]] = []
    for ask in asks:
        try:
            ask()
        except Unprepared as unprepared:
            missing.append(unprepared.steps)
    if missing:
        raise Unprepared(chain.from_iterable(missing))


class DomainCounts(Protocol):
    """Number of certain pods by domain. A domain is one value of a topology key on the nodes.

    The method that returns the object determines the counted pods and nodes. Pods on other nodes are not counted. A
    domain exists if it has a counted node, even without a pod. The object is live, so it is valid until the next
    ``await``.
    """

    def count(self, value: str) -> int:
        """Return the number of pods in the domain ``value``; 0 if there is no such domain."""
        ...

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        """Return the smallest count of all domains; 0 if there are no domains.

        ``deltas``: numbers to add to the counts, by domain; each of these domains must exist.
        """
        ...

    def extremes(self, deltas: Mapping[str, int], among: Set[str] | None = None) -> tuple[int, int]:
        """Return the smallest and the largest count of the domains; (0, 0) if there are none.

        ``deltas``: numbers to add to the counts, by domain. ``among``: domains to consider; ``None`` for all.
        """
        ...

    def size(self) -> int:
        """Return the number of domains."""
        ...

    def nodes_by_domain(self) -> Mapping[str, int]:
        """Return the number of counted nodes by domain."""
        ...

    def above(self, limit: int) -> Collection[str]:
        """Return the domains with more than ``limit`` pods, for ``limit`` >= 0."""
        ...

    def domain_of(self, node: str) -> str | None:
        """Return the domain of ``node``; ``None`` if the node is not counted."""
        ...

    def is_empty(self) -> bool:
        """Return True if no domain has a pod."""
        ...

    def stamp(self, limit: int) -> int:
        """Return a stamp that changes whenever the set ``above(limit)`` changes.

        A stamp is never reused for another set, another limit, or counts of other pods or nodes.
        """
        ...


class Counts(Protocol):
    """Pod counts that the snapshot maintains, so that no plugin iterates over pods on the hot path.

    Bound and assumed pods are counted; the Binding of an assumed pod is not confirmed yet. Finished and terminating
    pods are not counted. Each query can raise ``Unprepared``, above all the first with new arguments. A plugin with
    several queries should pass them to ``all_prepared``. Mappings that queries return are live, so they are valid until
    the next ``await``.
    """

    def pods_by_node(self, namespace: str, selector: Selector) -> Mapping[str, int]:
        """Return, by node, the number of pods in ``namespace`` that ``selector`` matches; nodes without any are absent.

        A pod is counted even if the snapshot does not have its node.
        """
        ...

    def domains(
        self,
        namespace: str,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> DomainCounts:
        """Return the counts of the pods in ``namespace`` that ``selector`` matches, by domain.

        A node is counted if it has labels with all ``required_keys``, and ``inclusion`` admits it. A counted node
        without the label ``topology_key`` is in the domain ``""``.
        """
        ...

    def values(self, topology_key: str) -> Mapping[str, str]:
        """Return the value of the label ``topology_key`` by node name, for all nodes that have the label."""
        ...

    def on_every_node(self, topology_key: str) -> bool:
        """Return True if all nodes of the snapshot have the label ``topology_key``."""
        ...

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Return the nodes in ``names``, in order, whose label ``topology_key`` has a value that is not in ``blocked``.

        Nodes without the label, and nodes that the snapshot does not have, are left out.
        """
        ...

    def stamp(self, topology_key: str) -> int:
        """Return a stamp that changes with ``values(topology_key)``; equal stamps mean equal key and values."""
        ...


class PodTerms(Protocol):
    """Pod counts that the snapshot maintains for pod affinity and anti-affinity terms.

    Bound and assumed pods on nodes with the label ``topology_key`` are counted, terminating pods included. Finished
    pods are not counted. Each query can raise ``Unprepared``, above all the first with new arguments. Each query raises
    ``NotDecoded`` if no plugin declares ``Part.POD_AFFINITY``.
    """

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        """Return the number of ``peers`` by domain. ``peers``: pods that a term of the evaluated pod selects."""
        ...

    def refusing(self, newcomer: Newcomer) -> Mapping[str, DomainCounts]:
        """Return the counts of pods with a required anti-affinity term that matches the newcomer (the evaluated pod).

        The counts are grouped by topology key, then by domain. A topology key without such pods can be absent.
        """
        ...

    def weights(self, newcomer: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        """Return, by topology key and domain, the sum of the weights of other pods' terms that match the newcomer.

        These are preferred terms, and required affinity terms with the weight ``hard_weight``; 0 leaves the latter out.
        The weights of preferred anti-affinity terms are negative. A topology key is present if any counted pod has a
        matching term with that key; a domain with the sum 0 can be absent. The mapping is live, so it is valid until
        the next ``await``.
        """
        ...


class NoPodTerms:
    """``PodTerms`` if no plugin declares ``Part.POD_AFFINITY``: every query raises ``NotDecoded``."""

    def peers(self, peers: Peers, topology_key: str) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def refusing(self, newcomer: Newcomer) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def weights(self, newcomer: Newcomer, hard_weight: int) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)


NO_POD_TERMS: Final = NoPodTerms()
