"""Result of a filter for many nodes: the nodes that pass, and the rejections of the others, computed when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from app.framework.status import Status


class FilterResult(Struct, eq=False):
    """Nodes that pass a filter, and the rejections of all other candidates.

    ``passed``: names in the order of the candidates. ``rejections``: statuses by node name, or a function that returns
    them. The function is called once, when rejections are first read. Read them in the same evaluation, before any
    ``await``, because the inputs of the function can change afterwards.
    """

    passed: Sequence[str]
    rejections: Mapping[str, Status] | Callable[[], Mapping[str, Status]]

    def rejected(self) -> Mapping[str, Status]:
        """Return the rejection of every candidate that did not pass, by node name."""
        rejections = self.rejections
        if callable(rejections):
            rejections = self.rejections = rejections()
        return rejections
