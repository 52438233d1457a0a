"""Result of a filter for many nodes: those that pass, and lazily computed reasons of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.framework.status import Status


class FilterResult:
    """``passed``: names in the order of the candidates. Rejections are computed once, when first read.

    They must be read in the same evaluation, before any ``await``, while their inputs are unchanged.
    """

    __slots__ = ("_rejections", "passed")

    def __init__(
        self, passed: Sequence[str], rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]]
    ) -> None:
        self.passed = passed
        self._rejections = rejections

    def rejected(self) -> Mapping[str, Status]:
        """Return node name to rejection, for every candidate that did not pass."""
        found = self._rejections
        if callable(found):
            found = self._rejections = found()
        return found
