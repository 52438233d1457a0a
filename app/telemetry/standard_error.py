"""Standard error stream whose writes never raise an exception, and do not block unless a disk hangs.

Lines that cannot be written are dropped and counted. A full disk, a closed pipe, or a pipe with a stalled reader must
not affect the process. So each part of a line is written only after ``select`` has reported that the write will not
block. For a regular file, ``select`` always reports this, so a disk that hangs still blocks the writer.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class StandardError(io.RawIOBase):
    """Raw stream over a file descriptor. ``descriptor``: ``None`` if all lines are dropped.

    ``dropped``: number of dropped lines so far, including those that were cut off.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._cut = False
        self.dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self._descriptor is None:
            raise io.UnsupportedOperation("standard error is closed")
        return self._descriptor

    def write(self, data: Any) -> int:
        """Write as much of ``data`` as does not block, and drop the rest.

        Always return the length of ``data``, so that the caller treats the write as complete. If a line was cut off,
        the next write begins on a new line.
        """
        rest = memoryview(b"\n" + data if self._cut else data)
        begun = False
        try:
            while rest and self._would_not_block():
                written = os.write(self.fileno(), rest[: select.PIPE_BUF])
                rest, begun = rest[written:], True
        except OSError:  # also io.UnsupportedOperation, a subclass
            pass
        if rest:
            self.dropped += bytes(rest[-len(data) :]).count(b"\n")
        self._cut = bool(rest) and (begun or self._cut)
        return len(data)

    def _would_not_block(self) -> bool:
        """Return true if a write of up to ``PIPE_BUF`` bytes returns or fails at once."""
        return bool(select.select((), (self.fileno(),), (), 0)[1])


_GUARDED: Final = StandardError(None if sys.__stderr__ is None else sys.__stderr__.fileno())
"""Stream that replaces standard error."""


def guard_standard_error() -> None:
    """Replace ``sys.stderr`` with a stream that cannot fail, unless other code has replaced it before."""
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(_GUARDED, encoding="utf-8", errors="backslashreplace", write_through=True)


class DroppedLinesCollector(Collector):
    """Exports the number of dropped log lines, which is read when metrics are scraped."""

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "homeport_log_lines_dropped",
            "Log lines that standard error did not take.",
            value=_GUARDED.dropped,
        )
