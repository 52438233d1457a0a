"""``homeport explain``: asks a running Homeport why a pod may go where, and prints the answer as tables."""

from __future__ import annotations

import json
import ssl
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import httpx
from msgspec import Struct

from app.commands import table

_SECONDS: Final = 10.0

SERVERS: Final = ("http://127.0.0.1:8888", "http://127.0.0.1:8889")
"""Where the pages are by default: with the verbs, or on the port that examples and the chart give the operator."""


class ExplainError(Exception):
    """Homeport did not answer, or could not say; a sentence for the person who asked."""


class _Elsewhere(ExplainError):
    """Nobody is there, or nobody who has this page."""


class Server(Struct, frozen=True):
    """Where Homeport's pages are: at the first of ``urls`` that has them.

    ``authority``, ``certificate``, ``key``: files, in kubectl's words, for https.
    """

    urls: tuple[str, ...]
    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def tls(self) -> ssl.SSLContext:
        """Raises ``OSError`` for files that cannot be used."""
        context = ssl.create_default_context(cafile=self.authority)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


def run(server: Server, namespace: str, name: str, *, as_json: bool) -> str:
    """The text to print. Raises ``ExplainError``."""
    found = _ask(server, namespace, name)
    return json.dumps(found, indent=2) if as_json else "\n".join(render(found))


def _ask(server: Server, namespace: str, name: str) -> dict[str, Any]:
    """Raises ``ExplainError``: what the last one said, and of several that do not have the page, all of them."""
    missed: list[str] = []
    for base in server.urls:
        try:
            return _ask_at(f"{base.rstrip('/')}/api/v1/explain", server, {"namespace": namespace, "name": name})
        except _Elsewhere as cause:
            missed.append(str(cause))
    raise ExplainError("\n".join(missed))


def _ask_at(url: str, server: Server, asked: dict[str, str]) -> dict[str, Any]:
    try:
        answer = httpx.post(url, json=asked, timeout=_SECONDS, verify=server.tls())
        found = dict(answer.json())
    except (httpx.HTTPError, ValueError, TypeError) as error:
        raise _Elsewhere(f"{url}: {error}") from None
    except (httpx.InvalidURL, OSError) as error:
        raise ExplainError(f"{url}: {error}") from None
    if answer.is_success:
        return found
    said = str(found.get("detail", answer.status_code)).removeprefix("homeport: ")
    if said == HTTPStatus.NOT_FOUND.phrase:
        raise _Elsewhere(f"{url}: {said}")
    raise ExplainError(said)


def render(found: dict[str, Any]) -> Iterator[str]:
    """The answer of /api/v1/explain, for a terminal."""
    feasible, nodes = found["feasible"], found["nodes"]
    yield f"{found['pod']}: feasible on {len(feasible)} of {len(nodes)} nodes"
    if found["preFilter"]["code"] != "Success":
        yield f"  rejected before any node was looked at: {_told(found['preFilter'])}"
    if feasible:
        yield f"  {' '.join(feasible)}"
    reasons = Counter(_told(status) for statuses in nodes.values() for status in statuses)
    if reasons:
        yield ""
        yield from table.lines(("nodes", "rejected by"), ((count, told) for told, count in reasons.most_common()))
    for plugin, explanation in found["plugins"].items():
        for it in explanation["tables"]:
            yield ""
            yield f"{plugin}: {it['title']}"
            yield from table.lines(it["columns"], it["rows"])
    unblock = [sentence for it in found["plugins"].values() for sentence in it["unblock"]]
    if unblock:
        yield ""
        yield "what would open more nodes:" if feasible else "what would unblock it:"
        yield from (f"- {sentence}" for sentence in unblock)


def _told(status: dict[str, Any]) -> str:
    return f"{status['plugin']}: {', '.join(status['reasons'])}"
