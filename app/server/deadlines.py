"""A connection's clocks: how long it takes to a head, and how long an answer is not fetched."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.server.listener import HEAD_SECONDS, Listener

UNREAD_SECONDS: Final = 20.0
"""How long an answer may lie here that the client does not fetch."""


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with deadlines.

    A connection that is deaf reads nothing more; it is closed once what was written is fetched.
    """

    def __init__(self, listener: Listener, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._listener = listener
        self._deaf = False
        self._in_message = False
        self._answered = 0
        self._connected_at = monotonic()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def _watch_unread(self) -> None:
        """Look after a while whether what is written was fetched, also where the connection is to be closed then."""
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._look_at_unread, self._answered)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look_at_unread(self, answered: int) -> None:
        self._unread = None
        if answered != self._answered:  # it fetches one answer after the other
            self._watch_unread()
        elif self.transport.get_write_buffer_size():
            self._listener.turn_away("answer_not_fetched", self.client)
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        self._cancel_unread()
        super().resume_writing()
        self._watch_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_unread()

    def _wait_for_head(self, seconds: float = HEAD_SECONDS) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(max(seconds, 0.0), self._too_late)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            if self._in_message:  # who never said anything is no news
                self._listener.turn_away("head_too_slow", self.client)
            self._deaf = True
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Not in the place of an answer that is under way: that one is lost."""
        if self._deaf:
            return
        self._deaf = True
        self._listener.turn_away("no_http", self.client, msg)
        if self._is_answering():
            self.transport.close()
        else:
            super().send_400_response(msg)
        self._watch_unread()

    def _is_answering(self) -> bool:
        """Whether a request is under way whose answer is not complete."""
        under_way: RequestResponseCycle | None = self.cycle
        return under_way is not None and not under_way.response_complete
