"""Clusters for the page: one with many nodes, one with names that try to break it."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

MARKUP: Final = "<img src=x onerror=alert(1)>"
LONGEST: Final = ".".join(("a" * 63,) * 3) + "." + "b" * 61
"""A name of 253 characters, the longest that the API server accepts."""


def node(name: str, zone: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone, **labels}},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    }


def pod(name: str, node_name: str = "", **changes: Any) -> Json:
    spec: Json = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}],
        **changes,
    }
    if node_name:
        spec["nodeName"] = node_name
    created = "2026-11-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created},
        "spec": spec,
    }


def many_nodes(count: int) -> Json:
    """Nodes in three zones, every third with a pod, and one pod that fits nowhere."""
    nodes = [node(f"node-{it:04}", f"zone-{it % 3}") for it in range(count)]
    pods = [pod(f"pod-{it:04}", f"node-{it:04}") for it in range(0, count, 3)]
    return {"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods, pod("huge", nodeSelector={"no": "node"})]}


def hostile() -> Json:
    """The longest names, and markup wherever the API server lets it through to Homeport."""
    nodes = [node(LONGEST, MARKUP), node("n2", "zone-1")]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [*nodes, pod(LONGEST, LONGEST), pod("waits", nodeSelector={MARKUP: MARKUP})],
    }
