"""Errors of requests to the API server.

::

    KubeError
    ├── ApiError          the answer is an error, but not a 5xx to a write; nothing was changed
    ├── ApiUnavailable    a read got no usable answer, or a write certainly had no effect; nothing was changed
    │   ├── ApiSilent         a read timed out: the server is slow or unreachable
    │   └── AnswerTooLong     the answer to a read exceeds the caller's limit; reading was aborted
    └── UnknownOutcome    a write might have taken effect: read the object again
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder

_LONGEST_MESSAGE: Final = 500
"""Maximum bytes of a message from a body that is not JSON of a Status; the rest of the body is dropped."""


class KubeError(Exception):
    """Base class of the errors of failed requests to the API server."""


class ApiUnavailable(KubeError):
    """Error of a read without a usable answer, or of a write that certainly had no effect, such as an unsent one."""


class ApiSilent(ApiUnavailable):
    """Error of a read that timed out before its answer was complete."""


class AnswerTooLong(ApiUnavailable):
    """Error of a read with an answer that exceeds the caller's limit in bytes."""


class UnknownOutcome(KubeError):
    """Error of a write that was sent, but has no known result: a timeout, a broken connection, or a 5xx answer."""


class ApiError(KubeError):
    """Error answer of the API server, or of a proxy in front of it.

    ``retry_after``: seconds in the header Retry-After, or else in ``retryAfterSeconds`` of the Status object; ``None``
    if neither has seconds. The error is also raised for a name that cannot be part of a path; then no request is sent.
    """

    def __init__(self, status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason})".replace(" )", ")"))
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @classmethod
    def parse(cls, raw: bytes | Raw, *, status: int = 0, retry_after: float | None = None) -> Self:
        """Create the error from the body of an answer. If ``status`` is 0, the code in the body is used.

        The body is usually a Status object. A body that cannot be decoded as one becomes the message, because proxies
        return plain text.
        """
        try:
            decoded = _STATUS.decode(raw)
        except msgspec.DecodeError:
            return cls(status, "", bytes(raw)[:_LONGEST_MESSAGE].decode(errors="replace").strip(), retry_after)
        if retry_after is None and decoded.details is not None:
            retry_after = decoded.details.retry_after_seconds or None
        return cls(status or decoded.code or 0, decoded.reason or "", decoded.message or "", retry_after)


class _ErrorDetails(Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _ErrorStatus(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _ErrorDetails | None = None


_STATUS: Final = Decoder[_ErrorStatus](_ErrorStatus)
