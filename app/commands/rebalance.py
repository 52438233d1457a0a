"""``homeport rebalance``: prints few evictions that bring topology spread constraints down to ``maxSkew``.

The text is a shell script that the user can run: one call of the Eviction API per line, and comments. They also name
the constraints that stay above ``maxSkew``. Names in comments are escaped, so no name can add a line.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from app.commands.output import BAD, GOOD, coloured, escaped, structured
from app.commands.plan_lines import notes, spread_lines, tied
from app.commands.service import Pages
from app.kube.names import shown

PATH: Final = "/api/v1/rebalance"

Json = Mapping[str, Any]


def answered(pages: Pages, body: Json) -> Json:
    """Return the plan. Raises ``CommandError``."""
    return pages.post(PATH, dict(body))


def unknown(answer: Json, namespace: str, workload: str) -> str:
    """Return the message about a namespace or a workload without pods; empty if it has pods."""
    if answer["known"]:
        return ""
    what = f"workload {shown(workload)} with pods" if workload else "pod"
    return f"there is no {what} in namespace {shown(namespace)}{answer['suggestion']}"


def is_left(answer: Json) -> bool:
    """Return True if a constraint stays above ``maxSkew``, or if the answer is incomplete."""
    return bool(answer["left"]) or answer["incomplete"]


def rendered(answer: Json, output: str) -> str:
    """Return the text to print."""
    text = structured(answer, output)
    if text is not None:
        return text
    if output == "name":
        return "\n".join(f"pod/{escaped(it['pod'])}" for it in answer["evictions"])
    return "\n".join(_lines(answer, wide=output == "wide"))


def call_of(eviction: Json) -> str:
    """Return the call of the Eviction API as a line for any POSIX shell. It fails if the pod's UID has changed."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": eviction["namespace"], "name": eviction["pod"]},
        "deleteOptions": {"preconditions": {"uid": eviction["uid"]}},
    }
    names = (quote(eviction[it], safe="") for it in ("namespace", "pod"))
    path = "/api/v1/namespaces/{}/pods/{}/eviction".format(*names)
    return f"printf %s {shlex.quote(json.dumps(body))} | kubectl create --raw {shlex.quote(path)} -f -"


def _lines(answer: Json, *, wide: bool) -> Iterator[str]:
    yield coloured(f"# {_verdict(answer)}", BAD if is_left(answer) else GOOD)
    if answer["evictions"]:
        yield "# run the lines in this order, each after the new pod of the line before is ready"
    for eviction in answer["evictions"]:
        yield from (_comment(it) for it in _about(eviction, wide=wide))
        yield call_of(eviction)
    for left in answer["left"]:
        soft = "" if left["whenUnsatisfiable"] == "DoNotSchedule" else " (soft)"
        yield _comment(
            f"{left['workload']}, {left['topologyKey']}: skew {left['skew']} stays, {left['maxSkew']} allowed{soft}"
        )
        for reason in left["why"]:
            pods = f"{reason['count']} pods: " if reason["count"] else ""
            yield _comment(f"  {pods}{reason['reason']}")
    yield from (_comment(it) for it in spread_lines(answer["spread"]))
    if not answer["budgetsJudged"]:
        yield "# disruption budgets were not checked, because no profile reads them"
    yield from (_comment(it) for it in notes(answer))


def _comment(text: str) -> str:
    return escaped(f"# {text}".rstrip())


def _verdict(answer: Json) -> str:
    count = len(answer["evictions"])
    if not answer["above"]:
        return "nothing to do: no constraint is above maxSkew" if not answer["incomplete"] else "no time to find out"
    evictions = f"{count} eviction{'s'[: count != 1]}"
    if not is_left(answer):
        return f"{evictions}, after which all constraints hold again"
    return f"{evictions}; {len(answer['left'])} of {answer['above']} constraints stay above maxSkew"


def _about(eviction: Json, *, wide: bool) -> Iterator[str]:
    ties = f" {tied(eviction['ties'])}" if eviction["ties"] else ""
    yield f"{eviction['namespace']}/{eviction['pod']}: {eviction['nodeName']} -> {eviction['goesTo']}{ties}"
    for improved in eviction["improves"]:
        domains = f"{improved['leaves'] or 'none'} -> {improved['enters'] or 'none'}"
        skew = f", skew {improved['skewBefore']} -> {improved['skewAfter']}"
        key = improved["topologyKey"]
        yield f"  {improved['workload']}, {key}: {domains}{skew}"
    if wide:
        yield f"  uid {eviction['uid']}, of {eviction['workload']}"
