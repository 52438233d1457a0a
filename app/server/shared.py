"""Answers that are computed once for all readers, so that many open browser pages cause no more work than one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import thread_time
from typing import Any, Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from app.framework.handle import Clock
from app.server.ui import etag_of, is_known
from app.verbs.outcome import VerbFailure

FRESH_SECONDS: Final = 5.0
"""Minimum age in seconds at which an answer is computed again."""

PAUSE_FACTOR: Final = 50.0
"""Minimum age at which an answer is computed again, as a multiple of its processor time.

So computing it takes at most 2 % of the time.
"""

_NOT_MODIFIED: Final = 304
_NO_HEADERS: Final[Mapping[str, str]] = {}


class _Answer(Struct, frozen=True):
    """Computed answer. ``computed_at``: start of its computation. ``seconds``: processor time of the thread during the
    computation, which includes other tasks.
    """

    body: bytes
    etag: str
    computed_at: float
    seconds: float


class SharedAnswer:
    """JSON answer that is computed once for all readers. A request that finds an old answer starts the computation of a
    newer one.

    ``compute`` runs in short steps. Only the first readers wait for it. Later readers get the last answer while a
    newer one is computed; the header ``Age`` has its age in seconds.
    """

    def __init__(self, compute: Callable[[], Awaitable[Mapping[str, Any]]], clock: Clock) -> None:
        self._compute = compute
        self._clock = clock
        self._last: _Answer | None = None
        self._task: asyncio.Task[_Answer] | None = None

    async def etag(self) -> str:
        """Return the ETag of the current answer. Raises like ``response``."""
        return (await self._current()).etag

    async def response(self, if_none_match: str, headers: Mapping[str, str] = _NO_HEADERS) -> Response:
        """Return the answer, or 304 if the reader has it. ``headers``: further headers.

        Raises what ``compute`` raises; but a ``VerbFailure`` only if there is no last answer.
        """
        answer = await self._current()
        age = max(0, int(self._clock() - answer.computed_at))
        headers = {"ETag": answer.etag, "Age": str(age), "Cache-Control": "no-cache", **headers}
        if is_known(answer.etag, if_none_match):
            return Response(status_code=_NOT_MODIFIED, headers=headers)
        return Response(answer.body, headers=headers, media_type="application/json")

    async def _current(self) -> _Answer:
        """Return the last answer, and begin to compute a newer one if it is old. Wait only for the first answer."""
        if self._task is not None and self._task.done():
            self._take(self._task)
        last = self._last
        if last is None:
            task = self._task or self._begin()
            await asyncio.wait((task,))
            return self._take(task)
        if self._task is None and self._clock() - last.computed_at > max(FRESH_SECONDS, PAUSE_FACTOR * last.seconds):
            self._begin()
        return last

    def _begin(self) -> asyncio.Task[_Answer]:
        self._task = task = asyncio.ensure_future(self._computed())
        return task

    def _take(self, task: asyncio.Task[_Answer]) -> _Answer:
        """Return the result of a finished task. After a ``VerbFailure``, for example because the snapshot cannot be
        used, return the last answer; its age shows that it is old.

        Raises the ``VerbFailure`` if there is no last answer, and any other exception of the task. The next reader then
        starts a new task.
        """
        if self._task is task:
            self._task = None
        try:
            self._last = task.result()
        except VerbFailure:
            if self._last is None:
                raise
        return self._last

    async def _computed(self) -> _Answer:
        """Compute an answer. Its age counts from the start of the computation, when the snapshot was read."""
        now, began = self._clock(), thread_time()
        body = msgspec.json.encode(await self._compute())
        return _Answer(body, etag_of(body), now, thread_time() - began)
