"""What a filter says of many nodes: which pass, and, if anybody asks, why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.framework.status import Status


class FilterResult:
    """``passed``: names in the order of the candidates. The reasons are worked out once, when they are first read.

    They are read in the same evaluation, before anything is awaited: what they are worked out from is unchanged then.
    """

    __slots__ = ("_rejections", "_work_out", "passed")

    def __init__(
        self, passed: Sequence[str], rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]]
    ) -> None:
        self.passed = passed
        self._work_out = rejections if callable(rejections) else None
        self._rejections = None if callable(rejections) else rejections

    def rejected(self) -> Mapping[str, Status]:
        """Node to rejection, for every candidate that did not pass."""
        if self._rejections is None and self._work_out is not None:
            self._rejections = self._work_out()
        return self._rejections or {}
