"""A file of the pod names ended processes only: with real processes, of which some are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from app.replicas.pod_lock import MOST_NAMED, RETRY_SECONDS, PodLock

_HOLDER: Final = """
import os, sys
from app.replicas.pod_lock import PodLock
assert PodLock(sys.argv[1], sys.argv[2]).acquire() is not None
child = os.fork() if sys.argv[3] == "forks" else None
if child != 0:
    print(child, flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_process(file: Path, identity: str, how: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the lock, and the line it wrote then. Its child, if it forks, ends with the block."""
    command = [sys.executable, "-c", _HOLDER, str(file), identity, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_live_predecessor_holds_it_and_a_dead_one_is_named(file: Path) -> None:
    with held_by_process(file, "one") as (process, _):
        alive = PodLock(str(file), "two").acquire()
        os.kill(process.pid, signal.SIGSTOP)
        stopped = PodLock(str(file), "two").acquire()
        process.kill()
        process.wait()

    assert (None, None, frozenset({"one"})) == (alive, stopped, PodLock(str(file), "two").acquire())


def test_a_fork_that_outlives_the_predecessor_holds_it(file: Path) -> None:
    with held_by_process(file, "one", "forks") as (process, child):
        process.kill()
        process.wait()
        forked = PodLock(str(file), "two").acquire()
        os.kill(int(child), signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.read()  # ends when the child has

    assert (None, frozenset({"one"})) == (forked, PodLock(str(file), "two").acquire())


def test_every_process_that_held_it_is_named_up_to_a_bound(file: Path) -> None:
    names = [f"process-{number}" for number in range(2 * MOST_NAMED)]
    file.write_text("\n".join(names) + "\n")

    assert frozenset(names[-MOST_NAMED:]) == PodLock(str(file), "last").acquire()
    assert [*names[1 - MOST_NAMED :], "last"] == file.read_text().splitlines()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        pytest.param(b"", set(), id="nothing"),
        pytest.param(b"somebody-else\n", {"somebody-else"}, id="somebody else"),
        pytest.param(b"whole\nhalf a li", {"whole"}, id="a line that was not finished"),
        pytest.param(b"\xff\x00\n", {"\ufffd\x00"}, id="no text"),
        pytest.param(b"x" * 100_000, set(), id="too much"),
    ],
)
def test_what_it_names(file: Path, content: bytes, named: set[str]) -> None:
    file.write_bytes(content)

    assert frozenset(named) == PodLock(str(file), "me").acquire()
    assert file.read_bytes().endswith(b"me\n")


async def test_it_is_waited_for_until_the_predecessor_has_ended(file: Path) -> None:
    with ExitStack() as ends:
        process, _ = ends.enter_context(held_by_process(file, "one"))
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                process.kill()
                process.wait()

        assert frozenset({"one"}) == await PodLock(str(file), "two", sleep).ended()
    assert [RETRY_SECONDS] * 3 == waited


@pytest.mark.parametrize("unusable", ["absent/lock", "", "link"])
async def test_without_a_usable_file_nobody_has_ended(
    tmp_path: Path, unusable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    assert frozenset() == await PodLock(str(tmp_path / unusable), "me").ended()
    assert "lock file not usable" in capsys.readouterr().out


def test_a_full_disk_names_the_predecessors_and_not_us(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file.write_text("one\n")
    monkeypatch.setattr(os, "pwrite", no_space)

    assert frozenset({"one"}) == PodLock(str(file), "me").acquire()
    assert "one\n" == file.read_text()
    assert "No space left" in capsys.readouterr().out
