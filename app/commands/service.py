"""A running Homeport and its pages, as commands reach it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import httpx
from msgspec import Struct

_SECONDS: Final = 20.0

SERVERS: Final = ("http://127.0.0.1:8888", "http://127.0.0.1:8889")
"""Where the pages are by default: with the verbs, or on the port that examples and the chart give the operator."""


class CommandError(Exception):
    """What was asked for cannot be done, or said: sentences for the person who asked."""


class _Elsewhere(CommandError):
    """Nobody is there, or nobody who has this page."""


class Server(Struct, frozen=True):
    """Where Homeport's pages are: at the first of ``urls`` that has them.

    ``authority``, ``certificate``, ``key``: files, in kubectl's words, for https.
    """

    urls: tuple[str, ...]
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object of a page. Raises ``CommandError``."""
        return self._ask("GET", path, {"params": dict(asked)})

    def post(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The same for what is asked with a body."""
        return self._ask("POST", path, {"json": dict(asked)})

    def _ask(self, method: str, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Raises ``CommandError``: what the last one said, and of several that do not have the page, all of them."""
        missed: list[str] = []
        for base in self.urls:
            try:
                return self._ask_at(method, f"{base.rstrip('/')}{path}", asked)
            except _Elsewhere as cause:
                missed.append(str(cause))
        raise CommandError("\n".join(missed))

    def _ask_at(self, method: str, url: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = httpx.request(method, url, **asked, timeout=_SECONDS, verify=_tls(self))
            found = dict(answer.json())
        except (httpx.HTTPError, ValueError, TypeError) as error:
            raise _Elsewhere(f"{url}: {error}") from None
        except (httpx.InvalidURL, OSError) as error:
            raise CommandError(f"{url}: {error}") from None
        if answer.is_success:
            return found
        said = _said(found.get("detail", answer.status_code))
        if said == HTTPStatus.NOT_FOUND.phrase:
            raise _Elsewhere(f"{url}: {said}")
        raise CommandError(said)


@cache
def _tls(server: Server) -> ssl.SSLContext:
    """Raises ``OSError`` for files that cannot be used."""
    context = ssl.create_default_context(cafile=server.authority)
    if server.certificate is not None:
        context.load_cert_chain(server.certificate, server.key)
    return context


def _said(detail: Any) -> str:
    """One sentence, or one for each part of what was asked that is wrong."""
    if isinstance(detail, list):
        return "\n".join(f"{_place(it['loc'])}: {it['msg']}" for it in detail)
    return str(detail).removeprefix("homeport: ")


def _place(found: list[Any]) -> str:
    """Of a parameter of the query, or of a part of the body."""
    return ".".join(map(str, found[1:] if found[:1] == ["query"] else found))
