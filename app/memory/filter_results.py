"""Last results of filter: kube-scheduler calls prioritize about the same pod and nodes immediately after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.wire.extender_v1 import SplitArgs

_MOST: Final = 64
"""Maximum number of pods between filter and prioritize: one per scheduler, and several schedulers can call."""

_MOST_BYTES: Final = 8 << 20
"""Maximum length of all requests together; some 32 MB with the names. 5,000 names are 70 kB."""


class FilterResults(Struct, frozen=True):
    """Names that passed for ``pod``. All were nodes of the snapshot while its ``node_set`` had this value."""

    pod: Pod
    names: Sequence[str]
    node_set: int


class FilterResultCache:
    """Newest feasible results, found by the exact bytes of the request that follows."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[bytes, FilterResults]] = {}
        self._bytes = 0

    def keep(self, before: bytes, names: bytes, results: FilterResults) -> None:
        """Store results. ``before`` and ``names`` are the parts of ``SplitArgs``."""
        self._drop(before)
        self._entries[before] = (names, results)
        self._bytes += len(before) + len(names)
        while len(self._entries) > _MOST or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._entries)))

    def take(self, request: SplitArgs | None) -> FilterResults | None:
        """Return and remove the results for a request, without decoding it; ``None`` if there are none."""
        if request is None:
            return None
        names, results = self._drop(request.before)
        return results if names == request.names else None

    def _drop(self, before: bytes) -> tuple[bytes, FilterResults | None]:
        entry = self._entries.pop(before, None)
        if entry is None:
            return b"", None
        self._bytes -= len(before) + len(entry[0])
        return entry
