"""Requests that are nested deeper than the interpreter allows: read all the same, while others get their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.kube.decoding import levelled_in_turns
from app.verbs.outcome import VerbFailure
from app.wire.extender_v1 import MalformedRequest, TooDeep

T = TypeVar("T")


async def read_again(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest, verb: str) -> T:
    """What a request says that was refused for its depth. Raises ``VerbFailure`` for one that is malformed."""
    try:
        return await without_depth(decode, body, refused)
    except MalformedRequest as error:
        raise VerbFailure("bad_request", f"homeport: malformed {verb} request: {error}") from None


async def without_depth(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest) -> T:
    """The same, but raises ``MalformedRequest``."""
    if not isinstance(refused, TooDeep):
        raise refused
    return decode(await levelled_in_turns(bytes(body)))
