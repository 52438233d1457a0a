"""A what-if runs in a child process, which gives the answer or the failure, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError

from app.framework.status import error
from app.runtime.guard import PluginError
from app.verbs.outcome import VerbFailure
from app.whatif import running
from app.whatif.mistakes import RequestMistake
from app.whatif.running import ForkedRunner, InlineRunner, Runner, Steps

RUNNERS: list[Callable[[], Runner]] = [ForkedRunner, lambda: InlineRunner(lambda _text: None)]


def steps_of(answer: Callable[[], Mapping[str, Any]]) -> Callable[[], Steps]:
    def steps() -> Steps:
        yield "half"
        return answer()

    return steps


def run(runner: Runner, answer: Callable[[], Mapping[str, Any]]) -> bytes:
    return asyncio.run(runner.run(steps_of(answer)))


def raising(failure: Exception) -> Callable[[], Mapping[str, Any]]:
    def answer() -> Mapping[str, Any]:
        raise failure

    return answer


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_answer(runner: Callable[[], Runner]) -> None:
    """Also one that is larger than the buffer of a pipe."""
    assert b'{"pods":' + b'["' + b"x" * 300_000 + b'"]}' == run(runner(), lambda: {"pods": ["x" * 300_000]})


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("failure", "outcome", "message"),
    [
        (VerbFailure("nothing_to_do", "no such node"), "nothing_to_do", "no such node"),
        (PluginError(error("broken", "Broken")), "fault", "broken"),
    ],
)
def test_a_failure(runner: Callable[[], Runner], failure: Exception, outcome: str, message: str) -> None:
    with pytest.raises(VerbFailure) as raised:
        run(runner(), raising(failure))

    assert (outcome, message) == (raised.value.outcome, raised.value.message)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_mistake_in_the_request(runner: Callable[[], Runner]) -> None:
    with pytest.raises(RequestValidationError) as raised:
        run(runner(), raising(RequestMistake("objects[1].spec", "is missing")))

    (mistake,) = raised.value.errors()
    assert (("body", "objects[1].spec"), "is missing") == (mistake["loc"], mistake["msg"])


def test_a_child_that_dies() -> None:
    """For example because the kernel ends it for its memory."""
    with pytest.raises(VerbFailure, match="was ended"):
        run(ForkedRunner(), lambda: os._exit(9))


def test_a_child_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_SECONDS", 0.05)

    def forever() -> Mapping[str, Any]:
        while True:
            pass

    with pytest.raises(VerbFailure, match="no answer within"):
        run(ForkedRunner(), forever)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_has_no_descriptor_of_the_service() -> None:
    receiver, sender = os.pipe()
    answer = run(ForkedRunner(), lambda: {"open": _is_open(receiver)})
    os.close(receiver)
    os.close(sender)

    assert b'{"open":false}' == answer


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_progress_is_told_in_this_process() -> None:
    texts: list[str] = []

    run(InlineRunner(texts.append), dict)

    assert ["half"] == texts


def test_a_child_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example because the container has too many processes. The pipe is closed again."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = set(Path("/proc/self/fd").iterdir())

    with pytest.raises(VerbFailure, match="cannot be started: Resource temporarily unavailable"):
        run(ForkedRunner(), dict)

    assert before == set(Path("/proc/self/fd").iterdir())
