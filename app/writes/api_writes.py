"""The ways in which decisions reach the API server: the Binding, and annotations of owners.

A write whose fate is unknown is read back before anything is said about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog
from msgspec import Raw
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.objects import NotServed, ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error, unschedulable
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS, PreSendCheck, Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_v1 import Pod, is_same_spec
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.meta_v1 import ObjectKey
from app.writes.answers import as_asked, is_success
from app.writes.bind_guard import BindGuard, NotBound
from app.writes.read_back import ReadBack, bound_elsewhere, gone

_LOG: Final = structlog.get_logger(__name__)

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_CONFLICTS: Final = 16
"""Maximum number of Bindings of one pod that may meet a conflict before it is given back to its scheduler. Each costs a
read and some milliseconds; the scheduler would wait for seconds.
"""

_PASSING: Final = frozenset({401, 404, 408, 409, 425, 429})
"""Refusals that may be no more at the next attempt."""

_RETRY_SECONDS: Final = 0.25
_MAX_RETRY_SECONDS: Final = 2.0

Sleep = Callable[[float], Awaitable[None]]
DecodePod = Callable[[bytes | Raw], Pod]
ResourceOf = Callable[[Kind[Any]], Resource | None]


def binding(pod: Pod, node_name: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """The Binding: UID and version are preconditions, annotations land on the pod in the same write."""
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.resource_version:
        metadata["resourceVersion"] = pod.resource_version
    if annotations:
        metadata["annotations"] = dict(annotations)
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


class ApiBinder:
    """Binds through ``pods/binding``. Returns Success only for a pod that the API server says is bound to that node.

    That is its own Status in answer to the Binding, or the pod as it was read. Any other 2xx is an unknown outcome.
    """

    def __init__(
        self,
        client: KubeClient,
        decode_pod: DecodePod,
        bind_guard: BindGuard,
        sleep: Sleep = asyncio.sleep,
        *,
        post_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """``decode_pod``: the decoder of the cache, so that a pod that is read has the parts that were decided on.

        ``post_seconds``: time without an answer after which the outcome of a Binding is unknown.
        """
        self._client = client
        self._decode_pod = decode_pod
        self._bind_guard = bind_guard
        self._read_back = ReadBack(client)
        self._sleep = sleep
        self._post_seconds = post_seconds

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Bind the pod. Conflicts are rejections (the pod is not what was decided on), other failures are Errors.

        A pod that changed in nothing that was decided on is tried again: schedulers, and our own nominations, write
        its status about the time it is bound.
        """
        read, message = pod, ""
        for _ in range(_CONFLICTS):
            try:
                return await self._posted(read, node_name, annotations)
            except NotBound as held:
                return held.status
            except ApiError as refused:
                if refused.status != _CONFLICT:
                    return error(f"the API server refused the binding: {refused.message}")
                found = await self._after_conflict(pod, node_name, refused)
                if isinstance(found, Status):
                    return found
                read, message = found, refused.message
            except ApiUnavailable as unsent:
                return error(f"the API server cannot be reached: {unsent}")
        return unschedulable(f"the pod keeps changing while it is being bound: {message}")

    async def _posted(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Send the Binding; return once its outcome is known.

        Raises ``ApiError`` and ``ApiUnavailable``, and ``NotBound`` if the pre-send check holds it back: in all three
        cases it has no effect.
        """
        path, body = PODS.path(pod.namespace, pod.name, "binding"), binding(pod, node_name, annotations)

        async def send(ask: PreSendCheck) -> Status:
            try:
                answer = await self._client.post(path, body, before=ask, timeout=self._post_seconds)
            except UnknownOutcome as unclear:
                cause = str(unclear)
            else:
                if is_success(answer):
                    return SUCCESS
                cause = "the answer is not a Status of the API server"
            _LOG.warning("bind outcome unknown", pod=str(pod), node=node_name, cause=cause)
            return await self._settled(pod, node_name)

        return await self._bind_guard.through(pod, node_name, send)

    async def _settled(self, pod: Pod, node_name: str) -> Status:
        """Read the pod back until it is known what became of the Binding."""
        delay = _RETRY_SECONDS
        while (fate := await self._read_back.fate(pod, node_name)) is None:
            await self._sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)
        return fate.status

    async def _after_conflict(self, pod: Pod, node_name: str, refused: ApiError) -> Pod | Status:
        """Return the pod with its newest version if it can be tried again, else what to answer.

        The conflict says that this Binding has no effect. A pod that is bound to the node already is a success.
        """
        try:
            found = await self._read(pod)
        except ValueError as cause:
            return error(f'pod "{pod.name}" cannot be read: {cause}')
        if found is None or found.uid != pod.uid:
            return gone(pod)
        if found.node_name:
            return SUCCESS if found.node_name == node_name else bound_elsewhere(pod, found.node_name)
        if not _decides_alike(found, pod):
            return unschedulable(f"the pod changed while it was being bound: {refused.message}")
        return replace(pod, resource_version=found.resource_version)

    async def _read(self, pod: Pod) -> Pod | None:
        """Read the pod until the API server answers; ``None`` if it is gone. Raises ``ValueError`` if unreadable."""
        delay = _RETRY_SECONDS
        while True:
            try:
                found = self._decode_pod(await self._client.get(PODS, pod.namespace, pod.name))
                return as_asked(found, pod.namespace, pod.name)
            except ApiError as refused:
                if refused.status == _NOT_FOUND:
                    return None
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=refused.message)
            except ApiUnavailable as cause:
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(cause))
            await self._sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)


def _decides_alike(found: Pod, pod: Pod) -> bool:
    """Return whether a decision taken on ``pod`` holds for ``found``: all that it read is equal by value.

    Of annotations only those of our domain are decoded: homes, policies, and a fence, which gives this bind up.
    """
    read, decided = ((it.labels, it.annotations, it.owner, it.terminating, it.finished) for it in (found, pod))
    return read == decided and is_same_spec(found.spec, pod.spec)


def will_never_do(status: int) -> bool:
    """Whether the API server, or a webhook of its, refuses for good: no permission, or a rule against the write."""
    return 400 <= status < 500 and status not in _PASSING


class ApiWriter:
    """Writes objects under optimistic concurrency and keeps the picture up to what was written.

    ``may_write`` says why this process may not write now; then nothing is sent, and the error is an ``OSError``.
    """

    def __init__(
        self, client: KubeClient, cluster: Cluster, resource_of: ResourceOf, may_write: Callable[[], str] = str
    ) -> None:
        self._may_write = may_write
        self._client = client
        self._objects = cluster.others
        self._resource_of = resource_of

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        await self._patch(kind, found, {"metadata": {**_precondition(found), "annotations": dict(annotations)}})

    async def change(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        await self._patch(kind, found, {"metadata": _precondition(found), "spec": dict(spec)})

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        resource = self._writable(kind)
        metadata = {"namespace": namespace, "name": name}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}
        raw = await self._sent(kind, (namespace, name), lambda: self._client.post(resource.path(namespace), body))
        self._objects.upsert_read(kind, _read(kind, (namespace, name), raw))

    async def delete(self, kind: Kind[AnnotatedObject], found: AnnotatedObject) -> None:
        resource = self._writable(kind)

        async def send() -> bytes:
            version = found.resource_version
            await self._client.delete(resource, found.namespace, found.name, uid=found.uid, resource_version=version)
            return b""

        await self._sent(kind, found.key, send, found.uid)
        self._objects.delete(kind, found.key, found.uid)

    async def _patch(self, kind: Kind[AnnotatedObject], found: AnnotatedObject, body: Mapping[str, Any]) -> None:
        resource = self._writable(kind)
        raw = await self._sent(
            kind,
            found.key,
            lambda: self._client.patch(resource, found.namespace, found.name, body, metadata_only=kind.metadata_only),
            found.uid,
        )
        self._objects.upsert_read(kind, _read(kind, found.key, raw))

    async def _sent(
        self, kind: Kind[AnnotatedObject], key: ObjectKey, send: Callable[[], Awaitable[bytes]], uid: str = ""
    ) -> bytes:
        """The answer. After a conflict the newest form is in the picture; ``uid``: of what is written to."""
        try:
            return await send()
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                raise self._gone(kind, key, uid) from None
            if refused.status == _CONFLICT:
                await self._refresh(kind, key, uid)
                raise WriteConflict(refused.message) from None
            raise OSError(refused.message) from refused
        except (UnknownOutcome, ApiUnavailable) as unclear:
            raise OSError(str(unclear)) from unclear

    async def _refresh(self, kind: Kind[AnnotatedObject], key: ObjectKey, uid: str) -> None:
        try:
            raw = await self._client.get(self._resource(kind), *key, metadata_only=kind.metadata_only)
            newest = _read(kind, key, raw)
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                raise self._gone(kind, key, uid) from None
            raise OSError(refused.message) from refused
        except ApiUnavailable as cause:
            raise OSError(str(cause)) from cause
        self._objects.upsert_read(kind, newest)

    def _gone(self, kind: Kind[AnnotatedObject], key: ObjectKey, uid: str) -> ObjectGone:
        if uid:
            self._objects.delete(kind, key, uid)
        return ObjectGone(f"{kind.kind} {'/'.join(key)}")

    def _writable(self, kind: Kind[Any]) -> Resource:
        """Raises ``OSError`` where nothing may be written, or there is nowhere to write to."""
        resource = self._resource(kind)
        problem = self._may_write()
        if problem:
            raise OSError(problem)
        return resource

    def _resource(self, kind: Kind[Any]) -> Resource:
        resource = self._resource_of(kind)
        if resource is None:
            raise NotServed(f"{kind!r} is not served by the API server")
        return resource


def _precondition(found: AnnotatedObject) -> dict[str, str]:
    return {"uid": found.uid, "resourceVersion": found.resource_version}


def _read(kind: Kind[AnnotatedObject], key: ObjectKey, raw: bytes) -> AnnotatedObject:
    """What was answered. Raises ``OSError`` if it makes no sense: the watch will tell."""
    try:
        return as_asked(kind.decode(raw), *key)
    except ValueError as cause:
        raise OSError(f"{kind.kind} {'/'.join(key)} cannot be read: {cause}") from None
    except ApiUnavailable as another:
        raise OSError(str(another)) from another
