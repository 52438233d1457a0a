"""``homeport explain``: formats explanations of pods for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from app.commands import table
from app.commands.output import BAD, BOLD, GOOD, coloured
from app.kube.names import is_subdomain, shown

_WIDTH: Final = 100
"""Width in characters at which some lines are wrapped."""

_RELEASE: Final = "ReleaseHome"
_MOST_NAMED: Final = 8
"""Maximum number of nodes that are named in a list. With ``-o wide``, it applies only to remedies."""

_COLOURS: Final = {"Fits": GOOD, "Bound": GOOD, "Gated": BAD, "NoNodeFits": BAD}
"""Colour of the first line, by verdict."""


def lines(answer: dict[str, Any], output: str) -> Iterator[str]:
    """Yield the lines to print for the explanation of one pod, or for the explanations of several pods."""
    if "items" not in answer:
        yield from (
            [f"pod/{answer['pod'].partition('/')[2]}"] if output == "name" else render(answer, wide=output == "wide")
        )
        return
    shown_pods = 0
    for number, item in enumerate(answer["items"]):
        shown_pods += len(item["pods"])
        if output == "name":
            yield from (f"pod/{name}" for name in item["pods"])
            continue
        if number:
            yield ""
        if len(item["pods"]) > 1:
            yield coloured(f"{len(item['pods'])} equal pods: {' '.join(item['pods'])}", BOLD)
        yield from render(item["explanation"], wide=output == "wide")
    if output != "name" and answer["total"] > shown_pods:
        yield ""
        yield f"{answer['total'] - shown_pods} more pods match; at most 50 are explained"


def render(answer: dict[str, Any], *, wide: bool) -> Iterator[str]:
    """Yield the lines to print for the explanation of one pod: the verdict first, the remedies last.

    ``wide``: name all nodes that fit, and all nodes of each group.
    """
    most = len(answer["feasible"]) + answer["total"] if wide else _MOST_NAMED
    yield from _verdict(answer, most)
    if answer["groups"]:
        yield ""
        rows = [(it["count"], _reasons(it["reasons"]), _named(it["nodes"], most=most)) for it in answer["groups"]]
        yield from table.lines(("count", "rejected by", "nodes"), rows)
    if answer["scheduler"] is not None:
        yield from _scheduler(answer["scheduler"], answer["judgedAt"])
    if answer["resources"]:
        yield ""
        columns = ("resource", "requested", "free on all nodes", "most free", "on node")
        rows_of = [(it["name"], it["requested"], it["free"], it["mostFree"], it["node"]) for it in answer["resources"]]
        yield from table.lines(columns, rows_of)
    for plugin, explanation in answer["plugins"].items():
        for facts in explanation["tables"]:
            yield ""
            yield f"{plugin}: {facts['title']}"
            yield from table.lines(facts["columns"], facts["rows"])
    if answer["node"] is not None:
        yield from _node(answer["node"])
    yield from _remedies(answer)


def _verdict(answer: dict[str, Any], most: int) -> Iterator[str]:
    yield coloured(f"{answer['pod']}: {answer['summary']}", _COLOURS.get(answer["verdict"], BOLD))
    if answer["schedulerName"] != answer["profile"]:
        name = answer["schedulerName"]
        yield f"  schedulerName {name if is_subdomain(name) else shown(name)}, judged by profile {answer['profile']}"
    for why in dict.fromkeys(it["why"] for it in answer["notJudged"]):
        plugins = " ".join(it["plugin"] for it in answer["notJudged"] if it["why"] == why)
        yield from _wrapped(f"not judged ({why}): {plugins}")
    home = answer["home"]
    if home is not None and home["waits"]:
        state = f"{home['state'].replace('_', ' ')}{': ' if home['cause'] else ''}{home['cause']}"
        until = f" until {home['until']}" if home["until"] else ""
        yield from _wrapped(f"waits for its home {home['node']} ({state}){until}; policy {home['policy']}")
    if answer["feasible"]:
        yield f"  fits: {_named(answer['feasible'], most=most)}"
    if answer["bound"] is not None:
        yield from _bound(answer["bound"])


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _bound(bound: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about the node of a bound pod: each plugin's verdict, and a note."""
    if bound["verdicts"]:
        satisfied = " ".join(it["plugin"] for it in bound["verdicts"] if it["code"] == "Success") or "none"
        yield from _wrapped(f"satisfied on {_safe(bound['name'])}: {satisfied}")
    violated = [it for it in bound["verdicts"] if it["code"] != "Success"]
    yield from (f"  violated on {_safe(bound['name'])}: {verdict_line(it)}" for it in violated)
    if bound["note"]:
        yield f"  {bound['note']}"
    yield "  the pod itself is not counted below"


def _scheduler(condition: dict[str, Any], judged_at: str) -> Iterator[str]:
    """Yield the lines about the condition PodScheduled: reasons or message, and differences from Homeport's verdict."""
    yield ""
    since = _safe(condition["since"]) or "an unknown time"
    yield f"kube-scheduler says (unschedulable since {since}; the verdict above is from {judged_at}):"
    if condition["reasons"]:
        rows = [(it["count"], _safe(it["reason"])) for it in condition["reasons"]]
        yield from table.lines(("count", "reason"), rows)
    else:
        yield f"  {_safe(condition['message'])}"
    yield from (f"  different: {_safe(sentence)}" for sentence in condition["differences"])


def _safe(text: str) -> str:
    """Return the text; quoted and escaped if it has unprintable characters, because a terminal could interpret them."""
    return text if text.isprintable() else ascii(text)


def _node(node: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"node {node['name']}: {'fits' if node['fits'] else 'does not fit'}"
    scores = node["scores"]
    rows = [
        (it["plugin"], it["code"], ", ".join(it["reasons"]), scores.get(it["plugin"], "")) for it in node["verdicts"]
    ]
    scored = {it["plugin"] for it in node["verdicts"]}
    rows += [(plugin, "", "", score) for plugin, score in scores.items() if plugin not in scored]
    yield from table.lines(("plugin", "verdict", "reasons", "score"), rows)
    if node["total"] is not None:
        yield f"total score, weighted: {node['total']}"


def _remedies(answer: dict[str, Any]) -> Iterator[str]:
    if answer["remedies"]:
        yield ""
        partly = ", as far as judged here" if answer["notJudged"] else ""
        yield f"one of these changes opens nodes{partly} (each was tried on the snapshot):"
        for remedy in answer["remedies"]:
            opens = remedy["opens"]
            pods = f" (without {' and '.join(remedy['pods'])})" if remedy["pods"] else ""
            yield f"- {remedy['change']}{pods}: {opens} node{'s'[: opens != 1]} ({_named(remedy['nodes'], opens)})"
            if remedy["sort"] == _RELEASE and answer["home"] is not None:
                yield f"    {_release(answer['home']['owner'])}"
    elif answer["verdict"] == "NoNodeFits" and not answer["incomplete"]:
        yield ""
        yield "no single change of those that Homeport tries opens a node"
    if answer["impossible"] and answer["remedies"]:
        yield ""
        yield "what limits the pod:"
    yield from (f"- {sentence}" for sentence in answer["impossible"])
    if answer["incomplete"]:
        yield "other changes that could open nodes were not tried"
    advice = [sentence for it in answer["plugins"].values() for sentence in it["unblock"]]
    if advice and answer["verdict"] == "NoNodeFits" and not answer["remedies"]:
        yield ""
        yield "hints of single plugins (not tried; another plugin can still reject the node):"
        yield from (f"- {sentence}" for sentence in advice)


def _release(owner: dict[str, Any]) -> str:
    """Return the command that releases a home."""
    keeper = "/".join(filter(None, (owner["kind"], owner["name"], owner["slot"])))
    return f"homeport homes release {keeper} -n {owner['namespace']}"


def _reasons(reasons: Sequence[dict[str, Any]]) -> str:
    return "; ".join(verdict_line(it) for it in reasons)


def _named(names: Sequence[str], total: int | None = None, *, most: int = _MOST_NAMED) -> str:
    """Return the first ``most`` names, and the number of the others, as text.

    ``total``: number of all names; by default, the length of ``names``.
    """
    more = (len(names) if total is None else total) - len(names[:most])
    return " ".join(names[:most]) + (f" and {more} more" if more else "")


def verdict_line(status: dict[str, Any]) -> str:
    """Return a plugin's verdict on a node as one line: the plugin's name and the reasons."""
    return f"{status['plugin']}: {', '.join(status['reasons'])}"
