"""Cluster from a file in the format of ``kubectl get … -o yaml`` or ``-o json``. Writes change only the snapshot."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import Raw, Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.config.document import MOST_PLACES
from app.config.yaml_loader import check_aliases, loader_for
from app.feeds.stores import store_for
from app.framework.handle import Handle, WaitingPods
from app.framework.objects import ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error
from app.kube.api_requests import PreSendCheck
from app.kube.core_v1 import NOT_WAITING, Pod
from app.kube.decoding import SAFE_DEPTH, Decoder
from app.kube.deletion_cost import DELETION_COST, cost_of
from app.kube.kinds import NODES, PODS, AnnotatedObject, Kind
from app.kube.meta_v1 import ObjectKey, version_number
from app.writes.bind_guard import BindGuard, NotBound
from app.writes.nominator import Nominated

_JSON: Final[Decoder[Any]] = Decoder(Any)
_TRUNCATED: Final = "Input data was truncated"
"""Message of msgspec for JSON that ends too early."""

_NEWLINE: Final = b"\n"
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class SavedClusterError(ValueError):
    """Raised if a file cannot be used. The message names the file, the cause and, if known, the object."""


def load_saved(path: Path, cluster: Cluster, kinds: Iterable[Kind[Any]], optional: Collection[Kind[Any]] = ()) -> int:
    """Load all nodes, pods and objects of ``kinds`` and ``optional`` into the snapshot, and return their number.

    The file has documents in YAML or JSON, each a List or an object. Other kinds are ignored. An object of an
    ``optional`` kind that cannot be decoded is marked as unreadable. Raises ``SavedClusterError``, also if the file has
    no nodes.
    """
    try:
        text = path.read_bytes()
    except OSError as cause:
        raise SavedClusterError(f"{path}: cannot be read: {cause}") from None
    loaded = load_objects(objects_in(text, str(path)), cluster, kinds, str(path), optional)
    if not cluster.nodes:
        raise SavedClusterError(f"{path}: it has no Node: there is nothing to schedule to")
    return loaded


def load_objects(
    objects: Iterable[Mapping[str, Any]],
    cluster: Cluster,
    kinds: Iterable[Kind[Any]],
    source: str,
    optional: Collection[Kind[Any]] = (),
) -> int:
    """Load the nodes, the pods and the objects of ``kinds`` and ``optional``, and return their number.

    Other objects are ignored. See ``load_saved`` for ``optional``. ``source``: name of the file, for error messages.
    Raises ``SavedClusterError``.
    """
    required: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
    wanted = {(kind.api_version, kind.kind): kind for kind in (*required, *optional)}
    loaded = 0
    for index, obj in enumerate(objects):
        kind = wanted.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
        if kind is not None:
            try:
                decoded = _decode(kind, cluster.decoder(kind), obj, f"{source}: object {index}")
            except SavedClusterError as cause:
                if kind in required:
                    raise
                cluster.mark_unreadable(kind, _key_of(obj), str(cause))
                continue
            store_for(cluster, kind).upsert(decoded)
            loaded += 1
    return loaded


def _key_of(obj: Mapping[str, Any]) -> ObjectKey:
    metadata = obj.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    return str(named.get("namespace") or ""), str(named.get("name") or "")


def objects_in(text: bytes, source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the Kubernetes objects of one or more documents in YAML or JSON. The items of a List replace the List.

    If the text is a single List in JSON, its items are decoded one at a time, because decoded objects take several
    times the memory of the file. Raises ``SavedClusterError``.
    """
    listed = _json_list(text, source)
    if listed is not None:
        yield from _items(listed.kind, listed.api_version, _decoded(listed.items or (), source), source)
        return
    for document in _documents(text, source):
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise SavedClusterError(f"{source}: expected Kubernetes objects with apiVersion and kind")
        if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
            yield from _items(str(document["kind"]), document.get("apiVersion"), document["items"], source)
        else:
            yield document


class _ListOfRaw(Struct, rename="camel"):
    kind: str
    api_version: str | None = None
    items: list[Raw] | None = None


_LISTS: Final = Decoder[_ListOfRaw](_ListOfRaw)


def _json_list(text: bytes, source: str) -> _ListOfRaw | None:
    """Return the List in ``text``; ``None`` if ``text`` is not a single List in JSON. Raises ``SavedClusterError`` if
    the JSON is cut off.
    """
    if text.lstrip()[:1] != b"{":
        return None
    try:
        document = _LISTS.decode(text)
    except msgspec.DecodeError as cause:
        if str(cause) != _TRUNCATED:
            return None  # not a List, or several documents
        end = f"it ends in line {text.count(_NEWLINE) + 1:,}, at byte {len(text):,}"
        raise SavedClusterError(f"{source}: the JSON is cut off: {end}") from None
    return document if document.kind.endswith("List") and document.items is not None else None


def _decoded(items: Iterable[Raw], source: str) -> Iterator[Any]:
    for raw in items:
        try:
            yield _JSON.decode(raw)
        except msgspec.DecodeError as cause:  # a Raw is not checked completely, for example the characters of strings
            raise SavedClusterError(f"{source}: is neither YAML nor JSON: {cause}") from None


def _items(kind: str, api_version: Any, items: Iterable[Any], source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a list. An item without ``kind`` and ``apiVersion`` gets those that the list implies."""
    defaults = {"apiVersion": api_version, "kind": kind.removesuffix("List")}
    for item in items:
        if not isinstance(item, dict):
            raise SavedClusterError(f"{source}: expected Kubernetes objects with apiVersion and kind")
        yield {**defaults, **item}


def _documents(text: bytes, source: str) -> Iterable[Any]:
    """Parse one or more documents in JSON or YAML. Raises ``SavedClusterError``."""
    try:
        if text.lstrip().startswith(b"{"):
            with suppress(msgspec.DecodeError):  # several JSON documents are read as YAML
                return [_JSON.decode(text)]
        decoded = text.decode("utf-16" if text.startswith(_UTF_16) else "utf-8-sig")
        documents = list(yaml.load_all(decoded, Loader=loader_for(decoded)))  # a SafeLoader, in C if available
        for document in documents if "*" in decoded else ():
            if isinstance(document, dict | list):
                check_aliases(document, MOST_PLACES)
    except (yaml.YAMLError, ValueError) as cause:
        raise SavedClusterError(f"{source}: is neither YAML nor JSON: {cause}") from None
    except RecursionError:
        raise SavedClusterError(f"{source}: nested too deeply") from None
    return documents


def _decode(kind: Kind[Any], decode: Callable[[bytes], Any], obj: Mapping[str, Any], where: str) -> Any:
    """Decode an object. Raises ``SavedClusterError``.

    A missing UID is replaced by ``namespace/name``, and a missing ``resourceVersion`` by 1, because files written
    by hand lack them.
    """
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise SavedClusterError(f"{where}: {kind.kind} without metadata")
    default_uid = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    identity = {"uid": metadata.get("uid") or default_uid, "resourceVersion": metadata.get("resourceVersion") or "1"}
    completed = {**obj, "metadata": {**metadata, **identity}}
    try:
        return decode(_encoded(completed))
    except (TypeError, ValueError) as error_:
        raise SavedClusterError(f"{where}: {kind.kind} {default_uid}: {error_}") from None


def _encoded(obj: Any) -> bytes:
    try:
        return msgspec.json.encode(obj)
    except RecursionError:  # the YAML is nested more deeply than msgspec can encode
        return msgspec.json.encode(_flattened(obj))


def _flattened(value: Any, levels: int = SAFE_DEPTH) -> Any:
    """Return ``value`` with ``None`` for mappings and lists below ``levels`` levels, because no decoder reads these."""
    if isinstance(value, dict):
        return {key: _flattened(part, levels - 1) for key, part in value.items()} if levels else None
    if isinstance(value, list):
        return [_flattened(part, levels - 1) for part in value] if levels else None
    return value


def in_memory_handle(cluster: Cluster, waiting: WaitingPods) -> Handle:
    """Create a handle for plugins that run without an API server. Binds and writes change only ``cluster``."""
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
    """Binds pods in the snapshot only."""

    def __init__(self, cluster: Cluster, bind_guard: BindGuard) -> None:
        self._cluster = cluster
        self._bind_guard = bind_guard

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        async def send(check: PreSendCheck) -> Status:
            check()
            return self._bound(pod, node_name, annotations)

        try:
            return await self._bind_guard.through(pod, node_name, send)
        except NotBound as held:
            return held.status

    def _bound(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        known = self._cluster.pod(*pod.key)
        if known is None or known.uid != pod.uid:
            return error(f'pods "{pod.name}" not found')
        of_homeport = dict(annotations)
        cost = of_homeport.pop(DELETION_COST, None)
        bound = replace(
            known,
            node_name=node_name,
            waiting=NOT_WAITING,
            annotations={**known.annotations, **of_homeport},
            resource_version=next_version(known.resource_version),
        )
        self._cluster.upsert_pod(bound if cost is None else bound.with_deletion_cost(cost_of(cost)))
        return SUCCESS


class MemoryWriter:
    """Writes objects in the snapshot only."""

    def __init__(self, cluster: Cluster) -> None:
        self._objects = cluster.others
        self._decoder = cluster.decoder

    async def annotate(
        self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        known: Any = self._objects.get(kind, obj.namespace, obj.name)
        if known is None:
            raise ObjectGone(f"{kind.kind} {obj.namespace}/{obj.name}")
        if known.resource_version != obj.resource_version:
            raise WriteConflict(f"{kind.kind} {obj.namespace}/{obj.name} was changed meanwhile")
        merged = {key: value for key, value in {**known.annotations, **annotations}.items() if value is not None}
        version = next_version(known.resource_version)
        self._objects.upsert(kind, replace(known, annotations=merged, resource_version=version))

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        if self._objects.get(kind, namespace, name) is not None:
            raise WriteConflict(f"{kind.kind} {namespace}/{name} already exists")
        metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "resourceVersion": "1"}
        self._objects.upsert(kind, self._decoder(kind)(msgspec.json.encode({"metadata": metadata, "spec": dict(spec)})))

    async def change(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        if self._objects.get(kind, *obj.key) is None:
            raise ObjectGone(f"{kind.kind} {obj.namespace}/{obj.name}")
        metadata = {"namespace": obj.namespace, "name": obj.name, "uid": obj.uid}
        version = {"resourceVersion": next_version(obj.resource_version), "annotations": dict(obj.annotations)}
        self._objects.upsert(
            kind, self._decoder(kind)(msgspec.json.encode({"metadata": metadata | version, "spec": spec}))
        )

    async def delete(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject) -> None:
        self._objects.delete(kind, obj.key, obj.uid)


class NullReader:
    """Base class of a feed without an API server. Reads do nothing, because the snapshot already has all objects."""

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        return

    async def fetch_pod(self, namespace: str, name: str) -> None:
        return


def next_version(version: str) -> str:
    """Return the resource version after ``version``, for a write in memory; "1" if ``version`` is not a number."""
    return str(max(version_number(version), 0) + 1)


class MemoryNominator:
    """Nominates pods in the snapshot only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def nominate(self, pod: Pod, node_name: str) -> Nominated:
        known = self._cluster.pod(*pod.key)
        if known is None or known.uid != pod.uid:
            return "gone"
        version = next_version(known.resource_version)
        self._cluster.upsert_pod(replace(known.nominated(node_name), resource_version=version))
        return "taken"
