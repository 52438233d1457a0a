"""HTTP client with which commands read the pages of a running Homeport."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Protocol

import httpx
from msgspec import Struct

from app.server.failures import NOT_SERVED, FailureStatus, sentence
from app.server.pages import WHAT_IFS

_SECONDS: Final = 20.0
_WHAT_IF_SECONDS: Final = 70.0


def seconds_for(path: str) -> float:
    """Return the maximum seconds that a request waits for the server. A what-if can take a minute."""
    return _WHAT_IF_SECONDS if path in WHAT_IFS else _SECONDS


SERVERS: Final = ("http://127.0.0.1:8888", "http://127.0.0.1:8889")
"""Default URLs of the pages: the default port of the verbs, then the operator port of the examples and the chart."""


_PREFIX: Final = "homeport: "
STATUS_PATH: Final = "/api/v1/status"
OTHER_VERSION: Final = "the answer is not that of a Homeport of this version"
WHERE: Final = "use --server URL for the address of Homeport's pages, or --saved FILE to read a saved cluster"
"""Advice for the user if no Homeport answers."""


class CommandError(Exception):
    """Raised if a command fails. The message is printed for the user."""


class PageNotServed(CommandError):
    """Raised if no server answers at a URL, or if the server there is not a Homeport that has the page."""


class UsageError(Exception):
    """Raised if a flag or an argument of a command is invalid, or if they do not fit together."""


class Pages(Protocol):
    """Interface to the pages of a Homeport: a running server, or a service in this process."""

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        ...

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        ...


def check_status(pages: Pages) -> None:
    """Raise ``PageNotServed`` if the status has no ``feeds``, as that of a Homeport has.

    Raise ``CommandError`` if the request for the status fails.
    """
    if not isinstance(pages.get(STATUS_PATH, {}).get("feeds"), dict):
        raise PageNotServed(OTHER_VERSION)


class Server(Struct, frozen=True):
    """Implementation of ``Pages`` with a running Homeport at a URL.

    Requests raise ``PageNotServed`` if the server does not answer or does not have the page.

    ``authority``, ``certificate`` and ``key``: paths of PEM files for HTTPS.
    """

    url: str
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._ask("GET", path, {"params": dict(query)})

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._ask("POST", path, {"json": dict(body)})

    def _ask(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        url = f"{self.url.rstrip('/')}{path}"
        try:
            answer = httpx.request(
                method, url, **content, timeout=seconds_for(path), verify=_tls(self), trust_env=False
            )
        except httpx.HTTPError as error:
            raise PageNotServed(f"{url}: {error}") from None
        except (httpx.InvalidURL, OSError) as error:
            raise CommandError(f"{url}: {error}") from None
        return answered(url, answer)


def answered(url: str, answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in an answer. Raises ``CommandError`` if the answer is an error or not a JSON object."""
    if answer.is_success:
        try:
            return dict(answer.json())
        except (ValueError, TypeError) as error:
            raise PageNotServed(f"{url}: {error}") from None
    try:
        failure = FailureStatus.model_validate_json(answer.content)
    except ValueError:
        raise PageNotServed(f"{url}: {answer.status_code} {answer.reason_phrase}") from None
    if failure.message == NOT_SERVED:
        raise PageNotServed(f"{url}: {failure.message.removeprefix(_PREFIX)}")
    raise CommandError(_lines(failure))


@cache
def _tls(server: Server) -> ssl.SSLContext:
    """Create the TLS context for requests to a server. Raises ``OSError`` if a file cannot be read or used."""
    context = ssl.create_default_context(cafile=server.authority)
    if server.certificate is not None:
        context.load_cert_chain(server.certificate, server.key)
    return context


def _lines(failure: FailureStatus) -> str:
    """Return the text of an error: one line for each invalid part of the request, or a single line."""
    if failure.details is not None and failure.details.causes:
        return "\n".join(map(sentence, failure.details.causes))
    return failure.message.removeprefix(_PREFIX)
