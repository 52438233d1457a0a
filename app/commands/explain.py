"""``homeport explain``: asks a running Homeport why a pod may go where, and prints the answer as tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Any, Final

from app.commands import table
from app.commands.service import Pages
from app.kube.names import is_subdomain, shown

_WIDTH: Final = 100
"""Columns of the list of filters, which is the longest line."""


def run(server: Pages, namespace: str, name: str, *, as_json: bool) -> str:
    """Return the text to print. A pod that is bound is explained as if it were pending. Raises ``CommandError``."""
    found = server.post("/api/v1/explain", {"namespace": namespace, "name": name, "pending": True})
    return json.dumps(found, indent=2) if as_json else "\n".join(render(found))


def render(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an answer of /api/v1/explain, for a terminal."""
    feasible, nodes = found["feasible"], found["nodes"]
    if found["nodeName"]:
        yield f"{found['pod']} is bound to {found['nodeName']}; if it were pending:"
    if found["schedulerName"] != found["profile"]:
        name = found["schedulerName"]
        yield f"schedulerName {name if is_subdomain(name) else shown(name)}: judged by profile {found['profile']}"
    if found["notJudged"]:
        yield from wrap(f"not judged here: {' '.join(found['notJudged'])}", _WIDTH, subsequent_indent="  ")
        yield f"{found['pod']}: {len(feasible)} of {len(nodes)} nodes pass all that is judged here"
    else:
        yield f"{found['pod']}: feasible on {len(feasible)} of {len(nodes)} nodes"
    if found["preFilter"]["code"] != "Success":
        yield f"  rejected before any node was looked at: {told(found['preFilter'])}"
    if feasible:
        yield f"  {' '.join(feasible)}"
    reasons = Counter(told(status) for statuses in nodes.values() for status in statuses)
    if reasons:
        yield ""
        yield from table.lines(("nodes", "rejected by"), ((count, it) for it, count in reasons.most_common()))
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


def told(status: dict[str, Any]) -> str:
    """A plugin's word on a node, on one line."""
    return f"{status['plugin']}: {', '.join(status['reasons'])}"
