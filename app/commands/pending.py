"""``homeport pending``: lists the pods that wait for a node, each with the reason that matters most."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from app.commands import table
from app.commands.output import printable, structured
from app.commands.paging import all_pages

if TYPE_CHECKING:
    from app.commands.service import Pages

PATH: Final = "/api/v1/pending"
_COLUMNS: Final = ("namespace", "name", "waits", "nodes", "reason")
_WIDE: Final = ("opens", "profile", "schedulername")
"""Columns of the table, and the additional columns of ``-o wide``."""


def pods(server: Pages, namespace: str, selector: str = "") -> dict[str, Any]:
    """Return the list of all pods that wait. Raises ``CommandError``.

    ``namespace``: empty for all namespaces. ``selector``: labels of the pods; empty for all pods.
    """
    query = {"namespace": namespace, "labelSelector": selector}
    return all_pages(server, PATH, {name: value for name, value in query.items() if value})


def listing(answer: dict[str, Any], namespace: str, output: str, *, headers: bool) -> str:
    """Return the text to print about the pods. A table without rows is empty."""
    text = structured(answer, output)
    if text is not None:
        return text
    items = answer["items"]
    if output == "name":
        return printable("\n".join(f"pod/{it['name']}" for it in items))
    columns = [*_COLUMNS[bool(namespace) :], *(_WIDE if output == "wide" else ())]
    rows = [[cells[it] for it in columns] for cells in map(_cells, items)]
    return "\n".join(table.lines(columns, rows, headers=headers)) if items else ""


def _cells(pod: dict[str, Any]) -> dict[str, str]:
    return {
        "namespace": pod["namespace"],
        "name": pod["name"],
        "waits": age(pod["since"]),
        "nodes": f"{pod['feasible']}/{pod['total']}" if pod["judged"] else "-",
        "reason": _reason(pod),
        "opens": f"{pod['opens']}" if pod["plugin"] else "-",
        "profile": pod["profile"] or "-",
        "schedulername": pod["schedulerName"],
    }


def _reason(pod: dict[str, Any]) -> str:
    if pod["gated"]:
        return "held by its scheduling gates"
    if not pod["profile"]:
        return "no profile has its schedulerName"
    if not pod["judged"]:
        return "not judged yet"
    texts = ", ".join(pod["reasons"])
    fits = "fits, as far as judged here" if pod["notJudged"] else "fits now"
    return f"{pod['plugin']}: {texts}" if pod["plugin"] else texts or fits


def age(since: str, now: datetime | None = None) -> str:
    """Return the time since an RFC 3339 timestamp in one unit: ``45s``, ``12m``, ``3h``, ``9d``; ``-`` if invalid."""
    try:
        passed = (now or datetime.now(UTC)) - datetime.fromisoformat(since)
    except (ValueError, TypeError):
        return "-"
    seconds = max(0, int(passed.total_seconds()))
    return next(_units(seconds))


def _units(seconds: int) -> Iterator[str]:
    for unit, size, most in (("s", 1, 120), ("m", 60, 180 * 60), ("h", 3600, 48 * 3600)):
        if seconds < most:
            yield f"{seconds // size}{unit}"
    yield f"{seconds // 86400}d"
