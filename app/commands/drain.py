"""``homeport homes drain NODE --dry-run``: lists homes on a node, where each pod would go, and which pods would wait.

The running Homeport computes the plan. It places the pods one after the other, and each placed pod takes resources of
its node. The kubectl plugin for krew contains this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from app.commands import table
from app.commands.home_list import PATH, Json, Output, name_of, named
from app.commands.output import printable, structured

if TYPE_CHECKING:
    from app.commands.service import Pages

_SHOWN: Final = 3
_COMPLETE: Final = "complete"
_ROOM: Final = "NodeResourcesFit"
_MOST_OTHERS: Final = 10


class PrintedDrain(NamedTuple):
    """``text``: what to print. ``node_exists``: false if no node has the name. ``waits``: true if a pod would wait.

    ``suggestion``: text that names similar nodes, for a node that does not exist.
    """

    text: str
    node_exists: bool
    waits: bool
    suggestion: str


def plan(server: Pages, node: str, output: Output, *, headers: bool = True) -> PrintedDrain:
    """Return what a drain of the node would do. Raises ``CommandError`` if the request fails.

    A deleted node can be given too, because it can still be the home of pods.
    """
    answer = server.post(f"{PATH}/drain", {"node": node})
    going = [it for it in answer["items"] if it["pod"] and it["podNode"] == node] + answer["others"]
    waits = any(not it["goesTo"] for it in going)
    return PrintedDrain(_text(answer, output, headers=headers), answer["known"], waits, answer.get("suggestion", ""))


def _text(answer: Json, output: Output, *, headers: bool) -> str:
    if output == "name":
        return printable("\n".join(dict.fromkeys(name_of(it["owner"]) for it in answer["items"])))
    text = structured(answer, output)
    return printable("\n".join(rendered(answer, wide=output == "wide", headers=headers))) if text is None else text


def rendered(answer: Json, *, wide: bool, headers: bool = True) -> Iterator[str]:
    """Yield the lines to print for an answer of ``/api/v1/homes/drain``. ``wide``: print all details."""
    yield _first(answer)
    if answer["items"]:
        columns = ("namespace", "owner", "policy", "pod", "could run on", "then", *(("others refuse",) if wide else ()))
        yield ""
        yield from table.lines(columns, [_row(it, wide=wide) for it in answer["items"]], headers=headers)
    if answer["more"]:
        yield f"and {answer['more']} more that are not listed"
    yield from _others(answer, wide=wide)
    if answer["items"] or answer["others"]:
        yield ""
        yield from _how(answer)


def _first(answer: Json) -> str:
    node, items = answer["node"], answer["items"]
    homes = {(it["owner"]["namespace"], name_of(it["owner"])): it["node"] for it in items}
    here = sum(it == node for it in homes.values())
    unknown = "" if answer["known"] else " (there is no such node)"
    return f"{node}{unknown}: home of {here}; {len(homes) - here} more run there"


def _others(answer: Json, *, wide: bool) -> Iterator[str]:
    """Yield lines about pods without a home: their number, and the pods that would wait. ``wide``: list all pods."""
    others, lost = answer["others"], answer["lost"]
    if others:
        waiting = [it for it in others if not it["goesTo"]]
        yield ""
        placed = len(others) - len(waiting)
        yield f"pods without a home that would go too: {len(others)}; of these with a node to go to: {placed}"
        shown = others if wide else waiting[:_MOST_OTHERS]
        yield from (f"- {it['namespace']}/{it['pod']} {it['then']}{_because(it)}" for it in shown)
        if not wide and len(waiting) > _MOST_OTHERS:
            yield f"- and {len(waiting) - _MOST_OTHERS} more without one"
        if answer["moreOthers"]:
            yield f"- and {answer['moreOthers']} more that are not counted"
    if lost:
        yield ""
        yield f"pods that no controller recreates: {lost}, not counted"


def _because(pod: Json) -> str:
    return f" ({pod['othersRefuse']})" if pod["othersRefuse"] and not pod["goesTo"] else ""


def _how(answer: Json) -> Iterator[str]:
    by = f" of profile {answer['profile']}" if answer["profile"] else ""
    if answer["preset"] == _COMPLETE:
        yield f"placed one after the other, by all rules of kube-scheduler{by}: what they need adds up"
    else:
        counted = " ".join(answer["counted"]) or "none"
        yield f"placed one after the other, by the rules that Homeport has here: {counted}"
    if answer["notCounted"]:
        yield f"not counted: {' '.join(answer['notCounted'])}"
    if _ROOM in answer["notCounted"]:
        yield "free cpu, memory and pod capacity were not checked: only kube-scheduler checks them"


def _row(item: Json, *, wide: bool) -> tuple[str, ...]:
    owner = item["owner"]
    cells = (
        owner["namespace"],
        f"{owner['kind']}/{named(owner)}",
        item["policy"] or "-",
        item["pod"] or "-",
        _places(item["couldRunOn"], item["couldRunOnCount"], wide=wide),
        item["then"],
    )
    return (*cells, item["othersRefuse"] or "-") if wide else cells


def _places(nodes: Sequence[str] | None, count: int, *, wide: bool) -> str:
    if nodes is None:
        return "-"
    if not nodes:
        return "none"
    shown = nodes if wide or count <= _SHOWN else nodes[:_SHOWN]
    return " ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
