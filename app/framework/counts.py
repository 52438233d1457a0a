"""Counts that the snapshot maintains, so that no plugin walks pods on the hot path."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NoReturn, Protocol

from msgspec import Struct

from app.kube.core_v1 import Node
from app.kube.extras import Extra, NotDecoded
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.pod_affinity import Newcomer, Peers
from app.kube.selectors import Selector
from app.kube.taints import Tolerance, Toleration


class Inclusion(Struct, frozen=True, gc=False, cache_hash=True):
    """Conditions for counting a node, besides required label keys. A part that a policy ignores is ``None``."""

    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def admits(self, node: Node) -> bool:
        """Return True if the node counts; use ``compiled`` for many nodes."""
        return self.compiled()(node)

    def compiled(self) -> Callable[[Node], bool]:
        """Return ``admits`` as a function that is fast for many nodes."""
        matcher = None if self.affinity is None else self.affinity.compiled()
        tolerance = None if self.tolerations is None else Tolerance(self.tolerations)

        def admits(node: Node) -> bool:
            if matcher is not None and not matcher.matches(node.name, node.labels):
                return False
            return tolerance is None or not node.taints or tolerance.tolerates_all(node.taints)

        return admits


ALL_NODES: Final = Inclusion()


class Unprepared(Exception):  # no error: a request to count first
    """The result needs counts that do not exist yet and take too long to compute without blocking the event loop.

    Raised by ``Counts``; a plugin must let it propagate. The caller runs the ``steps``, each of them short, with other
    requests in between, and then repeats the decision.
    """

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("not counted yet")
        self.steps = steps


def all_prepared(asks: Iterable[Callable[[], object]]) -> None:
    """Call all functions, and raise one ``Unprepared`` with the steps of all that are not prepared."""
    missing: list[Iterator[None]] = []
    for ask in asks:
        try:
            ask()
        except Unprepared as unprepared:
            missing.append(unprepared.steps)
    if missing:
        raise Unprepared(chain.from_iterable(missing))


class DomainCounts(Protocol):
    """Counts of the pods that a selector matches, by the value of a topology key on their nodes.

    Only nodes that have all required keys and are admitted count. A domain with such a node and no pod exists
    with 0. Live: valid until the next ``await``.
    """

    def count(self, value: str) -> int:
        """Return the number of pods in the domain ``value``; 0 if there is no such domain."""
        ...

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        """Return the smallest count of any domain, each changed by ``deltas``; 0 if there are no domains."""
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
        """Return the domain in which ``node`` counts; ``None`` if it does not count."""
        ...

    def is_empty(self) -> bool:
        """Return True if no domain has a pod."""
        ...

    def stamp(self, limit: int) -> int:
        """Return a stamp that changes whenever the set ``above(limit)`` changes.

        A stamp is never reused: equal stamps mean the same counts object, limit and domains above it.
        """
        ...


class Counts(Protocol):
    """Counts that the snapshot maintains, so that no plugin iterates over pods on the hot path.

    Bound and assumed pods that are neither finished nor terminating are counted. The first query for something can
    raise ``Unprepared``; a plugin with many queries makes them through ``all_prepared``.
    """

    def pods_by_node(self, namespace: str, selector: Selector) -> Mapping[str, int]:
        """Return the number of pods that ``selector`` matches by node; nodes without any are absent."""
        ...

    def domains(
        self,
        namespace: str,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> DomainCounts:
        """Return the counts of matching pods by domain.

        A node without ``topology_key`` (where not required) is in the domain ``""``.
        """
        ...

    def values(self, topology_key: str) -> Mapping[str, str]:
        """Return the label value by node name, for all nodes that have the label."""
        ...

    def on_every_node(self, topology_key: str) -> bool:
        """Return True if all nodes of the snapshot have the label."""
        ...

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Return, in order, the existing nodes of ``names`` that have the label with a value not in ``blocked``."""
        ...

    def stamp(self, topology_key: str) -> int:
        """Return a stamp that changes with ``values(topology_key)``; equal stamps mean equal key and values."""
        ...


class PodTerms(Protocol):
    """Counts that the snapshot maintains for pod (anti-)affinity terms, so that no plugin iterates over pods.

    Bound and assumed pods that are not finished are counted, terminating ones included, if their nodes have the label
    ``topology_key``. The first query for something can raise ``Unprepared``. Each query raises ``NotDecoded`` if no
    plugin declares ``Part.POD_AFFINITY``.
    """

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        """Count the pods that a term of the evaluated pod matches, by domain."""
        ...

    def refusing(self, newcomer: Newcomer) -> Mapping[str, DomainCounts]:
        """Count pods with a required anti-affinity term that matches the newcomer, by topology key and domain.

        Topology keys without such a pod can be absent.
        """
        ...

    def weights(self, newcomer: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        """Return the sum of the weights of preferred terms that match the newcomer, by topology key and domain.

        A required affinity term weighs ``hard_weight``; 0 leaves such terms out. A topology key is present if any pod
        has a term with it; a domain with the sum 0 can be absent. Live: valid until the next ``await``.
        """
        ...


class NoPodTerms:
    """Implements ``PodTerms`` where no plugin declares ``Part.POD_AFFINITY``."""

    def peers(self, peers: Peers, topology_key: str) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def refusing(self, newcomer: Newcomer) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)

    def weights(self, newcomer: Newcomer, hard_weight: int) -> NoReturn:
        raise NotDecoded(Extra.POD_AFFINITY)


NO_POD_TERMS: Final = NoPodTerms()
