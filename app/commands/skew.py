"""``homeport skew``: lists the number of pods in each domain, for workloads with topology spread constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.commands import table
from app.commands.output import BAD, BOLD, coloured, structured
from app.commands.paging import all_pages
from app.commands.service import Pages
from app.verbs.similar import similar

PATH: Final = "/api/v1/skew"
_COLUMNS: Final = ("namespace", "workload", "key", "skew", "allowed", "domains")
_WIDE: Final = ("when", "allows the next pod in", "scale-down removes")
"""Columns of the table, and the additional columns of ``-o wide``."""

_MOST_DOMAINS: Final = 6
"""Maximum number of domains in a list. With ``-o wide``, the column ``domains`` has up to 50."""

_LONGEST_BAR: Final = 20
"""Maximum number of characters of a bar."""


def workloads(server: Pages, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the skews that match the query. Raises ``CommandError``.

    The query can have ``namespace``, ``kind``, ``name``, ``above`` and ``labelSelector``.
    """
    return all_pages(server, PATH, query)


def similar_names(server: Pages, namespace: str, kind: str, name: str) -> str:
    """Return text that suggests similar names among the listed workloads of the kind; empty if none is similar.

    Raises ``CommandError``.
    """
    known = workloads(server, {"namespace": namespace, "kind": kind} if namespace else {"kind": kind})
    return similar(name, sorted({it["name"] for it in known["items"]}))


def listing(answer: Mapping[str, Any], namespace: str, output: str, *, headers: bool) -> str:
    """Return the text to print about the workloads, one row for each constraint; empty for a table without rows."""
    text = structured(answer, output)
    if text is not None:
        return text
    items = answer["items"]
    if output == "name":
        return "\n".join(dict.fromkeys(f"{it['kind'].lower()}/{it['name']}" for it in items))
    columns = [*_COLUMNS[bool(namespace) :], *(_WIDE if output == "wide" else ())]
    most = 50 if output == "wide" else _MOST_DOMAINS
    rows = [[cells[it] for it in columns] for cells in (_cells(item, most) for item in items)]
    return "\n".join(table.lines(columns, rows, headers=headers)) if items else ""


def drawn(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about each constraint: a bar for each domain, and where the next pod can go."""
    for number, item in enumerate(answer["items"]):
        if number:
            yield ""
        yield coloured(_heading(item), BAD if item["above"] else BOLD)
        yield from _bars(item)
        if more := item["domainCount"] - len(item["domains"]):
            yield f"  and {more} more domains"
        yield f"  this constraint allows the next pod in: {_next(item) or 'no domain'}"
        if item["removedFirst"]:
            yield f"  a scale-down removes first: {item['removedFirst']}"


def _heading(item: Mapping[str, Any]) -> str:
    name = f"{item['kind'].lower()}/{item['name']} in {item['namespace']}, {_counts(item)}"
    constraint = f"{item['whenUnsatisfiable']} over {item['topologyKey']}"
    return f"{name}, {constraint}: skew {item['skew']}, allowed {item['maxSkew']}"


def _counts(item: Mapping[str, Any]) -> str:
    """Return the number of pods, as text.

    If all domains are listed and some pods are in none, the text also has the numbers of pods in domains and in none.
    """
    placed, pods = sum(it["pods"] for it in item["domains"]), item["pods"]
    if item["domainCount"] > len(item["domains"]) or placed >= pods:
        return f"{pods} pod{'s'[: pods != 1]}"
    return f"{pods} pod{'s'[: pods != 1]}: {placed} in domains, {pods - placed} in none"


def _bars(item: Mapping[str, Any]) -> Iterator[str]:
    domains = item["domains"]
    most = max((it["pods"] for it in domains), default=0)
    width = max((len(it["name"]) for it in domains), default=0)
    for domain in domains:
        length = domain["pods"] if most <= _LONGEST_BAR else round(domain["pods"] * _LONGEST_BAR / most)
        nodes = f"{domain['nodes']} node{'s'[: domain['nodes'] != 1]}"
        yield f"  {domain['name']:{width}}  {'█' * length}{' ' * bool(length)}{domain['pods']}  ({nodes})"


def _cells(item: Mapping[str, Any], most: int) -> dict[str, str]:
    shown = " ".join(f"{it['name']} {it['pods']}," for it in item["domains"][:most]).removesuffix(",")
    more = item["domainCount"] - len(item["domains"][:most])
    return {
        "namespace": item["namespace"],
        "workload": f"{item['kind'].lower()}/{item['name']}",
        "key": item["topologyKey"],
        "skew": f"{item['skew']}{' !' if item['above'] else ''}",
        "allowed": f"{item['maxSkew']}",
        "domains": shown + (f" and {more} more" if more else ""),
        "when": item["whenUnsatisfiable"],
        "allows the next pod in": _next(item) or "-",
        "scale-down removes": item["removedFirst"] or "-",
    }


def _next(item: Mapping[str, Any]) -> str:
    """Return the names of some listed domains that take the next pod, and the number of the others; can be empty."""
    names = [it["name"] for it in item["domains"] if it["takes"]]
    more = len(names) - _MOST_DOMAINS
    return " ".join(names[:_MOST_DOMAINS]) + (f" and {more} more" if more > 0 else "")
