"""Taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
_KEEPS_OUT: Final = (NO_SCHEDULE, NO_EXECUTE)


class Taint(Struct, frozen=True, gc=False):
    """One entry of ``spec.taints``."""

    key: str = ""
    effect: str = ""
    value: str = ""

    @property
    def keeps_out(self) -> bool:
        """Whether a pod without a toleration is not scheduled here at all."""
        return self.effect in _KEEPS_OUT


UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", NO_SCHEDULE)
"""Who tolerates it tolerates ``spec.unschedulable``, whether a node has this taint or not."""


class Toleration(Struct, frozen=True, gc=False, order=True):
    """One entry of ``spec.tolerations``: an empty key with Exists tolerates all, an empty effect matches all.

    The comparison operators Lt and Gt are behind a gate that is off in Kubernetes 1.36, hence tolerate nothing.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Tolerance:
    """Tolerations as sets, so that a taint costs a few look-ups however many they are."""

    __slots__ = ("_equal", "_exists")

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        found = set(tolerations)
        self._exists = {(it.key, it.effect) for it in found if it.operator == "Exists"}
        self._equal = {(it.key, it.effect, it.value) for it in found if it.operator in ("", "Equal")}

    def tolerates(self, taint: Taint) -> bool:
        key, effect, value = taint.key, taint.effect, taint.value
        exists, equal = self._exists, self._equal
        for pair in ((key, effect), (key, ""), ("", effect), ("", "")):
            if pair in exists or (*pair, value) in equal:
                return True
        return False

    def tolerates_all(self, taints: Iterable[Taint]) -> bool:
        """Whether every NoSchedule and NoExecute taint is tolerated."""
        for taint in taints:  # noqa: SIM110  # asked of every node with taints, and a generator takes three times as long
            if taint.effect in _KEEPS_OUT and not self.tolerates(taint):
                return False
        return True

    def untolerated_wishes(self, taints: Iterable[Taint]) -> int:
        """How many PreferNoSchedule taints are not tolerated."""
        return len([it for it in taints if it.effect == PREFER_NO_SCHEDULE and not self.tolerates(it)])


class LatestTolerance:
    """The ``Tolerance`` of the tolerations asked for last: made once for a pod, however many nodes it is judged on."""

    __slots__ = ("_tolerance", "_tolerations")

    def __init__(self) -> None:
        self._tolerations: tuple[Toleration, ...] = ()
        self._tolerance = Tolerance(())

    def of(self, tolerations: tuple[Toleration, ...]) -> Tolerance:
        """The one it has if these are the same object, else a new one."""
        if tolerations is not self._tolerations:
            self._tolerations, self._tolerance = tolerations, Tolerance(tolerations)
        return self._tolerance


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """The same for one node; ``Tolerance`` is for many."""
    return Tolerance(tolerations).tolerates_all(taints)
