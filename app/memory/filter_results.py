"""What filter handed back last: kube-scheduler asks prioritize about the same pod and the same nodes right after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.wire.extender_v1 import SplitArgs

_MOST: Final = 64
"""Pods between their filter and their prioritize: a scheduler has one, and several schedulers may call."""

_MOST_BYTES: Final = 8 << 20
"""Of all requests together: some 32 MB with the names. 5,000 names are 70 kB."""


class FilterResults(Struct, frozen=True):
    """``names`` passed for ``pod``. All were nodes of the picture when its ``node_set`` was this."""

    pod: Pod
    names: Sequence[str]
    node_set: int


class FilterResultCache:
    """The newest feasible answers, by the very bytes of the request that is to follow."""

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[bytes, FilterResults]] = {}
        self._bytes = 0

    def keep(self, before: bytes, names: bytes, results: FilterResults) -> None:
        """``before`` and ``names`` are the parts of ``SplitArgs``."""
        self._drop(before)
        self._kept[before] = (names, results)
        self._bytes += len(before) + len(names)
        while len(self._kept) > _MOST or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._kept)))

    def take(self, request: SplitArgs | None) -> FilterResults | None:
        """What this request says, without reading it; once."""
        if request is None:
            return None
        names, results = self._drop(request.before)
        return results if names == request.names else None

    def _drop(self, before: bytes) -> tuple[bytes, FilterResults | None]:
        found = self._kept.pop(before, None)
        if found is None:
            return b"", None
        self._bytes -= len(before) + len(found[0])
        return found
