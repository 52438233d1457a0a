"""Pods that a new number of replicas adds to a workload with pods, and those that go."""

from __future__ import annotations

from typing import Any

import pytest

from app.cache.cluster import Cluster
from app.kube.deletion_cost import DELETION_COST, NO_COST
from app.whatif.simulated import ScaledWorkload
from app.whatif.templates import scaled
from tests.builders import JsonObject, controller, pod_object
from tests.unit.app.whatif.manifests import NOW, WEB, cluster_of

HASH = "abc12"
OLD, NEW = "2026-11-01T08:00:00Z", "2026-11-20T08:00:00Z"


def web(number: int, *, hashed: str = HASH, **fields: object) -> JsonObject:
    labels = {**WEB, "pod-template-hash": hashed}
    common = {"namespace": "shop", "labels": labels, "owner": controller("ReplicaSet", f"web-{hashed}")}
    return pod_object(f"web-{hashed}-{number}", **{**common, "node": "n1", "created": OLD, **fields})  # type: ignore[arg-type]


def db(ordinal: int, *, terminating: bool = False) -> JsonObject:
    name = f"db-{ordinal}"
    labels = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal)}
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
    ]
    owner = controller("StatefulSet", "db")
    fields: Any = {"namespace": "shop", "labels": labels, "owner": owner, "node": "n1", "created": OLD}
    return pod_object(name, terminating=terminating, more={"volumes": volumes}, **fields)


def claim(name: str) -> JsonObject:
    metadata = {"name": name, "namespace": "shop", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    spec = {"storageClassName": "fast", "volumeName": f"pv-{name}"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def rescaled(cluster: Cluster, replicas: int, kind: str = "Deployment", name: str = "web") -> ScaledWorkload:
    return scaled(cluster, "shop", kind, name, replicas, (), NOW)


def names(found: ScaledWorkload) -> tuple[list[str], list[str]]:
    return [it.pod.name for it in found.added], [it.name for it in found.removed]


def test_a_new_pod_is_a_copy_of_the_newest_one_without_what_binding_left() -> None:
    annotations = {"homeport.dev/home": "n1", "homeport.dev/policy": "hard"}
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no"}]}
    newest = web(1, created=NEW, priority=7, annotations=annotations, nominated="n2", status=status)
    cluster = cluster_of(web(0), newest)
    (added,) = rescaled(cluster, 3).added
    source = cluster.pod("shop", f"web-{HASH}-1")
    assert source is not None

    assert ("Deployment/shop/web", "") == (added.workload, added.approximate)
    assert ("", "", "2026-11-24T12:00:00Z") == (added.pod.node_name, added.pod.nominated_node_name, added.pod.created)
    assert (source.owner, source.labels, 7) == (added.pod.owner, added.pod.labels, added.pod.spec.priority)
    assert {"homeport.dev/policy": "hard"} == added.pod.annotations
    assert added.pod.uid not in {it.uid for it in cluster.pods()}
    assert added.pod.name.startswith(f"web-{HASH}-")


def test_pods_that_end_do_not_count() -> None:
    """The controller has replaced them already."""
    cluster = cluster_of(web(0), web(1, terminating=True), web(2, phase="Failed"))

    assert (1, 0) == tuple(map(len, names(rescaled(cluster, 2))))


def test_pods_go_in_the_order_of_the_controller() -> None:
    cluster = cluster_of(web(0, node="n1"), web(1, node="n2"), web(2, node="n2"), web(3, node="", created=OLD))

    assert [f"web-{HASH}-3", f"web-{HASH}-1"] == names(rescaled(cluster, 2))[1]
    assert 4 == len(rescaled(cluster, 0).removed)
    assert ([], []) == names(rescaled(cluster, 4))


def test_a_scale_down_goes_by_deletion_cost_and_a_new_pod_has_none() -> None:
    """Then its bind gives it a new one, under ``scaleDown: Spread``."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    pods = [web(it, node=f"n{it}", annotations={DELETION_COST: str(-it % 3)}, status=ready) for it in range(3)]
    cluster = cluster_of(*pods)

    assert [f"web-{HASH}-0", f"web-{HASH}-2"] == names(rescaled(cluster, 1))[1]
    (added,) = rescaled(cluster, 4).added
    assert NO_COST == added.pod.deletion_cost


def test_the_order_is_approximate_if_it_depends_on_more() -> None:
    job = pod_object("job-1", namespace="shop", owner=controller("Job", "job", api_version="batch/v1"), node="n1")
    rollout = cluster_of(web(0), web(1, hashed="xyz99"))

    assert "" == rescaled(cluster_of(web(0)), 0).approximate
    assert "pods of several controllers" in rescaled(rollout, 1).approximate
    assert "a Job removes pods" in rescaled(cluster_of(job), 0, "Job", "job").approximate
    assert "" == rescaled(rollout, 3).approximate


def test_a_stateful_set_fills_missing_ordinals() -> None:
    assert (["db-1", "db-3"], []) == names(rescaled(cluster_of(db(0), db(2)), 4, "StatefulSet", "db"))
    assert (["db-7"], []) == names(rescaled(cluster_of(db(5), db(6)), 3, "StatefulSet", "db"))
    assert ([], ["db-2", "db-1"]) == names(rescaled(cluster_of(db(1), db(0), db(2)), 1, "StatefulSet", "db"))
    assert (["db-1"], ["db-9"]) == names(rescaled(cluster_of(db(9), db(0)), 2, "StatefulSet", "db"))


def test_a_stateful_set_waits_for_a_pod_that_ends() -> None:
    assert (["db-2"], []) == names(rescaled(cluster_of(db(0), db(1, terminating=True)), 3, "StatefulSet", "db"))


def test_a_pod_of_a_stateful_set_has_labels_and_claims_of_its_ordinal() -> None:
    found = rescaled(cluster_of(db(0), claim("data-db-0"), claim("data-db-2")), 3, "StatefulSet", "db")
    first, second = (it.pod for it in found.added)
    (_, created), *rest = found.objects

    assert ("db-1", "1") == tuple(first.labels.values())[::-1]
    assert ["data-db-1", "shared"] == [it.claim for it in first.spec.volumes]
    assert ["data-db-2", "shared"] == [it.claim for it in second.spec.pending_volumes]
    assert ("data-db-1", "fast", "", False) == (
        created.name,
        created.class_name,
        created.volume_name,
        created.is_bound,
    )
    assert [] == rest


def test_a_copy_waits_for_its_claims_again() -> None:
    """A pod with a node has no pending volumes; its copy has."""
    volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "cache"}}, {"name": "e", "emptyDir": {}}]
    (added,) = rescaled(cluster_of(web(0, more={"volumes": volumes})), 2).added

    assert ["cache"] == [it.claim for it in added.pod.spec.pending_volumes]


def test_generated_device_claims_are_approximate() -> None:
    more = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
    (added,) = rescaled(cluster_of(web(0, more=more)), 2).added

    assert "ResourceClaims" in added.approximate


def test_new_pods_of_an_indexed_job_have_the_next_index() -> None:
    label = "batch.kubernetes.io/job-completion-index"
    owner = controller("Job", "job", api_version="batch/v1")
    pods = (pod_object(f"job-{it}-abcde", namespace="shop", labels={label: str(it)}, owner=owner) for it in (0, 1))

    assert ["2", "3"] == [it.pod.labels[label] for it in rescaled(cluster_of(*pods), 4, "Job", "job").added]


@pytest.mark.parametrize("kind", ["ReplicaSet", "CloneSet"])
def test_any_controller_can_be_scaled_up(kind: str) -> None:
    pod = pod_object("one", namespace="shop", owner=controller(kind, "set"))

    assert ["set-"] == [it.pod.name[:-5] for it in rescaled(cluster_of(pod), 2, kind, "set").added]
