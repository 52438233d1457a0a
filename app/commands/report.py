"""``homeport report``: the page of ``/ui/`` with its data in one HTML file, for a ticket."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from app.commands.service import CommandError, Pages
from app.server.ui import FOLDER

MOST_EXPLAINED: Final = 50
"""Maximum number of waiting pods whose explanation is in a report."""

MOST_WORKLOADS: Final = 50
MOST_NODES: Final = 200
MOST_ZONES: Final = 10
"""Maximum numbers of workloads, nodes and zones whose pages are in a report."""

_OVERVIEW: Final = "overview"
_HOMES: Final = "homes"
_MOST_HOMES: Final = "500"
_IMPORT: Final = re.compile(r'^import\s[^;]*?from "\./(?P<file>[^"]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(async )?function|const|class)", re.MULTILINE)

Answers = dict[str, Mapping[str, Any]]


def answers_of(pages: Pages) -> Answers:
    """Return the answers that a report contains. The key is the path below ``/api/v1/`` with the query, as in the page.

    An answer about one pod, workload or node, or about the loss of zones, is left out if its request fails, for example
    because the pod no longer exists. Raises ``CommandError`` if another request fails.
    """
    answers: Answers = {}
    overview = _add(answers, pages, _OVERVIEW)
    _add(answers, pages, _HOMES, limit=_MOST_HOMES)
    nodes = _add(answers, pages, "nodes")
    _add(answers, pages, "status")
    for pod in overview["pending"]["items"][:MOST_EXPLAINED]:
        _add_if_there(answers, pages, "explain", pod["namespace"], pod["name"])
    workloads = dict.fromkeys((it["namespace"], it["kind"], it["name"]) for it in overview["skews"]["items"])
    for workload in [*workloads][:MOST_WORKLOADS]:
        _add_if_there(answers, pages, "workloads", *workload)
    for name in [cell[0] for zone in nodes["zones"] for cell in zone["nodes"]][:MOST_NODES]:
        _add_if_there(answers, pages, "nodes", name)
    _add_if_there(answers, pages, "lose", key=nodes["zoneKey"])
    for zone in [it["name"] for it in nodes["zones"] if it["name"]][:MOST_ZONES]:
        _add_if_there(answers, pages, "lose", key=nodes["zoneKey"], value=zone)
    return answers


def _add_if_there(answers: Answers, pages: Pages, *parts: str, **query: str) -> None:
    with suppress(CommandError):
        _add(answers, pages, *parts, **query)


def _add(answers: Answers, pages: Pages, *parts: str, **query: str) -> Mapping[str, Any]:
    path = "/".join(quote(it, safe="!~*'()") for it in parts)  # like encodeURIComponent
    key = f"{path}?{urlencode(query)}" if query else path
    answers[key] = answer = pages.get(f"/api/v1/{path}", query)
    return answer


def html(answers: Answers, now: datetime) -> str:
    """Return the report as HTML. It needs no network, and its script also runs if a browser opens it as a file."""
    data = json.dumps({"madeAt": now.astimezone(UTC).isoformat(timespec="seconds"), "answers": answers})
    safe = data.replace("<", "\\u003c")  # so that no text in the data ends the element
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    page = _replaced(page, r'<link rel="stylesheet"[^>]*>', f"<style>\n{_text('style.css')}</style>")
    page = _replaced(page, r'<link rel="icon"[^>]*>\s*', "")
    page = _replaced(page, r'<script type="module"[^>]*></script>\s*', "")
    scripts = f'<script type="application/json" id="data">{safe}</script>\n<script type="module">\n{script()}</script>'
    return _replaced(page, "</body>", f"{scripts}\n</body>")


def script() -> str:
    """Return all modules of the page as one script, each after the modules that it imports."""
    joined: dict[str, str] = {}
    _join("main.js", joined)
    return "".join(joined.values())


def _join(name: str, joined: dict[str, str]) -> None:
    """Add a module of the page to ``joined``, after the modules that it imports."""
    text = _text(name)
    for imported in _IMPORT.finditer(text):
        if imported["file"] not in joined:
            _join(imported["file"], joined)
    joined[name] = _EXPORT.sub("", _IMPORT.sub("", text))


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _replaced(page: str, pattern: str, text: str) -> str:
    """Return the page with the only match of ``pattern`` replaced. Raises ``ValueError`` for no or several matches."""
    made, count = re.subn(pattern, lambda _: text, page)
    if count != 1:
        raise ValueError(f"{pattern} must be in the page once")
    return made


def write(path: Path, text: str) -> None:
    """Write the file. Raises ``CommandError``."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
