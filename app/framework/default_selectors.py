"""Default selector of a pod, derived from its Services and its owner; used to spread pods that have no spread
constraints.

Source of the rules: ``helper.DefaultSelector``, which is the same in Kubernetes 1.28 to 1.36.
"""

from __future__ import annotations

from typing import Any, Final

from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, Kind
from app.kube.memo import MISSING, Memo
from app.kube.selectors import EVERYTHING, Requirement, Selector, selector

KINDS: Final[tuple[Kind[Any], ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
"""Kinds of the objects from which selectors are derived."""

_MEMO_BYTES: Final = 16 << 20
"""Maximum bytes of the cache."""

_ENTRY_BYTES: Final = 500
"""Estimated bytes of a cache entry without labels and requirements."""

_PART_BYTES: Final = 200
"""Estimated bytes of a label, or of a requirement of the selector."""


class DefaultSelectors:
    """Cache of selectors by label set and owner, valid until a Service or controller of the namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._memo = Memo[tuple[Any, ...], Selector](_MEMO_BYTES)

    def of(self, pod: Pod) -> Selector:
        """Return the derived selector; ``EVERYTHING`` if neither a Service that selects the pod nor the pod's owner has
        requirements. Raises ``Unreadable``.
        """
        stamp = tuple(self._objects.version(kind, pod.namespace) for kind in KINDS)
        key = (pod.namespace, pod.labels, pod.owner, stamp)
        derived = self._memo.get(key)
        if derived is MISSING:
            derived = self._derive(pod)
            self._memo.put(key, derived, _ENTRY_BYTES + _PART_BYTES * (len(pod.labels) + len(derived.requirements)))
        return derived

    def _derive(self, pod: Pod) -> Selector:
        merged: dict[str, Requirement] = {}
        for service in self._objects.in_namespace(SERVICES, pod.namespace):
            if service.selector is not None and service.selector.matches(pod.labels):
                merged.update((it.key, it) for it in service.selector.requirements)
        owned = self._owner_requirements(pod, merged)
        return selector((*merged.values(), *owned)) if merged or owned else EVERYTHING

    def _owner_requirements(self, pod: Pod, merged: dict[str, Requirement]) -> tuple[Requirement, ...]:
        """Return the requirements of an owner that is a ReplicaSet or StatefulSet; for any other owner, return none.

        The requirements of a ReplicationController are added to ``merged``, where they replace those with the same key.
        """
        owner = pod.owner
        if owner is None:
            return ()
        match owner.api_version, owner.kind:
            case ("v1", "ReplicationController"):
                controller = self._objects.get(REPLICATION_CONTROLLERS, pod.namespace, owner.name)
                merged.update(
                    (it.key, it)
                    for it in (controller.selector.requirements if controller and controller.selector else ())
                )
            case ("apps/v1", "ReplicaSet" | "StatefulSet" as kind):
                kinds = REPLICA_SETS if kind == "ReplicaSet" else STATEFUL_SETS
                workload = self._objects.get(kinds, pod.namespace, owner.name)
                return workload.selector.requirements if workload and workload.selector else ()
        return ()
