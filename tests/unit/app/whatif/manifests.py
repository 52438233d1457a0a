"""Manifests and clusters for the tests of what-if."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from app.cache.cluster import Cluster
from app.feeds.saved import load_objects
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PRIORITY_CLASSES
from app.whatif.simulated import ManifestPods
from app.whatif.templates import pods_of
from tests.builders import JsonObject, container

NOW: Final = datetime(2026, 11, 24, 12, tzinfo=UTC)
WEB: Final = {"app": "web"}
MOST: Final = 100


def manifest(kind: str = "Deployment", *, more: JsonObject | None = None, **pod: Any) -> JsonObject:
    """An object with a pod template, named ``web`` in the namespace ``shop``. ``pod`` is added to the pod's spec."""
    versions = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    template = {"metadata": {"labels": WEB}, "spec": {"containers": [container()], **pod}}
    selector: JsonObject = {} if kind == "Job" else {"selector": {"matchLabels": WEB}}
    spec: JsonObject = {**selector, "template": template, **(more or {})}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": {"template": template, **(more or {})}}}
    return {
        "apiVersion": versions.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


def machine(kind: str = "VirtualMachine", *, more: JsonObject | None = None, **instance: Any) -> JsonObject:
    """A VirtualMachine named ``vm`` with ``instance`` as the spec of its instance."""
    spec = {"domain": {"memory": {"guest": "1Gi"}}, **instance}
    wrapped = {"template": {"metadata": {"labels": {"os": "linux"}}, "spec": spec}, **(more or {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": kind,
        "metadata": {"name": "vm", "namespace": "shop"},
        "spec": wrapped if kind == "VirtualMachine" else spec,
    }


def cluster_of(*objects: JsonObject) -> Cluster:
    """A snapshot with all parts of pods, and these objects."""
    cluster = Cluster(core_v1([*Extra], None))
    load_objects(objects, cluster, (), "test", optional=(PERSISTENT_VOLUME_CLAIMS, PRIORITY_CLASSES))
    return cluster


def made(*objects: JsonObject, cluster: Cluster | None = None) -> ManifestPods:
    return pods_of(objects, cluster or cluster_of(), "default", MOST, NOW)
