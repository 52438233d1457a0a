"""What can go wrong with a request to the API server.

::

    KubeError
    ├── ApiError          the API server said no; nothing was changed
    ├── ApiUnavailable    no answer to a read, or a write that was never sent; nothing was changed
    │   ├── ApiSilent         a read that was sent, and nothing came within its time: slow, or gone without a word
    │   └── AnswerTooLong     the answer to a read is longer than the caller allows; it was broken off
    └── UnknownOutcome    a write that may or may not have happened: read it back
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder

_LONGEST_MESSAGE: Final = 500


class KubeError(Exception):
    """Any failure to get something done by the API server."""


class ApiUnavailable(KubeError):
    """A read without an answer, or a write that never left."""


class ApiSilent(ApiUnavailable):
    """A read that left on an open connection and was not answered in time."""


class AnswerTooLong(ApiUnavailable):
    """A read whose answer exceeds the caller's limit in bytes."""


class UnknownOutcome(KubeError):
    """A write that was sent and not clearly answered: a timeout, a reset, an answer from the 5xx range."""


class ApiError(KubeError):
    """The API server's refusal. ``retry_after`` is in seconds, ``None`` if it names no time."""

    def __init__(self, status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason})".replace(" )", ")"))
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @classmethod
    def parse(cls, raw: bytes | Raw, *, status: int = 0, retry_after: float | None = None) -> Self:
        """Read a Status object; what is none becomes the message, since proxies answer in prose."""
        try:
            found = _STATUS.decode(raw)
        except msgspec.DecodeError:
            return cls(status, "", bytes(raw)[:_LONGEST_MESSAGE].decode(errors="replace").strip(), retry_after)
        if retry_after is None and found.details is not None:
            retry_after = found.details.retry_after_seconds or None
        return cls(status or found.code or 0, found.reason or "", found.message or "", retry_after)


class _StatusDetails(Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


_STATUS: Final = Decoder[_Status](_Status)
