"""Cache of request heads, because a client repeats the same head, except for the length of the body.

Parsing a head and checking access took 7 % of the time of a filter call with 500 names. So the head of a request that
took the fast path is cached, and later requests with the same bytes skip both steps. A head is cached only if it gives
the length of its body as a decimal number.

All clients of a listener share the cache. This is safe, because a head must match in all its bytes, and access depends
only on the head. If access also depends on a certificate, ``protocol`` checks it for each request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from msgspec import Struct

from app.server.incoming import FORWARDED, Headers

E = TypeVar("E")

_LONGEST: Final = 1 << 10
"""Maximum bytes of a cached head."""

_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,7})\r\n")
_MOST_DIGITS: Final = 7
"""Maximum number of digits in the body's length in a cached head. Eight digits stand for at least 10 MB."""

_CONTENT_LENGTH: Final = b"content-length"
_NOT_KEPT: Final = frozenset({b"transfer-encoding", b"trailer", b"traceparent", b"tracestate", FORWARDED.encode()})
"""Headers that prevent caching of a head. Some belong to a body without a declared length. The others differ in each
request, so the cached head would not be used again.
"""

_POST: Final = b"POST "
_END: Final = b"\r\n\r\n"


class KnownHead(Struct, Generic[E], frozen=True, eq=False):
    """Cached head. ``before`` and ``after``: its bytes before and after the digits of the body's length.

    ``headers``: all headers except the body's length. ``endpoint``: the endpoint for its path. ``url`` and ``watched``:
    URL and headers with which access is checked.
    """

    before: bytes
    after: bytes
    headers: Headers
    endpoint: E
    url: str
    watched: Mapping[bytes, bytes]

    def body(self, data: bytes) -> tuple[int, int] | None:
        """Return offset and length of the body if ``data`` begins with this head; else ``None``."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        end = data.find(b"\r", at, at + _MOST_DIGITS + 1)
        if end < 0 or not data.startswith(self.after, end):
            return None
        digits = data[at:end]
        return (end + len(self.after), int(digits)) if digits.isdigit() else None


def line_of(data: bytes) -> bytes:
    """Return the request line of a POST, which is the key of its head in the cache; empty for other requests.

    The result is no key if the line does not end within the first ``_LONGEST`` bytes.
    """
    return data[: data.find(b"\r\n", 0, _LONGEST)] if data.startswith(_POST) else b""


def known_head(
    data: bytes, url: bytes, headers: Headers, endpoint: E, watched: Mapping[bytes, bytes]
) -> KnownHead[E] | None:
    """Return the head at the start of ``data`` for the cache; ``None`` if it must not be cached.

    ``url``, ``headers`` and ``watched``: URL, all headers, and headers for access control, as parsed from the head.
    """
    end = data.find(_END, 0, _LONGEST)
    if end < 0 or line_of(data) != _POST + url + b" HTTP/1.1":
        return None
    size = end + len(_END)
    names = [name for name, _ in headers]
    length = _LENGTH.search(data, 0, size)
    if length is None or names.count(_CONTENT_LENGTH) != 1 or not _NOT_KEPT.isdisjoint(names):
        return None
    rest = tuple(it for it in headers if it[0] != _CONTENT_LENGTH)
    return KnownHead(
        data[: length.start(1)], data[length.end(1) : size], rest, endpoint, url.decode("latin-1"), watched
    )
