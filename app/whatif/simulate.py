"""Simulation: places the pods of manifests, or of a scaled workload, one after the other on a scratch cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from app.analysis.workloads import workload_of
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.kube.extras import NotDecoded
from app.whatif.budget import Budget
from app.whatif.mistakes import RequestMistake
from app.whatif.placing import Placement, Placer
from app.whatif.reasons import waiting_groups
from app.whatif.scratch import ScratchCluster
from app.whatif.simulated import ManifestPods, SimulatedPod, TemplateError
from app.whatif.spread import changes as spread_changes
from app.whatif.spread import spread_of
from app.whatif.templates import MOST_PODS, pods_of, scaled

FULL: Final = 0.9
"""A node with new pods is listed as full if its pods request at least this part of a resource."""

_STEP: Final = 50
"""Number of tried pods from one text on the progress to the next."""

_WAITS: Final = "exists and waits now"
_SHARED: Final = "as if no other new pod took its volumes or devices"
"""Remarks on a pod: it exists already, or its placement ignores that new pods can need the same volumes or devices."""


class Scale(Struct, frozen=True):
    """Workload to scale to a number of replicas."""

    namespace: str
    kind: str
    name: str
    replicas: int


class SimulationRequest(Struct, frozen=True):
    """``objects``: Kubernetes objects as in manifests. ``namespace``: of objects that name none.

    ``scale``: workloads to scale. An object that ``scale`` names is not created. Its template is used if the workload
    has no pods.

    ``preempts``: evict the victims of preemption in the simulation.
    """

    objects: Sequence[Mapping[str, Any]]
    scale: Sequence[Scale]
    namespace: str
    preempts: bool


def simulated(
    scratch: ScratchCluster, request: SimulationRequest, budget: Budget
) -> Generator[str | None, None, Mapping[str, Any]]:
    """Simulate a request. The steps return the fields of a ``Simulation``. Raises ``RequestMistake``, ``PluginError``.

    When ``budget`` has no processor time left, the remaining pods are not tried.
    """
    changed = _changes_of(scratch, request)
    added, removed = changed.added, changed.removed
    for kind, obj in changed.objects:
        scratch.cluster.others.upsert(kind, obj)
    one_of_each = _one_of_each(added, removed)
    before = spread_of(scratch, one_of_each)
    for pod in removed:
        scratch.cluster.delete_pod(pod.key, pod.uid)
    yield None
    placer = Placer(scratch, preempts=request.preempts)
    placements: list[Placement] = []
    for _ in placer.placing([it.pod for it in added], placements):
        yield f"placing pods: {len(placements)} of {len(added)}" if len(placements) % _STEP == 0 else None
        if budget.is_over:
            break
    by_uid = {it.pod.uid: it for it in added}
    waiting = yield from waiting_groups(scratch, placements, budget)
    placed = [it for it in placements if it.node]
    return {
        "placed": len(placed),
        "waiting": len(placements) - len(placed),
        "notReached": max(0, len(added) - len(placements)),
        "pods": [_pod(it, by_uid.get(it.pod.uid)) for it in placements],
        "ignored": changed.ignored,
        "notes": changed.notes,
        "removed": [{"namespace": it.namespace, "pod": it.name, "nodeName": it.node_name} for it in removed],
        "waitingGroups": waiting,
        "spread": [*spread_changes(before, spread_of(scratch, one_of_each))],
        "fullNodes": [*_full_nodes(scratch, {it.node for it in placed})],
    }


def _changes_of(scratch: ScratchCluster, request: SimulationRequest) -> ManifestPods:
    """Return the changes that the request makes. Raises ``RequestMistake``.

    Existing pods of the same workloads that have no node are among the added pods.
    """
    scaled_titles = {_title(it.kind, it.namespace, it.name) for it in request.scale}
    titles = [_title_of(obj, request.namespace) for obj in request.objects]
    created = [number for number, title in enumerate(titles) if title not in scaled_titles]
    templates = [obj for obj, title in zip(request.objects, titles, strict=True) if title in scaled_titles]
    try:
        changes = pods_of([request.objects[it] for it in created], scratch.cluster, request.namespace, MOST_PODS)
    except TemplateError as mistake:
        raise RequestMistake(_field(f"objects[{created[mistake.index]}]", mistake.field), mistake.message) from None
    for number, scale in enumerate(request.scale):
        room = MOST_PODS - len(changes.added)
        try:
            target = scale.namespace, scale.kind, scale.name, scale.replicas
            change = scaled(scratch.cluster, *target, templates, most=room)
        except TemplateError as mistake:
            raise RequestMistake(_field(f"scale[{number}]", mistake.field), mistake.message) from None
        taken = {it.pod.key for it in changes.added}
        if any(it.pod.key in taken for it in change.added) or any(it in changes.removed for it in change.removed):
            raise RequestMistake(f"scale[{number}]", "changes pods that another part of the request changes too")
        changes.added += change.added
        changes.removed += change.removed
        changes.objects += change.objects
        if change.approximate:
            changes.notes.append(f"{scale.kind}/{scale.namespace}/{scale.name}: {change.approximate}")
    if changes.approximate:
        changes.notes.append(changes.approximate)
    changes.added[:0] = _already_waiting(scratch, request, changes)
    return changes


def _already_waiting(
    scratch: ScratchCluster, request: SimulationRequest, changes: ManifestPods
) -> Iterable[SimulatedPod]:
    """Yield those existing pods of the changed workloads that have no node, except Terminating pods and removed ones.

    The scheduler tries the yielded pods before new pods of the same priority.
    """
    workloads = {it.workload for it in changes.added} | {_title(it.kind, it.namespace, it.name) for it in request.scale}
    leaving = {it.uid for it in changes.removed}
    for namespace in {it.split("/")[1] for it in workloads if it}:
        for pod in scratch.cluster.pods_in(namespace):
            if not pod.node_name and not pod.terminating and pod.uid not in leaving:
                kind, name = workload_of(pod)
                if (title := _title(kind, namespace, name)) in workloads:
                    yield SimulatedPod(pod, title, _WAITS)


def _title_of(obj: Mapping[str, Any], namespace: str) -> str:
    """Return KIND/NAMESPACE/NAME of an object of a request, which is not validated yet."""
    metadata = obj.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    return _title(str(obj.get("kind")), str(named.get("namespace") or namespace), str(named.get("name")))


def _title(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _field(whole: str, part: str) -> str:
    return f"{whole}.{part}" if part else whole


def _one_of_each(added: Iterable[SimulatedPod], removed: Iterable[Pod]) -> dict[str, Pod]:
    """Return one added or removed pod of each workload with topology spread constraints, by KIND/NAMESPACE/NAME."""
    pods: dict[str, Pod] = {}
    for simulated_pod in added:
        pods.setdefault(simulated_pod.workload or f"Pod/{simulated_pod.pod}", simulated_pod.pod)
    for pod in removed:
        kind, name = workload_of(pod)
        pods.setdefault(_title(kind, pod.namespace, name), pod)
    return {workload: pod for workload, pod in pods.items() if pod.spec.spread}


def _pod(placement: Placement, simulated_pod: SimulatedPod | None) -> Mapping[str, Any]:
    """Return a ``SimulatedPlacement``. ``simulated_pod``: ``None`` for a pod that is created again after preemption."""
    return {
        "namespace": placement.pod.namespace,
        "pod": placement.pod.name,
        "workload": simulated_pod.workload if simulated_pod is not None else "",
        "approximate": "; ".join(
            filter(None, (_origin(simulated_pod), _SHARED if _takes_scarce(placement.pod) else ""))
        ),
        "nodeName": placement.node,
        "ties": placement.ties,
        "nominatedNodeName": placement.nominated,
        "victims": [str(it) for it in placement.victims],
    }


def _origin(simulated_pod: SimulatedPod | None) -> str:
    """Return a remark: that the pod exists already or is created again, or why the real pod can differ; else empty."""
    return "evicted before, created again" if simulated_pod is None else simulated_pod.approximate


def _takes_scarce(pod: Pod) -> bool:
    """Return True if the pod has claims for volumes, bound or not, or for devices. Other new pods might take these."""
    parts = pod.spec.parts
    return bool(parts.pending_volumes) or bool(parts.claims is not None and parts.claims.claims)


def _full_nodes(scratch: ScratchCluster, names: Iterable[str]) -> Iterable[Mapping[str, Any]]:
    """Yield those of the nodes ``names`` on which a resource is nearly used up, sorted by name."""
    for name in sorted(names):
        info = scratch.cluster.nodes.get(name)
        if info is None:
            continue
        full = {resource: round(part, 3) for resource, part in _used(info).items() if part >= FULL}
        if full:
            yield {"name": name, "requested": full}


def _used(info: NodeInfo) -> Mapping[str, float]:
    """Return the requested part of each resource that a node has; empty if no profile reads resources."""
    try:
        allocatable = info.node.allocatable
        free = info.free(allocatable)
    except NotDecoded:
        return {}
    return {name: (amount - free[name]) / amount for name, amount in allocatable.items() if amount > 0}
