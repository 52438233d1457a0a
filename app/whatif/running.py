"""Runs what-ifs, one at a time: in a child process of the service, or in the process of a command.

The child is a fork, so it has the snapshot at once, and its long steps cannot delay a scheduling decision. It closes
the sockets of the service, runs at the lowest priority, and is ended after ``CHILD_SECONDS`` of processor time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

import msgspec
from msgspec import Struct

from app.analysis.explain_snapshot import ExplainSnapshot
from app.kube.decoding import Decoder
from app.runtime.guard import PluginError
from app.runtime.profiles import ProfileErrors
from app.server.bodies import invalid
from app.verbs.outcome import Outcome, VerbFailure
from app.verbs.stepwise import run_stepwise
from app.whatif.budget import SECONDS, Budget
from app.whatif.mistakes import RequestMistake
from app.whatif.room import lacking_memory
from app.whatif.scratch import ScratchCluster, scratch_of

ANSWER_SECONDS: Final = 60.0
"""Maximum duration of a what-if in a child process, in seconds."""

CHILD_SECONDS: Final = 20
"""Processor time in seconds after which the kernel ends a child whose steps do not check their budget."""

_NO_MEMORY: Final = "a what-if needs {} MiB more memory than the container has: raise its limit, or use --local"
_CHUNK: Final = 1 << 16
_NICENESS: Final = 19
_LAST_DESCRIPTOR: Final = 1 << 20

Steps = Generator[str | None, None, Mapping[str, Any]]
"""Steps of a what-if: each yields a text on its progress, or ``None``. They return the answer as a JSON object."""

Compute = Callable[[ScratchCluster, Budget], Steps]


class Runner(Protocol):
    """Runs the steps of a what-if to their end."""

    async def run(self, steps: Callable[[], Steps]) -> bytes:
        """Return the answer as JSON. Raises ``VerbFailure``, or ``RequestValidationError`` for a mistake in the
        request.
        """
        ...


class WhatIf:
    """Computes what-ifs on copies of the snapshot of explain. ``seconds``: processor time of each; ``None``: no limit.

    The caller must not run two at once.
    """

    def __init__(self, snapshot: ExplainSnapshot, runner: Runner, seconds: float | None) -> None:
        self._snapshot = snapshot
        self._runner = runner
        self._seconds = seconds

    async def answer(self, compute: Compute) -> bytes:
        """Return the answer of ``compute`` and the state of the snapshot, as JSON. Raises like ``Runner.run``.

        Raises ``VerbFailure`` if the snapshot is not complete yet.
        """
        stale = self._snapshot.problem()
        if stale and not self._snapshot.is_listed():
            raise VerbFailure("not_ready", stale)
        return await self._runner.run(lambda: self._steps(compute, stale))

    def _steps(self, compute: Compute, stale: str) -> Steps:
        budget = Budget(self._seconds)
        scratch = scratch_of(self._snapshot)
        yield "copying the snapshot"
        yield from scratch.copying(self._snapshot.in_flight())
        answer = yield from compute(scratch, budget)
        known = {"stale": stale, "notJudged": self._not_judged(scratch), "incomplete": budget.was_over}
        return {**answer, **known}

    def _not_judged(self, scratch: ScratchCluster) -> list[Mapping[str, str]]:
        """Return the plugins that explain cannot use now, and why. Only profiles that the what-if used are checked."""
        reasons: dict[str, str] = {}
        for name in scratch.used:
            reasons |= self._snapshot.not_usable(name)
        return [{"plugin": plugin, "why": why} for plugin, why in reasons.items()]


def what_ifs(snapshot: ExplainSnapshot, progress: Callable[[str], None] | None) -> WhatIf:
    """Return the what-ifs on a snapshot.

    With ``progress``, they run in this process, without a time limit. If it is ``None``, they run in a child process,
    with a limit.
    """
    if progress is None:
        return WhatIf(snapshot, ForkedRunner(), SECONDS)
    return WhatIf(snapshot, InlineRunner(progress), None)


class InlineRunner:
    """Runs a what-if in this process. ``progress``: called with each text on the progress."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress

    async def run(self, steps: Callable[[], Steps]) -> bytes:
        answers: list[Mapping[str, Any]] = []
        try:
            await run_stepwise(self._shown(steps(), answers))
        except _EXPECTED as failure:
            raise _raised(_as_failure(failure)) from None
        return msgspec.json.encode(answers[0])

    def _shown(self, steps: Steps, answers: list[Mapping[str, Any]]) -> Iterator[None]:
        while True:
            try:
                text = next(steps)
            except StopIteration as end:
                answers.append(end.value)
                return
            if text:
                self._progress(text)
            yield


class ForkedRunner:
    """Runs a what-if in a child process, at most ``ANSWER_SECONDS``. Texts on the progress are dropped."""

    async def run(self, steps: Callable[[], Steps]) -> bytes:
        if lacking := lacking_memory():
            raise VerbFailure("overloaded", _NO_MEMORY.format(-(-lacking >> 20)))
        receiver, sender = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            os.close(receiver)
            os.close(sender)
            raise VerbFailure("overloaded", f"a what-if cannot be started: {error.strerror}") from error
        if not pid:
            _run_child(steps, sender)
        os.close(sender)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return _opened(await _read_all(receiver))
        except TimeoutError:
            raise VerbFailure("out_of_time", f"no answer within {ANSWER_SECONDS:g} s") from None
        finally:
            os.close(receiver)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # noqa: ASYNC222  # returns at once, because the child is dead


class _Failure(Struct):
    """Failure of a what-if. ``field``: path of the mistake in the request; ``None`` if the request has none."""

    outcome: Outcome
    message: str
    field: str | None = None


_EXPECTED: Final = (VerbFailure, RequestMistake, PluginError, ProfileErrors)
_FAILURE: Final = Decoder[_Failure](_Failure)
_FAILED: Final = b"!"
"""First byte of a failure. An answer begins with a brace."""


def _run_child(steps: Callable[[], Steps], sender: int) -> NoReturn:
    """Compute the answer, write it to ``sender`` and end the process. The event loop of the parent is not used."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, sender)
        os.closerange(sender + 1, _LAST_DESCRIPTOR)
        os.nice(_NICENESS)
        with suppress(ValueError, OSError):  # there can be a lower limit already
            resource.setrlimit(resource.RLIMIT_CPU, (CHILD_SECONDS, CHILD_SECONDS))
        gc.disable()
        body = _computed(steps())
        while body:
            body = body[os.write(sender, body) :]
    finally:
        os._exit(0)


def _computed(steps: Steps) -> bytes:
    """Return the answer as JSON, or ``_FAILED`` followed by the failure as JSON."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return msgspec.json.encode(end.value)
    except Exception as failure:  # noqa: BLE001  # the parent answers for any failure of the child
        return _FAILED + msgspec.json.encode(_as_failure(failure))


def _as_failure(failure: Exception) -> _Failure:
    """Return a failure in the form that a child can send to its parent."""
    match failure:
        case VerbFailure():
            return _Failure(failure.outcome, failure.message)
        case RequestMistake():
            return _Failure("bad_request", failure.message, failure.field)
        case PluginError():
            return _Failure("fault", failure.status.message)
    return _Failure("fault", f"{type(failure).__name__}: {failure}")


async def _read_all(receiver: int) -> bytes:
    """Return all bytes that the child writes, once its end of the pipe is closed."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bytes] = loop.create_future()
    chunks: list[bytes] = []

    def read() -> None:
        chunk = os.read(receiver, _CHUNK)
        if chunk:
            chunks.append(chunk)
        elif not ended.done():
            loop.remove_reader(receiver)
            ended.set_result(b"".join(chunks))

    loop.add_reader(receiver, read)
    try:
        return await ended
    finally:
        loop.remove_reader(receiver)


def _opened(body: bytes) -> bytes:
    """Return the answer of a child. Raises the failure of the child, and ``VerbFailure`` if the child was ended."""
    if not body:
        raise VerbFailure("out_of_time", "the computation used too much processor time or memory, and was ended")
    if body.startswith(_FAILED):
        raise _raised(_FAILURE.decode(body[1:]))
    return body


def _raised(failure: _Failure) -> Exception:
    """Return the exception to raise for a failure."""
    if failure.field is not None:
        return invalid("body", failure.field, failure.message)
    return VerbFailure(failure.outcome, failure.message)
