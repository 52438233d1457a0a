"""Kinds of objects by the names that kubectl accepts."""

from __future__ import annotations

from typing import Final

PODS: Final = ("pod", "pods", "po")
"""Names that kubectl accepts for the kind Pod."""

KINDS: Final = {
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "sts": "StatefulSet",
    "statefulset": "StatefulSet",
    "statefulsets": "StatefulSet",
    "job": "Job",
    "jobs": "Job",
    "rs": "ReplicaSet",
    "replicaset": "ReplicaSet",
    "replicasets": "ReplicaSet",
    "ds": "DaemonSet",
    "daemonset": "DaemonSet",
    "daemonsets": "DaemonSet",
    "rc": "ReplicationController",
    "replicationcontroller": "ReplicationController",
    "vm": "VirtualMachine",
    "vms": "VirtualMachine",
    "virtualmachine": "VirtualMachine",
    "virtualmachines": "VirtualMachine",
}
"""Kinds of workloads by the names that kubectl accepts."""
