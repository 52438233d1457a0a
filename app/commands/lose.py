"""``homeport lose``: prints the effect of the loss of a zone on each workload, in three variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.commands import table
from app.commands.output import BAD, GOOD, coloured, structured
from app.commands.plan_lines import notes
from app.commands.service import Pages

PATH: Final = "/api/v1/lose"

VARIANTS: Final = {
    "gone": "the nodes are deleted, and the domain no longer counts for topology spread",
    "tainted": "the nodes stay but are unreachable; their pods are evicted unless they tolerate that, or too many "
    "nodes are not ready",
    "full": "the pods are lost, the domain still counts, and nothing fits there",
}
"""Meaning of each variant."""

Json = Mapping[str, Any]

_MOST_ROWS: Final = 20
_MOST_NAMES: Final = 3
_APART: Final = {"DaemonSet": "pods of DaemonSets, which end with their nodes", "Pod": "pods without a controller"}
"""Kinds of workloads whose pods are not created again on another node. A pod without a controller has the kind Pod."""


def answered(pages: Pages, key: str, value: str | None) -> Json:
    """Return the answer for one value of the label ``key``; ``None`` for all values. Raises ``CommandError``."""
    return pages.post(PATH, {"key": key, "value": value})


def waits(answer: Json) -> bool:
    """Return True if a pod would wait or stay Terminating or was not tried, or if a variant was not computed."""
    outcomes = [it[name] for it in answer["domains"] for name in VARIANTS]
    return any(it is None or it["waiting"] or it["notEnded"] or it["notReached"] for it in outcomes)


def rendered(answer: Json, output: str) -> str:
    """Return the text to print."""
    text = structured(answer, output)
    if text is not None:
        return text
    domains = answer["domains"]
    is_alone = answer["value"] is not None
    if output == "name":
        names = _waiting(domains[0]) if is_alone else (f"{answer['key']}={it['value']}" for it in domains)
        return "\n".join(names)
    lines = _of_domain(answer["key"], domains[0], wide=output == "wide") if is_alone else _of_all(answer)
    return "\n".join((*lines, *_meaning(), *notes(answer)))


def _waiting(domain: Json) -> list[str]:
    """Return the names of the workloads with pods that would wait or stay Terminating in at least one variant."""
    return [_name(it) for it in domain["workloads"] if any(_stopped(it[name]) for name in VARIANTS)]


def _stopped(outcome: Json | None) -> int:
    """Return the number of pods that would wait or stay Terminating; 0 if the outcome was not computed."""
    return outcome["waiting"] + outcome["notEnded"] if outcome else 0


def _name(workload: Json) -> str:
    return f"{workload['kind'].lower()}/{workload['name']}"


def _of_all(answer: Json) -> Iterator[str]:
    rows = [
        (it["value"], it["nodes"], it["pods"], *_numbers(it), " ".join(_waiting(it)[:_MOST_NAMES]) or "-")
        for it in answer["domains"]
    ]
    yield from table.lines((answer["key"], "nodes", "pods", *_columns(), "waits"), rows)
    if answer["moreDomains"]:
        yield f"and {answer['moreDomains']} more domains with fewer pods"


def _columns() -> Iterator[str]:
    """Yield the names of three columns for each variant."""
    for name in VARIANTS:
        yield from (f"{name}: lost", "again", "waits")


def _numbers(variants: Json) -> Iterator[str]:
    """Yield three cells for each variant: lost, placed again, waiting; ``?`` if it was not computed."""
    for name in VARIANTS:
        outcome = variants[name]
        if outcome is None:
            yield from ("?", "?", "?")
            continue
        evicted = f"+{outcome['evicted']}" if outcome["evicted"] else ""
        stuck = f" (+{outcome['notEnded']} Terminating)" if outcome["notEnded"] else ""
        unknown = f" ({outcome['notReached']} not tried)" if outcome["notReached"] else ""
        yield from (f"{outcome['lost']}{evicted}", str(outcome["placed"]), f"{outcome['waiting']}{stuck}{unknown}")


def _of_domain(key: str, domain: Json, *, wide: bool) -> Iterator[str]:
    yield _verdict(key, domain)
    workloads = [it for it in domain["workloads"] if it["kind"] not in _APART or _is_evicted(it)]
    shown = workloads if wide else workloads[:_MOST_ROWS]
    if shown:
        yield ""
        rows = [(it["namespace"], _name(it), it["running"], *_numbers(it)) for it in shown]
        yield from table.lines(("namespace", "workload", "running", *_columns()), rows)
    more = len(workloads) - len(shown)
    if more:
        yield f"and {more} more workloads (-o wide lists all)"
    if domain["moreWorkloads"]:
        yield f"and {domain['moreWorkloads']} more workloads that are not listed"
    for workload in shown:
        yield from _why(workload)
    yield from _apart(domain)
    if stuck := sum(domain[it]["notEnded"] for it in VARIANTS if domain[it]):
        yield f"tainted: {stuck} stay Terminating until the nodes are deleted or get the out-of-service taint"
    if domain["evictsNothing"]:
        yield "tainted: no node would be ready, so nothing is evicted"


def _verdict(key: str, domain: Json) -> str:
    waiting = [_stopped(domain[it]) for it in VARIANTS if domain[it]]
    text = f"{key}={domain['value']}: {domain['nodes']} nodes with {domain['pods']} pods"
    if not waiting:
        return f"{text}: not computed"
    most = max(waiting)
    pods = "pod" if most == 1 else "pods"
    effect = f"up to {most} {pods} would wait{_or_stay(domain)}" if most else "no pod would wait"
    return coloured(f"{text}: {effect}", BAD if most else GOOD)


def _or_stay(domain: Json) -> str:
    return " or stay Terminating" if any(domain[it] and domain[it]["notEnded"] for it in VARIANTS) else ""


def _is_evicted(workload: Json) -> bool:
    return any(workload[it] and workload[it]["evicted"] for it in VARIANTS)


def _why(workload: Json) -> Iterator[str]:
    """Yield the lines on why pods of a workload wait, on the field that would help, on grace periods and on volumes.

    Variants with equal lines are put together.
    """
    texts: dict[tuple[str, ...], list[str]] = {}
    for name in VARIANTS:
        outcome = workload[name]
        if outcome and outcome["waiting"]:
            texts.setdefault((*_reasons(outcome), *_change(outcome)), []).append(name)
    for lines, names in texts.items():
        yield ""
        yield f"{_name(workload)} in {workload['namespace']}, {', '.join(names)}:"
        yield from (f"  {it}" for it in lines)
    delayed = {name: workload[name]["afterGrace"] for name in VARIANTS if workload[name]}
    if any(delayed.values()):
        counts = ", ".join(f"{name} {count}" for name, count in delayed.items())
        yield f"{_name(workload)} in {workload['namespace']}: placed only after the grace of their home: {counts}"
    if tied := workload["tiedByVolume"]:
        yield f"{_name(workload)} in {workload['namespace']}: only these nodes reach a volume of {tied} of its pods"


def _reasons(outcome: Json) -> Iterator[str]:
    for reason in outcome["reasons"]:
        nodes = f"{reason['count']} nodes: " if reason["count"] else ""
        yield f"{nodes}{reason['plugin']}: {', '.join(reason['reasons'])}"


def _change(outcome: Json) -> Iterator[str]:
    """Yield the line about the field whose change would help, or the line that no single field would help.

    Yields nothing if no changes were tried.
    """
    change = outcome["change"]
    if change is None:
        yield from ("no single field would help",) if outcome["changesTried"] else ()
        return
    where = f" over {change['topologyKey']}" if change["topologyKey"] else ""
    yield f"would help: {change['field']}: {change['value']}{where}: then {change['waiting'] or 'none'} would wait"


def _apart(domain: Json) -> Iterator[str]:
    """Yield the lines about lost pods that no controller creates again on another node."""
    lost: dict[str, list[Json]] = {}
    for workload in domain["workloads"]:
        if workload["kind"] in _APART:
            lost.setdefault(workload["kind"], []).append(workload)
    for kind, workloads in lost.items():
        yield ""
        counts = (f"{name} {sum(it[name]['lost'] for it in workloads if it[name])}" for name in VARIANTS)
        yield f"{_APART[kind]}: {', '.join(counts)}: {_named(workloads)}"
    if domain["staticPods"]:
        yield f"static pods of the nodes: {domain['staticPods']}"


def _named(workloads: Sequence[Json]) -> str:
    names = ", ".join(f"{it['namespace']}/{it['name']}" for it in workloads[:_MOST_NAMES])
    more = len(workloads) - _MOST_NAMES
    return f"{names} and {more} more" if more > 0 else names


def _meaning() -> Iterator[str]:
    yield ""
    yield from (f"{name}: {text}" for name, text in VARIANTS.items())
