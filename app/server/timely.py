"""Time limit for calls. A timer is created only for a call that waits, because most calls never wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MAX_MARGIN_SECONDS: Final = 0.5
"""Maximum margin of ``with_margin`` in seconds."""


class OutOfTime(Exception):
    """The time limit has passed."""


def with_margin(seconds: float, part: float) -> float:
    """Return ``seconds`` minus a margin for sending the answer: the fraction ``part`` of it, at most half a second."""
    return seconds - min(seconds * part, _MAX_MARGIN_SECONDS)


async def within(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """Run ``call`` and return its result; if it still waits after ``seconds``, cancel it and raise ``OutOfTime``.

    The timer is created only when ``call`` first waits. The time that has passed until then is subtracted.
    """
    until = asyncio.get_running_loop().time() + seconds
    try:
        awaited = call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    limit = asyncio.timeout_at(until)
    try:
        async with limit:
            return await _rest(call, awaited)
    except TimeoutError:
        if limit.expired():
            raise OutOfTime from None
        raise


@coroutine
def _rest(call: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Run the rest of a coroutine that has been started and waits for ``awaited``, like ``await`` would."""
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001  # raised inside the call, like by await
                awaited = call.throw(error)
            else:
                awaited = call.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result
