"""The list of skews: the table, the bars of one workload, formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.__main__ import kubectl
from app.commands.skew import drawn, listing
from app.commands.targets import unknown_kind
from tests.api.service import SAMPLE
from tests.builders import ZONE, JsonObject

SAVED = ("--saved", str(SAMPLE), "-q")


def skewed(*pods: int, **more: Any) -> JsonObject:
    domains = [
        {"name": f"z{number}", "nodes": 2, "pods": count, "takes": count == min(pods)}
        for number, count in enumerate(pods)
    ]
    item = {
        "namespace": "shop",
        "kind": "Deployment",
        "name": "web",
        "pods": sum(pods),
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "maxSkew": 1,
        "minimum": min(pods),
        "skew": max(pods) - min(pods),
        "above": max(pods) - min(pods) > 1,
        "domains": domains,
        "domainCount": len(domains),
        "removedFirst": "web-1",
    }
    return {**item, **more}


def test_a_row_for_each_constraint() -> None:
    answer = {"items": [skewed(3, 1), skewed(1, 1, 0, 0, 0, 0, 0, name="api")]}

    assert [
        "WORKLOAD        KEY                          SKEW  ALLOWED  DOMAINS",
        f"deployment/web  {ZONE}  2 !   1        z0 3, z1 1",
        f"deployment/api  {ZONE}  1     1        z0 1, z1 1, z2 0, z3 0, z4 0, z5 0 and 1 more",
    ] == listing(answer, "shop", "table", headers=True).splitlines()
    assert listing(answer, "", "table", headers=False).startswith("shop  deployment/web")
    wide = listing(answer, "shop", "wide", headers=False).splitlines()
    assert wide[0].endswith("z0 3, z1 1                                DoNotSchedule  z1              web-1")
    assert "deployment/web\ndeployment/api" == listing(answer, "", "name", headers=True)
    assert answer == json.loads(listing(answer, "", "json", headers=True))


def test_one_pod() -> None:
    assert next(drawn({"items": [skewed(1, 0)]})).startswith("deployment/web in shop, 1 pod, ")


def test_pods_in_no_domain_are_counted_apart() -> None:
    heading = next(drawn({"items": [skewed(4, 2, pods=7)]}))

    assert heading.startswith("deployment/web in shop, 7 pods: 6 in domains, 1 in none, DoNotSchedule")


def test_bars_of_one_workload_and_what_comes_next() -> None:
    answer = {"items": [skewed(2, 1, 0, domainCount=5), skewed(100, 50, removedFirst="")]}

    assert [
        f"deployment/web in shop, 3 pods, DoNotSchedule over {ZONE}: skew 2, allowed 1",
        "  z0  ██ 2  (2 nodes)",
        "  z1  █ 1  (2 nodes)",
        "  z2  0  (2 nodes)",
        "  and 2 more domains",
        "  this constraint allows the next pod in: z2",
        "  a scale-down removes first: web-1",
        "",
        f"deployment/web in shop, 150 pods, DoNotSchedule over {ZONE}: skew 50, allowed 1",
        f"  z0  {'█' * 20} 100  (2 nodes)",
        f"  z1  {'█' * 10} 50  (2 nodes)",
        "  this constraint allows the next pod in: z1",
    ] == list(drawn(answer))


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("skew", "-n", "shop", "--above"), 0, ""),
        (("skew", "deploy/web", "-n", "shop"), 0, ""),
        (("skew", "web", "-n", "shop"), 2, "homeport: 'web' is not a workload: use KIND/NAME, such as deploy/web\n"),
        (
            ("skew", "sts/none", "-n", "shop"),
            3,
            "homeport: no spread constraint of sts/none in namespace shop (-A: in all) has a skew to show\n",
        ),
        (
            ("skew", "cm/web", "-n", "shop"),
            2,
            f"homeport: {unknown_kind('cm').replace('pod, ', '')}\n",
        ),
        (("drain", ""), 2, "homeport: the name of the node is empty\n"),
        (("lint", "-n", "x y"), 2, "homeport: 'x y' cannot be the name of a namespace\n"),
        (("skew", "-n", "empty"), 0, "homeport: no such workloads in namespace empty (-A: in all)\n"),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code == kubectl([*arguments, *SAVED])
    printed = capsys.readouterr()
    assert (told, not told) == (printed.err, "web" in printed.out)
