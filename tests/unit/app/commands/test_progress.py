"""Progress on standard error: on a terminal, elsewhere, and for those who want none."""

from __future__ import annotations

import io

import pytest

from app.commands.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(stream: io.StringIO, *seconds: float, quiet: bool = False) -> str:
    """What is on the stream after one text at each of the seconds since the start, and the end."""
    clock = Clock()
    line = ProgressLine(quiet=quiet, stream=stream, clock=clock)
    for number, second in enumerate(seconds):
        clock.now = 100.0 + second
        line.show(f"{number} objects")
    line.clear()
    return stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_nothing_in_the_first_half_second(stream: io.StringIO) -> None:
    assert "" == shown(stream, 0.0, 0.4)


def test_a_terminal_has_one_line_that_is_replaced_and_removed() -> None:
    clear = "\r\x1b[K"

    assert f"{clear}homeport: 0 objects, 1 s{clear}homeport: 2 objects, 2 s{clear}" == shown(Terminal(), 1.0, 1.05, 2.0)


def test_elsewhere_a_line_every_ten_seconds() -> None:
    expected = "homeport: 0 objects, 1 s\nhomeport: 2 objects, 12 s\n"

    assert expected == shown(io.StringIO(), 1.0, 9.0, 12.0)


def test_nothing_for_those_who_want_none() -> None:
    assert "" == shown(Terminal(), 1.0, 20.0, quiet=True)
