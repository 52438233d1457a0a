"""Whose a home is, and where it goes: clones, migrations and machines that ran before Homeport came.

The test plays KubeVirt's controllers, in their order of writes: a target pod is bound and ready, the instance names it
in ``status.migrationState``, and ``status.nodeName`` moves once the machine runs there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt, shut_down
from tests.integration.test_home_trust import create_machine, lines, often, place, release, repaired
from tests.integration.test_spread_stories import make_zones

StartHomeport = Callable[..., Homeport]
ROOT: Final = Path(__file__).parents[2]
HOME_OWNER = "homeport.dev/home-owner"
HOME_POD = "homeport.dev/home-pod"


def annotations(client: Client, name: str) -> dict[str, str]:
    return dict(client.get("VirtualMachine", name)["metadata"].get("annotations", {}))


def events_about(client: Client, name: str) -> set[str]:
    """The reasons of the Events about a machine."""
    found = client.request("GET", "/apis/events.k8s.io/v1/events")["items"]
    return {it["reason"] for it in found if it.get("regarding", {}).get("name") == name}


def seen(client: Client, name: str, event: str) -> None:
    client.wait_for(lambda: event in events_about(client, name), what=f"{event} about {name}")


def wait_home(client: Client, name: str, node: str) -> None:
    client.wait_for(lambda: home_of(client, name) == node, what=f"the home of {name} to be {node or 'none'}")


def wait_seal(client: Client, name: str, mark: str) -> None:
    """Until Homeport has seen the home as it is."""
    client.wait_for(lambda: annotations(client, name)[HOME_OWNER] == mark, what=f"{mark} beside the home of {name}")


def running(client: Client, machine: dict[str, Any], suffix: str) -> tuple[str, str]:
    """A machine that has started, as KubeVirt tells of it; returns its pod and its node."""
    pod = boot(client, machine, suffix)
    node = client.wait_bound(pod)
    client.patch_status("VirtualMachineInstance", machine["metadata"]["name"], {"nodeName": node})
    return pod, node


def migrate(client: Client, name: str, node: str, number: int) -> str:
    """The target pod of a migration, placed on a node other than the machine's, and handed over to."""
    instance = client.get("VirtualMachineInstance", name)
    labels = {"kubevirt.io/migrationJobUID": f"migration-{number}"}
    target = objects.launcher_pod(instance, suffix=f"target-{number}", labels=labels, node_name=node)
    pod = str(client.create(target)["metadata"]["name"])
    told(client, name, instance["status"]["nodeName"], node, number)
    return pod


def told(client: Client, name: str, source: str, target: str, number: int, **more: object) -> None:
    state = {"sourceNode": source, "targetNode": target, "migrationUid": f"migration-{number}", **more}
    client.patch_status("VirtualMachineInstance", name, {"migrationState": state})


def succeed(client: Client, name: str, source: str, target: str, number: int) -> None:
    client.patch_status("VirtualMachineInstance", name, {"nodeName": target})
    told(client, name, source, target, number, completed=True)


def fail(client: Client, name: str, source: str, target: str, number: int) -> None:
    """KubeVirt calls it completed as well."""
    told(client, name, source, target, number, completed=True, failed=True)
    client.delete("Pod", f"virt-launcher-{name}-target-{number}")


def test_a_clone_does_not_inherit_and_a_person_may_give_it_what_was_copied(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    machine = client.create(objects.virtual_machine("db01"))

    with start_scheduler(plane, start_homeport(often(tmp_path))):
        _, home = running(client, machine, "first")
        wait_home(client, "db01", home)
        uid = machine["metadata"]["uid"]
        assert annotations(client, "db01")[HOME_OWNER] == f"{uid} {home}"

        clone = objects.virtual_machine("clone")
        clone["metadata"]["annotations"] = annotations(client, "db01")
        created = client.create(clone)
        seen(client, "clone", "HomeNotInherited")
        client.wait_for(lambda: annotations(client, "clone") == {}, what="the copied home to be removed")

        other = next(it for it in ("zone-a-0", "zone-b-0") if it != home)
        client.patch("Node", home, {"spec": {"unschedulable": True}})
        assert running(client, created, "first")[1] == other
        wait_home(client, "clone", other)
        assert home_of(client, "db01") == home

        client.patch("VirtualMachine", "clone", {"metadata": {"annotations": {HOME: home}}})
        owner = created["metadata"]["uid"]
        client.wait_for(lambda: annotations(client, "clone")[HOME_OWNER] == f"{owner} {home}", what="the person's word")


def test_a_home_follows_a_migration_that_succeeds_and_no_other(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """It fails, is retried, the machine is restarted after each, and Homeport crashes in the middle."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1})
    machine = client.create(objects.virtual_machine("db01"))
    homeport = start_homeport(often(tmp_path))

    with start_scheduler(plane, homeport):
        source, home = running(client, machine, "first")
        wait_home(client, "db01", home)
        target = next(it for it in ("zone-a-0", "zone-b-0", "zone-c-0") if it != home)

        migrate(client, "db01", target, 1)
        fail(client, "db01", home, target, 1)
        shut_down(client, "db01", source)
        source, node = running(client, machine, "second")
        assert (node, home_of(client, "db01")) == (home, home)

        moved = migrate(client, "db01", target, 2)
        homeport.kill()
        succeed(client, "db01", home, target, 2)
        client.delete("Pod", source)
        homeport.start()
        wait_home(client, "db01", target)
        seen(client, "db01", "HomeFollowed")
        shut_down(client, "db01", moved)
        assert running(client, machine, "third")[1] == target


def install_memory(client: Client) -> None:
    """As the chart does."""
    client.install(yaml.safe_load((ROOT / "helm/homeport/crds/homes.yaml").read_text()))


def remembered(client: Client) -> dict[str, str]:
    """Names of machines and the nodes that are remembered of them."""
    found = client.request("GET", "/apis/homeport.dev/v1alpha1/namespaces/default/homes")["items"]
    return {it["spec"]["owner"]["name"]: it["spec"]["node"] for it in found}


def test_a_machine_made_anew_under_its_name_comes_home_unless_it_was_released(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Deleted while Homeport is away, and created again: empty, or from a backup that names an older home."""
    client = plane.client
    install_kubevirt(client)
    install_memory(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2})
    homeport = start_homeport(often(tmp_path))

    with start_scheduler(plane, homeport):
        machines = {name: client.create(objects.virtual_machine(name)) for name in ("db01", "restored", "released")}
        pods = {name: running(client, machine, "first") for name, machine in machines.items()}
        homes = {name: node for name, (_, node) in pods.items()}
        client.wait_for(lambda: remembered(client) == homes, what="all homes to be remembered")
        release(client, "released")
        kept = {name: homes[name] for name in ("db01", "restored")}
        client.wait_for(lambda: remembered(client) == kept, what="the released home to be forgotten")

        homeport.kill()
        for name, (pod, _) in pods.items():
            shut_down(client, name, pod)
            client.delete("VirtualMachine", name)
        for number in range(4):
            client.create(objects.pod(f"crowd-{number}", node_name=homes["db01"], requests={"cpu": "1"}))
        again = client.create(objects.virtual_machine("db01"))
        client.create(objects.virtual_machine("released"))
        older = next(it for it in ("zone-a-0", "zone-b-0") if it != homes["restored"])
        backup = objects.virtual_machine("restored")
        former = machines["restored"]["metadata"]["uid"]
        backup["metadata"]["annotations"] = {HOME: older, HOME_POD: "a-pod-of-then", HOME_OWNER: f"{former} {older}"}
        restored = client.create(backup)
        homeport.start()

        assert running(client, again, "second")[1] == homes["db01"]
        wait_seal(client, "db01", f"{again['metadata']['uid']} {homes['db01']}")
        seen(client, "db01", "HomeRemembered")
        assert running(client, restored, "second")[1] == homes["restored"]
        wait_seal(client, "restored", f"{restored['metadata']['uid']} {homes['restored']}")
        seen(client, "restored", "HomeNotInherited")
        seen(client, "restored", "HomeRemembered")
        assert home_of(client, "released") == ""
        assert remembered(client) == kept


def test_without_the_definition_homes_end_with_their_owners(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """It is said once, and everything else works."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1})
    homeport = start_homeport(often(tmp_path))

    with start_scheduler(plane, homeport):
        running(client, client.create(objects.virtual_machine("db01")), "first")
        wait_home(client, "db01", "zone-a-0")
        client.wait_for(lambda: lines(homeport, "homes not remembered"), what="the log to say so")
        for another in ("db02", "db03"):
            repaired(client, another, "zone-a-0")

    (said,) = lines(homeport, "homes not remembered")
    assert said["cause"] == "homeport.dev/v1alpha1 Home is not served by the API server"


def test_machines_that_run_are_adopted_unless_released(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """They ran before Homeport came; one of them a person had released from an earlier one."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    for name in ("a-released", "b-machine", "c-given"):
        place(client, create_machine(client, name), "first", "zone-a-1", "")
        client.patch_status("VirtualMachineInstance", name, {"nodeName": "zone-a-1"})
    client.patch("VirtualMachine", "a-released", {"metadata": {"annotations": {HOME_POD: "an earlier one"}}})
    client.patch("VirtualMachine", "c-given", {"metadata": {"annotations": {HOME: "zone-b-0"}}})

    homeport = start_homeport(often(tmp_path))
    wait_home(client, "b-machine", "zone-a-1")
    seen(client, "b-machine", "HomeAdopted")
    client.wait_for(lambda: HOME_OWNER in annotations(client, "c-given"), what="all machines to have been looked at")
    assert [home_of(client, it) for it in ("a-released", "c-given")] == ["", "zone-b-0"]

    release(client, "b-machine")
    client.wait_for(lambda: lines(homeport, "home given up"), what="the release to be told")
    homeport.kill()
    homeport.start()
    place(client, create_machine(client, "d-machine"), "first", "zone-a-0", "")
    client.patch_status("VirtualMachineInstance", "d-machine", {"nodeName": "zone-a-0"})
    wait_home(client, "d-machine", "zone-a-0")
    assert home_of(client, "b-machine") == ""
