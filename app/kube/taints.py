"""Taints of nodes and tolerations of pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
_KEEPS_OUT: Final = (NO_SCHEDULE, NO_EXECUTE)


class Taint(Struct, frozen=True, gc=False):
    """Entry of a node's ``spec.taints``."""

    key: str = ""
    effect: str = ""
    value: str = ""

    @property
    def keeps_out(self) -> bool:
        """True if pods without a matching toleration are not scheduled to the node."""
        return self.effect in _KEEPS_OUT

    @property
    def text(self) -> str:
        """The taint in kubectl's notation."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", NO_SCHEDULE)
"""Taint for ``spec.unschedulable`` of a node. Pods that tolerate this taint can be scheduled to unschedulable nodes."""


class Toleration(Struct, frozen=True, gc=False, order=True):
    """Entry of a pod's ``spec.tolerations``. An empty key or effect matches every key or effect.

    The operators Lt and Gt tolerate nothing, because their feature gate is off by default in Kubernetes 1.36.
    ``ends``: true if the entry has ``tolerationSeconds``, after which the pod is evicted.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    ends: bool = False


class Tolerance:
    """Tolerations of a pod, stored in sets, so that checking a taint takes a few look-ups."""

    __slots__ = ("_equal", "_exists")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        distinct = set(tolerations)
        self._exists = {(it.key, it.effect) for it in distinct if it.operator == "Exists"}
        self._equal = {(it.key, it.effect, it.value) for it in distinct if it.operator in ("", "Equal")}

    def tolerates(self, taint: Taint) -> bool:
        """Return whether one of the tolerations matches the taint."""
        key, effect, value = taint.key, taint.effect, taint.value
        exists, equal = self._exists, self._equal
        for pair in ((key, effect), (key, ""), ("", effect), ("", "")):
            if pair in exists or (*pair, value) in equal:
                return True
        return False

    def tolerates_all(self, taints: Iterable[Taint]) -> bool:
        """Return whether every NoSchedule and NoExecute taint is tolerated."""
        for taint in taints:  # noqa: SIM110  # runs for every node with taints; a generator takes three times as long
            if taint.effect in _KEEPS_OUT and not self.tolerates(taint):
                return False
        return True

    def untolerated_preferences(self, taints: Iterable[Taint]) -> int:
        """Return the number of PreferNoSchedule taints that are not tolerated."""
        return len([it for it in taints if it.effect == PREFER_NO_SCHEDULE and not self.tolerates(it)])


class LatestTolerance:
    """Cache of the latest ``Tolerance``, so that it is created once per pod and not once per node."""

    __slots__ = ("_tolerance", "_tolerations")

    def __init__(self) -> None:
        self._tolerations: tuple[Toleration, ...] = ()
        self._tolerance = Tolerance(())

    def of(self, tolerations: tuple[Toleration, ...]) -> Tolerance:
        """Return the cached ``Tolerance`` if ``tolerations`` is the object of the last call; else create a new one."""
        if tolerations is not self._tolerations:
            self._tolerations, self._tolerance = tolerations, Tolerance(tolerations)
        return self._tolerance


def stays_with(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether a running pod stays forever on a node with this NoExecute taint.

    As in the taint eviction controller, the first toleration that matches the taint decides.
    """
    return next((not it.ends for it in tolerations if Tolerance((it,)).tolerates(taint)), False)


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether every NoSchedule and NoExecute taint is tolerated. Use ``Tolerance`` to check many nodes."""
    return Tolerance(tolerations).tolerates_all(taints)
