"""From a pod to the object that keeps its home."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES as NODES_KIND
from plugins.sticky_node.plugin import REASON_OWNER_UNKNOWN
from tests.builders import JsonObject, controller
from tests.unit.plugins.sticky_node.machines import (
    DATABASE,
    INSTANCE,
    KUBEVIRT,
    MACHINE,
    NODES,
    SET,
    Machines,
    launcher,
    make_pod,
    reference,
)

ALL = list(NODES)
SETS: JsonObject = {"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]}
DATABASES: JsonObject = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]}


def nothing(machines: Machines) -> None:
    """No owner is in the picture."""


def instance_only(machines: Machines) -> None:
    machines.add_owned(INSTANCE, reference(MACHINE))


def instance_of_its_own(machines: Machines) -> None:
    machines.add(INSTANCE)


def instance_of_a_pool(machines: Machines) -> None:
    machines.add_owned(INSTANCE, controller("VirtualMachinePool", "db", api_version="pool.kubevirt.io/v1"))


def machine_without_home(machines: Machines) -> None:
    machines.machine()


def machine_at_home(machines: Machines) -> None:
    machines.machine(home="n2")


def machine_whose_home_is_gone(machines: Machines) -> None:
    machines.machine(home="n9")


def instance_without_a_uid_of_its_owner(machines: Machines) -> None:
    machines.add(MACHINE, home="n3")
    machines.add_owned(INSTANCE, {**reference(MACHINE), "uid": ""})


def machine_made_anew(machines: Machines) -> None:
    """The instance still refers to an earlier machine of that name."""
    machines.add(MACHINE, home="n2")
    machines.add_owned(INSTANCE, controller("VirtualMachine", "db", api_version=KUBEVIRT))


@pytest.mark.parametrize(
    ("there", "pod", "allowed", "missing"),
    [
        pytest.param(nothing, make_pod(), ALL, None, id="a pod of nobody"),
        pytest.param(
            nothing, make_pod(owner=controller("ReplicaSet", "web")), ALL, None, id="a pod of a kind without homes"
        ),
        pytest.param(
            machine_at_home,
            make_pod(owner={**reference(INSTANCE), "controller": False}),
            ALL,
            None,
            id="an owner that is not the controller",
        ),
        pytest.param(
            machine_at_home,
            make_pod(owner={**reference(INSTANCE), "apiVersion": "kubevirt.io/v1alpha3"}),
            ALL,
            None,
            id="another version of the kind",
        ),
        pytest.param(machine_without_home, launcher(), ALL, None, id="a machine without a home"),
        pytest.param(machine_at_home, launcher(), ["n2"], None, id="a machine with a home"),
        pytest.param(machine_whose_home_is_gone, launcher(), [], None, id="a machine whose home is gone: hard policy"),
        pytest.param(instance_of_its_own, launcher(), ALL, None, id="an instance without a machine"),
        pytest.param(instance_of_a_pool, launcher(), ALL, None, id="an instance of something else"),
        pytest.param(nothing, launcher(), REASON_OWNER_UNKNOWN, INSTANCE, id="the instance is not there yet"),
        pytest.param(instance_only, launcher(), REASON_OWNER_UNKNOWN, MACHINE, id="the machine is not there yet"),
        pytest.param(machine_made_anew, launcher(), REASON_OWNER_UNKNOWN, MACHINE, id="a machine of another UID"),
        pytest.param(
            instance_without_a_uid_of_its_owner, launcher(), REASON_OWNER_UNKNOWN, MACHINE, id="a link without UID"
        ),
        *(
            pytest.param(
                machine_at_home,
                make_pod(owner={**reference(INSTANCE), "uid": uid}),
                REASON_OWNER_UNKNOWN,
                INSTANCE,
                id=f"an instance of the UID {uid!r}",
            )
            for uid in ("earlier", "")
        ),
        pytest.param(
            machine_at_home,
            make_pod(namespace="shop", owner=reference(INSTANCE)),
            REASON_OWNER_UNKNOWN,
            INSTANCE,
            id="owners live in the pod's own namespace",
        ),
    ],
)
def test_virtual_machines(
    there: Callable[[Machines], None], pod: Pod, allowed: list[str] | str, missing: object
) -> None:
    machines = Machines()
    there(machines)

    assert allowed == machines.allowed(pod)
    required = [it for it in machines.plugin.required_objects(pod) if it[0] != NODES_KIND]
    assert ([] if missing is None else [(missing, pod.namespace, "db")]) == required


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        pytest.param("db-0", ["n1"], id="ordinal 0"),
        pytest.param("db-3", ["n3"], id="ordinal 3"),
        pytest.param("db-1", ALL, id="an ordinal without a home"),
        pytest.param("db-03", ALL, id="another spelling is another ordinal"),
        pytest.param("db", ALL, id="a name without ordinal"),
        pytest.param("db-x", ALL, id="a name that ends otherwise"),
        pytest.param("db-\u0663", ALL, id="a digit of another script"),
        pytest.param("7", ALL, id="a number alone"),
        pytest.param("evil-3", ALL, id="a pod that the set would not name so"),
    ],
)
def test_each_ordinal_of_a_stateful_set_has_a_home_of_its_own(name: str, allowed: list[str]) -> None:
    machines = Machines(SETS)
    machines.add(SET, **{"home.0": "n1", "home.3": "n3", "home": "n2"})

    assert allowed == machines.allowed(make_pod(name, owner=reference(SET)))


def test_no_owner_is_looked_up_for_a_pod_it_cannot_matter_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another tenant may be unreadable, and is no matter of ours."""
    mine, of_none = make_pod("mine", owner=reference(DATABASE)), make_pod("of-none")
    elsewhere = make_pod("theirs", namespace="other", owner=reference(DATABASE))
    machines = Machines(DATABASES)

    def unreadable(*_: object) -> None:
        raise Unreadable("Database", "other/db", "odd")

    monkeypatch.setattr(machines.cluster, "get", unreadable)

    found = [machines.plugin.depends_on(*it) for it in ((mine, elsewhere), (of_none, mine), (mine, of_none))]
    assert [False, False, False] == found
    with pytest.raises(Unreadable):
        machines.plugin.depends_on(mine, mine)
