"""A write to standard error never raises and never waits; what cannot be written is counted in lines."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.telemetry.standard_error import StandardError

PAGE = 4096
ROOM = 2 * PAGE


def pipe() -> tuple[int, int]:
    """Return both ends of a small pipe."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
    return reading, writing


def without_reader() -> int:
    reading, writing = pipe()
    os.close(reading)
    return writing


def closed() -> int:
    reading, writing = pipe()
    os.close(reading)
    os.close(writing)
    return writing


@pytest.mark.parametrize(
    "descriptor",
    [
        pytest.param(lambda: os.open("/dev/full", os.O_WRONLY), id="a full disk"),
        pytest.param(without_reader, id="a pipe without a reader"),
        pytest.param(closed, id="a descriptor that was closed"),
        pytest.param(lambda: None, id="none"),
    ],
)
def test_what_cannot_be_written_is_dropped_and_counted(descriptor: object) -> None:
    assert callable(descriptor)
    stream = StandardError(descriptor())

    assert [4, 8, 4] == [stream.write(it) for it in (b"one\n", b"two\nand\n", b"half")]
    assert 3 == stream.dropped


def test_a_reader_that_stalls_loses_lines_and_then_reads_whole_ones() -> None:
    reading, writing = pipe()
    stream = StandardError(writing)

    stream.write(b"x" * (ROOM + PAGE) + b"\n")  # its first pages are written, the rest is not
    stream.write(b"lost\n")
    assert 2 == stream.dropped
    assert b"x" * ROOM == os.read(reading, 2 * ROOM)
    stream.write(b"read\n")
    stream.write(b"too\n")

    assert b"\nread\ntoo\n" == os.read(reading, PAGE)
    assert 2 == stream.dropped


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    file, line = tmp_path / "log", b"y" * 3 * PAGE + b"\n"
    stream = StandardError(os.open(file, os.O_WRONLY | os.O_CREAT))
    stream.write(line)

    assert (line, 0) == (file.read_bytes(), stream.dropped)


SPEAKERS = {
    "ours": "structlog.get_logger().info('said')",
    "a library": "logging.getLogger('uvicorn.error').error('said')",
    "a warning": "warnings.warn('said', stacklevel=1)",
    "a thread": "t = threading.Thread(target=lambda: 1/0); t.start(); t.join()",
    "print": "print('said', file=sys.stderr)",
}
PROGRAM = """
import logging, structlog, sys, threading, warnings
from app.telemetry import standard_error
from app.telemetry.logging import configure
standard_error.guard_standard_error()
configure('info', 'json')
{}
(metric,) = standard_error.DroppedLinesCollector().collect()
print(int(metric.samples[0].value))
"""


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_all_that_writes_there_is_counted_and_the_exit_code_stays(speaker: str) -> None:
    program = PROGRAM.format(SPEAKERS[speaker])
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, check=False)

    assert (0, b"1\n") == (ended.returncode, ended.stdout)
