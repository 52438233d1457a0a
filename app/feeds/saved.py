"""A cluster from a file, as ``kubectl get … -o yaml`` or ``-o json`` writes it; binds and homes stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.feeds.sinks import sink_for
from app.framework.handle import Handle, WaitingPods
from app.framework.objects import ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error
from app.kube.api_requests import PreSendCheck
from app.kube.core_v1 import NOT_WAITING, Pod
from app.kube.decoding import SAFE_DEPTH, Decoder
from app.kube.kinds import NODES, PODS, AnnotatedObject, Kind
from app.kube.meta_v1 import version_number
from app.writes.bind_guard import BindGuard, NotBound
from app.writes.nominator import Nominated

_JSON: Final[Decoder[Any]] = Decoder(Any)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SavedClusterError(ValueError):
    """The file cannot be served; says which document and why."""


def load_saved(path: Path, cluster: Cluster, kinds: Iterable[Kind[Any]]) -> int:
    """Put every object of ``kinds``, pods and nodes into the picture; other kinds are left out.

    The file is one List, or many documents, in YAML or JSON. Returns how many objects were taken. Raises
    ``SavedClusterError``.
    """
    try:
        text = path.read_bytes()
    except OSError as found:
        raise SavedClusterError(f"{path}: cannot be read: {found}") from None
    taken = load_objects(objects_in(text, str(path)), cluster, kinds, str(path))
    if not cluster.nodes:
        raise SavedClusterError(f"{path}: no Node in it: there is nothing to schedule to")
    return taken


def load_objects(
    objects: Iterable[Mapping[str, Any]], cluster: Cluster, kinds: Iterable[Kind[Any]], source: str
) -> int:
    """Put those of ``objects`` that are of ``kinds``, pods or nodes into the cluster cache, and return their number.

    ``source`` names where they are from, for the message of a ``SavedClusterError``.
    """
    every: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
    wanted = {(kind.api_version, kind.kind): kind for kind in every}
    taken = 0
    for index, found in enumerate(objects):
        kind = wanted.get((str(found.get("apiVersion")), str(found.get("kind"))))
        if kind is not None:
            decoded = _decode(kind, cluster.decoder(kind), found, f"{source}: object {index}")
            sink_for(cluster, kind).upsert(decoded)
            taken += 1
    return taken


def objects_in(text: bytes, source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the Kubernetes objects of a List, or of many documents, in YAML or JSON. Raises ``SavedClusterError``."""
    for document in _documents(text, source):
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise SavedClusterError(f"{source}: expected Kubernetes objects with apiVersion and kind")
        if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
            yield from _items(document, source)
        else:
            yield document


def _items(found: Mapping[str, Any], source: str) -> Iterator[Mapping[str, Any]]:
    """Items of a typed list (PodList) carry no kind of their own."""
    defaults = {"apiVersion": found.get("apiVersion"), "kind": str(found["kind"]).removesuffix("List")}
    for item in found["items"]:
        if not isinstance(item, dict):
            raise SavedClusterError(f"{source}: expected Kubernetes objects with apiVersion and kind")
        yield {**defaults, **item}


def _documents(text: bytes, source: str) -> Iterable[Any]:
    try:
        if text.lstrip().startswith(b"{"):
            with suppress(msgspec.DecodeError):  # else many documents, which YAML reads
                return [_JSON.decode(text)]
        return list(yaml.load_all(text, Loader=_LOADER))  # a safe loader, by its C name
    except (yaml.YAMLError, UnicodeDecodeError) as found:
        raise SavedClusterError(f"{source}: is neither YAML nor JSON: {found}") from None
    except RecursionError:
        raise SavedClusterError(f"{source}: nested too deeply") from None


def _decode(kind: Kind[Any], decode: Callable[[bytes], Any], found: Mapping[str, Any], where: str) -> Any:
    """Slim form. An object written by hand may lack a UID and version: its name serves."""
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        raise SavedClusterError(f"{where}: {kind.kind} without metadata")
    made_up = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    given = {"uid": metadata.get("uid") or made_up, "resourceVersion": metadata.get("resourceVersion") or "1"}
    completed = {**found, "metadata": {**metadata, **given}}
    try:
        return decode(_encoded(completed))
    except (TypeError, ValueError) as error_:
        raise SavedClusterError(f"{where}: {kind.kind} {made_up}: {error_}") from None


def _encoded(found: Any) -> bytes:
    try:
        return msgspec.json.encode(found)
    except RecursionError:  # YAML may be nested deeper than can be written as JSON
        return msgspec.json.encode(_levelled(found))


def _levelled(value: Any, levels: int = SAFE_DEPTH) -> Any:
    """As many levels as anybody reads."""
    if isinstance(value, dict):
        return {key: _levelled(part, levels - 1) for key, part in value.items()} if levels else None
    if isinstance(value, list):
        return [_levelled(part, levels - 1) for part in value] if levels else None
    return value


def in_memory_handle(cluster: Cluster, waiting: WaitingPods) -> Handle:
    """Return a handle whose binds and writes change ``cluster`` alone, for plugins that run without an API server."""
    return Handle(
        counts=cluster.counts,
        objects=cluster,
        writer=MemoryWriter(cluster),
        binder=MemoryBinder(cluster, BindGuard()),
        waiting=waiting,
        nodes=Nodes(cluster),
        terms=cluster.terms,
    )


class MemoryBinder:
    """Binds in the picture itself."""

    def __init__(self, cluster: Cluster, bind_guard: BindGuard) -> None:
        self._cluster = cluster
        self._bind_guard = bind_guard

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        async def send(ask: PreSendCheck) -> Status:
            ask()
            return self._bound(pod, node_name, annotations)

        try:
            return await self._bind_guard.through(pod, node_name, send)
        except NotBound as held:
            return held.status

    def _bound(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        known = self._cluster.pod(*pod.key)
        if known is None or known.uid != pod.uid:
            return error(f'pods "{pod.name}" not found')
        bound = replace(
            known,
            node_name=node_name,
            waiting=NOT_WAITING,
            annotations={**known.annotations, **annotations},
            resource_version=next_version(known.resource_version),
        )
        self._cluster.upsert_pod(bound)
        return SUCCESS


class MemoryWriter:
    """Writes in the picture itself. Nobody else does but those who write here, profiles beside one another."""

    def __init__(self, cluster: Cluster) -> None:
        self._objects = cluster.others
        self._decoder = cluster.decoder

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        known: Any = self._objects.get(kind, found.namespace, found.name)
        if known is None:
            raise ObjectGone(f"{kind.kind} {found.namespace}/{found.name}")
        if known.resource_version != found.resource_version:
            raise WriteConflict(f"{kind.kind} {found.namespace}/{found.name} was changed meanwhile")
        merged = {key: value for key, value in {**known.annotations, **annotations}.items() if value is not None}
        version = next_version(known.resource_version)
        self._objects.upsert(kind, replace(known, annotations=merged, resource_version=version))

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        if self._objects.get(kind, namespace, name) is not None:
            raise WriteConflict(f"{kind.kind} {namespace}/{name} is there")
        metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "resourceVersion": "1"}
        self._objects.upsert(kind, self._decoder(kind)(msgspec.json.encode({"metadata": metadata, "spec": dict(spec)})))

    async def change(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        if self._objects.get(kind, *found.key) is None:
            raise ObjectGone(f"{kind.kind} {found.namespace}/{found.name}")
        metadata = {"namespace": found.namespace, "name": found.name, "uid": found.uid}
        version = {"resourceVersion": next_version(found.resource_version), "annotations": dict(found.annotations)}
        self._objects.upsert(
            kind, self._decoder(kind)(msgspec.json.encode({"metadata": metadata | version, "spec": spec}))
        )

    async def delete(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> None:
        self._objects.delete(kind, found.key, found.uid)


class NothingToRead:
    """The reader of a saved cluster: all there is, is in the picture."""

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        return

    async def fetch_pod(self, namespace: str, name: str) -> None:
        return


def next_version(version: str) -> str:
    """Return the version after ``version``, for writes to a cluster in memory; "1" after an opaque one."""
    return str(max(version_number(version), 0) + 1)


class MemoryNominator:
    """Nominates in the picture itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def nominate(self, pod: Pod, node_name: str) -> Nominated:
        known = self._cluster.pod(*pod.key)
        if known is None or known.uid != pod.uid:
            return "gone"
        version = next_version(known.resource_version)
        self._cluster.upsert_pod(replace(known.nominated(node_name), resource_version=version))
        return "taken"
