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

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every NoSchedule and NoExecute taint is tolerated."""
    tolerations = tuple(tolerations)
    return all(any(it.tolerates(taint) for it in tolerations) for taint in taints if taint.keeps_out)
