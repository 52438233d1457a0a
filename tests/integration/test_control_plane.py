"""The throw-away control plane keeps its own promises; Homeport takes no part in these."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.controlplane import objects
from tests.controlplane.client import ApiError
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import StartError

ORPHANING_TEST = """
import os, signal
from tests.controlplane.controlplane import ControlPlane
plane = ControlPlane()
plane.start()
plane.start_scheduler()
print(plane.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_stock_scheduler_binds_a_pod(plane: ControlPlane) -> None:
    """Three nodes, one scheduler without an extender, one pod: it is bound to one of them, and the event says so."""
    for name in ("node-a", "node-b", "node-c"):
        plane.client.create_node(objects.node(name, zone=f"zone-{name[-1]}"))

    with plane.start_scheduler() as scheduler:
        plane.client.create(objects.pod("web", requests={"cpu": "1"}))
        bound_to = plane.client.wait_bound("web")
        plane.client.wait_for(lambda: plane.client.events("web"), what="an event")

    assert bound_to in {"node-a", "node-b", "node-c"}
    assert [event["reason"] for event in plane.client.events("web")] == ["Scheduled"]
    assert "Successfully bound pod to node" in scheduler.log()


def test_a_pod_that_fits_nowhere_is_told_why(plane: ControlPlane) -> None:
    """`wait_bound` fails with the events of the pod, so that a failing test says what the scheduler said."""
    plane.client.create_node(objects.node("node-a", cpu="1"))
    plane.client.create(objects.pod("big", requests={"cpu": "2"}))

    with plane.start_scheduler():
        plane.client.wait_for(lambda: plane.client.events("big"), what="an event")

    with pytest.raises(TimeoutError, match=r"default/big to be bound\nFailedScheduling: 0/1 nodes are available"):
        plane.client.wait_bound("big", timeout=0)


def test_the_apiserver_returns_with_its_data(plane: ControlPlane) -> None:
    """A restart keeps objects, address, certificate and token: clients of before go on."""
    plane.client.create_node(objects.node("node-a", cpu="3"))
    server = plane.server

    plane.restart_apiserver()

    assert plane.server == server
    assert plane.client.get("Node", "node-a")["status"]["allocatable"]["cpu"] == "3"


def test_virtual_machines_own_instances_that_own_launcher_pods(plane: ControlPlane) -> None:
    """The chain of controllers is the one KubeVirt makes, and both kinds have a status of their own."""
    client = plane.client
    for definition in objects.kubevirt_definitions():
        client.install(definition)
    machine = client.create(objects.virtual_machine("db", labels={"app": "db"}))
    instance = client.create(objects.virtual_machine_instance("db", machine["metadata"]["uid"], labels={"app": "db"}))
    client.patch_status("VirtualMachineInstance", "db", {"phase": "Running"})
    launcher = client.create(objects.launcher_pod(instance))

    owners = [thing["metadata"]["ownerReferences"][0] for thing in (instance, launcher)]
    assert [(owner["kind"], owner["uid"], owner["controller"]) for owner in owners] == [
        ("VirtualMachine", machine["metadata"]["uid"], True),
        ("VirtualMachineInstance", instance["metadata"]["uid"], True),
    ]
    assert client.get("VirtualMachineInstance", "db")["status"] == {"phase": "Running"}
    assert launcher["metadata"]["labels"]["kubevirt.io"] == "virt-launcher"


def test_every_builder_is_accepted(plane: ControlPlane) -> None:
    """What the builders make passes validation and admission."""
    client = plane.client
    client.create(objects.priority_class("high", 1000))
    owner = client.create(objects.deployment("web"))
    replicas = client.create(
        objects.replica_set("web-1", labels={"app": "web"}, owners=[objects.owner_reference(owner)])
    )
    client.create(objects.pod_disruption_budget("web", {"app": "web"}, min_available=1))
    client.create_node(objects.node("node-a", taints=[objects.taint("dedicated", "db")]))
    (made,) = objects.replica_set_pods(
        replicas,
        1,
        priority_class_name="high",
        spread_constraints=[objects.spread({"app": "web"}, matchLabelKeys=["pod-template-hash"])],
        tolerations=[objects.toleration("dedicated")],
        gates=["example.com/gate"],
    )
    client.create(made)
    client.patch("Pod", "web-1-0", {"spec": {"schedulingGates": []}}, how="merge")
    client.bind("web-1-0", "node-a")
    client.set_phase("web-1-0", "Running")

    created = client.get("Pod", "web-1-0")
    assert created["spec"]["priority"] == 1000
    assert created["spec"]["nodeName"] == "node-a"
    assert created["status"]["phase"] == "Running"


def test_clear_leaves_nothing_of_a_test(plane: ControlPlane) -> None:
    """One control plane serves many tests, none of which sees another's objects."""
    plane.client.create(objects.namespace("other"))
    plane.client.create_node(objects.node("node-a"))
    plane.client.create(objects.pod("bound", namespace="other", node_name="node-a"))
    plane.client.create(objects.priority_class("high", 1000))

    plane.client.clear()

    left = {kind: len(plane.client.list(kind)) for kind in ("Pod", "Node", "PriorityClass")}
    assert left == {"Pod": 0, "Node": 0, "PriorityClass": 2}


def test_a_refusal_says_what_the_apiserver_said(plane: ControlPlane) -> None:
    """The body of the answer is in the message."""
    refusal = r'POST /api/v1/namespaces/default/pods answered 422: .*Invalid value: \\"Bad_Name\\"'
    with pytest.raises(ApiError, match=refusal):
        plane.client.create(objects.pod("Bad_Name"))


def test_a_scheduler_that_does_not_start_says_why(plane: ControlPlane) -> None:
    """The end of its log is in the message."""
    with pytest.raises(StartError, match=r"(?s)kube-scheduler-[0-9]+ ended with 1; the end of .*unknown field"):
        plane.start_scheduler({"misspelt": True})


@pytest.mark.long
def test_nothing_outlives_a_killed_test() -> None:
    """A test process that is killed takes its control plane with it: processes and folder."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", ORPHANING_TEST]
    killed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = Path(killed.stdout.strip())

    deadline = time.monotonic() + 10
    while _processes_of(folder) or folder.exists():
        assert time.monotonic() < deadline, (_processes_of(folder), folder.exists())
        time.sleep(0.05)


@pytest.mark.long
def test_stop_leaves_nothing() -> None:
    """After `stop` neither a process nor the folder is left; a second one does nothing."""
    plane = ControlPlane()
    plane.start()
    plane.start_scheduler()
    assert _processes_of(plane.folder)

    plane.stop()
    plane.stop()

    assert not _processes_of(plane.folder)
    assert not plane.folder.exists()


def _processes_of(folder: Path) -> list[str]:
    """Command lines that name the folder, as those of every component and of the watchdog do."""
    numbers = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]
    return [line for line in map(_command_line, numbers) if str(folder) in line]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
