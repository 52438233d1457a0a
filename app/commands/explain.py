"""``homeport explain``: asks a running Homeport why nodes fit a pod or not, and prints the answer as tables."""

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
"""Maximum width of the list of filters, which is the longest line."""


def run(server: Pages, namespace: str, name: str, *, as_json: bool) -> str:
    """Return the text to print. A bound pod is explained as if it were pending. Raises ``CommandError``."""
    answer = server.post("/api/v1/explain", {"namespace": namespace, "name": name, "pending": True})
    return json.dumps(answer, indent=2) if as_json else "\n".join(render(answer))


def render(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an answer of /api/v1/explain, for a terminal."""
    feasible, nodes = answer["feasible"], answer["nodes"]
    if answer["nodeName"]:
        yield f"{answer['pod']} is bound to {answer['nodeName']}; if it were pending:"
    if answer["schedulerName"] != answer["profile"]:
        name = answer["schedulerName"]
        yield f"schedulerName {name if is_subdomain(name) else shown(name)}: judged by profile {answer['profile']}"
    if answer["notJudged"]:
        yield from wrap(f"not judged here: {' '.join(answer['notJudged'])}", _WIDTH, subsequent_indent="  ")
        yield f"{answer['pod']}: {len(feasible)} of {len(nodes)} nodes pass all that is judged here"
    else:
        yield f"{answer['pod']}: feasible on {len(feasible)} of {len(nodes)} nodes"
    if answer["preFilter"]["code"] != "Success":
        yield f"  rejected by PreFilter, for all nodes: {verdict_line(answer['preFilter'])}"
    if feasible:
        yield f"  {' '.join(feasible)}"
    reasons = Counter(verdict_line(status) for statuses in nodes.values() for status in statuses)
    if reasons:
        yield ""
        yield from table.lines(("nodes", "rejected by"), ((count, table_) for table_, count in reasons.most_common()))
    for plugin, explanation in answer["plugins"].items():
        for table_ in explanation["tables"]:
            yield ""
            yield f"{plugin}: {table_['title']}"
            yield from table.lines(table_["columns"], table_["rows"])
    unblock = [sentence for table_ in answer["plugins"].values() for sentence in table_["unblock"]]
    if unblock:
        yield ""
        yield "what would open more nodes:" if feasible else "what would unblock it:"
        yield from (f"- {sentence}" for sentence in unblock)


def verdict_line(status: dict[str, Any]) -> str:
    """Format a plugin's verdict on a node in one line."""
    return f"{status['plugin']}: {', '.join(status['reasons'])}"
