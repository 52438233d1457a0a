"""``homeport explain``: reads from Homeport's pages why nodes fit a pod or not, and formats the answer as tables."""

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
"""Number of characters at which the list of plugins that are not judged is wrapped."""


def run(server: Pages, namespace: str, name: str, *, as_json: bool) -> str:
    """Return the text to print about the pod, or the JSON of the answer. Raises ``CommandError`` if there is no answer.

    A pod that is already assigned is explained as if it were pending.
    """
    answer = server.post("/api/v1/explain", {"namespace": namespace, "name": name, "pending": True})
    return json.dumps(answer, indent=2) if as_json else "\n".join(render(answer))


def render(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the lines to print for an answer of ``/api/v1/explain``."""
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
    """Return a plugin's verdict on a node as one line: the plugin's name and the reasons."""
    return f"{status['plugin']}: {', '.join(status['reasons'])}"
