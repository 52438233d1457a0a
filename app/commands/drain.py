"""``homeport homes drain NODE --dry-run``: who lives there, where each would go, and who would wait.

The running service places all of them one after the other, so that what they need adds up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import yaml

from app.commands import table
from app.commands.homes import PATH, Json, Output, name_of, named
from app.commands.service import Pages

_SHOWN: Final = 3
_COMPLETE: Final = "complete"
_ROOM: Final = "NodeResourcesFit"
_MOST_OTHERS: Final = 10


def plan(server: Pages, node: str, output: Output) -> tuple[str, bool]:
    """Return the text to print, and whether the node exists: homes outlive nodes. Raises ``CommandError``."""
    found = server.post(f"{PATH}/drain", {"node": node})
    return _text(found, output), found["known"]


def _text(found: Json, output: Output) -> str:
    if output == "json":
        return json.dumps(found, indent=2)
    if output == "yaml":
        return str(yaml.safe_dump(found, sort_keys=False)).rstrip("\n")
    if output == "name":
        return "\n".join(dict.fromkeys(name_of(it["owner"]) for it in found["items"]))
    return "\n".join(rendered(found, wide=output == "wide"))


def rendered(found: Json, *, wide: bool) -> Iterator[str]:
    """What the service answered, for a terminal."""
    yield _first(found)
    if found["items"]:
        columns = ("namespace", "owner", "policy", "pod", "could run on", "then", *(("others refuse",) if wide else ()))
        yield ""
        yield from table.lines(columns, [_row(it, wide=wide) for it in found["items"]])
    if found["more"]:
        yield f"and {found['more']} more that are not told of"
    yield from _others(found, wide=wide)
    if found["items"] or found["others"]:
        yield ""
        yield from _how(found)


def _first(found: Json) -> str:
    node, items = found["node"], found["items"]
    homes = {(it["owner"]["namespace"], name_of(it["owner"])): it["node"] for it in items}
    here = sum(it == node for it in homes.values())
    unknown = "" if found["known"] else " (there is no such node)"
    return f"{node}{unknown}: home of {here}; {len(homes) - here} more run there"


def _others(found: Json, *, wide: bool) -> Iterator[str]:
    """Pods without a home: how many there are, and those that would wait."""
    others, lost = found["others"], found["lost"]
    if others:
        waiting = [it for it in others if not it["goesTo"]]
        yield ""
        placed = len(others) - len(waiting)
        yield f"pods without a home that would go too: {len(others)}; of these with a node to go to: {placed}"
        shown = others if wide else waiting[:_MOST_OTHERS]
        yield from (f"- {it['namespace']}/{it['pod']} {it['then']}{_because(it)}" for it in shown)
        if not wide and len(waiting) > _MOST_OTHERS:
            yield f"- and {len(waiting) - _MOST_OTHERS} more without one"
        if found["moreOthers"]:
            yield f"- and {found['moreOthers']} more that are not counted"
    if lost:
        yield ""
        yield f"pods that no controller makes anew: {lost}, not counted"


def _because(it: Json) -> str:
    return f" ({it['othersRefuse']})" if it["othersRefuse"] and not it["goesTo"] else ""


def _how(found: Json) -> Iterator[str]:
    by = f" of profile {found['profile']}" if found["profile"] else ""
    if found["preset"] == _COMPLETE:
        yield f"placed one after the other, by all rules of kube-scheduler{by}: what they need adds up"
    else:
        yield f"placed one after the other, by the rules that Homeport has here: {' '.join(found['counted']) or 'none'}"
    if found["notCounted"]:
        yield f"not counted: {' '.join(found['notCounted'])}"
    if _ROOM in found["notCounted"]:
        yield "so nobody has asked whether there is room for them: cpu, memory and pods are kube-scheduler's here"


def _row(it: Json, *, wide: bool) -> tuple[str, ...]:
    owner = it["owner"]
    cells = (
        owner["namespace"],
        f"{owner['kind']}/{named(owner)}",
        it["policy"] or "-",
        it["pod"] or "-",
        _places(it["couldRunOn"], it["couldRunOnCount"], wide=wide),
        it["then"],
    )
    return (*cells, it["othersRefuse"] or "-") if wide else cells


def _places(nodes: Sequence[str] | None, count: int, *, wide: bool) -> str:
    if nodes is None:
        return "-"
    if not nodes:
        return "none"
    shown = nodes if wide or count <= _SHOWN else nodes[:_SHOWN]
    return " ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
