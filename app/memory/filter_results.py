"""Cache of the last filter results. kube-scheduler calls prioritize next, with the same pod and the returned nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.wire.extender_v1 import SplitArgs

_MOST: Final = 64
"""Maximum number of cached results: one per scheduler is needed, and several schedulers can call Homeport."""

_MOST_BYTES: Final = 8 << 20
"""Maximum bytes of all expected prioritize requests together, which are the keys of the results.

With the decoded names, the cache then takes some 32 MB.
"""


class FilterResults(Struct, frozen=True):
    """Names of the nodes that filter returned for ``pod``: all passing nodes, or a sample of them.

    ``node_set``: value of ``Cluster.node_set`` when filter ran. While it is unchanged, all names are nodes of the
    snapshot.
    """

    pod: Pod
    names: Sequence[str]
    node_set: int


class FilterResultCache:
    """Cache of the newest filter results, by the exact bytes of the prioritize request that is expected next."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[bytes, FilterResults]] = {}
        self._bytes = 0

    def keep(self, before: bytes, names: bytes, results: FilterResults) -> None:
        """Store results. ``before`` and ``names``: parts of the expected prioritize request, see ``SplitArgs``."""
        self._drop(before)
        self._entries[before] = (names, results)
        self._bytes += len(before) + len(names)
        while len(self._entries) > _MOST or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._entries)))

    def take(self, request: SplitArgs | None) -> FilterResults | None:
        """Return and remove the results for a request that is not decoded; ``None`` if no stored result matches it.

        A result whose ``before`` is equal, but whose names are not, is removed too.
        """
        if request is None:
            return None
        names, results = self._drop(request.before)
        return results if names == request.names else None

    def _drop(self, before: bytes) -> tuple[bytes, FilterResults | None]:
        """Remove and return an entry; ``(b"", None)`` if there is none."""
        entry = self._entries.pop(before, None)
        if entry is None:
            return b"", None
        self._bytes -= len(before) + len(entry[0])
        return entry
