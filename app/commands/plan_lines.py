"""Lines that the output of several what-ifs contains: pods that wait, the spread, and limits of the answer.

The kubectl plugin for krew contains this module. So the module imports only the standard library, and modules that also
import nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.commands import table

Json = Mapping[str, Any]

_MOST_DOMAINS: Final = 6
"""Maximum number of domains that are listed for a constraint."""


def waiting_lines(group: Json) -> Iterator[str]:
    """Yield the lines about equal pods that wait: their names, the reasons and the remedies."""
    names = ", ".join(group["pods"][:3]) + (f" and {group['count'] - 3} more" if group["count"] > 3 else "")
    yield f"{group['namespace']}: {names} would wait:"
    for reason in group["reasons"]:
        nodes = f"{reason['count']} nodes: " if reason["count"] else ""
        yield f"  {nodes}{reason['plugin']}: {', '.join(reason['reasons'])}"
    for remedy in group["remedies"]:
        yield f"  remedy: {remedy['change']}: {remedy['opens']} nodes"


def spread_lines(changes: Sequence[Json]) -> Iterator[str]:
    """Yield the lines about the spread of workloads before and after the what-if; none without ``changes``."""
    if not changes:
        return
    yield ""
    rows = [
        (
            it["workload"],
            it["topologyKey"],
            f"{it['skewBefore']} -> {it['skewAfter']}",
            ", ".join((f"{it['maxSkew']}{_soft(it)}", *it["options"])),
            _pods(it["before"], it["after"]),
        )
        for it in changes
    ]
    yield from table.lines(("workload", "key", "skew", "allowed", "pods of the domains"), rows)


def _soft(change: Json) -> str:
    return "" if change["whenUnsatisfiable"] == "DoNotSchedule" else " (soft)"


def _pods(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return the number of pods in each domain as text. Changed domains come first, as ``zone-a 3 -> 2``."""
    changed = [it for it in sorted({*before, *after}) if before.get(it, 0) != after.get(it, 0)]
    same = [it for it in sorted({*before, *after}) if it not in changed]
    texts = [f"{it} {before.get(it, 0)} -> {after.get(it, 0)}" for it in changed] + [f"{it} {after[it]}" for it in same]
    more = len(texts) - _MOST_DOMAINS
    return ", ".join(texts[:_MOST_DOMAINS]) + (f" and {more} more" if more > 0 else "") or "-"


def notes(answer: Json) -> Iterator[str]:
    """Yield the lines about limits of a what-if's answer: an old snapshot, missing plugins, too little time."""
    remarks = []
    if answer["stale"]:
        remarks.append(f"the snapshot is old: {answer['stale']}")
    if answer["notJudged"]:
        remarks.append(f"not judged: {', '.join(it['plugin'] for it in answer['notJudged'])}")
    if answer["incomplete"]:
        remarks.append("incomplete: the processor time did not suffice for all parts")
    if remarks:
        yield ""
        yield from remarks


def tied(others: int) -> str:
    """Return the remark that ``others`` more nodes, at least 1, have the score of the named node."""
    return "or another node with the same score" if others == 1 else f"or one of {others} others with the same score"
