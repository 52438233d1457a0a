"""What a filter says of many nodes: which pass, and, if anybody asks, why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.framework.status import Status


class FilterResult:
    """``passed``: names in the order of the candidates. The reasons are worked out once, when they are first read.

    They are read in the same evaluation, before anything is awaited: what they are worked out from is unchanged then.
    """

    __slots__ = ("_rejections", "passed")

    def __init__(
        self, passed: Sequence[str], rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]]
    ) -> None:
        self.passed = passed
        self._rejections = rejections

    def rejected(self) -> Mapping[str, Status]:
        """Node to rejection, for every candidate that did not pass."""
        found = self._rejections
        if callable(found):
            found = self._rejections = found()
        return found
