"""A home is taken only from the pod that is the machine: whoever may create pods may say of one that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import pytest

from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from tests.builders import PodFields, controller, make_pod
from tests.unit.plugins.sticky_node.machines import (
    DATABASE,
    HOME,
    HOME_AFTER,
    HOME_POD,
    INSTANCE,
    KUBEVIRT,
    MACHINE,
    NODES,
    SET,
    Machines,
    launcher,
    own_home,
    reference,
)

ALL = list(NODES)
EARLY, LATE = "2026-11-21T10:00:00Z", "2026-11-21T10:00:05Z"
Story = Callable[[Machines], None]


def pods(*found: Pod) -> Story:
    def there(machines: Machines) -> None:
        for pod in found:
            machines.cluster.upsert_pod(pod)

    return there


def claims(name: str = "launcher", home: str = "n1", **fields: Unpack[PodFields]) -> Pod:
    """A bound pod that says it brings a home, on that node unless another is given."""
    given: PodFields = {"node": home, "annotations": {HOME: home}, **fields}
    return launcher(name, **given)


MIGRATED = claims("target", "n2", created=LATE)
SOURCE = launcher("source", node="n1", created=EARLY)


@pytest.mark.parametrize(
    ("runs_on", "there", "home"),
    [
        pytest.param("", pods(claims()), "n1", id="the only pod of a machine that is not ready yet"),
        pytest.param("n1", pods(claims()), "n1", id="the pod where the machine runs"),
        pytest.param("", pods(claims(home="n2", node="n1")), "", id="it says another node than it is on"),
        pytest.param("", pods(claims(home="any text", node="n1")), "", id="it says what is no node"),
        pytest.param("", pods(claims(home="n9")), "", id="it is on a node that does not exist"),
        pytest.param("", pods(claims(scheduler="somebody")), "", id="it is not ours"),
        pytest.param("n2", pods(claims()), "", id="the machine runs elsewhere"),
        pytest.param("", pods(claims(created=EARLY), launcher("new", created=LATE)), "", id="a newer one waits"),
        pytest.param("", pods(claims(created=LATE), launcher("old", created=EARLY)), "n1", id="it is the newest"),
        pytest.param("n1", pods(SOURCE, MIGRATED), "", id="a migration that is not done"),
        pytest.param("n2", pods(SOURCE, MIGRATED), "n2", id="a migration that is done"),
        pytest.param(
            "n1",
            pods(claims(created=EARLY), launcher("new", node="n2", created=LATE)),
            "n1",
            id="a newer one is elsewhere",
        ),
        pytest.param(
            "n1",
            pods(claims(created=EARLY), launcher("new", node="n1", created=LATE)),
            "",
            id="a newer one is on the same node",
        ),
        pytest.param(
            "",
            pods(claims(created=EARLY), launcher("new", node="n2", created=LATE, phase="Succeeded")),
            "n1",
            id="a newer one has finished",
        ),
        pytest.param(
            "",
            pods(claims(created=EARLY), launcher("new", created=LATE, namespace="shop")),
            "n1",
            id="a newer one is of another namespace",
        ),
        pytest.param("", pods(claims(created=EARLY), claims("twin", "n2", created=EARLY)), "n2", id="a draw"),
        pytest.param("", pods(claims(owner={**reference(INSTANCE), "uid": "earlier"})), "", id="of an earlier boot"),
        pytest.param("", pods(claims(owner={**reference(INSTANCE), "controller": False})), "", id="not controlled"),
        pytest.param("", pods(claims(namespace="shop")), "", id="from another namespace"),
        pytest.param("", pods(claims(owner=reference(MACHINE))), "", id="of the machine, past its instance"),
    ],
)
async def test_a_home_is_taken_from_the_active_pod(runs_on: str, there: Story, home: str) -> None:
    machines = Machines()
    machines.machine(runs_on=runs_on)
    there(machines)

    await machines.plugin.repair()

    assert home == machines.annotations().get(HOME, "")


@pytest.mark.parametrize(
    ("pod", "home"),
    [
        pytest.param(make_pod("db-3", node="n1", annotations={HOME: "n1"}, owner=reference(SET)), "n1", id="its own"),
        pytest.param(make_pod("evil-3", node="n1", annotations={HOME: "n1"}, owner=reference(SET)), "", id="another"),
        pytest.param(
            make_pod("db-3", node="n1", annotations={HOME: "n1"}, owner={**reference(SET), "uid": "x"}),
            "",
            id="of another UID",
        ),
    ],
)
async def test_an_ordinal_of_a_set_is_the_pod_that_the_set_names_so(pod: Pod, home: str) -> None:
    machines = Machines({"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]})
    machines.add(SET)
    machines.cluster.upsert_pod(pod)

    await machines.plugin.repair()

    assert home == machines.annotations(SET).get(f"{HOME}.3", "")


async def test_any_pod_that_a_custom_resource_controls_may_make_its_home() -> None:
    machines = Machines({"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]})
    machines.add(DATABASE)
    machines.cluster.upsert_pod(make_pod("newer", created=LATE, owner=reference(DATABASE)))

    await machines.bind(make_pod("any", created=EARLY, owner=reference(DATABASE)), "n1")

    assert own_home("n1", "uid-default-any", DATABASE) == machines.annotations(DATABASE)


class TestBind:
    """What a pod with a forged owner can do through a bind of its own."""

    async def test_a_pod_elsewhere_than_the_machine_makes_no_home_and_holds_nobody(self) -> None:
        machines = Machines()
        machines.machine(runs_on="n1")
        forged = launcher("forged", created=LATE)

        machines.reserve(forged, "n2")
        assert ALL == machines.allowed(launcher())
        machines.plugin.unreserve(CycleState(), forged, "n2")
        await machines.bind(forged, "n2")

        assert (ALL, {}) == (machines.allowed(launcher()), machines.annotations())

    async def test_a_pod_that_a_newer_one_overtakes_on_its_way_makes_no_home(self) -> None:
        machines = Machines()
        machines.machine()
        machines.reserve(launcher(created=EARLY), "n1")
        machines.cluster.upsert_pod(launcher("newer", created=LATE))
        state = CycleState()
        await machines.plugin.pre_bind(state, launcher(created=EARLY), "n1")

        await machines.plugin.post_bind(state, launcher(created=EARLY), "n1")

        assert (ALL, {}) == (machines.allowed(launcher("newer")), machines.annotations())

    async def test_a_pod_elsewhere_makes_the_home_once_the_machine_is_there(self) -> None:
        machines = Machines()
        machines.machine(runs_on="n1")

        assert {HOME: "n2"} == await machines.bind(launcher("other", created=LATE), "n2")
        await machines.plugin.repair()
        assert {} == machines.annotations()

        machines.runs(node="n2")
        await machines.plugin.repair()
        assert own_home("n2", "uid-default-other") == machines.annotations()

    @pytest.mark.parametrize(
        ("home", "forged", "binding"),
        [
            pytest.param("n1", {HOME: "n1", HOME_AFTER: "x"}, {HOME: ""}, id="at home: we say nothing of our own"),
            pytest.param("", {HOME: "n9"}, {HOME: "n1"}, id="a first bind overwrites the node"),
            pytest.param("", {HOME_AFTER: "x"}, {HOME: "n1", HOME_AFTER: ""}, id="and what was before it"),
        ],
    )
    async def test_what_was_written_on_the_pod_before_does_not_survive(
        self, home: str, forged: dict[str, str], binding: dict[str, str]
    ) -> None:
        machines = Machines()
        machines.machine(**({"home": home} if home else {}))

        assert binding == await machines.bind(launcher(annotations=forged), "n1")

    async def test_nor_on_a_pod_of_nobody(self) -> None:
        assert {HOME: ""} == await Machines().bind(make_pod(annotations={HOME: "n1"}), "n1")

    async def test_a_forged_word_cannot_undo_a_release(self) -> None:
        machines = Machines()
        machines.machine(home="n1", home_pod="first")
        await machines.bind(launcher(annotations={HOME: "n1", HOME_AFTER: "first"}), "n1")
        machines.change(MACHINE, {HOME_POD: "first"})

        await machines.plugin.repair()

        assert {HOME_POD: "first"} == machines.annotations()


def test_an_instance_of_another_name_is_no_way_to_a_machine() -> None:
    """The name must fit the UID: a reference to somebody's UID under another name is followed nowhere."""
    machines = Machines()
    machines.machine(home="n1")
    forged = {
        **controller("VirtualMachineInstance", "mine", api_version=KUBEVIRT),
        "uid": "uid-VirtualMachineInstance-db",
    }

    assert [(INSTANCE, "default", "mine")] == list(machines.plugin.required_objects(launcher(owner=forged)))
