"""Taints and tolerations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
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
        pairs = [(key, effect) for key in (taint.key, "") for effect in (taint.effect, "")]
        return not self._exists.isdisjoint(pairs) or any((*pair, taint.value) in self._equal for pair in pairs)

    def tolerates_all(self, taints: Iterable[Taint]) -> bool:
        """Whether every NoSchedule and NoExecute taint is tolerated."""
        return all(self.tolerates(taint) for taint in taints if taint.keeps_out)


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """The same for one node; ``Tolerance`` is for many."""
    return Tolerance(tolerations).tolerates_all(taints)
