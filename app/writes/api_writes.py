"""The ways in which decisions reach the API server: the Binding, and annotations of owners.

A write whose fate is unknown is read back before anything is said about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import structlog
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.interface import NotServed, ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error, unschedulable
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS, Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_v1 import Pod, decode_pod
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.meta_v1 import ANNOTATION_DOMAIN, ObjectKey
from app.writes.answers import as_asked
from app.writes.bind_guard import BindGuard, NotBound

_LOG: Final = structlog.get_logger(__name__)

FENCE: Final = f"{ANNOTATION_DOMAIN}unclear-bind"
"""Annotation that moves a pod's version after a bind of unknown outcome, so that a late POST meets a conflict."""

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_CONFLICTS: Final = 4
"""Bindings of one pod that may meet a conflict before it is given back to its scheduler."""

_PASSING: Final = frozenset({401, 404, 408, 409, 425, 429})
"""Refusals that may be no more at the next attempt."""

_RETRY_SECONDS: Final = 0.25
_MAX_RETRY_SECONDS: Final = 2.0

Sleep = Callable[[float], Awaitable[None]]
Fence = Literal["stands", "refused", "unclear"]
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


async def fence_off(client: KubeClient, pod: Pod) -> bytes:
    """Move the pod's version on from what was read; returns the pod as it then is. UID and version are preconditions.

    Through ``pods/status``, which stores annotations too: who may patch only that cannot change what a pod runs.
    """
    annotations = {FENCE: pod.resource_version}
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}
    return await client.patch(PODS, pod.namespace, pod.name, {"metadata": metadata}, subresource="status")


class _Unreadable(Exception):
    """The pod is there, and what the API server has of it makes no sense."""


class ApiBinder:
    """Binds through ``pods/binding``. Success is only ever said of a pod that was seen bound to that node."""

    def __init__(
        self,
        client: KubeClient,
        bind_guard: BindGuard,
        sleep: Sleep = asyncio.sleep,
        *,
        post_seconds: float = REQUEST_SECONDS,
    ) -> None:
        """``post_seconds``: without an answer for so long, the outcome of a Binding is unknown."""
        self._client = client
        self._bind_guard = bind_guard
        self._sleep = sleep
        self._post_seconds = post_seconds

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Conflicts are rejections (the pod is not what was decided on); everything else that fails is an Error.

        A pod of which only status or annotations moved is tried again: schedulers, and our own nominations, write its
        status about the time it is bound.
        """
        read, said = pod, ""
        for _ in range(_CONFLICTS):
            try:
                await self._post(read, node_name, annotations)
            except NotBound as held:
                return held.status
            except ApiError as refused:
                if refused.status != _CONFLICT:
                    return error(f"the API server refused the binding: {refused.message}")
                found = await self._after_conflict(pod, node_name, refused)
                if isinstance(found, Status):
                    return found
                read, said = found, refused.message
            except UnknownOutcome as unclear:
                _LOG.warning("bind outcome unknown", pod=str(pod), node=node_name, cause=str(unclear))
                return await self._after_unknown(pod, node_name)
            except ApiUnavailable as unsent:
                return error(f"the API server cannot be reached: {unsent}")
            else:
                return SUCCESS
        return unschedulable(f"the pod keeps changing while it is being bound: {said}")

    async def _post(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> None:
        """Raises ``NotBound`` where the pre-send check holds it back; it then never left."""
        path, body = PODS.path(pod.namespace, pod.name, "binding"), binding(pod, node_name, annotations)
        await self._bind_guard.through(
            pod, node_name, lambda ask: self._client.post(path, body, before=ask, timeout=self._post_seconds)
        )

    async def _after_conflict(self, pod: Pod, node_name: str, refused: ApiError) -> Pod | Status:
        """What is said of it, or the pod as it is by now: bound there already is success."""
        try:
            found = await self._read(pod)
        except _Unreadable as unreadable:
            return error(f"{unreadable}")
        status = _seen(found, pod, node_name)
        if status is not None:
            return status
        if found is None or not _decides_alike(found, pod):
            return unschedulable(f"the pod changed while it was being bound: {refused.message}")
        return replace(pod, resource_version=found.resource_version)

    async def _after_unknown(self, pod: Pod, node_name: str) -> Status:
        """Read until the API server answers; if the pod is not bound, fence it off before it is given up.

        Where we may not patch their status, a late POST is waited out instead.
        """
        not_arrived = error("the binding did not arrive at the API server")
        while True:
            found = await self._read_sense(pod)
            status = _seen(found, pod, node_name)
            if found is None or status is not None:
                return status or _gone(pod)
            fence = await self._fence(found)
            if fence == "stands":
                return not_arrived
            if fence == "refused":
                await self._sleep(REQUEST_SECONDS)
                return _seen(await self._read_sense(pod), pod, node_name) or not_arrived

    async def _fence(self, found: Pod) -> Fence:
        """Move the version on from what was read. ``unclear``: the pod changed meanwhile and must be read again."""
        try:
            await fence_off(self._client, found)
        except (ApiError, ApiUnavailable, UnknownOutcome) as cause:
            _LOG.warning("pod not fenced off", pod=str(found), cause=str(cause))
            if isinstance(cause, ApiError) and will_never_do(cause.status):
                return "refused"
            await self._sleep(_RETRY_SECONDS)
            return "unclear"
        return "stands"

    async def _read_sense(self, pod: Pod) -> Pod | None:
        """The same, until it can be read or is gone: before that nobody knows whether it is bound."""
        while True:
            try:
                return await self._read(pod)
            except _Unreadable as cause:
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(cause))
            await self._sleep(_MAX_RETRY_SECONDS)

    async def _read(self, pod: Pod) -> Pod | None:
        """The pod as the API server has it; ``None`` if it is gone. Tried until it answers. Raises ``_Unreadable``."""
        delay = _RETRY_SECONDS
        while True:
            try:
                found = decode_pod(await self._client.get(PODS, pod.namespace, pod.name))
                return as_asked(found, pod.namespace, pod.name)
            except ApiError as refused:
                if refused.status == _NOT_FOUND:
                    return None
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=refused.message)
            except ApiUnavailable as cause:
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(cause))
            except ValueError as cause:
                raise _Unreadable(f'pod "{pod.name}" cannot be read: {cause}') from None
            await self._sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)


def _seen(found: Pod | None, pod: Pod, node_name: str) -> Status | None:
    """What a read-back settles; ``None`` if the pod is pending."""
    if found is None or found.uid != pod.uid:
        return _gone(pod)
    if not found.node_name:
        return None
    if found.node_name == node_name:
        return SUCCESS
    return error(f'pod {pod.name} is already assigned to node "{found.node_name}"')


def _gone(pod: Pod) -> Status:
    return error(f'pods "{pod.name}" not found')


def _decides_alike(found: Pod, pod: Pod) -> bool:
    """Whether a decision taken on ``pod`` holds for ``found``: all but status and annotations is the same.

    A fence is no mere annotation: somebody has given this bind up.
    """
    return _decided_by(found) == _decided_by(pod)


def _decided_by(pod: Pod) -> tuple[object, ...]:
    return pod.labels, pod.spec, pod.owner, pod.terminating, pod.annotations.get(FENCE)


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
