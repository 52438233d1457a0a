"""Pages of a running Homeport, as used by commands."""

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
"""Default URLs of the pages: with the verbs, or on the operator port of the examples and the chart."""


_WHERE: Final = "use --server URL for the address of Homeport's pages, or --saved FILE to read a saved cluster"


class CommandError(Exception):
    """A command failed; the message is for the user."""


class _NotServed(CommandError):
    """No server answers at a URL, or it does not serve the page."""


class Pages(Protocol):
    """Pages of a Homeport, running or in-process."""

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object of a page. Raises ``CommandError``."""
        ...

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object of a page that takes a body. Raises ``CommandError``."""
        ...


class Server(Struct, frozen=True):
    """Running Homeport: pages are read from the first of ``urls`` that serves them.

    ``authority``, ``certificate``, ``key``: files for https, as in a kubeconfig.
    """

    urls: tuple[str, ...]
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object of a page. Raises ``CommandError``."""
        return self._ask("GET", path, {"params": dict(query)})

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON object of a page that takes a body. Raises ``CommandError``."""
        return self._ask("POST", path, {"json": dict(body)})

    def _ask(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first answer. Raises ``CommandError``; if no URL serves the page, it names all of them."""
        missed: list[str] = []
        for base in self.urls:
            try:
                return self._ask_at(method, f"{base.rstrip('/')}{path}", content)
            except _NotServed as cause:
                missed.append(str(cause))
        raise CommandError("\n".join((*missed, _WHERE)))

    def _ask_at(self, method: str, url: str, content: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = httpx.request(method, url, **content, timeout=_SECONDS, verify=_tls(self))
        except httpx.HTTPError as error:
            raise _NotServed(f"{url}: {error}") from None
        except (httpx.InvalidURL, OSError) as error:
            raise CommandError(f"{url}: {error}") from None
        return answered(url, answer)


def answered(url: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises ``CommandError``."""
    try:
        content = dict(answer.json())
    except (ValueError, TypeError) as error:
        raise _NotServed(f"{url}: {error}") from None
    if answer.is_success:
        return content
    message = _sentences(content.get("detail", answer.status_code))
    if message == HTTPStatus.NOT_FOUND.phrase:
        raise _NotServed(f"{url}: {message}")
    raise CommandError(message)


@cache
def _tls(server: Server) -> ssl.SSLContext:
    """Create the TLS context. Raises ``OSError`` for unusable files."""
    context = ssl.create_default_context(cafile=server.authority)
    if server.certificate is not None:
        context.load_cert_chain(server.certificate, server.key)
    return context


def _sentences(detail: Any) -> str:
    """Format an error: one sentence, or one for each invalid part of the request."""
    if isinstance(detail, list):
        return "\n".join(f"{_place(it['loc'])}: {it['msg']}" for it in detail)
    return str(detail).removeprefix("homeport: ")


def _place(location: list[Any]) -> str:
    """Format the location of a query parameter or a part of the body."""
    return ".".join(map(str, location[1:] if location[:1] == ["query"] else location))
