"""Result of a filter for many nodes: those that pass, and lazily computed reasons of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from app.framework.status import Status


class FilterResult(Struct, eq=False):
    """``passed``: names in the order of the candidates. ``rejections``: a mapping of node names, or a function for it.

    The function is called once, when rejections are first read. They must be read in the same evaluation, before any
    ``await``, while their inputs are unchanged.
    """

    passed: Sequence[str]
    rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]]

    def rejected(self) -> Mapping[str, Status]:
        """Return node name to rejection, for every candidate that did not pass."""
        rejections = self.rejections
        if callable(rejections):
            rejections = self.rejections = rejections()
        return rejections
