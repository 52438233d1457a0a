"""Builds the pods of a workload's manifest, with the fields that its controller and the API server add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField, explained, mapping_at, number_at, text_at
from app.config.mistakes import NOTHING, Place, value_at
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from app.kube.names import is_subdomain
from app.whatif.launchers import APPROXIMATE, launcher_labels, launcher_owners, launcher_spec
from app.whatif.pod_templates import (
    PodTemplate,
    PriorityClasses,
    check_labels,
    check_selector,
    decoded,
    json_of,
    read_template,
    spec_for,
)
from app.whatif.simulated import SimulatedPod, generated_name, template_hash, uid_of

_SPEC: Final[Place] = ("spec",)
_TEMPLATE: Final[Place] = ("spec", "template")
_JOB_TEMPLATE: Final[Place] = ("spec", "jobTemplate")
_CLAIM_TEMPLATES: Final[Place] = ("spec", "volumeClaimTemplates")
_MINUTE: Final = 60

TEMPLATES: Final[Mapping[tuple[str, str], Place]] = {
    ("v1", "Pod"): (),
    ("v1", "ReplicationController"): _TEMPLATE,
    ("apps/v1", "Deployment"): _TEMPLATE,
    ("apps/v1", "ReplicaSet"): _TEMPLATE,
    ("apps/v1", "StatefulSet"): _TEMPLATE,
    ("batch/v1", "Job"): _TEMPLATE,
    ("batch/v1", "CronJob"): (*_JOB_TEMPLATE, *_TEMPLATE),
    ("kubevirt.io/v1", "VirtualMachine"): _TEMPLATE,
    ("kubevirt.io/v1", "VirtualMachineInstance"): (),
}
"""Path of the pod template by apiVersion and kind. For a VirtualMachine, it is the template of its instance."""

_HALTED: Final = ("Halted", "Manual")
"""Run strategies of a VirtualMachine that start no instance."""


class WorkloadManifest(Struct, frozen=True):
    """Object of a request that creates pods.

    ``index``: position of the object, as in ``TemplateError``. ``place``: path of ``document`` in that object; empty
    unless it is an item of a List. ``replicas``: number of pods. ``idle``: why the object is stopped, as a phrase; else
    empty.
    """

    index: int
    place: Place
    document: Mapping[str, Any]
    api_version: str
    kind: str
    namespace: str
    name: str
    replicas: int
    idle: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def template(self) -> Place:
        return TEMPLATES[self.api_version, self.kind]


def replicas_of(document: Mapping[str, Any], kind: str) -> tuple[int, str]:
    """Return the number of pods that an object starts, and why it is stopped, else empty. Raises ``BadField``."""
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
        return number_at(document, ("spec", "replicas"), 1), ""
    if kind in ("Job", "CronJob"):
        spec = _SPEC if kind == "Job" else (*_JOB_TEMPLATE, *_SPEC)
        pods = number_at(document, (*spec, "parallelism"), 1)
        pods = min(pods, number_at(document, (*spec, "completions"), pods))
        is_suspended = any(value_at(document, (*it, "suspend")) is True for it in (_SPEC, spec))
        return (0, "is suspended") if is_suspended else (pods, "")
    if kind == "VirtualMachine":
        strategy = text_at(document, ("spec", "runStrategy"))
        if value_at(document, ("spec", "running")) is False or strategy in _HALTED:
            return 0, "is not running"
    return 1, ""


_PENDING: Final = {"phase": "Pending"}
"""Status of a new pod."""


class WorkloadBuilder:
    """Builds the pods of one manifest.

    ``objects``: objects that the pods need: their controllers, instances and claims. ``created``: creation time of the
    first pod; each pod is one second younger than the one before it.
    """

    def __init__(
        self, manifest: WorkloadManifest, cluster: Cluster, priorities: PriorityClasses, created: datetime
    ) -> None:
        """Check the manifest. Raises ``BadField``."""
        self.objects: list[tuple[Kind[Any], Any]] = []
        self._manifest = manifest
        self._cluster = cluster
        self._created = created
        self._document = manifest.document
        self._uid = uid_of(manifest.kind, manifest.namespace, manifest.name)
        self.template = self._read_template(priorities)

    def _read_template(self, priorities: PriorityClasses) -> PodTemplate:
        """Return the checked and completed pod template. Raises ``BadField``."""
        manifest, place = self._manifest, self._manifest.template
        parts = {it: mapping_at(self._document, (*place, it)) for it in ("metadata", "spec")}
        if not parts["spec"]:
            raise BadField((*place, "spec"), "is missing")
        if manifest.kind in ("VirtualMachine", "VirtualMachineInstance"):
            labels = mapping_at(self._document, (*place, "metadata", "labels"))
            parts["metadata"] = {**parts["metadata"], "labels": launcher_labels(labels, manifest.name, self._uid)}
            try:
                parts["spec"] = launcher_spec(parts["spec"])
            except BadField as error:
                raise BadField((*place, "spec", *error.place), str(error)) from None
        template = read_template(parts["metadata"], parts["spec"], place, priorities)
        if manifest.kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            check_selector(self._document, template.labels, place)
        return template

    def pods(self) -> Iterator[SimulatedPod]:
        """Yield the pods, in the order in which the controller creates them. Raises ``BadField``."""
        builders: Mapping[str, Callable[[], Iterator[Pod]]] = {
            "Deployment": self._of_deployment,
            "ReplicaSet": self._of_replica_set,
            "ReplicationController": self._of_replication_controller,
            "StatefulSet": self._of_stateful_set,
            "Job": self._of_job,
            "CronJob": self._of_cron_job,
            "VirtualMachine": self._of_instance,
            "VirtualMachineInstance": self._of_instance,
        }
        kind = self._manifest.kind
        workload, reasons = self._manifest.title, [self.template.approximate]
        if kind == "Pod":
            yield SimulatedPod(self._pod(self._manifest.name, 0, {}, None), "", reasons[0])
            return
        if kind.startswith("VirtualMachine"):
            reasons.insert(0, APPROXIMATE)
        approximate = "; ".join(filter(None, reasons))
        for pod in builders[kind]():
            yield SimulatedPod(pod, workload, approximate)

    def _of_deployment(self) -> Iterator[Pod]:
        hashed = {"pod-template-hash": self._template_hash()}
        name = f"{self._manifest.name}-{hashed['pod-template-hash']}"
        selector = mapping_at(self._document, ("spec", "selector"))
        narrowed = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **hashed}}
        self._add_controller(REPLICA_SETS, name, narrowed, self._reference("Deployment", "apps/v1"))
        owner = _owner("ReplicaSet", "apps/v1", name, self._uid_of("ReplicaSet", name))
        yield from self._equal_pods(name, hashed, owner)

    def _of_replica_set(self) -> Iterator[Pod]:
        name = self._manifest.name
        self._add_controller(REPLICA_SETS, name, mapping_at(self._document, ("spec", "selector")), None)
        yield from self._equal_pods(name, {}, self._reference("ReplicaSet", "apps/v1"))

    def _of_replication_controller(self) -> Iterator[Pod]:
        name = self._manifest.name
        selector = mapping_at(self._document, ("spec", "selector")) or dict(self.template.labels)
        if not selector.items() <= self.template.labels.items():
            raise BadField(("spec", "selector"), "does not match the labels of the template")
        self._add_controller(REPLICATION_CONTROLLERS, name, selector, None)
        yield from self._equal_pods(name, {}, self._reference("ReplicationController", "v1"))

    def _of_stateful_set(self) -> Iterator[Pod]:
        name = self._manifest.name
        self._add_controller(STATEFUL_SETS, name, mapping_at(self._document, ("spec", "selector")), None)
        revision = f"{name}-{self._template_hash()}"
        claims = list(self._claim_templates())
        start = number_at(self._document, ("spec", "ordinals", "start"), 0)
        for number in range(self._manifest.replicas):
            ordinal = start + number
            pod_name = f"{name}-{ordinal}"
            labels = {
                "controller-revision-hash": revision,
                "statefulset.kubernetes.io/pod-name": pod_name,
                "apps.kubernetes.io/pod-index": str(ordinal),
            }
            volumes: list[Any] = []
            for template, claim in enumerate(claims):
                claim_name = f"{claim}-{pod_name}"
                volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim_name}})
                self._add_claim(claim_name, template)
            yield self._pod(pod_name, number, labels, self._reference("StatefulSet", "apps/v1"), volumes)

    def _of_job(self) -> Iterator[Pod]:
        yield from self._job_pods(self._manifest.name, self._uid, ())

    def _of_cron_job(self) -> Iterator[Pod]:
        name = f"{self._manifest.name}-{int(self._created.timestamp()) // _MINUTE}"
        yield from self._job_pods(name, self._uid_of("Job", name), _JOB_TEMPLATE)

    def _job_pods(self, name: str, uid: str, job: Place) -> Iterator[Pod]:
        owner = _owner("Job", "batch/v1", name, uid)
        labels: dict[str, str] = {}
        if value_at(self._document, (*job, "spec", "manualSelector")) is not True:
            for prefix in ("", "batch.kubernetes.io/"):
                labels |= {f"{prefix}controller-uid": uid, f"{prefix}job-name": name}
        if value_at(self._document, (*job, "spec", "completionMode")) != "Indexed":
            yield from self._equal_pods(name, labels, owner)
            return
        for index in range(self._manifest.replicas):
            indexed = {"batch.kubernetes.io/job-completion-index": str(index)}
            pod_name = self._free_name(f"{name}-{index}-", index)
            yield self._pod(pod_name, index, labels | indexed, owner)

    def _of_instance(self) -> Iterator[Pod]:
        name = self._manifest.name
        uid = self._uid_of("VirtualMachineInstance", name)
        owner = _owner("VirtualMachineInstance", "kubevirt.io/v1", name, uid)
        for kind, obj in launcher_owners(self._cluster, self._manifest, self._uid, uid):
            self._add(kind, obj, ())
        for _ in range(self._manifest.replicas):
            yield self._pod(self._free_name(f"virt-launcher-{name}-", 0), 0, {}, owner)

    def _equal_pods(self, name: str, labels: Mapping[str, str], owner: Mapping[str, Any]) -> Iterator[Pod]:
        """Yield pods that differ only in name, UID and time. Only the first one is decoded."""
        first: Pod | None = None
        for number in range(self._manifest.replicas):
            pod_name = self._free_name(f"{name}-", number)
            if first is None:
                first = self._pod(pod_name, number, labels, owner)
                yield first
            else:
                created = self._time(number)
                yield replace(first, name=pod_name, uid=self._uid_of("Pod", pod_name), created=created)

    def _pod(
        self,
        name: str,
        number: int,
        labels: Mapping[str, str],
        owner: Mapping[str, Any] | None,
        claims: list[Any] | None = None,
    ) -> Pod:
        """Return a pod of the template. ``number``: seconds after the first pod. Raises ``BadField``."""
        place = self.template.place
        if not is_subdomain(name):
            raise BadField(("metadata", "name"), f"makes the name {name} of a pod, which Kubernetes rejects")
        if self._cluster.pod(self._manifest.namespace, name) is not None:
            raise BadField(("metadata", "name"), f"a pod {name} exists in namespace {self._manifest.namespace}")
        check_labels(labels, (*place, "metadata", "labels"))
        every = {**self.template.labels, **labels}
        spec = spec_for(self.template, every)
        if claims:
            replaced = [it["name"] for it in claims]  # a list, because a wrong name can be unhashable
            spec["volumes"] = [*claims, *(it for it in spec.get("volumes") or () if it.get("name") not in replaced)]
        metadata = {
            "name": name,
            "namespace": self._manifest.namespace,
            "uid": self._uid_of("Pod", name),
            "resourceVersion": "1",
            "labels": every,
            "annotations": self.template.annotations,
            "creationTimestamp": self._time(number),
            **({} if owner is None else {"ownerReferences": [owner]}),
        }
        return decoded(self._cluster.core.decode_pod, {"metadata": metadata, "spec": spec, "status": _PENDING}, place)

    def _claim_templates(self) -> Iterator[str]:
        """Yield the name of each volumeClaimTemplate. Raises ``BadField``."""
        templates = value_at(self._document, _CLAIM_TEMPLATES)
        if not isinstance(templates, list):
            if templates not in (NOTHING, None):
                raise BadField(_CLAIM_TEMPLATES, "must be a list")
            return
        for number in range(len(templates)):
            name = text_at(self._document, (*_CLAIM_TEMPLATES, number, "metadata", "name"))
            if not name:
                raise BadField((*_CLAIM_TEMPLATES, number, "metadata", "name"), "is missing")
            yield name

    def _add_claim(self, name: str, template: int) -> None:
        """Add a claim of a StatefulSet, unless it exists in the cluster. ``template``: number of its template."""
        namespace = self._manifest.namespace
        if self._cluster.others.get(PERSISTENT_VOLUME_CLAIMS, namespace, name) is None:
            place = (*_CLAIM_TEMPLATES, template)
            metadata = mapping_at(self._document, (*place, "metadata"))
            identity = {"name": name, "namespace": namespace, "uid": self._uid_of("PersistentVolumeClaim", name)}
            claim = {
                "metadata": {**metadata, **identity, "resourceVersion": "1"},
                "spec": mapping_at(self._document, (*place, "spec")),
            }
            self._add(PERSISTENT_VOLUME_CLAIMS, claim, place)

    def _add_controller(
        self, kind: Kind[Any], name: str, selector: Mapping[str, Any], owner: Mapping[str, Any] | None
    ) -> None:
        """Add the controller to ``objects``. Default topology spread constraints use its selector."""
        metadata = {"name": name, "namespace": self._manifest.namespace, "uid": self._uid_of(kind.kind, name)}
        owners = {} if owner is None else {"ownerReferences": [owner]}
        obj = {"metadata": {**metadata, **owners, "resourceVersion": "1"}, "spec": {"selector": selector}}
        self._add(kind, obj, ())

    def _add(self, kind: Kind[Any], obj: Mapping[str, Any], place: Place) -> None:
        """Decode an object and add it to ``objects``. ``place``: path of its fields in the manifest."""
        try:
            self.objects.append((kind, self._cluster.decoder(kind)(json_of(obj, place))))
        except msgspec.DecodeError as error:
            field, message = explained(str(error), obj)
            raise BadField((*place, *field), message) from None

    def _template_hash(self) -> str:
        place = self._manifest.template
        return template_hash(json_of(value_at(self._document, place), place))

    def _reference(self, kind: str, api_version: str) -> Mapping[str, Any]:
        return _owner(kind, api_version, self._manifest.name, self._uid)

    def _free_name(self, base: str, number: int) -> str:
        """Return a generated name that no pod of the cluster has."""
        name = generated_name(base, number)
        while self._cluster.pod(self._manifest.namespace, name) is not None:
            number += self._manifest.replicas + 1
            name = generated_name(base, number)
        return name

    def _uid_of(self, kind: str, name: str) -> str:
        return uid_of(kind, self._manifest.namespace, name)

    def _time(self, number: int) -> str:
        return (self._created + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _owner(kind: str, api_version: str, name: str, uid: str) -> Mapping[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}
