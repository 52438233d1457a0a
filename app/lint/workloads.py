"""Decodes objects with a pod template into workloads, with the models of ``app.kube``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from app.config.manifest_fields import BadField, explained, mapping_at, number_at, text_at
from app.config.mistakes import NOTHING, Place, value_at
from app.homes.protocol import POLICY
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import SPREAD, Pod, TopologySpreadConstraint
from app.kube.extras import Extra
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.whatif.launchers import launcher_volumes

IGNORE: Final = f"{ANNOTATION_DOMAIN}ignore"
"""Annotation of an object or its pod template: ids of rules to ignore for the object, separated by commas."""

CORE: Final = core_v1({Extra.VOLUMES})
"""Decoders of pods and nodes with all fields that the rules read."""

_TEMPLATE: Final = ("spec", "template")
_TEMPLATES: Final[Mapping[tuple[str, str], Place]] = {
    ("v1", "Pod"): (),
    ("apps/v1", "Deployment"): _TEMPLATE,
    ("apps/v1", "StatefulSet"): _TEMPLATE,
    ("apps/v1", "ReplicaSet"): _TEMPLATE,
    ("apps/v1", "DaemonSet"): _TEMPLATE,
    ("batch/v1", "Job"): _TEMPLATE,
    ("batch/v1", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("kubevirt.io/v1", "VirtualMachine"): _TEMPLATE,
}
"""Path of the pod template by apiVersion and kind."""

KINDS: Final = tuple(_TEMPLATES)
"""apiVersion and kind of all objects with a pod template that are judged."""

_REPLICAS: Final[Mapping[str, Place]] = {
    "Deployment": ("spec", "replicas"),
    "StatefulSet": ("spec", "replicas"),
    "ReplicaSet": ("spec", "replicas"),
    "Job": ("spec", "parallelism"),
    "CronJob": ("spec", "jobTemplate", "spec", "parallelism"),
}
"""Path of the number of replicas by kind. Other kinds have one pod, and a DaemonSet one for each matching node."""

_LAUNCHER: Final = {"kubevirt.io": "virt-launcher"}
"""Label that KubeVirt adds to the pods of a VirtualMachine."""


class LintedWorkload(Struct, frozen=True):
    """Object with a pod template, or a group of pods with the same owner.

    ``pod``: the template, decoded as a pod; ``None`` if the object has no template, as in saved clusters.
    ``template``: path of the template. ``replicas``: ``None`` if the number depends on the nodes. ``rolls``: true if
    a Deployment runs pods of two revisions at the same time during a rollout. ``claims``: names of
    ``volumeClaimTemplates``. ``first_ordinal``: lowest ordinal of a StatefulSet. ``policies``: home policies by the
    paths of their annotations. ``controller``: kind and name of the object's controller, if any. ``ignored``: rule ids
    in annotations.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    pod: Pod | None
    template: Place
    replicas: int | None = 1
    rolls: bool = False
    claims: tuple[str, ...] = ()
    first_ordinal: int = 0
    policies: Mapping[Place, str] = {}
    controller: tuple[str, str] | None = None
    ignored: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        return () if self.pod is None else self.pod.spec.spread

    @property
    def hard(self) -> tuple[tuple[int, TopologySpreadConstraint], ...]:
        """Hard constraints, each with its index among all constraints."""
        return tuple((number, it) for number, it in enumerate(self.constraints) if it.is_hard)

    def constraint_place(self, number: int, *field: str) -> Place:
        """Return the path of a constraint, or of one of its fields."""
        return (*self.template, *SPREAD.split("."), number, *field)


def has_template(document: Mapping[str, Any]) -> bool:
    """Return True if the rules judge the pod template of objects of this kind."""
    return (document.get("apiVersion"), document.get("kind")) in _TEMPLATES


def workload_of(document: Mapping[str, Any]) -> LintedWorkload:
    """Decode an object with a pod template. Raises ``BadField``."""
    kind = str(document["kind"])
    template = _TEMPLATES[str(document["apiVersion"]), kind]
    metadata = mapping_at(document, ("metadata",))
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str):
        raise BadField(("metadata", "name"), "must be a string" if name else "is missing")
    namespace = text_at(document, ("metadata", "namespace"))
    annotations = {it: mapping_at(document, (*it, "annotations")) for it in (("metadata",), (*template, "metadata"))}
    return LintedWorkload(
        kind=kind,
        namespace=namespace,
        name=name,
        uid=text_at(document, ("metadata", "uid")),
        pod=_pod(document, template, kind, name, namespace),
        template=template,
        replicas=_replicas(document, kind),
        rolls=_rolls(document, kind),
        claims=tuple(_claim_names(document)),
        first_ordinal=number_at(document, ("spec", "ordinals", "start"), 0) if kind == "StatefulSet" else 0,
        policies={
            (*place, "annotations", POLICY): str(found[POLICY])
            for place, found in annotations.items()
            if POLICY in found
        },
        controller=_controller(document),
        ignored=frozenset(
            part.strip() for found in annotations.values() for part in str(found.get(IGNORE, "")).split(",")
        ),
    )


def check_read(pod: Pod, template: Place) -> None:
    """Raise ``BadField`` if a field of the pod was too large to be decoded: the rules would take it for empty."""
    for field in pod.spec.oversized:
        raise BadField((*template, *field.split(".")), "is longer than Homeport reads")


def _pod(document: Mapping[str, Any], template: Place, kind: str, name: str, namespace: str) -> Pod | None:
    if value_at(document, (*template, "spec")) in (NOTHING, None):
        return None
    metadata, spec = mapping_at(document, (*template, "metadata")), mapping_at(document, (*template, "spec"))
    identity = {"name": name, "namespace": namespace or None}
    if kind == "VirtualMachine":
        metadata = {**metadata, "labels": {**_LAUNCHER, **mapping_at(document, (*template, "metadata", "labels"))}}
        spec = {**spec, "volumes": list(_launcher_volumes(spec))}
    pod = {"metadata": {**metadata, **identity}, "spec": spec}
    try:
        decoded = CORE.decode_pod(msgspec.json.encode(pod))
    except msgspec.DecodeError as error:
        place, message = explained(str(error), pod)
        raise BadField((*template, *place), message) from None
    except (TypeError, RecursionError) as error:
        raise BadField((*template, "spec"), str(error)) from None
    check_read(decoded, template)
    for number, constraint in enumerate(decoded.spec.spread):
        if constraint.invalid:
            place = (*template, *SPREAD.split("."), number, "labelSelector")
            raise BadField(place, constraint.invalid)
    return decoded


def _launcher_volumes(spec: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the volumes of a VirtualMachine's launcher pod. Raises ``BadField``."""
    try:
        yield from launcher_volumes(spec)
    except BadField as error:
        raise BadField((*_TEMPLATE, "spec", *error.place), str(error)) from None


def _replicas(document: Mapping[str, Any], kind: str) -> int | None:
    if kind == "DaemonSet":
        return None
    place = _REPLICAS.get(kind)
    if place is None:
        return 1
    replicas = number_at(document, place, 1)
    if place[-1] == "parallelism":  # a Job runs no more pods at once than it needs completions
        return min(replicas, number_at(document, (*place[:-1], "completions"), replicas))
    return replicas


def _rolls(document: Mapping[str, Any], kind: str) -> bool:
    """Return True for Deployments with another strategy than ``Recreate``, and for ReplicaSets of any Deployment."""
    if kind == "Deployment":
        return bool(value_at(document, ("spec", "strategy", "type")) != "Recreate")
    return kind == "ReplicaSet" and (_controller(document) or ("",))[0] == "Deployment"


def _claim_names(document: Mapping[str, Any]) -> Iterator[str]:
    templates = value_at(document, ("spec", "volumeClaimTemplates"))
    for number in range(len(templates) if isinstance(templates, list) else 0):
        yield text_at(document, ("spec", "volumeClaimTemplates", number, "metadata", "name"))


def _controller(document: Mapping[str, Any]) -> tuple[str, str] | None:
    owners = value_at(document, ("metadata", "ownerReferences"))
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            return str(owner.get("kind")), str(owner.get("name"))
    return None
