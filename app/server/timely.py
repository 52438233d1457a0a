"""A time limit that costs nothing where nothing is waited for, as in most calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MOST_EARLIER: Final = 0.5
"""Seconds: an answer takes no longer on its way where there is more time for it."""


class OutOfTime(Exception):
    """The time limit is over."""


def earlier(seconds: float, part: float) -> float:
    """So many seconds less a ``part`` of them, at most half a second: by then an answer is on its way in time."""
    return seconds - min(seconds * part, _MOST_EARLIER)


async def within(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """What ``call`` returns. Raises ``OutOfTime`` if it still waits after so many seconds, and cancels it.

    It is run up to its first wait before there is a timeout at all; the time that takes counts.
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
    """Go on with a call that waits for ``awaited``: what ``await`` does, from the second step on."""
    while True:
        try:
            try:
                sent = yield awaited
            except BaseException as error:  # noqa: BLE001  # handed on, as await does
                awaited = call.throw(error)
            else:
                awaited = call.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result
