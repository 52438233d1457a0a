"""Whose word is taken for a machine's home on a real API server, and what happens where it may not be written."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt, shut_down
from tests.integration.test_spread_stories import make_zones

StartHomeport = Callable[..., Homeport]
NO_PATCH = [
    {"apiGroups": ["", "apps", "kubevirt.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]
PATCH = {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["patch"]}


def often(folder: Path, **args: object) -> str:
    """The flag for a repair every second, and for these arguments of StickyNode."""
    settings = folder / "homeport.yaml"
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "StickyNode", "args": args}]}
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    settings.write_text(json.dumps({**head, "repairInterval": "1s", "profiles": [profile]}))
    return f"--config={settings}"


def create_machine(client: Client, name: str) -> dict[str, Any]:
    """A machine that is started; returns its instance."""
    machine = client.create(objects.virtual_machine(name))
    return client.create(objects.virtual_machine_instance(name, machine["metadata"]["uid"]))


def place(client: Client, instance: dict[str, Any], suffix: str, node: str, home: str) -> str:
    """A launcher that is on a node and says that it brings a home. Whoever may create pods can make one."""
    pod = objects.launcher_pod(instance, suffix=suffix, node_name=node)
    pod["metadata"]["annotations"][HOME] = home
    return str(client.create(pod)["metadata"]["name"])


def repaired(client: Client, name: str, node: str = "zone-b-0") -> None:
    """Return once a home that is to be copied was copied: all machines of names before it have been looked at."""
    place(client, create_machine(client, name), "first", node, node)
    client.wait_for(lambda: home_of(client, name) == node, what="the repair to come by")


def release(client: Client, name: str) -> None:
    client.patch("VirtualMachine", name, {"metadata": {"annotations": {HOME: None}}})


def boot_gated(client: Client, machine: str) -> str:
    """Another launcher, which no scheduler looks at."""
    instance = client.get("VirtualMachineInstance", machine)
    launcher = objects.launcher_pod(instance, suffix="gated", gates=["example.com/wait"])
    return str(client.create(launcher)["metadata"]["name"])


def explained(homeport: Homeport, pod: str) -> dict[str, Any]:
    asked = {"namespace": "default", "name": pod}
    answer = HTTP.post(f"{homeport.url}/api/v1/explain", json=asked).raise_for_status()
    return dict(answer.json()["plugins"]["StickyNode"]["tables"][0])


def lines(homeport: Homeport, event: str) -> list[dict[str, Any]]:
    """What the log says of an event, less the time."""
    said = [json.loads(line) for line in homeport.log().splitlines() if line.startswith("{")]
    return [{key: it[key] for key in it if key != "timestamp"} for it in said if it["event"] == event]


def test_a_forged_launcher_moves_nobodys_home(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """A machine runs on zone-a-0 without a home, as nobody adopts it; pods that name its instance say otherwise."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    instance = create_machine(client, "a-machine")
    place(client, instance, "real", "zone-a-0", "")
    client.patch_status("VirtualMachineInstance", "a-machine", {"nodeName": "zone-a-0"})
    for number, (node, home) in enumerate((("zone-a-1", "zone-a-1"), ("zone-a-0", "anywhere"), ("gone", "gone"))):
        place(client, instance, f"forged-{number}", node, home)
    waiting = create_machine(client, "b-not-ready")
    place(client, waiting, "forged", "gone", "gone")

    with start_scheduler(plane, start_homeport(often(tmp_path, adopt=False))):
        forged = objects.launcher_pod(instance, suffix="bound", node_selector={objects.HOSTNAME_LABEL: "zone-a-1"})
        client.create(forged)
        assert client.wait_bound(forged["metadata"]["name"]) == "zone-a-1"
        repaired(client, "c-machine")
        assert {home_of(client, name) for name in ("a-machine", "b-not-ready")} == {""}

        client.patch_status("VirtualMachineInstance", "a-machine", {"nodeName": "zone-a-1"})
        client.wait_for(lambda: home_of(client, "a-machine") == "zone-a-1", what="the pod where it runs to be believed")


def test_a_released_home_stays_released(plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path) -> None:
    """Two pods of one machine brought its home, one of them was heard: the other does not bring it back."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    instance = create_machine(client, "a-machine")
    pods = [place(client, instance, suffix, "zone-a-0", "zone-a-0") for suffix in ("first", "second")]
    homeport = start_homeport(often(tmp_path))
    client.wait_for(lambda: home_of(client, "a-machine") == "zone-a-0", what="the home to be recorded")

    release(client, "a-machine")
    repaired(client, "b-machine")
    client.delete("Pod", pods[0])
    repaired(client, "c-machine")
    homeport.kill()
    homeport.start()
    repaired(client, "d-machine")
    assert home_of(client, "a-machine") == ""

    client.delete("Pod", pods[1])
    with start_scheduler(plane, homeport):
        pod = objects.launcher_pod(instance, suffix="next", node_selector={objects.HOSTNAME_LABEL: "zone-b-0"})
        client.create(pod)
        client.wait_for(lambda: home_of(client, "a-machine") == "zone-b-0", what="the next first bind to make a home")


def test_a_home_that_may_not_be_written(plane: ControlPlane, tmp_path: Path) -> None:
    """It holds, explain says what filter goes by, and the log says it once; with the right it is written and told."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    machine = client.create(objects.virtual_machine("db01"))
    account = Account(plane, "homeport-without-machines")
    account.may(NO_PATCH)

    with Homeport(account.kubeconfig, tmp_path, [often(tmp_path)]) as homeport, start_scheduler(plane, homeport):
        first = boot(client, machine, "first")
        home = client.wait_bound(first)
        shut_down(client, "db01", first)
        second = boot(client, machine, "second")
        assert client.wait_bound(second) == home

        client.patch_status("VirtualMachineInstance", "db01", {"nodeName": home})
        third = boot_gated(client, "db01")
        (warning,) = client.wait_for(lambda: lines(homeport, "home not recorded"), what="a warning")
        time.sleep(3.0)  # some repairs try again
        told = explained(homeport, third)["rows"]

        cause = warning.pop("cause")
        assert 'cannot patch resource "virtualmachines"' in cause
        named = {"machine": "VirtualMachine default/db01", "pod": f"default/{first}"}
        assert warning == {"event": "home not recorded", "level": "warning", "verb": "patch", **named}
        assert [(row[0], row[1], *row[-2:]) for row in told] == [
            (named["machine"], home, False, f"default/{second} on {home}, not recorded: {cause}")
        ]
        assert len(lines(homeport, "home not recorded")) == 1
        assert "Traceback" not in homeport.log()

        account.may([*NO_PATCH, PATCH])
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be recorded")
        other = "zone-a-0" if home == "zone-b-0" else "zone-b-0"
        client.patch("VirtualMachine", "db01", {"metadata": {"annotations": {HOME: other}}})
        release(client, "db01")
        client.wait_for(lambda: lines(homeport, "home given up"), what="the release to be told")
        said = {event: lines(homeport, event) for event in ("home made", "home moved", "home given up")}

    assert [(it["machine"], it["node"]) for it in said["home made"]] == [("VirtualMachine default/db01", home)]
    assert [(it["before"], it["node"]) for it in said["home moved"]] == [(home, other)]
    assert [it["node"] for it in said["home given up"]] == [other]
