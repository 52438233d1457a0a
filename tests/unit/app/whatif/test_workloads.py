"""What controllers add to the pods of a workload."""

from __future__ import annotations

import re

import pytest

from app.framework.default_selectors import DefaultSelectors
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.whatif.simulated import ManifestPods, TemplateError
from tests.builders import JsonObject, constraint
from tests.unit.app.whatif.manifests import WEB, cluster_of, machine, made, manifest

CLAIM = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}}


def owner_of(pod: Pod) -> tuple[str, str, str, bool | None]:
    assert pod.owner is not None
    return pod.owner.api_version, pod.owner.kind, pod.owner.name, pod.owner.controller


def controller_uids(found: ManifestPods) -> set[str]:
    return {pod.pod.owner.uid for pod in found.added if pod.pod.owner is not None}


def test_pods_of_a_deployment_belong_to_its_replica_set() -> None:
    found = made(manifest(more={"replicas": 2}))
    (_, replica_set), *_ = found.objects
    first, second = (it.pod for it in found.added)
    hashed = first.labels["pod-template-hash"]

    assert {"Deployment/shop/web"} == {it.workload for it in found.added}
    assert ("apps/v1", "ReplicaSet", f"web-{hashed}", True) == owner_of(first) == owner_of(second)
    assert re.fullmatch(rf"web-{hashed}-[a-z0-9]{{5}}", first.name)
    assert {replica_set.uid} == controller_uids(found)
    assert replica_set.selector.matches(first.labels)
    assert not replica_set.selector.matches(WEB)


def test_default_constraints_see_the_controller() -> None:
    """The selector of the owner is in the snapshot only if the objects are."""
    cluster = cluster_of()
    found = made(manifest(), cluster=cluster)
    for kind, obj in found.objects:
        cluster.others.upsert(kind, obj)

    assert found.objects[0][1].selector == DefaultSelectors(cluster).of(found.added[0].pod)


@pytest.mark.parametrize(
    ("kind", "version", "more"),
    [("ReplicaSet", "apps/v1", {}), ("ReplicationController", "v1", {"selector": WEB})],
)
def test_pods_of_a_replica_set_belong_to_it(kind: str, version: str, more: JsonObject) -> None:
    found = made(manifest(kind, more=more))

    assert (version, kind, "web", True) == owner_of(found.added[0].pod)
    assert {found.objects[0][1].uid} == controller_uids(found)
    assert WEB == found.added[0].pod.labels


def test_pods_are_new_and_each_is_later_than_the_one_before() -> None:
    pods = [it.pod for it in made(manifest(more={"replicas": 3}), manifest("Job")).added]

    assert 4 == len({it.uid for it in pods}) == len({it.name for it in pods})
    assert [f"2026-11-24T12:00:0{it}Z" for it in range(4)] == [it.created for it in pods]
    assert {("", "default-scheduler", "shop")} == {(it.node_name, it.spec.scheduler_name, it.namespace) for it in pods}


def test_the_same_manifest_makes_the_same_pods() -> None:
    obj = manifest(more={"replicas": 3})

    assert made(obj).added == made(obj).added


def test_a_generated_name_that_a_pod_has_is_not_used() -> None:
    obj = manifest("ReplicaSet", more={"replicas": 3})
    taken = made(obj).added[1].pod.name
    there = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": taken, "namespace": "shop"}, "spec": {}}
    names = {it.pod.name for it in made(obj, cluster=cluster_of(there)).added}

    assert 3 == len(names)
    assert taken not in names


def test_pods_of_a_stateful_set_have_ordinals() -> None:
    pods = [it.pod for it in made(manifest("StatefulSet", more={"replicas": 2, "ordinals": {"start": 5}})).added]

    assert ["web-5", "web-6"] == [it.name for it in pods]
    assert ("apps/v1", "StatefulSet", "web", True) == owner_of(pods[0])
    assert ["web-5", "web-6"] == [it.labels["statefulset.kubernetes.io/pod-name"] for it in pods]
    assert ["5", "6"] == [it.labels["apps.kubernetes.io/pod-index"] for it in pods]
    assert 1 == len({it.labels["controller-revision-hash"] for it in pods})


def test_pods_of_a_stateful_set_have_claims_of_their_own() -> None:
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "more", "persistentVolumeClaim": {"claimName": "shared"}}]
    obj = manifest("StatefulSet", more={"replicas": 2, "volumeClaimTemplates": [CLAIM]}, volumes=volumes)
    metadata = {"name": "data-web-0", "namespace": "shop"}
    there = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    found = made(obj, cluster=cluster_of(there))

    assert [["data-web-0", "shared"], ["data-web-1", "shared"]] == [
        [volume.claim for volume in it.pod.spec.volumes] for it in found.added
    ]
    (claim,) = (it for kind, it in found.objects if kind == PERSISTENT_VOLUME_CLAIMS)
    assert ("data-web-1", "fast", False) == (claim.name, claim.class_name, claim.is_bound)


def test_pods_of_a_job_have_its_labels() -> None:
    pod = made(manifest("Job")).added[0].pod

    assert pod.owner is not None
    assert ("batch/v1", "Job", "web", True) == owner_of(pod)
    assert {
        **WEB,
        "job-name": "web",
        "batch.kubernetes.io/job-name": "web",
        "controller-uid": pod.owner.uid,
        "batch.kubernetes.io/controller-uid": pod.owner.uid,
    } == pod.labels
    assert WEB == made(manifest("Job", more={"manualSelector": True})).added[0].pod.labels


def test_pods_of_an_indexed_job_have_their_index() -> None:
    pods = [it.pod for it in made(manifest("Job", more={"completionMode": "Indexed", "parallelism": 2})).added]

    assert ["0", "1"] == [it.labels["batch.kubernetes.io/job-completion-index"] for it in pods]
    assert ["web-0-", "web-1-"] == [it.name[:-5] for it in pods]


def test_a_cron_job_starts_one_job_of_this_minute() -> None:
    (pod,) = made(manifest("CronJob")).added

    assert "CronJob/shop/web" == pod.workload
    assert ("batch/v1", "Job", "web-29925360", True) == owner_of(pod.pod)


def test_the_launcher_of_a_virtual_machine_belongs_to_its_instance() -> None:
    (pod,) = made(machine()).added

    assert "VirtualMachine/shop/vm" == pod.workload
    assert ("kubevirt.io/v1", "VirtualMachineInstance", "vm", True) == owner_of(pod.pod)
    assert pod.pod.name.startswith("virt-launcher-vm-")
    assert ("virt-launcher", "linux") == (pod.pod.labels["kubevirt.io"], pod.pod.labels["os"])
    assert pod.approximate.startswith("pod of a VirtualMachine")


def test_a_label_key_of_a_constraint_is_merged_for_each_pod() -> None:
    """The template hash is known only once the controller has added it."""
    spread = [constraint(match_label_keys=["pod-template-hash"], app="web")]
    pod = made(manifest(topologySpreadConstraints=spread)).added[0].pod
    selector = pod.spec.spread[0].selector

    assert selector is not None
    assert selector.matches(pod.labels)
    assert not selector.matches({**pod.labels, "pod-template-hash": "other"})


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (
            {**manifest("StatefulSet"), "metadata": {"name": "w" * 64, "namespace": "shop"}},
            "spec.template.metadata.labels.controller-revision-hash",
            "is not a valid label value",
        ),
        (
            manifest("StatefulSet", more={"volumeClaimTemplates": [{"metadata": {}}]}),
            "spec.volumeClaimTemplates[0].metadata.name",
            "is missing",
        ),
        (
            manifest("StatefulSet", more={"volumeClaimTemplates": [{**CLAIM, "spec": {"accessModes": 3}}]}),
            "spec.volumeClaimTemplates[0].spec.accessModes",
            "expected array, got int",
        ),
        (machine(domain={"cpu": {"cores": "2"}}), "spec.template.spec.domain.cpu.cores", "must be a whole number"),
    ],
)
def test_mistakes_that_only_a_controller_finds(obj: JsonObject, field: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        made(obj)

    assert field == error.value.field
    assert message in error.value.message
