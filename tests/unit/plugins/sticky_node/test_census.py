"""Homes are counted by how their pods are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Unpack

import pytest

from app.framework.interface import Figure
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES
from plugins.sticky_node.census import STATES
from tests.builders import PodFields
from tests.unit.plugins.sticky_node.machines import DATABASE, Machines, launcher, make_pod, reference

DATABASES = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]}
BY_ORDINAL = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "perOrdinal": True}]}
NOW = datetime(2026, 11, 21, 10, 0, 30, tzinfo=UTC)
EARLY, LATE = "2026-11-21T10:00:00Z", "2026-11-21T10:00:20Z"


def member(name: str = "db-0", of: str = "db", **fields: Unpack[PodFields]) -> Pod:
    """A pod of a database."""
    given: PodFields = {"owner": reference(DATABASE, of), **fields}
    return make_pod(name, **given)


def databases(*pods: Pod, **homes: str) -> Machines:
    """Databases by name, each with its home if it has one."""
    machines = Machines(DATABASES)
    for name, node in homes.items():
        machines.add(DATABASE, name, **({"home": node} if node else {}))
    for pod in pods:
        machines.cluster.upsert_pod(pod)
    return machines


def counted(machines: Machines) -> dict[str, float]:
    """The states that some home is in."""
    found = [it for it in machines.plugin._census.figures(NOW) if it is not None and it.name == "homes"]
    assert list(STATES) == [it.labels["state"] for it in found]
    return {it.labels["state"]: it.value for it in found if it.value}


def longest(machines: Machines) -> float:
    (found,) = [
        it for it in machines.plugin._census.figures(NOW) if it is not None and it.name == "homes_longest_wait_seconds"
    ]
    return found.value


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        pytest.param([], "idle", id="no pod"),
        pytest.param([member(node="n1")], "at_home", id="it runs there"),
        pytest.param([member(node="n2")], "away", id="it runs elsewhere"),
        pytest.param([member()], "waiting", id="it waits"),
        pytest.param([member(node="n1", terminating=True), member("db-1")], "waiting", id="the old one ends"),
        pytest.param([member(node="n2"), member("db-1", node="n1")], "at_home", id="one of two is there"),
        pytest.param([member(), member("db-1", node="n2")], "away", id="one waits, one runs elsewhere"),
        pytest.param([member(node="n1", of="other")], "idle", id="another owner's"),
        pytest.param([member(node="n1", phase="Succeeded")], "idle", id="it has finished"),
    ],
)
def test_a_home_is_in_one_state(pods: list[Pod], state: str) -> None:
    assert {state: 1} == counted(databases(*pods, db="n1"))


def test_without_its_node_a_home_is_nothing_else() -> None:
    assert {"node_gone": 2} == counted(databases(member(), one="n9", db="n9"))


def test_a_node_that_cannot_be_read_is_not_gone() -> None:
    machines = databases(member(), one="n9", db="n9")
    machines.cluster.leave_out(NODES, ("", "n9"), "odd")

    assert {"waiting": 1, "idle": 1} == counted(machines)


def test_an_owner_without_a_home_does_not_count() -> None:
    assert {} == counted(databases(member(node="n1"), db=""))


def test_each_ordinal_has_a_home_of_its_own() -> None:
    machines = Machines(BY_ORDINAL)
    machines.change(
        DATABASE, {"homeport.dev/home.0": "n1", "homeport.dev/home.1": "n2", "homeport.dev/home-pod.0": "u"}
    )
    machines.cluster.upsert_pod(member("db-0", node="n1"))
    machines.cluster.upsert_pod(member("db-1"))

    assert {"at_home": 1, "waiting": 1} == counted(machines)


def test_a_machine_is_reached_through_its_instance() -> None:
    machines = Machines()
    machines.machine(home="n1")
    machines.cluster.upsert_pod(launcher(node="n2"))

    assert {"away": 1} == counted(machines)


async def test_what_could_not_be_written_is_unrecorded_until_it_is() -> None:
    machines = databases(db="")
    machines.writer.unwritable.add("db")
    await machines.bind(member(), "n1")
    assert {"unrecorded": 1} == counted(machines)

    machines.writer.unwritable.clear()
    await machines.plugin.repair()
    assert {"at_home": 1} == counted(machines)


def test_an_owner_that_cannot_be_read_hides_its_pod_alone() -> None:
    machines = databases(member(node="n1"), member("two-0", "two", node="n1"), db="n1", two="n1")
    machines.cluster.leave_out(DATABASE, ("default", "db"), "too large")

    assert {"at_home": 1, "idle": 1} == counted(machines)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        pytest.param([], 0, id="nobody waits"),
        pytest.param([member(created=LATE)], 10, id="one"),
        pytest.param([member(created=LATE), member("two-0", "two", created=EARLY)], 30, id="the oldest of two"),
        pytest.param([member(created=EARLY, node="n2"), member("db-1", created=EARLY)], 0, id="it runs elsewhere"),
        pytest.param([member(created=EARLY, node="n1")], 0, id="it runs"),
        pytest.param([member(created="2026-11-21T10:00:40Z")], 0, id="by a clock that is ahead"),
        pytest.param([member(created="")], 0, id="nobody knows since when"),
        pytest.param([member(created="2026-11-21T10:00:20")], 0, id="of no zone"),
        pytest.param([member(created="yesterday")], 0, id="no time"),
    ],
)
def test_the_longest_wait_is_that_of_the_oldest_pod(pods: list[Pod], seconds: float) -> None:
    assert seconds == longest(databases(*pods, db="n1", two="n1"))


def test_others_get_their_turn() -> None:
    machines = databases(*(member(f"p-{number}", f"db{number}") for number in range(200)))
    for number in range(200):
        machines.add(DATABASE, f"db{number}", home="n1")

    found = list(machines.plugin.figures())

    assert found.count(None) >= 4
    assert all(isinstance(it, Figure) for it in found if it is not None)


def test_where_a_kind_tells_no_ordinals_apart_there_is_one_home() -> None:
    machines = Machines(DATABASES)
    machines.change(DATABASE, {"homeport.dev/home": "n1", "homeport.dev/home.1": "n2"})

    assert {"idle": 1} == counted(machines)
