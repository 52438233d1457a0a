"""Counts that the cluster keeps, so that no plugin walks pods on the hot path."""

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
    """What decides, beside its labels' keys, whether a node counts. A part that a policy ignores is ``None``."""

    affinity: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def admits(self, node: Node) -> bool:
        """Whether one node counts; ``compiled`` is for many."""
        return self.compiled()(node)

    def compiled(self) -> Callable[[Node], bool]:
        """The same in the form that is quickly asked."""
        matcher = None if self.affinity is None else self.affinity.compiled()
        tolerance = None if self.tolerations is None else Tolerance(self.tolerations)

        def admits(node: Node) -> bool:
            if matcher is not None and not matcher.matches(node.name, node.labels):
                return False
            return tolerance is None or not node.taints or tolerance.tolerates_all(node.taints)

        return admits


ALL_NODES: Final = Inclusion()


class Unprepared(Exception):  # no error: what is asked for is to be counted first
    """The answer rests on counts that are not kept yet and take longer to make than the event loop may stand still.

    Raised by ``Counts``; a plugin lets it pass. Whoever decides takes the ``steps``, each of them short, lets others
    have their turn in between, and decides anew.
    """

    def __init__(self, steps: Iterator[None]) -> None:
        super().__init__("not counted yet")
        self.steps = steps


def all_prepared(asks: Iterable[Callable[[], object]]) -> None:
    """Ask all, and raise one ``Unprepared`` for all that are not prepared: once is enough to make them ready."""
    missing: list[Iterator[None]] = []
    for ask in asks:
        try:
            ask()
        except Unprepared as found:
            missing.append(found.steps)
    if missing:
        raise Unprepared(chain.from_iterable(missing))


class DomainCounts(Protocol):
    """Kept counts of the pods a selector matches, by the value a topology key has on their nodes.

    Only nodes that have all required keys and are admitted count. A domain with such a node and no pod exists
    with 0. Live: valid until the next ``await``.
    """

    def count(self, value: str) -> int:
        """Pods in the domain ``value``; 0 if there is no such domain."""
        ...

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        """The smallest count of any domain, each changed by ``deltas``; 0 if there are no domains."""
        ...

    def size(self) -> int:
        """How many domains there are."""
        ...

    def nodes_by_domain(self) -> Mapping[str, int]:
        """How many nodes count in each domain."""
        ...

    def above(self, limit: int) -> Collection[str]:
        """The domains with more than ``limit`` pods, for ``limit`` >= 0."""
        ...

    def domain_of(self, node: str) -> str | None:
        """The domain in which ``node`` counts; ``None`` if it does not count."""
        ...

    def is_empty(self) -> bool:
        """Whether no domain has any pod."""
        ...

    def stamp(self, limit: int) -> int:
        """Moves whenever a domain comes to have more than ``limit`` pods, or no longer has.

        Given out once: an equal stamp means the same limit, the same counts and the same domains above.
        """
        ...


class Counts(Protocol):
    """Counts the picture keeps so that no plugin walks pods on the hot path.

    Counted are bound and assumed pods that are neither finished nor terminating. What is asked for the first time may
    raise ``Unprepared``; a plugin that asks for much at once does so through ``all_prepared`` then.
    """

    def pods_by_node(self, namespace: str, selector: Selector) -> Mapping[str, int]:
        """Pods that ``selector`` matches, by node; nodes without any are absent."""
        ...

    def domains(
        self,
        namespace: str,
        selector: Selector,
        topology_key: str,
        required_keys: frozenset[str],
        inclusion: Inclusion = ALL_NODES,
    ) -> DomainCounts:
        """The same by domain. A node without ``topology_key`` (where not required) is in the domain ``""``."""
        ...

    def values(self, topology_key: str) -> Mapping[str, str]:
        """Node name to label value, for all nodes that have the label."""
        ...

    def on_every_node(self, topology_key: str) -> bool:
        """Whether all nodes of the picture have the label."""
        ...

    def outside(self, topology_key: str, blocked: Collection[str], names: Sequence[str]) -> list[str]:
        """Those of ``names``, in order, that are nodes with the label and whose value is none of ``blocked``."""
        ...

    def stamp(self, topology_key: str) -> int:
        """Moves whenever ``values(topology_key)`` does; an equal stamp means the same key and the same values."""
        ...


class PodTerms(Protocol):
    """Counts the picture keeps for terms between pods, so that no plugin walks pods, nor what these ask of others.

    Counted are bound and assumed pods that are not finished, terminating ones included, on nodes that have the label
    ``topology_key``. What is asked for the first time may raise ``Unprepared``. To ask where no plugin declares
    ``Part.POD_AFFINITY`` raises ``NotDecoded``.
    """

    def peers(self, peers: Peers, topology_key: str) -> DomainCounts:
        """Pods that a term of the pod in hand means, by domain."""
        ...

    def refusing(self, newcomer: Newcomer) -> Mapping[str, DomainCounts]:
        """Pods with a required anti-affinity term that means the newcomer, by the term's topology key and by domain.

        Keys of which there are none may be absent.
        """
        ...

    def weights(self, newcomer: Newcomer, hard_weight: int) -> Mapping[str, Mapping[str, int]]:
        """What the preferred terms that mean the newcomer weigh together, by topology key and domain.

        A required affinity term weighs ``hard_weight``; with 0 there are none. A key is there if any pod has a term of
        it, whatever the sum; a domain of sum 0 may be absent. Live: valid until the next ``await``.
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
