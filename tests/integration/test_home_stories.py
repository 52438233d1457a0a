"""A virtual machine comes back to the node it lived on, through kills and restarts of Homeport."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_spread_stories import make_zones, wait_all_bound

StartHomeport = Callable[..., Homeport]
HOME = "homeport.dev/home"


def install_kubevirt(client: Client) -> None:
    """The kinds of KubeVirt, without its controllers."""
    for definition in objects.kubevirt_definitions():
        client.install(definition)


def boot(client: Client, machine: dict[str, Any], suffix: str, scheduler_name: str = "default-scheduler") -> str:
    """What KubeVirt does to start a machine: an instance and its launcher pod. Returns the pod's name."""
    name = machine["metadata"]["name"]
    instance = client.create(objects.virtual_machine_instance(name, machine["metadata"]["uid"]))
    launcher = client.create(objects.launcher_pod(instance, suffix=suffix, scheduler_name=scheduler_name))
    return str(launcher["metadata"]["name"])


def shut_down(client: Client, name: str, launcher: str) -> None:
    """What remains of a stopped machine is its VirtualMachine."""
    client.delete("Pod", launcher)
    client.delete("VirtualMachineInstance", name)


def home_of(client: Client, name: str) -> str:
    """The home recorded on a VirtualMachine."""
    annotations = client.get("VirtualMachine", name)["metadata"].get("annotations", {})
    return str(annotations.get(HOME, ""))


STARTS = 10


def test_a_machine_returns_home_although_other_nodes_are_emptier(
    plane: ControlPlane, start_homeport: StartHomeport
) -> None:
    """The first bind writes the home on pod and machine; every later boot goes there, ever more crowded as it is."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    machine = client.create(objects.virtual_machine("db01"))

    with start_scheduler(plane, start_homeport()):
        first = boot(client, machine, "first")
        home = client.wait_bound(first)
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
        assert client.get("Pod", first)["metadata"]["annotations"][HOME] == home
        launcher = first
        for number in range(STARTS):
            shut_down(client, "db01", launcher)
            client.create(objects.pod(f"crowd-{number}", node_name=home, requests={"cpu": "1"}))
            launcher = boot(client, machine, f"again-{number}")
            assert (number, client.wait_bound(launcher)) == (number, home)
        assert home_of(client, "db01") == home


def test_without_kubevirt_everything_else_works(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Kinds that the API server does not serve count as empty: Homeport gets ready and pods are placed."""
    for definition in objects.kubevirt_definitions():
        if plane.client.find("CustomResourceDefinition", definition["metadata"]["name"]):
            plane.client.delete("CustomResourceDefinition", definition["metadata"]["name"])
    make_zones(plane, {"zone-a": 1})
    homeport = start_homeport()

    with start_scheduler(plane, homeport):
        plane.client.create(objects.pod("web"))
        assert plane.client.wait_bound("web") == "zone-a-0"

    assert homeport.get("/api/v1/status")["feeds"]["kubevirt.io/v1 VirtualMachine"]["state"] == "not_served"


def test_a_crash_in_the_middle_loses_nothing(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Killed and restarted among 200 pods: all are bound, evenly, and every machine's home is where its pod is."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 4, "zone-b": 4, "zone-c": 4})
    labels = {"app": "web"}
    machines = [client.create(objects.virtual_machine(f"vm{number}")) for number in range(20)]
    web = [f"web-{number}" for number in range(180)]
    homeport = start_homeport()
    launchers: dict[str, str] = {}

    with start_scheduler(plane, homeport):
        for number, name in enumerate(web):
            client.create(objects.pod(name, labels=labels, spread_constraints=[objects.spread(labels)]))
            if number % 9 == 0:
                machine = machines[number // 9]
                launchers[machine["metadata"]["name"]] = boot(client, machine, "first")
            if number == 90:
                homeport.kill()
        homeport.start()
        bound = wait_all_bound(plane, [*web, *launchers.values()], timeout=90)

    assert Counter(zones[bound[name]] for name in web) == {"zone-a": 60, "zone-b": 60, "zone-c": 60}
    expected = {name: bound[launcher] for name, launcher in launchers.items()}
    client.wait_for(
        lambda: {name: home_of(client, name) for name in expected} == expected, what="every home to be recorded"
    )
    assert homeport.get("/api/v1/check") == {"consistent": True, "differences": []}
