"""The selector of a pod's peers, derived from what selects or owns it: to spread pods that have no constraints.

Source of the rules: ``helper.DefaultSelector`` of Kubernetes 1.36, which is that of 1.28.
"""

from __future__ import annotations

from typing import Any, Final

from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, Kind
from app.kube.memo import MISSING, Memo
from app.kube.selectors import EVERYTHING, Requirement, Selector, selector

KINDS: Final[tuple[Kind[Any], ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
_MEMO_BYTES: Final = 16 << 20
_ENTRY_BYTES: Final = 500
_PART_BYTES: Final = 200


class DefaultSelectors:
    """Remembers the selector per label set and owner until a Service or controller of the namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._memo = Memo[tuple[Any, ...], Selector](_MEMO_BYTES)

    def of(self, pod: Pod) -> Selector:
        """The derived selector; ``EVERYTHING`` if nothing selects or owns the pod: then it has no peers."""
        stamp = tuple(self._objects.version(kind, pod.namespace) for kind in KINDS)
        key = (pod.namespace, pod.labels, pod.owner, stamp)
        found = self._memo.get(key)
        if found is MISSING:
            found = self._derive(pod)
            self._memo.put(key, found, _ENTRY_BYTES + _PART_BYTES * (len(pod.labels) + len(found.requirements)))
        return found

    def _derive(self, pod: Pod) -> Selector:
        merged: dict[str, Requirement] = {}
        for service in self._objects.in_namespace(SERVICES, pod.namespace):
            if service.selector is not None and service.selector.matches(pod.labels):
                merged.update((it.key, it) for it in service.selector.requirements)
        owned = self._owner_requirements(pod, merged)
        return selector((*merged.values(), *owned)) if merged or owned else EVERYTHING

    def _owner_requirements(self, pod: Pod, merged: dict[str, Requirement]) -> tuple[Requirement, ...]:
        """A ReplicationController's pairs replace those of Services; a workload's requirements are added."""
        owner = pod.owner
        if owner is None:
            return ()
        match owner.api_version, owner.kind:
            case ("v1", "ReplicationController"):
                found = self._objects.get(REPLICATION_CONTROLLERS, pod.namespace, owner.name)
                merged.update((it.key, it) for it in (found.selector.requirements if found and found.selector else ()))
            case ("apps/v1", "ReplicaSet" | "StatefulSet" as kind):
                kinds = REPLICA_SETS if kind == "ReplicaSet" else STATEFUL_SETS
                workload = self._objects.get(kinds, pod.namespace, owner.name)
                return workload.selector.requirements if workload and workload.selector else ()
        return ()
