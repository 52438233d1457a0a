"""``homeport drain NODE…``: where the pods of nodes would go, which would wait, and which budgets block.

Homeport, in the cluster or in this process, computes the plan on a copy of its snapshot. The kubectl plugin for krew
contains this module. So the module imports only the standard library, and modules that also import nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from app.commands import table
from app.commands.home_list import named
from app.commands.output import BAD, GOOD, coloured, printable, structured
from app.commands.plan_lines import notes, spread_lines, waiting_lines
from app.kube.names import shown

if TYPE_CHECKING:
    from app.commands.service import Pages

PATH: Final = "/api/v1/drain"

Json = Mapping[str, Any]

_MOST_ROWS: Final = 20
"""Maximum number of pods in the table, except with ``-o wide``."""

_MOST_PLACES: Final = 3
"""Maximum number of nodes that are named in the column ``could run on``."""

_BAD: Final = {
    "waiting": "{} would wait",
    "blocked": "{} blocked by budgets",
    "notJudged": "{} not judged",
    "notReached": "{} not tried, because there was no time left",
}
"""Outcomes for which the exit code is 1, each with its text."""


def answered(pages: Pages, nodes: Sequence[str], *, keeps_cordoned: bool) -> Json:
    """Return the plan of a drain. Raises ``CommandError`` if the request fails."""
    return pages.post(PATH, {"nodes": [*nodes], "keepCordoned": keeps_cordoned})


def waits(answer: Json) -> bool:
    """Return True if any pod would wait or is blocked by a budget, or if any is not judged or was not tried."""
    return any(item[it] for item in answer["items"] for it in _BAD)


def unknown(answer: Json) -> str:
    """Return the message about nodes that do not exist, with similar names if there are any; empty if all exist."""
    missing = (it for it in answer["items"] if not it["known"])
    return "\n".join(f"there is no node {shown(it['node'])}{it['suggestion']}" for it in missing)


def rendered(answer: Json, output: str, *, headers: bool = True) -> str:
    """Return the text to print. ``headers``: print the column names of tables."""
    if output == "name":
        pods = (f"pod/{it['pod']}" for item in answer["items"] for it in item["pods"])
        return printable("\n".join(dict.fromkeys(pods)))
    text = structured(answer, output)
    return printable("\n".join(_lines(answer, wide=output == "wide", headers=headers))) if text is None else text


def _lines(answer: Json, *, wide: bool, headers: bool) -> Iterator[str]:
    items = answer["items"]
    for number, item in enumerate(items, start=1):
        if number > 1:
            yield ""
        yield _verdict(item)
        yield from _pods(item, wide=wide, headers=headers)
        yield from _budgets(item)
        for group in item["waitingGroups"]:
            yield ""
            yield from waiting_lines(group)
            if group["fitsAlone"]:
                yield "  the other pods take its room: alone it would fit"
        yield from spread_lines(item["spread"])
        yield from _homes(item, headers=headers)
        if number < len(items) and item["known"] and not answer["keepCordoned"]:
            yield ""
            yield f"{item['node']} is uncordoned before the next node is drained"
            later = [f"{it['pod']} on {it['placedLater']}" for it in item["pods"] if it["placedLater"]]
            if later:
                yield f"pods that waited are then placed: {', '.join(later)}"
    if not answer["budgetsJudged"]:
        yield ""
        yield "disruption budgets were not checked, because no profile reads them"
    yield from notes(answer)


def _verdict(item: Json) -> str:
    """Return the first line about a node: that it does not exist, or how many pods would be placed and what fails."""
    if not item["known"]:
        return f"{item['node']}: there is no such node; homes on it: {len(item['homes']) + item['moreHomes']}"
    leaving = len(item["pods"])
    parts = [text.format(item[name]) for name, text in _BAD.items() if item[name]]
    if item["lost"]:
        parts.append(f"{item['lost']} lost, because no controller creates them again")
    text = f"{item['node']}: {item['placed']} of {leaving} pods would be placed"
    return coloured(", ".join((text, *parts)), BAD if any(item[it] for it in _BAD) else GOOD)


def _pods(item: Json, *, wide: bool, headers: bool) -> Iterator[str]:
    pods = sorted(item["pods"], key=lambda it: it["outcome"] == "placed")
    if pods:
        shown = pods if wide else pods[:_MOST_ROWS]
        columns = ("namespace", "pod", "wave", "home", "then", *(("workload", "could run on") if wide else ()))
        yield ""
        yield from table.lines(columns, [_row(it, wide=wide) for it in shown], headers=headers)
        if len(shown) < len(pods):
            yield f"and {len(pods) - len(shown)} more pods (-o wide lists all)"
    if item["apart"]:
        yield ""
        counts = Counter(it["why"] for it in item["apart"])
        yield f"left alone: {', '.join(f'{count} {why}' for why, count in counts.items())}"


def _row(pod: Json, *, wide: bool) -> tuple[str, ...]:
    home = pod["home"]
    then = pod["then"] + (f"; evicts {', '.join(pod['victims'])}" if pod["victims"] else "")
    if pod["preempted"]:
        then = f"is evicted by preemption; {then}"
    cells = (
        pod["namespace"],
        pod["pod"],
        str(pod["wave"] or "-"),
        "-" if home is None else f"{home['node'] or 'none'} ({home['policy'] or 'unknown'})",
        then,
    )
    return (*cells, pod["workload"] or "-", _places(pod["couldRunOn"], pod["couldRunOnCount"])) if wide else cells


def _places(nodes: Sequence[str] | None, count: int) -> str:
    if nodes is None:
        return "-"
    more = count - len(nodes[:_MOST_PLACES])
    return (" ".join(nodes[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")) or "none"


def _budgets(item: Json) -> Iterator[str]:
    """Yield the lines about budgets that block pods, or whose pods leave in several waves."""
    lines = [*map(_budget, filter(lambda it: it["blocked"] or len(it["waves"]) > 1, item["budgets"]))]
    if lines:
        yield from ("", *lines)


def _budget(budget: Json) -> str:
    name = f"budget {budget['namespace']}/{budget['name']}"
    text = f"{name}: {budget['disruptionsAllowed']} of its {budget['currentHealthy']} healthy pods can go at once"
    if budget["waves"]:
        text += f"; its pods leave in the waves {', '.join(map(str, budget['waves']))}"
    return text + (f"; {budget['blocked']} are never evicted" if budget["blocked"] else "")


def _homes(item: Json, *, headers: bool) -> Iterator[str]:
    """Yield a table of homes on the node, and the number of further ones; homes whose pod runs there are omitted."""
    if item["homes"]:
        yield ""
        yield f"homes on {item['node']} whose pod does not run there:"
        rows = [
            (it["owner"]["namespace"], f"{it['owner']['kind']}/{named(it['owner'])}", it["policy"] or "-", it["then"])
            for it in item["homes"]
        ]
        yield from table.lines(("namespace", "owner", "policy", "then"), rows, headers=headers)
    if item["moreHomes"]:
        yield f"and {item['moreHomes']} more homes"
