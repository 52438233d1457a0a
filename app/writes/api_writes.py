"""Writes decisions to the API server: Bindings, and changes of other objects.

If the outcome of a Binding is unknown, the bind returns only after the pod was read back from the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import structlog
from msgspec import Raw
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.background import next_delay
from app.framework.objects import NotServed, ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error, unschedulable
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS, PreSendCheck, Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_v1 import Pod, is_same_spec
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.meta_v1 import ObjectKey
from app.writes.answers import as_requested, is_success
from app.writes.bind_guard import BindGuard, NotBound
from app.writes.read_back import ReadBack, bound_elsewhere, gone

_LOG: Final = structlog.get_logger(__name__)

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_CONFLICTS: Final = 16
"""Number of conflicts after which a bind is rejected, so that the scheduler retries the pod after its back-off.

Before that, the bind itself retries: a retry costs one read and some milliseconds, and the back-off lasts for seconds.
"""

_PASSING: Final = frozenset({401, 404, 408, 409, 425, 429})
"""4xx status codes with a temporary cause, so that a retry can succeed."""

_RETRY_SECONDS: Final = 0.25
_MAX_RETRY_SECONDS: Final = 2.0
"""Minimum and maximum delay in seconds between two attempts to read a pod. The delay doubles."""


Sleep = Callable[[float], Awaitable[None]]
DecodePod = Callable[[bytes | Raw], Pod]
ResourceOf = Callable[[Kind[Any]], Resource | None]


def binding(pod: Pod, node_name: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the Binding object to post. UID and resource version of the pod are preconditions.

    The API server writes ``annotations`` to the pod together with its node.
    """
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.resource_version:
        metadata["resourceVersion"] = pod.resource_version
    if annotations:
        metadata["annotations"] = dict(annotations)
    target = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


class ApiBinder:
    """Implementation of ``Binder`` that posts Bindings to ``pods/binding``.

    A bind succeeds only if the API server confirms it: the answer is a ``Status`` with Success, or the pod has the node
    when it is read back. After any other 2xx answer the outcome is unknown.
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
        """``decode_pod`` is the cache's decoder, so that a pod read back can be compared with the pod in the cache.

        ``post_seconds`` is the time limit of a Binding request; without an answer by then, its outcome is unknown.
        """
        self._client = client
        self._decode_pod = decode_pod
        self._bind_guard = bind_guard
        self._read_back = ReadBack(client)
        self._sleep = sleep
        self._post_seconds = post_seconds

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Bind the pod and return Success, a rejection or an Error.

        A conflict means that the pod was written since the decision. Often only its status was written, by a scheduler
        or by a nomination. The Binding is then retried with the new version, unless a field has changed that the
        decision depends on. Returns a rejection if such a field changed or conflicts continue. If the pre-send check
        forbids the Binding, returns the status of the check. Returns an Error for all other failures.
        """
        read, message = pod, ""
        for _ in range(_CONFLICTS):
            try:
                return await self._post(read, node_name, annotations)
            except NotBound as held:
                return held.status
            except ApiError as refused:
                if refused.status != _CONFLICT:
                    return error(f"the API server refused the binding: {refused.message}")
                newest = await self._after_conflict(pod, node_name, refused)
                if isinstance(newest, Status):
                    return newest
                read, message = newest, refused.message
            except ApiUnavailable as unsent:
                return error(f"the API server cannot be reached: {unsent}")
        return unschedulable(f"the pod keeps changing while it is being bound: {message}")

    async def _post(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        """Send the Binding; return once its outcome is known.

        Raises ``ApiError`` if the Binding is refused, ``ApiUnavailable`` if it cannot be sent, and ``NotBound`` if the
        pre-send check forbids it. After each of these exceptions, the Binding has no effect.
        """
        path, body = PODS.path(pod.namespace, pod.name, "binding"), binding(pod, node_name, annotations)

        async def send(check: PreSendCheck) -> Status:
            try:
                answer = await self._client.post(path, body, before=check, timeout=self._post_seconds)
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
        """Read the pod back until the outcome of the Binding is known; return the result of the bind."""
        delay = _RETRY_SECONDS
        while (outcome := await self._read_back.outcome(pod, node_name)) is None:
            await self._sleep(delay)
            delay = next_delay(delay, _RETRY_SECONDS, _MAX_RETRY_SECONDS)
        return outcome.status

    async def _after_conflict(self, pod: Pod, node_name: str, refused: ApiError) -> Pod | Status:
        """Return ``pod`` with its newest resource version if the Binding can be retried, else the result of the bind.

        The conflict proves that the refused Binding has no effect. If the pod is already bound to this node, the
        result is Success.
        """
        try:
            newest = await self._read(pod)
        except ValueError as cause:
            return error(f'pod "{pod.name}" cannot be read: {cause}')
        if newest is None or newest.uid != pod.uid:
            return gone(pod)
        if newest.node_name:
            return SUCCESS if newest.node_name == node_name else bound_elsewhere(pod, newest.node_name)
        if not _is_decision_unaffected(newest, pod):
            return unschedulable(f"the pod changed while it was being bound: {refused.message}")
        return replace(pod, resource_version=newest.resource_version)

    async def _read(self, pod: Pod) -> Pod | None:
        """Return the pod from the API server, ``None`` if it does not exist. Other failures are retried without limit.

        Raises ``ValueError`` if the pod cannot be decoded.
        """
        delay = _RETRY_SECONDS
        while True:
            try:
                newest = self._decode_pod(await self._client.get(PODS, pod.namespace, pod.name))
                return as_requested(newest, pod.namespace, pod.name)
            except ApiError as refused:
                if refused.status == _NOT_FOUND:
                    return None
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=refused.message)
            except ApiUnavailable as cause:
                _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(cause))
            await self._sleep(delay)
            delay = next_delay(delay, _RETRY_SECONDS, _MAX_RETRY_SECONDS)


def _is_decision_unaffected(newest: Pod, pod: Pod) -> bool:
    """Return true if ``newest`` equals ``pod`` in all fields that decisions use, so that the decision is still valid.

    Annotations are compared too, but only those of Homeport's domain are decoded. One of them is the fence that
    ``read_back`` writes after a bind of unknown outcome: the two pods then differ, and this bind is rejected.
    """
    read, decided = ((it.labels, it.annotations, it.owner, it.terminating, it.finished) for it in (newest, pod))
    costs = [None if it.lifecycle is None else it.lifecycle.cost for it in (newest, pod)]
    return read == decided and costs[0] == costs[1] and is_same_spec(newest.spec, pod.spec)


def is_permanent_refusal(status: int) -> bool:
    """Return true if a request that was refused with this status would be refused again.

    Examples are a missing permission, and an object that validation or a webhook rejects.
    """
    return 400 <= status < 500 and status not in _PASSING


class ApiWriter:
    """Implementation of ``Writer``: writes objects to the API server and stores each result in the cache.

    UID and resource version are preconditions of each change and deletion. ``may_write`` returns why this process must
    not write now, or an empty string if it may. If it must not, nothing is sent and ``OSError`` is raised.
    """

    def __init__(
        self, client: KubeClient, cluster: Cluster, resource_of: ResourceOf, may_write: Callable[[], str] = str
    ) -> None:
        self._may_write = may_write
        self._client = client
        self._objects = cluster.others
        self._resource_of = resource_of

    async def annotate(
        self, kind: Kind[AnnotatedObject], target: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        await self._patch(kind, target, {"metadata": {**_precondition(target), "annotations": dict(annotations)}})

    async def change(self, kind: Kind[AnnotatedObject], target: AnnotatedObject, spec: Mapping[str, Any]) -> None:
        await self._patch(kind, target, {"metadata": _precondition(target), "spec": dict(spec)})

    async def create(self, kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        resource = self._writable(kind)
        metadata = {"namespace": namespace, "name": name}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)}
        raw = await self._send(kind, (namespace, name), lambda: self._client.post(resource.path(namespace), body))
        self._objects.upsert_read(kind, _read(kind, (namespace, name), raw))

    async def delete(self, kind: Kind[AnnotatedObject], target: AnnotatedObject) -> None:
        resource = self._writable(kind)

        async def send() -> bytes:
            version = target.resource_version
            await self._client.delete(resource, target.namespace, target.name, uid=target.uid, resource_version=version)
            return b""

        await self._send(kind, target.key, send, target.uid)
        self._objects.delete(kind, target.key, target.uid)

    async def _patch(self, kind: Kind[AnnotatedObject], target: AnnotatedObject, body: Mapping[str, Any]) -> None:
        resource = self._writable(kind)
        raw = await self._send(
            kind,
            target.key,
            lambda: self._client.patch(resource, target.namespace, target.name, body, metadata_only=kind.metadata_only),
            target.uid,
        )
        self._objects.upsert_read(kind, _read(kind, target.key, raw))

    async def _send(
        self, kind: Kind[AnnotatedObject], key: ObjectKey, send: Callable[[], Awaitable[bytes]], uid: str = ""
    ) -> bytes:
        """Send the request and return the answer. ``uid``: of the object to change or delete; empty to create one.

        Raises ``ObjectGone`` after a 404, ``WriteConflict`` after a 409, and ``OSError`` after other failures. After a
        404, an object to change or delete is removed from the cache. After a 409, the newest version is read and
        cached. If this read fails, ``ObjectGone`` or ``OSError`` is raised instead.
        """
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
        """Return the resource of the kind.

        Raises ``OSError`` if this process must not write, and ``NotServed`` if the API server does not serve the kind.
        """
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


def _precondition(target: AnnotatedObject) -> dict[str, str]:
    return {"uid": target.uid, "resourceVersion": target.resource_version}


def _read(kind: Kind[AnnotatedObject], key: ObjectKey, raw: bytes) -> AnnotatedObject:
    """Decode the object in an answer. Raises ``OSError`` if the object is invalid or is not the requested one."""
    try:
        return as_requested(kind.decode(raw), *key)
    except ValueError as cause:
        raise OSError(f"{kind.kind} {'/'.join(key)} cannot be read: {cause}") from None
    except ApiUnavailable as another:
        raise OSError(str(another)) from another
