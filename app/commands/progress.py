"""Shows the progress of a long computation on standard error, so that standard output has only the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Final, TextIO

_FIRST_SECONDS: Final = 0.5
"""Minimum seconds until the first line."""

_TERMINAL_SECONDS: Final = 0.1
"""Minimum seconds between two lines on a terminal."""

_OTHER_SECONDS: Final = 10.0
"""Minimum seconds between two lines elsewhere, such as in a log file."""

_CLEAR: Final = "\r\x1b[K"


class ProgressLine:
    """Line about the progress. A terminal shows only the newest line; elsewhere, lines are ten seconds or more apart.

    Nothing is shown in the first half second, or with ``quiet``.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began = clock()
        self._next = self._began + _FIRST_SECONDS
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show ``text`` and the seconds since the start, unless the start or the previous line is too recent."""
        now = self._clock()
        if self._quiet or now < self._next:
            return
        line = f"homeport: {text}, {now - self._began:.0f} s"
        if self._stream.isatty():
            self._next = now + _TERMINAL_SECONDS
            self._is_shown = True
            self._stream.write(f"{_CLEAR}{line}")
        else:
            self._next = now + _OTHER_SECONDS
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_shown:
            self._is_shown = False
            self._stream.write(_CLEAR)
            self._stream.flush()
