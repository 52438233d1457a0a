"""The picture of a live cluster: one reflector per kind, and the ways back to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.feeds.feed import FeedState
from app.feeds.freshness import QUIET_SECONDS
from app.feeds.outage import Outage
from app.feeds.reflector import Reflector
from app.feeds.sinks import sink_for
from app.framework.objects import Unreadable
from app.kube.api_errors import ApiError, ApiUnavailable
from app.kube.api_requests import PODS as PODS_RESOURCE
from app.kube.api_requests import Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.credentials import load
from app.kube.kinds import NODES, PODS, Kind, KubeObject
from app.kube.memo import Newest
from app.kube.meta_v1 import ObjectKey
from app.kube.names import is_segment
from app.telemetry.background import Background
from app.telemetry.tracing import Tracing
from app.writes.activator import ApiActivator
from app.writes.answers import as_requested
from app.writes.api_writes import ApiBinder, ApiWriter
from app.writes.batches import BindBatches
from app.writes.bind_guard import BindGuard
from app.writes.nominator import ApiNominator
from app.writes.writes import ClusterWrites, MayWrite

_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""kube-scheduler does not see finished pods either."""

_NOT_FOUND: Final = 404
_MISSES: Final = (403, _NOT_FOUND)
"""What says of a node that it is not there, or that it is not ours to ask: then the watch's word is all there is."""

_FETCH_SECONDS: Final = 1.0
_MISS_SECONDS: Final = 1.0
_MOST_MISSED: Final = 1024
_ASKS_BEFORE_TOO_OLD: Final = 4
"""How often a quiet kind is asked after before it counts as too old."""

_MANY: Final = 2000
"""A kind with as many objects rarely keeps quiet for a second, and takes long to list."""
_LOOK_SECONDS: Final = 0.01
_PATIENCE_SECONDS: Final = 0.1
_LONG_PATIENCE_SECONDS: Final = 1.0
_LIST_PATIENCE_SECONDS: Final = 10.0

_LOG: Final = structlog.get_logger(__name__)


class _Missed(Struct, frozen=True):
    """What was read in vain. ``cause``: why nothing can be said of it; empty if it is not there."""

    until: float
    cause: str


class LiveFeed:
    """Implements ``feeds.Feed``. Raises ``CredentialsError`` when made. Times are in seconds."""

    def __init__(
        self,
        kubeconfig: str | None,
        cluster: Cluster,
        kinds: Iterable[Kind[Any]],
        *,
        max_age: float,
        post_seconds: float = REQUEST_SECONDS,
        batches: BindBatches | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._cluster = cluster
        self._max_age = max_age
        self._post_seconds = post_seconds
        self._batches = batches
        self._client = KubeClient(load(kubeconfig), tracing=tracing)
        self._outage = Outage(lambda: self._client.server)
        self._began = monotonic()
        every: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
        self._reflectors = {kind: self._reflector(kind) for kind in every}
        self._complete = asyncio.Event()
        self._background = Background()
        self._missed = Newest[tuple[Kind[Any], str, str], _Missed](_MOST_MISSED)
        self._faults: dict[Kind[Any], tuple[str, float]] = {}
        self._heard_until = -inf

    @property
    def client(self) -> KubeClient:
        """Whoever the picture is read as; closed when the feed stops."""
        return self._client

    def writes(self, leadership: MayWrite) -> ClusterWrites:
        bind_guard = BindGuard(leadership, self._follows, self._batches)
        return ClusterWrites(
            ApiBinder(self._client, self._cluster.core.decode_pod, bind_guard, post_seconds=self._post_seconds),
            ApiWriter(self._client, self._cluster, self._resource, leadership.may_write),
            ApiNominator(self._client, leadership.may_write),
            ApiActivator(self._client, self._cluster, leadership.may_write),
            bind_guard,
        )

    def _reflector(self, kind: Kind[Any]) -> Reflector[Any]:
        return Reflector(
            self._client,
            (kind.api_version, kind.kind),
            decode=self._cluster.decoder(kind),
            key_of=_key_of,
            sink=sink_for(self._cluster, kind),
            metadata_only=kind.metadata_only,
            field_selector=_NOT_FINISHED if kind == PODS else "",
            quiet=min(QUIET_SECONDS, self._max_age / _ASKS_BEFORE_TOO_OLD),
            on_synced=self._one_synced,
            on_failure=partial(self._outage.failed, repr(kind)),
            on_answer=partial(self._outage.answered, repr(kind)),
        )

    def _resource(self, kind: Kind[Any]) -> Resource | None:
        reflector = self._reflectors.get(kind)
        return None if reflector is None else reflector.resource

    def _one_synced(self) -> None:
        if not self._complete.is_set() and all(reflector.synced for reflector in self._reflectors.values()):
            self._complete.set()
            objects = {repr(kind): self._cluster.count_of(kind) for kind in self._reflectors}
            _LOG.info("snapshot complete", objects=objects, seconds=round(monotonic() - self._began, 3))
            absent = [repr(kind) for kind, it in self._reflectors.items() if it.state == "not_served"]
            if absent:
                _LOG.info("kinds not served", kinds=absent)

    async def start(self) -> None:
        self._began = monotonic()
        self._background.begin("outage", self._outage.run)
        for kind, reflector in self._reflectors.items():
            for name, work in (("watch", reflector.run), ("freshness", reflector.keep_fresh)):
                self._background.begin(f"{name} of {kind!r}", work, partial(self._faulted, kind))

    def _faulted(self, kind: Kind[Any], fault: BaseException) -> None:
        """Start the kind again with a list, because its state can be the cause of the fault.

        The fault is a reason not to be ready until the API server has been heard of again.
        """
        self._faults[kind] = (f"the watch of {kind!r} failed with {type(fault).__name__}: {fault}", monotonic())
        self._reflectors[kind].start_anew()

    def stalled(self) -> str:
        """Return which of its tasks cannot be restarted; empty if all run."""
        return self._background.problem()

    async def stop(self) -> None:
        await self._background.stop()
        await self._client.aclose()

    async def complete(self) -> None:
        await self._complete.wait()

    async def catch_up(self) -> None:
        """Return once all that was written before this call is in the picture, of every kind there is.

        A busy kind shows it by its next event. A quiet one is listed: its watch may say nothing for minutes.
        """
        since = monotonic()
        while behind := self._behind(since):
            await asyncio.gather(*(it.probe() for it in behind))
            await self._until_fresh(since, _PATIENCE_SECONDS)
            small = [it for kind, it in self._reflectors.items() if self._cluster.count_of(kind) < _MANY]
            for reflector in set(self._behind(since)).intersection(small):
                reflector.list_anew()
            await self._until_fresh(since, _LONG_PATIENCE_SECONDS)
            for reflector in set(self._behind(since)).difference(small):
                reflector.list_anew()
            await self._until_fresh(since, _LIST_PATIENCE_SECONDS)

    def _behind(self, since: float) -> list[Reflector[Any]]:
        """A kind that the API server does not serve, or does not show us, is not waited for."""
        absent = ("not_served", "forbidden")
        return [it for it in self._reflectors.values() if it.fresh_as_of < since and it.state not in absent]

    async def _until_fresh(self, since: float, seconds: float) -> None:
        until = monotonic() + seconds
        while self._behind(since) and monotonic() < until:  # noqa: ASYNC110  # a reflector tells nobody how far it is
            await asyncio.sleep(_LOOK_SECONDS)

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        resource = self._resource(kind)
        if resource is None:
            return
        missed = self._missed.get((kind, namespace, name))
        if missed is not None and missed.until > monotonic():
            if missed.cause:
                raise Unreadable(kind.kind, name, missed.cause)
            return
        if not is_segment(name) or not is_segment(namespace or name):
            return  # an owner reference may hold any text, and much of it: nothing to ask for, or to remember
        try:
            raw = await self._client.get(
                resource, namespace, name, metadata_only=kind.metadata_only, timeout=_FETCH_SECONDS
            )
            found = as_requested(self._cluster.decoder(kind)(raw), namespace if resource.namespaced else "", name)
        except (ApiError, ApiUnavailable) as cause:
            _LOG.debug("not read", kind=repr(kind), object=f"{namespace}/{name}", cause=str(cause))
            is_miss = kind != NODES or (isinstance(cause, ApiError) and cause.status in _MISSES)
            self._remember_miss(kind, namespace, name, "" if is_miss else str(cause))
            if not is_miss:
                raise Unreadable(kind.kind, name, str(cause)) from None
            return
        except ValueError as cause:
            raise Unreadable(kind.kind, f"{namespace}/{name}", str(cause)) from None
        if kind == NODES:
            self._cluster.upsert_read_node(found)
        else:
            self._cluster.others.upsert_read(kind, found)

    def _remember_miss(self, kind: Kind[Any], namespace: str, name: str, cause: str) -> None:
        """A pod that waits for its owner is asked about again and again: not each time by a request of ours."""
        self._missed.put((kind, namespace, name), _Missed(monotonic() + _MISS_SECONDS, cause))

    async def fetch_pod(self, namespace: str, name: str) -> None:
        try:
            raw = await self._client.get(PODS_RESOURCE, namespace, name, timeout=_FETCH_SECONDS)
            found = as_requested(self._cluster.core.decode_pod(raw), namespace, name)
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                return
            raise OSError(refused.message) from refused
        except (ApiUnavailable, ValueError) as cause:
            raise OSError(str(cause)) from cause
        self._cluster.upsert_read_pod(found)

    def _follows(self) -> bool:
        return all(self._reflectors[kind].follows for kind in (NODES, PODS))

    def problem(self) -> str:
        if not self._faults and monotonic() < self._heard_until:
            return ""
        for kind, (fault, since) in self._faults.items():
            if self._reflectors[kind].last_contact <= since:
                return fault
        if not self._complete.is_set():
            return f"the snapshot of the cluster is not complete: waiting for {self._waiting_for()}"
        oldest = monotonic() - self._max_age
        for kind, reflector in self._reflectors.items():
            if reflector.last_contact < oldest:
                return f"nothing heard of {_described(kind, reflector)} for more than {self._max_age:g} s"
        self._heard_until = min(it.last_contact for it in self._reflectors.values()) + self._max_age
        return ""

    def _waiting_for(self) -> str:
        """The kinds that are missing, one cause said once."""
        by_cause: dict[str, list[str]] = {}
        for kind, it in self._reflectors.items():
            if not it.synced:
                by_cause.setdefault(_condition(it), []).append(repr(kind))
        return "; ".join(f"{', '.join(kinds)} ({cause})" for cause, kinds in by_cause.items())

    def states(self) -> Mapping[str, FeedState]:
        now = monotonic()
        return {
            repr(kind): FeedState(
                state=it.state,
                objects=self._cluster.count_of(kind),
                age=max(0.0, now - it.last_contact) if it.synced else 0.0,
                synced=it.synced,
                events=it.events,
                relists=it.relists,
                undecodable=it.undecodable,
                cause=it.cause,
                left_out=tuple("/".join(filter(None, key)) for key in sorted(it.left_out)),
            )
            for kind, it in self._reflectors.items()
        }


def _key_of(found: KubeObject) -> ObjectKey:
    return found.key


def _described(kind: Kind[Any], reflector: Reflector[Any]) -> str:
    return f"{kind!r} ({_condition(reflector)})"


def _condition(reflector: Reflector[Any]) -> str:
    return f"{reflector.state}: {reflector.cause}" if reflector.cause else reflector.state
