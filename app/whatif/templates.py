"""Builds the pods of a request: those of its manifests, and those that a new number of replicas adds or removes.

All input is untrusted: depth, number of objects and number of pods are limited before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.config.manifest_fields import BadField, text_at
from app.config.mistakes import Place, written
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PRIORITY_CLASSES
from app.kube.names import is_label, is_subdomain
from app.kube.priority_classes import PriorityClass
from app.whatif.ephemeral import claims_of_template
from app.whatif.other_objects import add_object
from app.whatif.pod_templates import PriorityClasses, json_of
from app.whatif.scaling import Rescaling, WorkloadPods
from app.whatif.simulated import ManifestPods, ScaledWorkload, TemplateError, generated_name, printable
from app.whatif.workloads import TEMPLATES, WorkloadBuilder, WorkloadManifest, replicas_of

MOST_PODS: Final = 5_000
"""Maximum number of pods that a request adds."""

MOST_OBJECTS: Final = 10_000
"""Maximum number of objects of a request, those in Lists included."""

_MOST_LISTS: Final = 3
"""Maximum number of Lists within each other."""

_MOST_DEPTH: Final = 64
"""Maximum depth to which mappings and lists can be nested in an object."""

_DAEMON_SET: Final = "DaemonSet"
_NOT_SCALED: Final = (_DAEMON_SET, "Pod", "CronJob")
_NO_POD: Final = "from the manifest, because the workload has no pod"
_WITHOUT_PODS: Final = "makes pods that cannot be simulated"
_VERSIONS: Final = {kind: version for version, kind in TEMPLATES}


def pods_of(
    objects: Sequence[Mapping[str, Any]],
    cluster: Cluster,
    namespace: str,
    most: int,
    now: datetime | None = None,
) -> ManifestPods:
    """Return the pods of manifests. Raises ``TemplateError``.

    ``namespace``: of objects that name none. ``most``: maximum number of added pods. ``now``: creation time of the
    first pod; by default the present. If a workload has pods in the cluster, only the difference to the replicas of its
    manifest is added or removed.
    """
    changes = ManifestPods([], [], [])
    moment = now or datetime.now(UTC)
    every = list(_flattened(objects))
    priorities = PriorityClasses(_priority_classes(every, cluster))
    existing = WorkloadPods(cluster)
    pending: list[tuple[WorkloadManifest, Rescaling | None]] = []
    total = 0
    for manifest in _manifests(every, namespace, cluster, changes):
        pending.append((manifest, _rescaling(manifest, existing, cluster, moment, changes)))
        total += manifest.replicas if pending[-1][1] is None else pending[-1][1].added
        if total > most:
            place = TEMPLATES[manifest.api_version, manifest.kind]
            raise _error(manifest, place[:1], f"the request has more than {most:,} pods")
    names: set[tuple[str, str]] = set()
    for manifest, rescaling in pending:
        before = len(changes.added)
        created = moment + timedelta(seconds=before)
        try:
            builder = WorkloadBuilder(manifest, cluster, priorities, created)
            if rescaling:
                rescaling.add_to(changes)
            else:
                _build(builder, changes)
        except BadField as error:
            raise _error(manifest, error.place, str(error)) from None
        for pod in changes.added[before:]:
            if pod.pod.key in names:
                raise _error(manifest, ("metadata", "name"), f"another object makes a pod {pod.pod.name} too")
            names.add(pod.pod.key)
    return changes


def scaled(
    cluster: Cluster,
    namespace: str,
    kind: str,
    name: str,
    replicas: int,
    templates: Sequence[Mapping[str, Any]] = (),
    now: datetime | None = None,
    most: int = MOST_PODS,
) -> ScaledWorkload:
    """Return the pods that a new number of replicas adds and removes. Raises ``TemplateError``.

    ``templates``: objects of the request; one of them is used if the workload has no pods. ``now`` and ``most``: like
    those of ``pods_of``.
    """
    moment = now or datetime.now(UTC)
    if kind in _NOT_SCALED or kind.startswith("VirtualMachine"):
        raise TemplateError(-1, "", f"the number of pods of a {kind} cannot be changed")
    if replicas < 0:
        raise TemplateError(-1, "", "the number of replicas must be 0 or more")
    pods = WorkloadPods(cluster).of(namespace, kind, name)
    rescaling = Rescaling(cluster, pods, kind, name, replicas, moment) if pods else None
    if (rescaling.added if rescaling else replicas) > most:
        raise TemplateError(-1, "", f"the request has more than {most:,} pods")
    changes = ScaledWorkload([], [], [])
    if rescaling:
        rescaling.add_to(changes)
        return changes
    every = list(_flattened(templates))
    for manifest in _manifests(every, namespace, cluster, ManifestPods([], [], [])):
        if manifest.title == f"{kind}/{namespace}/{name}":
            priorities = PriorityClasses(_priority_classes(every, cluster))
            _add_first_pods(replace(manifest, replicas=replicas), cluster, priorities, moment, changes)
            return changes
    raise TemplateError(-1, "", f"{kind} {namespace}/{name} has no pod that could be copied: give its manifest too")


def _add_first_pods(
    manifest: WorkloadManifest,
    cluster: Cluster,
    priorities: PriorityClasses,
    created: datetime,
    changes: ScaledWorkload,
) -> None:
    """Add the pods of a workload that has none in the cluster. Raises ``TemplateError``."""
    try:
        _build(WorkloadBuilder(manifest, cluster, priorities, created), changes)
    except BadField as error:
        raise _error(manifest, error.place, str(error)) from None
    doubts = ("; ".join(filter(None, (_NO_POD, it.approximate))) for it in changes.added)
    changes.added[:] = [replace(it, approximate=doubt) for it, doubt in zip(changes.added, doubts, strict=True)]


def _flattened(objects: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Place, Mapping[str, Any]]]:
    """Yield the objects, and the items of Lists instead of the Lists. Raises ``TemplateError``.

    Each is a triple: position in ``objects``, path within the object at that position, object. The path is empty unless
    the object is an item of a List.
    """
    stack: list[tuple[int, Place, Any]] = []
    stack += [(number, (), it) for number, it in enumerate(objects)][::-1]
    yielded = 0
    while stack:
        index, place, obj = stack.pop()
        if not isinstance(obj, dict):
            raise TemplateError(index, written(place), "must be a mapping")
        kind = obj.get("kind")
        if not isinstance(kind, str) or not kind:
            raise TemplateError(index, written((*place, "kind")), "must be a string" if kind else "is missing")
        items = obj.get("items")
        if kind.endswith("List") and isinstance(items, list | None):
            if len(place) >= 2 * _MOST_LISTS:
                raise TemplateError(index, written(place), "too many Lists within each other")
            defaults = (
                {} if kind == "List" else {"apiVersion": obj.get("apiVersion"), "kind": kind.removesuffix("List")}
            )
            typed = ({**defaults, **it} if isinstance(it, dict) else it for it in items or ())
            stack += [(index, (*place, "items", number), it) for number, it in enumerate(typed)][::-1]
            continue
        yielded += 1
        if yielded > MOST_OBJECTS:
            raise TemplateError(index, written(place), f"the request has more than {MOST_OBJECTS:,} objects")
        if _is_deep(obj):
            raise TemplateError(index, written(place), f"is nested more than {_MOST_DEPTH} levels deep")
        yield index, place, obj


def _is_deep(obj: Any) -> bool:
    """Return True if the mappings and lists of an object are nested more than ``_MOST_DEPTH`` levels deep."""
    level = [obj]
    for _ in range(_MOST_DEPTH):
        parts = (it.values() if isinstance(it, dict) else it for it in level)
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _manifests(
    every: Sequence[tuple[int, Place, Mapping[str, Any]]], namespace: str, cluster: Cluster, changes: ManifestPods
) -> Iterator[WorkloadManifest]:
    """Yield the objects that create pods, such as Deployments. Raises ``TemplateError``.

    Other objects are passed to ``add_object``, and added to ``changes.ignored`` if filters do not read them. A note is
    added for each yielded object that is stopped.
    """
    names: set[str] = set()
    for index, place, obj in every:
        try:
            manifest = _manifest(index, place, obj, namespace)
            if manifest is None and add_object(obj, namespace, cluster, changes):
                continue
            if manifest is None:
                changes.ignored.append(printable("/".join(filter(None, (str(obj["kind"]), *_key(obj, ""))))))
                continue
        except BadField as error:
            raise TemplateError(index, written((*place, *error.place)), str(error)) from None
        if manifest.title in names:
            raise _error(manifest, ("metadata", "name"), f"{manifest.title} is in the request twice")
        names.add(manifest.title)
        if manifest.idle:
            changes.notes.append(f"{manifest.title} {manifest.idle}, so it has no pods")
        yield manifest


def _manifest(index: int, place: Place, obj: Mapping[str, Any], namespace: str) -> WorkloadManifest | None:
    """Return the manifest of an object that creates pods; ``None`` if it creates none. Raises ``BadField``."""
    version, kind = text_at(obj, ("apiVersion",)), str(obj["kind"])
    if (version, kind) not in TEMPLATES:
        if kind == _DAEMON_SET:
            raise BadField(("kind",), "a DaemonSet makes a pod for each node that it matches, which is not simulated")
        if kind in _VERSIONS and version.partition("/")[0] in ("", _VERSIONS[kind].partition("/")[0]):
            raise BadField(("apiVersion",), f"must be {_VERSIONS[kind]}")
        if _has_containers(obj):
            raise BadField(("kind",), f"{kind} {_WITHOUT_PODS}")
        return None
    given, name = _key(obj, namespace)
    if not name and text_at(obj, ("metadata", "generateName")):
        name = generated_name(text_at(obj, ("metadata", "generateName")), index)
    if not name:
        raise BadField(("metadata", "name"), "is missing")
    if not is_subdomain(name):
        raise BadField(("metadata", "name"), "is not a valid name")
    if not is_label(given):
        raise BadField(("metadata", "namespace"), "is not a valid name of a namespace")
    replicas, idle = replicas_of(obj, kind)
    return WorkloadManifest(index, place, obj, version, kind, given, name, replicas, idle)


def _key(obj: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    return text_at(obj, ("metadata", "namespace")) or namespace, text_at(obj, ("metadata", "name"))


def _has_containers(obj: Mapping[str, Any]) -> bool:
    """Return True if a part of the object's spec looks like a pod spec: it has a list ``containers``."""
    level: list[Any] = [obj.get("spec")]
    while level:
        if any(isinstance(it, dict) and isinstance(it.get("containers"), list) for it in level):
            return True
        parts = [it.values() if isinstance(it, dict) else it for it in level if isinstance(it, dict | list)]
        level = [inner for part in parts for inner in part]
    return False


def _priority_classes(
    every: Sequence[tuple[int, Place, Mapping[str, Any]]], cluster: Cluster
) -> dict[str, PriorityClass]:
    """Return the PriorityClasses by name. Those of the request take precedence over the cluster's.

    Raises ``TemplateError``.
    """
    classes = {it.name: it for it in cluster.every(PRIORITY_CLASSES)}
    for index, place, obj in every:
        if (obj.get("apiVersion"), obj["kind"]) == (PRIORITY_CLASSES.api_version, PRIORITY_CLASSES.kind):
            try:
                decoded = PRIORITY_CLASSES.decode(json_of(obj, ()))
            except (msgspec.DecodeError, BadField) as error:
                raise TemplateError(index, written(place), str(error)) from None
            classes[decoded.name] = decoded
    return classes


def _rescaling(
    manifest: WorkloadManifest, existing: WorkloadPods, cluster: Cluster, now: datetime, changes: ManifestPods
) -> Rescaling | None:
    """Return the scaling of a workload that has pods in the cluster, and add a note; ``None`` if it has none."""
    pods = existing.of(manifest.namespace, manifest.kind, manifest.name)
    if manifest.kind == "Pod" and (pod := cluster.pod(manifest.namespace, manifest.name)) is not None:
        pods = (pod,)
    if not pods:
        return None
    changes.notes.append(
        f"{manifest.title} exists with {len(pods)} pods; the manifest has {manifest.replicas}, so only the difference "
        "is simulated, with the template of the existing pods"
    )
    return Rescaling(cluster, pods, manifest.kind, manifest.name, manifest.replicas, now)


def _build(builder: WorkloadBuilder, changes: ScaledWorkload) -> None:
    """Add all pods of a manifest, and the objects that they need, to ``changes``. Raises ``BadField``."""
    pods = list(builder.pods())
    changes.added += pods
    changes.objects += builder.objects
    template = builder.template
    claims = claims_of_template(template.spec, (*template.place, "spec"), (it.pod for it in pods))
    changes.objects += ((PERSISTENT_VOLUME_CLAIMS, it) for it in claims)


def _error(manifest: WorkloadManifest, place: Place, message: str) -> TemplateError:
    return TemplateError(manifest.index, written((*manifest.place, *place)), message)
