"""The loss of a zone as text: the variants side by side, the field that helps, all zones, exit codes."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from app.__main__ import kubectl
from app.commands.lose import rendered, waits
from tests.api.service import SAMPLE
from tests.builders import ZONE, JsonObject

SAVED: Final = ("--saved", str(SAMPLE), "-q")
NUMBERS: Final = (
    "lost",
    "evicted",
    "placed",
    "afterGrace",
    "ties",
    "waiting",
    "notRecreated",
    "notEnded",
    "notReached",
)
LEGEND: Final = 4
"""Lines about the meaning of the variants."""


def numbers(**given: Any) -> JsonObject:
    return {**dict.fromkeys(NUMBERS, 0), "reasons": [], "change": None, "changesTried": False, **given}


def workload(name: str = "web", kind: str = "Deployment", **more: Any) -> JsonObject:
    variants = {it: numbers() for it in ("gone", "tainted", "full")}
    named = {"namespace": "shop", "kind": kind, "name": name, "running": 6, "runningIn": {"c": 6}, "tiedByVolume": 0}
    return {**named, **variants, **more}


def answer(*workloads: JsonObject, value: str | None = "c", **more: Any) -> JsonObject:
    domain = {"value": "c", "nodes": 2, "pods": 9, "staticPods": 0, "moreWorkloads": 0, "workloads": [*workloads]}
    domain["evictsNothing"] = False
    domain |= {it: numbers() for it in ("gone", "tainted", "full")} | more
    return {
        "key": ZONE,
        "value": value,
        "domains": [domain],
        "moreDomains": 0,
        "stale": "",
        "notJudged": [],
        "incomplete": False,
    }


def text(found: JsonObject, output: str = "text") -> list[str]:
    """What is printed, without the legend."""
    return rendered(found, output).splitlines()[:-LEGEND]


def test_a_workload_has_the_three_variants_side_by_side() -> None:
    found = workload(
        gone=numbers(lost=3, placed=3), tainted=numbers(lost=3, waiting=3), full=numbers(lost=3, evicted=1)
    )

    head, row = text(answer(found))[2:4]
    assert ["NAMESPACE", "WORKLOAD", "RUNNING", "GONE: LOST", "AGAIN", "WAITS", "TAINTED: LOST", "AGAIN", "WAITS"] == (
        re.split("  +", head)[:9]
    )
    assert ["shop", "deployment/web", "6", "3", "3", "0", "3", "0", "3", "3+1", "0", "0"] == row.split()


def test_why_pods_wait_and_the_field_that_helps() -> None:
    """Variants with the same reasons and change share their lines."""
    reasons = [{"count": 8, "plugin": "PodTopologySpread", "code": "Unschedulable", "reasons": ["too many there"]}]
    change = {"field": "spec.topologySpreadConstraints[0].maxSkew", "value": "2", "topologyKey": ZONE, "waiting": 1}
    waiting = numbers(lost=3, waiting=3, reasons=reasons, changesTried=True)
    found = workload(gone=waiting, tainted={**waiting, "change": change}, full={**waiting, "change": change})

    assert [
        "",
        "deployment/web in shop, gone:",
        "  8 nodes: PodTopologySpread: too many there",
        "  no single field would help",
        "",
        "deployment/web in shop, tainted, full:",
        "  8 nodes: PodTopologySpread: too many there",
        f"  would help: spec.topologySpreadConstraints[0].maxSkew: 2 over {ZONE}: then 1 would wait",
    ] == text(answer(found))[4:]


def test_pods_of_special_sorts_are_told_apart() -> None:
    lost = {it: numbers(lost=2, notRecreated=2) for it in ("gone", "full")}
    machine = workload("db", "VirtualMachine", gone=numbers(lost=1, placed=1, afterGrace=1), tiedByVolume=1)
    special = [workload("agent", "DaemonSet", **lost), *(workload(f"p{it}", "Pod", **lost) for it in range(5))]

    assert [
        "virtualmachine/db in shop: placed only after the grace of their home: gone 1, tainted 0, full 0",
        "virtualmachine/db in shop: only these nodes reach a volume of 1 of its pods",
        "",
        "pods of DaemonSets, which end with their nodes: gone 2, tainted 0, full 2: shop/agent",
        "",
        "pods without a controller: gone 10, tainted 0, full 10: shop/p0, shop/p1, shop/p2 and 2 more",
        "static pods of the nodes: 3",
    ] == text(answer(machine, *special, staticPods=3))[4:]


def test_long_lists_are_cut() -> None:
    found = answer(*(workload(f"w{it}") for it in range(25)), moreWorkloads=7)

    assert ["and 5 more workloads (-o wide lists all)", "and 7 more workloads that are not listed"] == text(found)[
        23:25
    ]
    assert "shop       deployment/w24" in "\n".join(text(found, "wide"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, False, id="all are placed"),
        pytest.param({"tainted": numbers(lost=2, waiting=1)}, True, id="one waits"),
        pytest.param({"tainted": numbers(lost=2, notEnded=2)}, True, id="one stays Terminating"),
        pytest.param({"full": None}, True, id="a variant was not computed"),
        pytest.param({"gone": numbers(lost=2, notReached=2)}, True, id="pods were not tried"),
    ],
)
def test_the_exit_code(more: JsonObject, expected: bool) -> None:
    assert expected == waits(answer(**more))


def test_pods_that_stay_terminating_are_told_apart() -> None:
    stuck = numbers(lost=2, notEnded=2)
    lines = text(answer(workload("db", "StatefulSet", tainted=stuck), tainted=stuck))

    assert f"{ZONE}=c: 2 nodes with 9 pods: up to 2 pods would wait or stay Terminating" == lines[0]
    assert "0 (+2 Terminating)" in lines[3]
    assert "tainted: 2 stay Terminating until the nodes are deleted or get the out-of-service taint" == lines[-1]


def test_nothing_is_evicted_when_no_node_would_be_ready(capsys: pytest.CaptureFixture[str]) -> None:
    kubectl(["lose", "topology.kubernetes.io/region=eu-1", *SAVED])

    assert "tainted: no node would be ready, so nothing is evicted" in capsys.readouterr().out


def test_what_was_not_computed_is_said() -> None:
    found = answer(workload(full=None), gone=None, tainted=None, full=None)

    assert [f"{ZONE}=c: 2 nodes with 9 pods: not computed"] == text(found)[:1]
    assert ["?", "?", "?"] == text(found)[3].split()[-3:]


@pytest.mark.parametrize(
    ("words", "code", "begin"),
    [
        pytest.param([f"{ZONE}=eu-1a"], 1, f"{ZONE}=eu-1a: 4 nodes with 6 pods: up to 3 pods would wait\n", id="zone"),
        pytest.param([f"{ZONE}=eu-1a", "-o", "name"], 1, "deployment/web\n", id="names of workloads"),
        pytest.param([ZONE, "-o", "name"], 1, f"{ZONE}=eu-1a\n{ZONE}=eu-1b\n{ZONE}=eu-1c\n", id="zones, worst first"),
        pytest.param(["kubernetes.io/hostname=node-a2"], 0, "kubernetes.io/hostname=node-a2: 1 nodes", id="a node"),
    ],
)
def test_the_command(capsys: pytest.CaptureFixture[str], words: list[str], code: int, begin: str) -> None:
    assert code == kubectl(["lose", *words, *SAVED])

    assert capsys.readouterr().out.startswith(begin)


def test_all_zones_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == kubectl(["lose", ZONE, "-o", "json", *SAVED])

    plan = json.loads(capsys.readouterr().out)
    assert ("LossPlan", ["eu-1a", "eu-1b", "eu-1c"]) == (plan["kind"], [it["value"] for it in plan["domains"]])
    assert [3, 2, 1] == [it["full"]["waiting"] for it in plan["domains"]]


@pytest.mark.parametrize(
    ("label", "code", "message"),
    [
        ("zone", 3, 'no node has the label "zone"'),
        (f"{ZONE}=eu-1d", 3, f'no node has the label "{ZONE}=eu-1d"; did you mean eu-1c, eu-1b or eu-1a?'),
        ("=eu-1c", 2, "the key of the label is empty"),
    ],
)
def test_a_label_that_no_node_has(capsys: pytest.CaptureFixture[str], label: str, code: int, message: str) -> None:
    assert code == kubectl(["lose", label, *SAVED])

    assert message in capsys.readouterr().err
