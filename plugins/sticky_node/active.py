"""Whose word counts: a machine may have several pods, and anybody who may create pods may claim to be one.

An owner reference is as trustworthy as the right to create pods in its namespace: nobody else checks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from app.framework.interface import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import VIRTUAL_MACHINE_INSTANCES
from app.kube.kubevirt_v1 import VirtualMachineInstance
from plugins.sticky_node.owners import Owner

MIGRATION_JOB: Final = "kubevirt.io/migrationJobUID"


class ActivePods:
    """Tells the pods that are a machine's from those that say so."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._of_instance: Final = objects.by_controller(VIRTUAL_MACHINE_INSTANCES)

    def decides(self, pod: Pod, node_name: str, owner: Owner) -> bool:
        """Whether the home may be taken from the pod, once it is on that node.

        Pods of other kinds than KubeVirt's are told apart by their controller, and by ordinal, alone.
        """
        if not self._objects.has_node(node_name):
            return False
        machine = owner.controller
        if not isinstance(machine, VirtualMachineInstance):
            return True
        return is_active(pod, node_name, machine, self._of_instance.get(machine.uid, {}))

    def pods(self, owner: Owner) -> Collection[Pod]:
        """All pods of a machine of KubeVirt's, as they are now; of other owners none."""
        return tuple(self._of_instance.get(owner.controller.uid, {}).values())

    def of(self, machine: VirtualMachineInstance) -> Pod | None:
        """The pod in which the machine runs; ``None`` while KubeVirt does not say where that is."""
        pods = self._of_instance.get(machine.uid, {}).values()
        there = [it for it in pods if it.node_name == machine.node_name != "" and it.namespace == machine.namespace]
        return max(there, key=lambda it: (it.created, it.uid), default=None)


def is_target(pod: Pod) -> bool:
    """Whether KubeVirt made the pod for a machine to move into, in a migration or an evacuation.

    KubeVirt lets nobody else write that label on an instance, from which its pods have theirs.
    """
    return MIGRATION_JOB in pod.labels and pod.owner is not None and pod.owner.kind == VIRTUAL_MACHINE_INSTANCES.kind


def is_active(pod: Pod, node_name: str, machine: VirtualMachineInstance, pods: Mapping[str, Pod]) -> bool:
    """Return whether the pod, once on that node, is the machine's by KubeVirt's own rule.

    That is the newest it controls on ``status.nodeName``, or anywhere while that is empty (``CurrentVMIPod`` of
    ``pkg/controller/controller.go``). Of two created in one second KubeVirt takes either; here the UID decides.

    A machine without a node does not migrate. If it has a target all the same, the watch of machines is late.
    """
    where = machine.node_name
    if where and where != node_name:
        return False
    return all(
        (it.created, it.uid) < (pod.created, pod.uid)
        for it in pods.values()
        if it.uid != pod.uid
        and it.namespace == machine.namespace
        and (it.node_name == where if where else not is_target(it))
    )
