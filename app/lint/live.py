"""Workloads of a snapshot, and configurations in its ConfigMaps.

A workload is a listed object with a pod template, a group of pods whose owner is not listed, or a pod without an owner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField
from app.config.mistakes import written
from app.homes.protocol import POLICY
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.kube.kinds import PODS, Kind
from app.lint.manifests import BrokenManifest, ManifestObject, ReadManifests, configurations_in
from app.lint.workloads import IGNORE, KINDS, LintedWorkload, workload_of

_JSON: Final[Decoder[Any]] = Decoder(Any)
_HASH: Final = "pod-template-hash"


def _decoder(api_version: str, kind: str) -> Kind[LintedWorkload]:
    """Return a ``Kind`` that decodes objects of this kind to ``LintedWorkload``."""

    def decode(raw: bytes | Raw) -> LintedWorkload:
        document = {**_JSON.decode(raw), "apiVersion": api_version, "kind": kind}
        try:
            workload = workload_of(document)
        except BadField as error:
            raise ValueError(f"{written(error.place)}: {error}") from None
        return replace(workload, namespace=workload.namespace or "default")

    return Kind(api_version, kind, decode)


WORKLOADS: Final = tuple(_decoder(*pair) for pair in KINDS if pair != (PODS.api_version, PODS.kind))
"""Kinds of all objects with a pod template, except pods, decoded for the rules.

Do not add them to a snapshot that plugins read: plugins decode objects of these kinds differently.
"""


class ConfigMapConfigurations(Struct, frozen=True):
    """ConfigMap, reduced to the texts in its data that contain a configuration of kube-scheduler or Homeport.

    ``objects``: objects in these texts. ``broken``: messages about what cannot be read in them.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    objects: tuple[ManifestObject, ...]
    broken: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


class _ConfigMapMeta(Struct, rename="camel"):
    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _ConfigMap(Struct):
    metadata: _ConfigMapMeta
    data: dict[str, str] | None = None


_CONFIG_MAP: Final = Decoder[_ConfigMap](_ConfigMap)


def _config_map(raw: bytes | Raw) -> ConfigMapConfigurations:
    decoded = _CONFIG_MAP.decode(raw)
    meta = decoded.metadata
    metadata = {"namespace": meta.namespace, "name": meta.name}
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": decoded.data}
    held = configurations_in(ManifestObject("", value, (), {}, 0, _ids((meta.annotations or {}).get(IGNORE, ""))))
    objects = tuple(replace(it, lines={}, line=0) for it in held.objects)  # an object of a cluster has no line numbers
    broken = tuple(f"ConfigMap {meta.namespace}/{meta.name}: {it.message}" for it in held.broken)
    return ConfigMapConfigurations(meta.namespace, meta.name, meta.uid, meta.resource_version, objects, broken)


CONFIG_MAPS: Final = Kind("v1", "ConfigMap", _config_map)
"""Kind of ConfigMaps, decoded to ``ConfigMapConfigurations``."""


def configurations_of(cluster: Cluster, namespace: str, source: str, file: str) -> ReadManifests:
    """Return the configurations in the ConfigMaps of a namespace, or of all namespaces if ``namespace`` is empty.

    ``source``: name of the input for messages about parts that cannot be read. ``file``: file of the objects; empty for
    a live cluster.
    """
    read = ReadManifests([], [])
    for key in sorted(cluster.others.keys(CONFIG_MAPS)):
        holder = cluster.others.get(CONFIG_MAPS, *key)
        if holder is not None and namespace in ("", holder.namespace):
            read.objects += (replace(it, file=file) for it in holder.objects)
            read.broken += (BrokenManifest(source, 0, it) for it in holder.broken)
    return read


def workloads_in(cluster: Cluster, namespace: str) -> Iterator[LintedWorkload]:
    """Yield the workloads of a namespace, or of all namespaces if ``namespace`` is empty.

    They are the objects without a listed controller, and the pods without a listed owner. Pods of one owner are one
    workload, named like the owner. Objects with 0 replicas, such as old ReplicaSets, are left out. An owner without a
    template, as in saved clusters, is an additional workload if it has a home policy.
    """
    listed = [it for it in _listed(cluster) if namespace in ("", it.namespace)]
    known = {(it.namespace, it.kind, it.name) for it in listed if it.pod is not None}
    for workload in listed:
        controller = workload.controller
        is_part = controller is not None and (workload.namespace, *controller) in known
        if workload.pod is not None and not is_part and workload.replicas != 0:
            yield workload
    yield from (it for it in listed if it.pod is None and it.policies)
    yield from _groups(cluster.pods_in(namespace) if namespace else cluster.pods(), known)


def _listed(cluster: Cluster) -> Iterator[LintedWorkload]:
    """Yield all objects of the kinds ``WORKLOADS``, also those without a pod template, as in saved clusters."""
    for kind in WORKLOADS:
        for key in cluster.others.keys(kind):
            workload = cluster.others.get(kind, *key)
            if workload is not None:
                yield workload


def _groups(pods: Iterable[Pod], known: set[tuple[str, str, str]]) -> Iterator[LintedWorkload]:
    """Yield a workload for the pods of each owner that is not in ``known``. Its template is the newest pod.

    Finished, terminating and static pods are left out. A pod without an owner is a workload of its own.
    """
    groups: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in pods:
        kind, name = (pod.owner.kind, pod.owner.name) if pod.owner is not None else (PODS.kind, pod.name)
        machine = "VirtualMachine" if kind == "VirtualMachineInstance" else kind
        is_judged = (pod.namespace, machine, name) in known or kind == "Node" or pod.finished or pod.terminating
        if not is_judged:
            groups.setdefault((pod.namespace, kind, name), []).append(pod)
    for (namespace, kind, name), members in groups.items():
        newest = max(members, key=lambda it: it.created)
        policy = newest.annotations.get(POLICY)
        yield LintedWorkload(
            kind=kind,
            namespace=namespace,
            name=sys.intern(name),
            uid="",
            pod=replace(newest, name=name),
            template=(),
            replicas=None if kind == "DaemonSet" else len(members),
            rolls=kind == "ReplicaSet" and _HASH in newest.labels,
            policies={} if policy is None else {("metadata", "annotations", POLICY): policy},
            ignored=_ids(newest.annotations.get(IGNORE, "")),
        )


def _ids(text: str) -> frozenset[str]:
    """Return the rule ids in the value of an annotation ``IGNORE``."""
    return frozenset(part.strip() for part in text.split(","))
