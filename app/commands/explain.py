"""``homeport explain``: asks a running Homeport why a pod may go where, and prints the answer as tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.commands import table
from app.commands.service import Server


def run(server: Server, namespace: str, name: str, *, as_json: bool) -> str:
    """The text to print. Raises ``CommandError``."""
    found = server.post("/api/v1/explain", {"namespace": namespace, "name": name})
    return json.dumps(found, indent=2) if as_json else "\n".join(render(found))


def render(found: dict[str, Any]) -> Iterator[str]:
    """The answer of /api/v1/explain, for a terminal."""
    feasible, nodes = found["feasible"], found["nodes"]
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
