"""Order in which a scale-down removes the pods of a workload.

Source of the rules: ``controller_utils.go`` and the controllers of Kubernetes 1.36. The snapshot lacks restarts. It has
phases, readiness and deletion costs only if a plugin reads them. Pods are treated as equal in what the snapshot lacks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import log2
from typing import Any, Final

from app.kube.core_v1 import Pod
from app.kube.disruption import Disruption

_STATEFUL_SET: Final = "StatefulSet"
_REPLICATED: Final = frozenset(("Deployment", "ReplicaSet", "ReplicationController"))
_ORDINAL: Final = re.compile(r"-([0-9]+)$")
_NANOSECONDS: Final = 1e9


def removal_order(kind: str, pods: Sequence[Pod], now: datetime) -> list[Pod]:
    """Return the pods of a workload in the order in which a scale-down removes them. ``now`` has a time zone.

    StatefulSet: the highest ordinal first. Deployment, ReplicaSet and ReplicationController: first pods without a node,
    then pending pods, then pods that are not ready. Among equal pods, those of lower deletion cost come first, then
    those on nodes with more pods of the workload, then the younger ones. Ages are compared by ``_power_of_age``; if
    it is equal, UIDs decide. Other kinds: pods without a node, then the youngest, as for a Job.
    """
    if kind == _STATEFUL_SET:
        return sorted(pods, key=ordinal_of, reverse=True)
    if kind not in _REPLICATED:
        youngest = sorted(pods, key=lambda it: it.created, reverse=True)
        return sorted(youngest, key=lambda it: bool(it.node_name))
    on_node: Mapping[str, int] = Counter(it.node_name for it in pods)

    def order(pod: Pod) -> tuple[Any, ...]:
        return (*_states_of(pod), -on_node[pod.node_name], _power_of_age(pod.created, now), pod.uid)

    return sorted(pods, key=order)


def removed_first(kind: str, pods: Sequence[Pod], now: datetime) -> str:
    """Return the name of the pod that a scale-down removes first.

    Empty unless the kind is StatefulSet, Deployment, ReplicaSet or ReplicationController.
    """
    if kind != _STATEFUL_SET and kind not in _REPLICATED:
        return ""
    return removal_order(kind, pods, now)[0].name


def ordinal_of(pod: Pod) -> int:
    """Return the number at the end of a pod's name; -1 if there is none."""
    ordinal = _ORDINAL.search(pod.name)
    return int(ordinal[1]) if ordinal else -1


def _states_of(pod: Pod) -> tuple[bool, bool, bool, int]:
    """Return (has a node, is not pending, is ready, deletion cost). If unknown: not pending, ready, cost 0."""
    known = pod.lifecycle
    runs, ready = (not known.pending, known.ready) if isinstance(known, Disruption) else (True, True)
    cost = None if known is None or known.cost is None else known.cost.value
    return bool(pod.node_name), runs, ready, cost or 0


def _power_of_age(created: str, now: datetime) -> int:
    """Return the binary logarithm of an age in nanoseconds, rounded down.

    It is -1 for an age of 0 or less, and -2, the lowest, if ``created`` is not a valid time.
    """
    try:
        seconds = (now - datetime.fromisoformat(created)).total_seconds()
    except ValueError:
        return -2
    return int(log2(seconds * _NANOSECONDS)) if seconds > 0 else -1
