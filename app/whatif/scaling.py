"""Simulated scaling of workloads on a snapshot.

New pods are copies of the workload's newest pod. Pods are removed in the order in which their controller removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import astuple, replace

from app.analysis.removal import ordinal_of, removal_order
from app.analysis.workloads import workloads_of
from app.cache.cluster import Cluster
from app.kube.core_v1 import NOT_WAITING, Pod, PodSpec
from app.kube.deletion_cost import NO_COST
from app.kube.disruption import Disruption
from app.kube.extras import interned_parts
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, Kind
from app.kube.labels import label_set
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.volumes import PodVolume
from app.whatif.ephemeral import claims_like, unbound
from app.whatif.simulated import ScaledWorkload, SimulatedPod, generated_name, uid_of

_STATEFUL_SET: Final = "StatefulSet"
_BY_BIND: Final = (f"{ANNOTATION_DOMAIN}home", f"{ANNOTATION_DOMAIN}unclear-bind")
"""Prefixes of the annotations that Homeport writes at a bind, or after an unclear one. A new pod does not have them."""

_ORDERED: Final = (_STATEFUL_SET, "Deployment", "ReplicaSet", "ReplicationController")
"""Kinds of controllers whose order of removal ``removal_order`` reproduces."""

_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_OTHER_REVISIONS: Final = "pods of several controllers exist; a rollout changes their order"
_GENERATED_CLAIMS: Final = "uses the ResourceClaims of the copied pod; the real pod gets new ones"


class WorkloadPods:
    """Active pods of workloads: pods that are neither Terminating nor finished.

    The pods of a namespace are indexed when the first of its workloads is looked up.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._by_namespace: dict[str, dict[tuple[str, str], list[Pod]]] = {}

    def of(self, namespace: str, kind: str, name: str) -> Sequence[Pod]:
        """Return the active pods of a workload."""
        if namespace not in self._by_namespace:
            index: dict[tuple[str, str], list[Pod]] = {}
            for pod in self._cluster.pods_in(namespace):
                if not pod.terminating and not pod.finished:
                    for workload in workloads_of(pod):
                        index.setdefault(workload, []).append(pod)
            self._by_namespace[namespace] = index
        return self._by_namespace[namespace].get((kind, name), ())


class Rescaling:
    """Scaling of a workload that has active pods. The added pods are copies of the newest one.

    ``now``: time of the scaling. The added pods are created from then on.
    """

    def __init__(
        self, cluster: Cluster, pods: Sequence[Pod], kind: str, name: str, replicas: int, now: datetime
    ) -> None:
        self._cluster = cluster
        self._pods = pods
        self._kind = kind
        self._name = name
        self._replicas = replicas
        self._now = now
        self._source = max(pods, key=lambda it: it.created)
        self._title = f"{kind}/{self._source.namespace}/{name}"

    @property
    def added(self) -> int:
        """Maximum number of added pods. A StatefulSet adds fewer if inactive pods, such as Terminating ones, exist."""
        if self._kind != _STATEFUL_SET:
            return max(0, self._replicas - len(self._pods))
        wanted = self._wanted_ordinals()
        return len(wanted) - len({it for it in map(ordinal_of, self._pods) if it in wanted})

    def add_to(self, scaled: ScaledWorkload) -> None:
        """Add the new pods, their objects and the removed pods to ``scaled``."""
        for pod, objects in self._ordinals() if self._kind == _STATEFUL_SET else self._copies():
            scaled.added.append(SimulatedPod(pod, self._title, self._doubt()))
            scaled.objects += objects
        removed = self._removed()
        if removed:
            scaled.removed += removed
            scaled.approximate = scaled.approximate or self._doubt_of_order()

    def _removed(self) -> Sequence[Pod]:
        """Return the pods that are removed, in the order of their removal."""
        order = removal_order(self._kind, self._pods, self._now)
        if self._kind == _STATEFUL_SET:
            wanted = self._wanted_ordinals()
            return [pod for pod in order if ordinal_of(pod) not in wanted]
        return order[: max(0, len(self._pods) - self._replicas)]

    def _doubt_of_order(self) -> str:
        """Return why the controller could remove other pods; empty if no reason is known."""
        if self._kind not in _ORDERED:
            return f"a {self._kind} removes pods in an order that also depends on their state"
        owners = {pod.owner.uid for pod in self._pods if pod.owner is not None}
        return _OTHER_REVISIONS if len(owners) > 1 else ""

    def _doubt(self) -> str:
        """Return why a real new pod can differ from the copy; empty if no reason is known."""
        claims = self._source.spec.parts.claims
        has_templates = claims is not None and any(it.template is not None for it in claims.claims)
        return _GENERATED_CLAIMS if has_templates else ""

    def _wanted_ordinals(self) -> range:
        """Return the ordinals that the StatefulSet has after scaling, from the lowest ordinal of an active pod."""
        start = max(0, min(map(ordinal_of, self._pods)))
        return range(start, start + self._replicas)

    def _ordinals(self) -> Iterator[tuple[Pod, list[tuple[Kind[Any], Any]]]]:
        """Yield the missing pods of a StatefulSet, each with its new claims. A Terminating pod is not missing."""
        names = ((it, f"{self._name}-{it}") for it in self._wanted_ordinals())
        missing = (it for it in names if self._cluster.pod(self._source.namespace, it[1]) is None)
        for number, (ordinal, name) in enumerate(missing):
            labels = {_POD_NAME: name, _POD_INDEX: str(ordinal)}
            spec, claims = self._with_claims_of(ordinal)
            yield self._with_ephemeral(self._copy(name, number, labels, spec), claims)

    def _copies(self) -> Iterator[tuple[Pod, list[tuple[Kind[Any], Any]]]]:
        """Yield copies of the newest pod with new names, each with its new claims."""
        spec = self._without_node(self._source.spec.parts.volumes)
        base = f"{self._source.owner.name if self._source.owner else self._name}-"
        index = max((_index_of(it) for it in self._pods), default=-1)
        number = 0
        for _ in range(self._replicas - len(self._pods)):
            name = generated_name(base, number)
            while self._cluster.pod(self._source.namespace, name) is not None:
                number += 1
                name = generated_name(base, number)
            index += 1
            yield self._with_ephemeral(self._copy(name, number, {_COMPLETION_INDEX: str(index)}, spec), [])
            number += 1

    def _with_ephemeral(
        self, pod: Pod, objects: list[tuple[Kind[Any], Any]]
    ) -> tuple[Pod, list[tuple[Kind[Any], Any]]]:
        """Return the pod, and ``objects`` plus the claims of the pod's ephemeral volumes."""
        claims = claims_like(self._cluster, self._source.name, pod)
        return pod, [*objects, *((PERSISTENT_VOLUME_CLAIMS, it) for it in claims)]

    def _copy(self, name: str, number: int, labels: Mapping[str, str], spec: PodSpec) -> Pod:
        """Return a copy of the newest pod. ``number``: seconds from ``now`` to its creation.

        ``labels``: new values of labels, used only if the pod has the label.
        """
        source = self._source
        changed = {key: value for key, value in labels.items() if key in source.labels}
        return replace(
            source,
            name=name,
            uid=uid_of("Pod", source.namespace, name),
            resource_version="1",
            labels=label_set({**source.labels, **changed}) if changed else source.labels,
            annotations={key: value for key, value in source.annotations.items() if not key.startswith(_BY_BIND)},
            spec=spec,
            node_name="",
            waiting=NOT_WAITING,
            created=(self._now + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            lifecycle=self._lifecycle(),
        )

    def _lifecycle(self) -> Any:
        """Return ``lifecycle`` of a pod that was just created; ``None`` if the newest pod has none."""
        known = self._source.lifecycle
        if known is None:
            return None
        cost = None if known.cost is None else NO_COST
        if not isinstance(known, Disruption):
            return replace(known, cost=cost)
        return replace(known, cost=cost, started=None, preempted=False, ready=False, pending=True)

    def _without_node(self, volumes: tuple[PodVolume, ...] | None) -> PodSpec:
        """Return the copied pod's spec with these volumes. It has no node, so all its claims are pending volumes."""
        spec = self._source.spec
        if volumes is None:
            return spec
        pending = None
        if spec.parts.pending_volumes is not None:
            pending = tuple(it for it in volumes if it.claim is not None or it.ephemeral)
        parts = replace(spec.parts, volumes=volumes, pending_volumes=pending)
        return replace(spec, parts=interned_parts(*astuple(parts)))

    def _with_claims_of(self, ordinal: int) -> tuple[PodSpec, list[tuple[Kind[Any], Any]]]:
        """Return the spec with the claims of an ordinal, and the claims to create.

        They are unbound copies of the newest pod's claims. Claims that exist already are left out.
        """
        volumes = self._source.spec.parts.volumes
        if not volumes:
            return self._without_node(volumes), []
        own, new = f"-{self._source.name}", f"-{self._name}-{ordinal}"
        changed: list[PodVolume] = []
        created: list[tuple[Kind[Any], Any]] = []
        for volume in volumes:
            if volume.claim is None or not volume.claim.endswith(own):
                changed.append(volume)
                continue
            claim = volume.claim.removesuffix(own) + new
            changed.append(replace(volume, claim=claim))
            source = self._cluster.others.get(PERSISTENT_VOLUME_CLAIMS, self._source.namespace, volume.claim)
            exists = self._cluster.others.get(PERSISTENT_VOLUME_CLAIMS, self._source.namespace, claim) is not None
            if source is not None and not exists:
                created.append((PERSISTENT_VOLUME_CLAIMS, unbound(source, claim)))
        return self._without_node(tuple(changed)), created


def _index_of(pod: Pod) -> int:
    index = pod.labels.get(_COMPLETION_INDEX, "")
    return int(index) if index.isascii() and index.isdigit() else -1
