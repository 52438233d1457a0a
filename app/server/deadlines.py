"""Deadlines of a connection: for receiving a request head, and for a client that does not read its answer."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.server.listener import HEAD_SECONDS, Listener

UNREAD_SECONDS: Final = 20.0
"""Seconds after which a connection is aborted because its client does not read the answer."""


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with deadlines for request heads and for unread answers.

    Once ``_ignores_input`` is set, further input is discarded, because the connection is about to be closed.
    ``_in_message``: true while the parser is within a request. ``_answered``: number of answered requests.
    """

    def __init__(self, listener: Listener, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._listener = listener
        self._ignores_input = False
        self._in_message = False
        self._answered = 0
        self._connected_at = monotonic()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def _watch_unread(self) -> None:
        """Start the timer for unread output if there is any output, unless it is running. The timer also runs while the
        connection is closing.
        """
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._check_unread, self._answered)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _check_unread(self, answered: int) -> None:
        """Abort the connection if its output is unread. If another answer was written since the timer started, start
        the timer again instead. ``answered``: ``_answered`` when the timer started.
        """
        self._unread = None
        if answered != self._answered:  # another answer was written meanwhile, so the timer starts again
            self._watch_unread()
        elif self.transport.get_write_buffer_size():
            self._listener.reject("answer_not_fetched", self.client)
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
        """Start the timer for the rest of a head, or of a rejected request's body, unless it is running."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(max(seconds, 0.0), self._head_expired)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_expired(self) -> None:
        """Close the connection, because a head was not received completely in time, or the body of a rejected request
        was not.
        """
        self._deadline = None
        if not self.transport.is_closing():
            if self._in_message:  # a client that has sent nothing is not reported
                self._listener.reject("head_too_slow", self.client)
            self._ignores_input = True
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request. If another answer is in progress, the connection is closed instead."""
        if self._ignores_input:
            return
        self._ignores_input = True
        self._listener.reject("no_http", self.client, msg)
        if self._is_answering():
            self.transport.close()
        else:
            super().send_400_response(msg)
        self._watch_unread()

    def _is_answering(self) -> bool:
        """Return true if a request is in progress whose answer is not complete."""
        current: RequestResponseCycle | None = self.cycle
        return current is not None and not current.response_complete
