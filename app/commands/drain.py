"""``homeport homes drain NODE --dry-run``: who lives there, who could go where, and who would wait.

Each pod is judged alone, as if it were looked for a node now, by the rules of the running service: those of kube-
scheduler too where a profile with ``preset: complete`` is served. What keeps homes has no say in where a pod could run,
and all in what becomes of it then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import yaml
from msgspec import Struct

from app.commands import table
from app.commands.explain import told
from app.commands.homes import Json, Output, homes, keepers, name_of
from app.commands.service import Server

_SHOWN: Final = 3
_COMPLETE: Final = "complete"
_FREE: Final = frozenset({"off", "soft"})
_GRACE: Final = "grace"
_NO_GRACE: Final = frozenset({"leaving", "other_machine"})
"""States in which a grace is over at once."""


class Dweller(Struct, frozen=True):
    """Somebody who lives on the node, or whose pod runs there.

    ``nodes``: where the pod could run, ``None`` where there is no pod to judge · ``why``: most others do not take it ·
    ``then``: what becomes of it.
    """

    home: Json
    nodes: Sequence[str] | None
    why: str
    then: str

    @property
    def shown(self) -> Json:
        nodes = None if self.nodes is None else list(self.nodes)
        return {**self.home, "couldRunOn": nodes, "othersRefuse": self.why, "then": self.then}


class _Rules(Struct, frozen=True):
    """``profile``: whose are asked for, ``None`` for those of each pod's own · ``keepers``: plugins that keep homes."""

    profile: str | None
    preset: str
    keepers: Collection[str]


def plan(server: Server, node: str, output: Output) -> str:
    """The text to print. Raises ``CommandError``."""
    rules = _rules(server)
    found = [_judged(server, rules, it, node) for it in _dwellers(server, node)]
    if output == "json":
        return json.dumps({"items": [it.shown for it in found]}, indent=2)
    if output == "yaml":
        return str(yaml.safe_dump({"items": [it.shown for it in found]}, sort_keys=False)).rstrip("\n")
    if output == "name":
        return "\n".join(name_of(it.home["owner"]) for it in found)
    return "\n".join(_rendered(found, node, rules, wide=output == "wide"))


def _dwellers(server: Server, node: str) -> Iterator[Json]:
    """Who has the home there, then who only runs there."""
    yield from homes(server, {"node": node})
    yield from (it for it in homes(server, {"podNode": node}) if it["node"] != node)
    yield from homes(server, {"podNode": node, "state": "none"})


def _rules(server: Server) -> _Rules:
    profiles = {it["scheduler_name"]: it["preset"] for it in server.get("/api/v1/status", {})["profiles"]}
    complete = sorted(name for name, preset in profiles.items() if preset == _COMPLETE)
    plugins = frozenset(it["plugin"] for it in keepers(server))
    if not complete:
        return _Rules(None, "delegated", plugins)
    if len(complete) == len(profiles):
        return _Rules(None, _COMPLETE, plugins)  # whichever a pod's own is
    return _Rules(complete[0], _COMPLETE, plugins)


def _judged(server: Server, rules: _Rules, home: Json, node: str) -> Dweller:
    if not home["pod"]:
        return Dweller(home, None, "", becomes(home, node, could=True))
    by = {} if rules.profile is None else {"schedulerName": rules.profile}
    asked = {"namespace": home["owner"]["namespace"], "name": home["pod"], "pending": True, **by}
    found = server.post("/api/v1/explain", asked)
    others = {
        name: [it for it in statuses if it["plugin"] not in rules.keepers]
        for name, statuses in found["nodes"].items()
        if name != node
    }
    nodes = [name for name, statuses in others.items() if not statuses]
    return Dweller(home, nodes, _why(found, others), becomes(home, node, could=bool(nodes)))


def _why(found: Json, others: Mapping[str, Sequence[Json]]) -> str:
    """What most of those that refuse say."""
    if found["preFilter"]["code"] != "Success":
        return told(found["preFilter"])
    reasons = Counter(told(it) for statuses in others.values() for it in statuses)
    return next((f"{count} of {len(others)}: {it}" for it, count in reasons.most_common(1)), "")


def becomes(home: Json, node: str, *, could: bool) -> str:
    """What becomes of a pod that is stopped, once the node takes none."""
    where, policy = home["node"], home["policy"]
    if where not in ("", node) and not (home["away"] or home["orphaned"]):
        return f"goes home to {where}"
    if where and policy not in (*_FREE, _GRACE):
        return f"waits for {where}"
    if not could:
        return "waits: no other node takes it"
    if where and policy == _GRACE and home["state"] not in _NO_GRACE:
        return f"waits for {where}; elsewhere after its grace"
    return "starts elsewhere"


def _rendered(found: Sequence[Dweller], node: str, rules: _Rules, *, wide: bool) -> Iterator[str]:
    here = sum(it.home["node"] == node for it in found)
    yield f"{node}: home of {here}; {len(found) - here} more run there"
    if not found:
        return
    yield ""
    columns = ("namespace", "owner", "policy", "pod", "could run on", "then", *(("others refuse",) if wide else ()))
    yield from table.lines(columns, [_row(it, wide=wide) for it in found])
    yield ""
    if rules.preset == _COMPLETE:
        by = f" of profile {rules.profile}" if rules.profile is not None else ""
        yield f"each judged alone, by all rules of kube-scheduler{by}"
    else:
        yield "each judged alone, by Homeport's rules; kube-scheduler's own (resources, taints, …) are not asked here"


def _row(it: Dweller, *, wide: bool) -> tuple[str, ...]:
    owner = it.home["owner"]
    slot = f"/{owner['slot']}" if owner["slot"] else ""
    cells = (
        owner["namespace"],
        f"{owner['kind']}/{owner['name']}{slot}",
        it.home["policy"] or "-",
        it.home["pod"] or "-",
        _places(it.nodes, wide=wide),
        it.then,
    )
    return (*cells, it.why or "-") if wide else cells


def _places(nodes: Sequence[str] | None, *, wide: bool) -> str:
    if nodes is None:
        return "-"
    if not nodes:
        return "none"
    if wide or len(nodes) <= _SHOWN:
        return " ".join(nodes)
    return f"{' '.join(nodes[:_SHOWN])} and {len(nodes) - _SHOWN} more"
