"""``homeport homes`` on a real API server: what a person sees, and what a person's own rights let him change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.__main__ import main
from app.kube.homes_v1alpha1 import memory_name
from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt
from tests.integration.test_spread_stories import make_zones

ROOT = Path(__file__).parents[2]
StartHomeport = Callable[..., Homeport]
Told = tuple[int, str, str]

READS = {"apiGroups": ["", "kubevirt.io"], "resources": ["nodes", "virtualmachines"], "verbs": ["get"]}
PATCHES = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["get", "patch"]}


class Person:
    """Somebody at a terminal, with a kubeconfig."""

    def __init__(self, homeport: Homeport, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._homeport = homeport
        self._kubeconfig = kubeconfig
        self._capsys = capsys

    def sees(self, *asked: str) -> list[dict[str, Any]]:
        """The homes listed."""
        code, out, err = self._ran("homes", *asked, "-n", "default", "-o", "json")
        assert (0, "") == (code, err)
        items: list[dict[str, Any]] = json.loads(out)["items"]
        return items

    def drains(self, node: str) -> dict[str, tuple[str, str]]:
        """Outcome and node of each pod, by the name of its machine. One would wait, so the exit code is 1."""
        code, out, err = self._ran("drain", node, "-o", "json")
        assert (1, "") == (code, err)
        (item,) = json.loads(out)["items"]
        return {it["home"]["owner"]["name"]: (it["outcome"], it["nodeName"]) for it in item["pods"]}

    def does(self, *asked: str) -> Told:
        """A change: exit code, output, errors."""
        return self._ran("homes", *asked, "--kubeconfig", str(self._kubeconfig))

    def _ran(self, *asked: str) -> Told:
        self._capsys.readouterr()
        code = main([*asked, "--server", self._homeport.pages, "-q"])
        out, err = self._capsys.readouterr()
        return code, out, err


def create_machine(client: Client, name: str, home: str) -> dict[str, Any]:
    """A machine whose home somebody wrote."""
    machine = objects.virtual_machine(name)
    machine["metadata"]["annotations"] = {HOME: home, f"{HOME}-pod": "heard-once"}
    return client.create(machine)


def annotations(client: Client, name: str) -> dict[str, str]:
    return dict(client.get("VirtualMachine", name)["metadata"].get("annotations", {}))


def is_refused(client: Client, pod: str) -> bool:
    conditions = client.get("Pod", pod)["status"].get("conditions", [])
    return any(it["type"] == "PodScheduled" and it["status"] == "False" for it in conditions)


def test_a_person_sees_moves_keeps_and_releases_homes(
    plane: ControlPlane, start_homeport: StartHomeport, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine waits for a node that is gone; a person finds it, moves it, and it starts there."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2})
    machine = create_machine(client, "db01", "node-that-is-gone")
    homeport = start_homeport()
    person = Person(homeport, plane.kubeconfig, capsys)

    with start_scheduler(plane, homeport):
        launcher = boot(client, machine, "first")
        client.wait_for(lambda: is_refused(client, launcher), what="the pod to be refused")
        client.wait_for(
            lambda: [(it["owner"]["name"], it["machine"]) for it in person.sees("--orphaned")] == [("db01", "waiting")],
            what="the machine to be listed as one that waits for a node that is gone",
        )

        wrong = person.does("move", "vm/db01", "zone-a-7")
        assert (3, "", "homeport: there is no node zone-a-7: --force skips this check\n") == wrong
        assert "node-that-is-gone" == home_of(client, "db01")

        told = "VirtualMachine default/db01: the home is zone-a-1 now, it was node-that-is-gone\n"
        assert (0, told, "") == person.does("move", "vm/db01", "zone-a-1")
        assert "zone-a-1" == client.wait_bound(launcher)

    client.wait_for(
        lambda: [(it["machine"], it["pod"]) for it in person.sees("--node", "zone-a-1")] == [("at_home", launcher)],
        what="the machine to be listed at home",
    )
    assert (0, "VirtualMachine default/db01: zone-a-1 is the home already\n", "") == person.does("keep", "vm/db01")

    assert (0, "VirtualMachine default/db01: the home is zone-a-0 now, it was zone-a-1\n", "") == person.does(
        "move", "vm/db01", "zone-a-0"
    )
    client.wait_for(
        lambda: [it["contradiction"] for it in person.sees("--contradictory")] == ["its pod runs on zone-a-1"],
        what="the contradiction to be listed",
    )
    assert (0, "VirtualMachine default/db01: the home is zone-a-1 now, it was zone-a-0\n", "") == person.does(
        "keep", "VirtualMachine/db01"
    )

    heard = annotations(client, "db01")[f"{HOME}-pod"]
    code, out, _ = person.does("release", "virtualmachines.kubevirt.io/db01")
    assert (0, "VirtualMachine default/db01: zone-a-1 is no longer the home; the next bind creates a new one\n") == (
        code,
        out,
    )
    found = annotations(client, "db01")
    assert (None, heard) == (found.get(HOME), found[f"{HOME}-pod"])
    client.wait_for(lambda: person.sees() == [], what="the home to be listed no more")
    assert (3, "", "homeport: VirtualMachine default/db01 has no home\n") == person.does("release", "vm/db01")
    assert (3, "", "homeport: there is no VirtualMachine default/db02\n") == person.does("release", "vm/db02")


def test_a_machine_that_is_gone_is_forgotten_only_when_a_person_says_so(
    plane: ControlPlane, start_homeport: StartHomeport, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed as long as it is remembered; made anew after that, it has no home."""
    client = plane.client
    install_kubevirt(client)
    client.install(yaml.safe_load((ROOT / "helm" / "homeport" / "crds" / "homes.yaml").read_text()))
    make_zones(plane, {"zone-a": 1})
    create_machine(client, "db01", "zone-a-0")
    name = memory_name("kubevirt.io/v1", "VirtualMachine", "db01", "")
    homeport, nobody = start_homeport(), Account(plane, "homes-nobody")
    person = Person(homeport, plane.kubeconfig, capsys)
    client.wait_for(lambda: client.find("Home", name) is not None, what="the home to be remembered")

    client.delete("VirtualMachine", "db01")
    client.wait_for(
        lambda: (
            [(it["owner"]["name"], it["node"], it["state"]) for it in person.sees("--orphaned")]
            == [("db01", "zone-a-0", "owner_gone")]
        ),
        what="the home to be listed as one that is remembered",
    )
    assert (
        3,
        "",
        "homeport: VirtualMachine default/db01 is gone, and its home is remembered; release forgets it\n",
    ) == (person.does("keep", "vm/db01"))
    nobody.may([{**READS, "verbs": ["get"]}])
    code, _, err = Person(homeport, nobody.kubeconfig, capsys).does("release", "vm/db01")
    assert (3, True) == (code, 'cannot get resource "homes" in API group "homeport.dev"' in err)

    told = "VirtualMachine default/db01 is gone: its remembered home zone-a-0 was removed\n"
    assert (0, told, "") == person.does("release", "vm/db01")
    assert client.find("Home", name) is None
    client.wait_for(lambda: person.sees() == [], what="the home to be listed no more")
    assert (3, "", "homeport: there is no VirtualMachine default/db01\n") == person.does("release", "vm/db01")


def test_a_person_may_change_what_the_person_may_change(
    plane: ControlPlane, start_homeport: StartHomeport, capsys: pytest.CaptureFixture[str]
) -> None:
    """Homeport may patch machines; who has no such right gets none by its command."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2})
    create_machine(client, "db01", "zone-a-0")
    homeport = start_homeport()
    reader, editor = Account(plane, "homes-reader"), Account(plane, "homes-editor")
    reader.may([READS])
    editor.may([PATCHES])

    code, out, err = Person(homeport, reader.kubeconfig, capsys).does("release", "vm/db01")
    assert (3, "", "zone-a-0") == (code, out, home_of(client, "db01"))
    assert err.startswith("homeport: VirtualMachine default/db01: the API server refused: ")
    assert 'User "system:serviceaccount:default:homes-reader" cannot patch resource "virtualmachines"' in err

    person = Person(homeport, editor.kubeconfig, capsys)
    told = (
        "homeport: you are not allowed to get nodes, so node zone-a-1 could not be checked: --force skips this check\n"
    )
    assert (3, "", told) == person.does("move", "vm/db01", "zone-a-1")
    assert 0 == person.does("move", "vm/db01", "zone-a-1", "--force")[0]
    assert "zone-a-1" == home_of(client, "db01")


def test_what_a_drain_says_is_what_becomes_of_the_machines(
    plane: ControlPlane, start_homeport: StartHomeport, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each of three would find room elsewhere, all three do not: the two that it names go where it says."""
    client = plane.client
    install_kubevirt(client)
    for name, cpu in (("large", "64"), ("small", "2")):
        client.create_node(objects.node(name, cpu=cpu, memory="64Gi", pods="110"))
    profile = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "StickyNode", "args": {"policy": "soft"}}],
    }
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config = tmp_path / "homeport.yaml"
    config.write_text(yaml.safe_dump({**head, "explain": "complete", "profiles": [profile]}))
    homeport = start_homeport(f"--config={config}")
    person = Person(homeport, plane.kubeconfig, capsys)
    names = [f"db0{number}" for number in range(3)]

    with start_scheduler(plane, homeport):
        launchers = {}
        for name in names:
            machine = create_machine(client, name, "large")
            instance = client.create(objects.virtual_machine_instance(name, machine["metadata"]["uid"]))
            launcher = client.create(objects.launcher_pod(instance, suffix="first", requests={"cpu": "1"}))
            launchers[name] = launcher["metadata"]["name"]
        assert ["large"] * 3 == [client.wait_bound(it) for it in launchers.values()]
        client.wait_for(lambda: len(person.sees("--node", "large")) == 3, what="all to be listed at home")

        plan = person.drains("large")
        assert [("placed", "small"), ("placed", "small"), ("waiting", "")] == [plan[name] for name in names]

        client.patch("Node", "large", {"spec": {"unschedulable": True}})
        again = {}
        for name in names:
            client.delete("Pod", launchers[name])
            instance = client.get("VirtualMachineInstance", name)
            launcher = client.create(objects.launcher_pod(instance, suffix="second", requests={"cpu": "1"}))
            again[name] = launcher["metadata"]["name"]
            if plan[name][1]:
                assert plan[name][1] == client.wait_bound(again[name])
        client.wait_for(lambda: is_refused(client, again["db02"]), what="the third to be refused")
        assert "" == client.node_of(again["db02"])
