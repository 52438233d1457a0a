"""The plan of a rebalancing, as a person reads it and a shell runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.commands.rebalance import call_of, is_left, rendered, unknown
from tests.builders import JsonObject

KUBECTL = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done > "$SEEN"\ncat > "$SEEN.body"\n'
HOSTILE = ["web-1", "it's; rm -rf ~", "$(reboot)`reboot`", '"\\n"', "a\nb", "../../nodes", "-f", "é%2F"]


def eviction(**more: Any) -> JsonObject:
    improved = {"workload": "Deployment/shop/web", "topologyKey": "zone", "leaves": "a", "enters": "b"}
    given = {"namespace": "shop", "pod": "web-1", "uid": "u1", "workload": "Deployment/shop/web"}
    nodes = {"nodeName": "n1", "goesTo": "n2", "ties": 0}
    return {**given, **nodes, "improves": [{**improved, "skewBefore": 3, "skewAfter": 1}], **more}


def plan(*evictions: JsonObject, **more: Any) -> JsonObject:
    head = {"stale": "", "notJudged": [], "incomplete": False, "budgetsJudged": True, "known": True, "suggestion": ""}
    return {**head, "above": 1, "evictions": [*evictions], "left": [], "spread": [], **more}


def left(**more: Any) -> JsonObject:
    why = [{"count": 0, "reason": "at most 1 evictions were allowed"}, {"count": 2, "reason": "it has a hard home"}]
    given = {"workload": "Deployment/shop/web", "topologyKey": "zone", "maxSkew": 1, "skew": 2, "why": why}
    return {**given, "whenUnsatisfiable": "DoNotSchedule", **more}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shell_passes_any_name_unchanged_to_the_eviction_api(tmp_path: Path, name: str) -> None:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    seen = tmp_path / "seen"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SEEN": str(seen)}

    subprocess.run(["sh", "-c", call_of(eviction(pod=name, uid=name))], env=environment, check=True, timeout=20)

    create, raw, path, flag, standard_input = seen.read_text().splitlines()
    assert ("create", "--raw", "-f", "-") == (create, raw, flag, standard_input)
    assert path.startswith("/api/v1/namespaces/shop/pods/")
    assert 7 == path.count("/")
    assert {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "shop", "name": name},
        "deleteOptions": {"preconditions": {"uid": name}},
    } == json.loads((tmp_path / "seen.body").read_text())


def test_each_line_is_a_comment_or_a_call_even_with_hostile_names() -> None:
    evil = "x\nreboot"
    improves = [{**eviction()["improves"][0], "workload": evil, "topologyKey": evil, "leaves": evil, "enters": evil}]
    answer = plan(
        eviction(namespace=evil, pod=evil, nodeName=evil, goesTo=evil, workload=evil, improves=improves),
        left=[left(workload=evil, why=[{"count": 1, "reason": evil}])],
        stale=evil,
    )

    lines = rendered(answer, "wide").splitlines()

    assert 1 == sum(it.startswith("printf ") for it in lines)
    assert [] == [it for it in lines if not it.startswith(("printf ", "#"))]


def test_the_text_says_what_each_eviction_improves() -> None:
    text = rendered(plan(eviction(ties=2), budgetsJudged=False), "text")

    assert [
        "# 1 eviction, after which all constraints hold again",
        "# run the lines in this order, each after the new pod of the line before is ready",
        "# shop/web-1: n1 -> n2 or one of 2 others with the same score",
        "#   Deployment/shop/web, zone: a -> b, skew 3 -> 1",
        call_of(eviction()),
        "# disruption budgets were not checked, because no profile reads them",
    ] == text.splitlines()


def test_the_text_says_why_a_constraint_stays_above() -> None:
    answer = plan(left=[left()])

    assert [
        "# 0 evictions; 1 of 1 constraints stay above maxSkew",
        "# Deployment/shop/web, zone: skew 2 stays, 1 allowed",
        "#   at most 1 evictions were allowed",
        "#   2 pods: it has a hard home",
    ] == rendered(answer, "text").splitlines()
    assert is_left(answer)


def test_nothing_is_to_do() -> None:
    answer = plan(above=0)

    assert ("# nothing to do: no constraint is above maxSkew", False) == (rendered(answer, "text"), is_left(answer))
    assert is_left({**answer, "incomplete": True})


def test_names_and_the_answer_itself() -> None:
    answer = plan(eviction())

    assert "pod/web-1" == rendered(answer, "name")
    assert answer == json.loads(rendered(answer, "json"))


def test_unknown_namespaces_and_workloads() -> None:
    missing = plan(known=False, suggestion="; did you mean web?")

    assert "" == unknown(plan(), "shop", "deploy/web")
    expected = "there is no workload 'deploy/wep' with pods in namespace 'shop'; did you mean web?"
    assert expected == unknown(missing, "shop", "deploy/wep")
    assert unknown(missing, "shop", "").startswith("there is no pod in namespace 'shop'")
