"""Launcher pods of VirtualMachines: requests, node selector and what is copied."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.core_v1 import Pod
from app.whatif.simulated import TemplateError
from tests.builders import JsonObject, constraint, toleration
from tests.unit.app.whatif.manifests import machine, made

MI = 1 << 20
KVM = "devices.kubevirt.io/kvm"


def launcher(**instance: Any) -> Pod:
    return made(machine(**instance)).added[0].pod


def requests(**domain: Any) -> dict[str, int]:
    found = dict(launcher(domain=domain).spec.resources.requests)
    assert 1 == found.pop(KVM)
    return found


def overhead(memory: int, cpus: int = 1) -> int:
    """Bytes that KubeVirt adds to the guest's memory: page tables, processes, CPUs, an I/O thread and graphics."""
    return memory // 512 + (220 + 8 * cpus + 8 + 32) * MI


@pytest.mark.parametrize(
    ("cpu", "milli", "cpus"),
    [
        (None, 100, 1),
        ({"cores": 4}, 400, 4),
        ({"cores": 2, "sockets": 3, "threads": 2}, 1200, 12),
    ],
)
def test_a_tenth_of_the_guests_cpus_is_requested(cpu: JsonObject | None, milli: int, cpus: int) -> None:
    guest = 1024 * MI
    assert {"cpu": milli, "memory": guest + overhead(guest, cpus)} == requests(cpu=cpu, memory={"guest": "1Gi"})


def test_own_requests_take_precedence() -> None:
    resources = {"requests": {"cpu": "3", "memory": "2Gi"}, "limits": {"cpu": "4"}}
    asked = 2048 * MI

    assert {"cpu": 3000, "memory": asked + overhead(asked, 2)} == requests(
        cpu={"cores": 2}, memory={"guest": "1Gi"}, resources=resources
    )


def test_a_limit_is_requested_if_there_is_no_request() -> None:
    limit = 512 * MI

    assert {"cpu": 2000, "memory": limit + overhead(limit, 2)} == requests(
        resources={"limits": {"cpu": "2", "memory": "512Mi"}}
    )


def test_dedicated_cpus_are_requested_whole_on_nodes_that_can_pin_them() -> None:
    cpu = {"cores": 4, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}
    pod = launcher(domain={"cpu": cpu, "memory": {"guest": "1Gi"}})

    assert 5000 == pod.spec.resources.requests["cpu"]
    assert 1024 * MI + overhead(1024 * MI, 4) + 100 * MI == pod.spec.resources.requests["memory"]
    assert {("cpumanager", "true"), ("kubevirt.io/schedulable", "true")} == set(pod.spec.affinity.node_selector)


def test_huge_pages_hold_the_guest() -> None:
    memory = {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}

    assert {"cpu": 100, "memory": overhead(1024 * MI), "hugepages-2Mi": 1024 * MI} == requests(memory=memory)


def test_devices_are_requested() -> None:
    devices = {"gpus": [{"deviceName": "nvidia.com/a"}, {"deviceName": "nvidia.com/a"}], "tpm": {}}
    found = requests(devices=devices | {"autoattachGraphicsDevice": False})

    assert 2 == found["nvidia.com/a"]
    assert overhead(0) + (1024 + 53 - 32) * MI == found["memory"]


def test_placement_is_that_of_the_instance() -> None:
    spread = [constraint(os="linux")]
    pod = launcher(
        nodeSelector={"rack": "a"},
        tolerations=[toleration("vm")],
        topologySpreadConstraints=spread,
        schedulerName="mine",
        volumes=[{"name": "d", "dataVolume": {"name": "disk"}}, {"name": "c", "cloudInitNoCloud": {}}],
    )

    assert ("rack", "a") in pod.spec.affinity.node_selector
    assert ("vm", "mine", 1) == (pod.spec.tolerations[0].key, pod.spec.scheduler_name, len(pod.spec.spread))
    assert ["disk"] == [it.claim for it in pod.spec.volumes]


@pytest.mark.parametrize(
    ("instance", "field", "message"),
    [
        ({"domain": 3}, "domain", "must be a mapping"),
        ({"volumes": 3}, "volumes", "must be a list"),
        ({"domain": {"cpu": {"cores": 2**17}}}, "domain.cpu", "has more than 65536 CPUs"),
        ({"domain": {"memory": {"guest": True}}}, "domain.memory.guest", "must be a quantity"),
        ({"domain": {"memory": {"guest": "lots"}}}, "domain.memory.guest", "not a quantity"),
        ({"domain": {"memory": {"guest": "-1"}}}, "domain.memory.guest", "must be an amount of bytes"),
        ({"domain": {"devices": {"gpus": [3]}}}, "domain.devices.gpus[0]", "must be a mapping"),
    ],
)
def test_mistakes_in_an_instance(instance: JsonObject, field: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        launcher(**instance)

    assert f"spec.template.spec.{field}" == error.value.field
    assert message in error.value.message


def test_the_owners_of_a_launcher_are_added() -> None:
    """Without them, no plugin that keeps homes can judge the pod."""
    changes = made(machine())

    owners = {kind.kind: obj for kind, obj in changes.objects}
    instance, vm = owners["VirtualMachineInstance"], owners["VirtualMachine"]
    pod = changes.added[0].pod
    assert pod.owner is not None
    assert (pod.owner.uid, pod.owner.name) == (instance.uid, instance.name)
    assert vm.uid == instance.owner.uid
