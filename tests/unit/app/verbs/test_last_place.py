"""With ``preset: complete`` and without ``pick``, the pod that is filtered first gets the last free place on a node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.small import by_name, filtered
from tests.builders import JsonObject, container, pod_object
from tests.filtering import Filter
from tests.harness import World
from tests.unit.app.verbs.test_filter import ASKS, ask, roomy


async def asking(other: JsonObject, pod: JsonObject, *nodes: JsonObject) -> tuple[bool, Any]:
    """Filter ``other``, then ``pod``, then bind ``other`` to n1. Return whether ``pod`` waited, and its feasible
    nodes.
    """
    asked = Filter(World(*nodes, profile={"preset": "complete"}), lean=True, due_wait=10.0)
    names = [it["metadata"]["name"] for it in nodes]
    assert "feasible" == (await ask(asked, by_name(other, names)))[1]
    second = asyncio.create_task(ask(asked, by_name(pod, names)))
    for _ in range(5):
        await asyncio.sleep(0)
    waited = not second.done()

    asked.world.add({**other, "spec": {**other["spec"], "nodeName": "n1"}})
    asked.due.arrived(other["metadata"]["uid"])
    return waited, (await second)[0]["NodeNames"]


@pytest.mark.parametrize(
    ("containers", "room", "waits"),
    [
        pytest.param(ASKS, {"cpu": "1"}, True, id="cpu for one"),
        pytest.param(ASKS, {"cpu": "2"}, False, id="cpu for both"),
        pytest.param(ASKS, {"cpu": "64", "pods": "1"}, True, id="one pod"),
        pytest.param([container(ports=[{"hostPort": 80, "containerPort": 80}])], {}, True, id="a host port"),
    ],
)
async def test_the_later_pod_waits_where_both_have_no_room(
    containers: list[JsonObject], room: JsonObject, *, waits: bool
) -> None:
    pods = [pod_object(name, containers=containers) for name in ("web-a", "web-b")]

    assert (waits, [] if waits else ["n1"]) == await asking(*pods, roomy("n1", **room))


async def test_only_on_nodes_that_both_may_take() -> None:
    other = pod_object("web-a", containers=ASKS, node_selector={"disk": "ssd"})
    nodes = roomy("n1", cpu="64", labels={"disk": "ssd"}), roomy("n2", cpu="1")

    waited, names = await asking(other, pod_object("web-b", containers=ASKS), *nodes)

    assert (False, {"n1", "n2"}) == (waited, {*names})


async def test_binds_that_leave_no_room_together_are_waited_for() -> None:
    asked = Filter(World(roomy("n1", cpu="2"), profile={"preset": "complete"}), lean=True, due_wait=10.0)
    requests = [by_name(pod_object(name, containers=ASKS), ["n1"]) for name in ("web-a", "web-b", "web-c")]
    for request in requests[:2]:
        assert "feasible" == (await ask(asked, request))[1]
    third = asyncio.create_task(ask(asked, requests[2]))
    for name in ("web-a", "web-b"):
        for _ in range(5):
            await asyncio.sleep(0)
        assert not third.done()
        asked.world.add(pod_object(name, containers=ASKS, node="n1"))
        asked.due.arrived(f"uid-default-{name}")

    assert "no_fit" == (await third)[1]
    assert [] == list(filter(None, asked.world.framework.checking()))


async def test_thousands_of_nodes_are_looked_at_in_steps() -> None:
    """The steps end once the expected bind has arrived."""
    names = [f"n{number}" for number in range(3_000)]
    asked = Filter(World(*map(roomy, names), profile={"preset": "complete"}), lean=True, due_wait=10.0)
    assert "feasible" == (await ask(asked, by_name(pod_object("web-a", containers=ASKS), names)))[1]
    second = asyncio.create_task(ask(asked, by_name(pod_object("web-b", containers=ASKS), names)))
    await asyncio.sleep(0)
    assert not second.done()

    asked.world.add(pod_object("web-a", containers=ASKS, node="n1"))
    asked.due.arrived("uid-default-web-a")

    assert {*names} == {*(await second)[0]["NodeNames"]}


async def test_a_bind_that_does_not_come_is_given_up() -> None:
    asked = Filter(World(roomy("n1", cpu="1"), profile={"preset": "complete"}), lean=True, due_wait=0.01)
    for name in ("web-a", "web-b"):
        assert (filtered(["n1"]), "feasible") == await ask(asked, by_name(pod_object(name, containers=ASKS), ["n1"]))
