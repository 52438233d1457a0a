"""A running Homeport and its pages, as commands reach it."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Protocol

import httpx
from msgspec import Struct

_SECONDS: Final = 20.0

SERVERS: Final = ("http://127.0.0.1:8888", "http://127.0.0.1:8889")
"""Where the pages are by default: with the verbs, or on the port that examples and the chart give the operator."""


_WHERE: Final = (
    "say with --server URL where Homeport serves its pages, or with --saved FILE which saved cluster to read"
)


class CommandError(Exception):
    """A command failed; the text is sentences for the person at the terminal."""


class _Elsewhere(CommandError):
    """No server answers at a URL, or one that does not have the page."""


class Pages(Protocol):
    """The pages of a Homeport: of one that runs, or of one within this process."""

    def get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object of a page. Raises ``CommandError``."""
        ...

    def post(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object of a page that takes a body. Raises ``CommandError``."""
        ...


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
        """Return the first answer. Raises ``CommandError``; where no URL has the page, it names all of them."""
        missed: list[str] = []
        for base in self.urls:
            try:
                return self._ask_at(method, f"{base.rstrip('/')}{path}", asked)
            except _Elsewhere as cause:
                missed.append(str(cause))
        raise CommandError("\n".join((*missed, _WHERE)))

    def _ask_at(self, method: str, url: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = httpx.request(method, url, **asked, timeout=_SECONDS, verify=_tls(self))
        except httpx.HTTPError as error:
            raise _Elsewhere(f"{url}: {error}") from None
        except (httpx.InvalidURL, OSError) as error:
            raise CommandError(f"{url}: {error}") from None
        return answered(url, answer)


def answered(url: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises ``CommandError``."""
    try:
        found = dict(answer.json())
    except (ValueError, TypeError) as error:
        raise _Elsewhere(f"{url}: {error}") from None
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
