"""The plan of a drain, as a person at a terminal reads it."""

from __future__ import annotations

from typing import Any

import pytest

from app.commands.drain import rendered
from tests.builders import JsonObject

OWNER: JsonObject = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "machines", "slot": ""}
DELEGATED = """\
placed one after the other, by the rules that Homeport has here: PodTopologySpread
not counted: NodeResourcesFit TaintToleration
free cpu, memory and pod capacity were not checked: only kube-scheduler checks them"""


def told(then: str, *nodes: str, goes_to: str = "", why: str = "", count: int = 0) -> JsonObject:
    more = {"goesTo": goes_to, "othersRefuse": why, "then": then}
    return {"couldRunOn": list(nodes), "couldRunOnCount": count or len(nodes), **more}


def machine(name: str, then: str, *nodes: str, node: str = "n1", **more: Any) -> JsonObject:
    owner = {**OWNER, "name": name}
    return {"owner": owner, "node": node, "policy": "grace", "pod": f"launcher-{name}", **told(then, *nodes, **more)}


def pod(name: str, then: str, *nodes: str, **more: Any) -> JsonObject:
    return {"namespace": "shop", "pod": name, **told(then, *nodes, **more)}


def plan(*items: JsonObject, **more: Any) -> JsonObject:
    head = {"node": "n1", "known": True, "profile": "", "preset": "complete", "counted": [], "notCounted": []}
    return {**head, "items": list(items), "others": [], "more": 0, "moreOthers": 0, "lost": 0, **more}


def text(found: JsonObject, *, wide: bool = False) -> str:
    return "\n".join(rendered(found, wide=wide))


def test_who_goes_where_and_who_waits() -> None:
    found = plan(
        machine("db01", "starts on n2", "n2", "n3", "n4", "n5", goes_to="n2", count=7),
        machine("db02", "waits: the others take its room", why="3 of 3: Fit: no cpu"),
        {**machine("db03", "stays on n2", node="n3"), "couldRunOn": None, "pod": ""},
    )

    assert """\
n1: home of 2; 1 more run there

NAMESPACE  OWNER                POLICY  POD            COULD RUN ON         THEN
machines   VirtualMachine/db01  grace   launcher-db01  n2 n3 n4 and 4 more  starts on n2
machines   VirtualMachine/db02  grace   launcher-db02  none                 waits: the others take its room
machines   VirtualMachine/db03  grace   -              -                    stays on n2

placed one after the other, by all rules of kube-scheduler: what they need adds up""" == text(found)
    wide = text(found, wide=True)
    assert ("n2 n3 n4 n5 and 3 more" in wide, "3 of 3: Fit: no cpu" in wide) == (True, True)


def test_a_home_that_pods_share_counts_once() -> None:
    found = plan(machine("db01", "waits for n1"), {**machine("db01", "waits for n1"), "pod": "launcher-2"})

    assert "n1: home of 1; 0 more run there" == text(found).splitlines()[0]


def test_what_was_not_counted_is_said_plainly() -> None:
    found = plan(
        machine("db01", "starts on n2", "n2", goes_to="n2"),
        preset="delegated",
        counted=["PodTopologySpread"],
        notCounted=["NodeResourcesFit", "TaintToleration"],
    )

    assert DELEGATED == "\n".join(text(found).splitlines()[-3:])


def test_of_several_profiles_it_names_the_one_that_judged() -> None:
    found = plan(machine("db01", "starts on n2", "n2"), profile="full", notCounted=["ImageLocality"])

    assert [
        "placed one after the other, by all rules of kube-scheduler of profile full: what they need adds up",
        "not counted: ImageLocality",
    ] == text(found).splitlines()[-2:]


def test_other_pods_are_counted_and_those_that_would_wait_are_named() -> None:
    waits = [pod(f"web-{it}", "waits: the others take its room", why="1 of 1: Fit: no cpu") for it in range(12)]
    found = plan(others=[pod("api", "starts on n2", "n2", goes_to="n2"), *waits], lost=2)

    lines = text(found).splitlines()
    assert "pods without a home that would go too: 13; of these with a node to go to: 1" == lines[2]
    assert "- shop/web-0 waits: the others take its room (1 of 1: Fit: no cpu)" == lines[3]
    assert ["- and 2 more without one", "", "pods that no controller recreates: 2, not counted"] == lines[13:16]
    assert "- and 3 more that are not counted" in text({**found, "moreOthers": 3}).splitlines()
    wide = text(found, wide=True)
    assert ("- shop/api starts on n2\n" in wide, "shop/web-11" in wide, "more without" in wide) == (True, True, False)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, "n1: home of 0; 0 more run there"),
        ({"known": False}, "n1 (there is no such node): home of 0; 0 more run there"),
    ],
)
def test_where_nobody_lives_nothing_else_is_said(more: JsonObject, told: str) -> None:
    assert told == text(plan(**more))


def test_homes_that_are_not_told_of_are_counted() -> None:
    assert "and 7 more that are not listed" in text(plan(machine("db01", "starts on n2", "n2"), more=7)).splitlines()
