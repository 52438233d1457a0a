"""Standard error that never raises and never blocks: lines that cannot be written are dropped and counted.

A full disk, a closed pipe, or a pipe with a stalled reader must not affect the process. Each part is written only after
``select`` reports that it will not block. For a regular file it always does, so a hanging disk still blocks the writer.
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
    """Raw stream over a file descriptor; without one, all lines are dropped. ``dropped``: number of lines so far."""

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
        """Write what does not block; always return the length of ``data``, which callers take for success."""
        rest = memoryview(b"\n" + data if self._cut else data)
        begun = False
        try:
            while rest and self._would_not_block():
                written = os.write(self.fileno(), rest[: select.PIPE_BUF])
                rest, begun = rest[written:], True
        except OSError:  # io.UnsupportedOperation is one too
            pass
        if rest:
            self.dropped += bytes(rest[-len(data) :]).count(b"\n")
        self._cut = bool(rest) and (begun or self._cut)
        return len(data)

    def _would_not_block(self) -> bool:
        """Return true if the descriptor accepts at least PIPE_BUF bytes now, or would fail at once."""
        return bool(select.select((), (self.fileno(),), (), 0)[1])


_GUARDED: Final = StandardError(None if sys.__stderr__ is None else sys.__stderr__.fileno())


def guard_standard_error() -> None:
    """Replace the interpreter's own ``sys.stderr`` by one that cannot fail; keep a replaced one."""
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(_GUARDED, encoding="utf-8", errors="backslashreplace", write_through=True)


class DroppedLinesCollector(Collector):
    """Number of dropped log lines, read when metrics are scraped."""

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "homeport_log_lines_dropped",
            "Log lines that standard error did not take.",
            value=_GUARDED.dropped,
        )
