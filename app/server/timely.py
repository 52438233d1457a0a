"""Time limit without a timer for calls that never wait, which are the majority."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MAX_MARGIN_SECONDS: Final = 0.5
"""Maximum seconds reserved for sending an answer."""


class OutOfTime(Exception):
    """The time limit has passed."""


def with_margin(seconds: float, part: float) -> float:
    """Return ``seconds`` less the fraction ``part``, at most half a second: a margin for sending the answer."""
    return seconds - min(seconds * part, _MAX_MARGIN_SECONDS)


async def within(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``call``; if it still waits after ``seconds``, cancel it and raise ``OutOfTime``.

    A timeout is created only at the first wait; the time before counts.
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
    """Continue a call that waits for ``awaited``, as ``await`` would from the second step on."""
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001  # passed on, as by await
                awaited = call.throw(error)
            else:
                awaited = call.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result
