"""Feed from a live cluster: a reflector for each kind fills the snapshot, and writers send to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.feeds.documents import NOT_FINISHED
from app.feeds.feed import FeedState
from app.feeds.freshness import QUIET_SECONDS
from app.feeds.outage import Outage
from app.feeds.reflector import Reflector
from app.feeds.stores import store_for
from app.framework.objects import Unreadable
from app.kube.api_errors import ApiError, ApiUnavailable
from app.kube.api_requests import PODS as PODS_RESOURCE
from app.kube.api_requests import Resource
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.credentials import load
from app.kube.kinds import NODES, PODS, Kind
from app.kube.memo import Newest
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

_NOT_FOUND: Final = 404
_MISSES: Final = (403, _NOT_FOUND)
"""Statuses of a read after which a node is treated as missing.

The node does not exist, or Homeport is not allowed to get nodes.
"""

_FETCH_SECONDS: Final = 1.0
"""Timeout of a read of a single object, in seconds."""

_MISS_SECONDS: Final = 1.0
"""Seconds for which ``fetch`` does not repeat a failed read."""

_MOST_MISSED: Final = 1024
"""Maximum number of cached failed reads."""

_PROBES_BEFORE_TOO_OLD: Final = 4
"""Divisor: a kind is first probed after this part of the maximum age without contact, or after ``QUIET_SECONDS``.

The shorter time applies. So failed probes can be repeated before the snapshot is too old.
"""

_MANY: Final = 2000
"""A kind with at least this many objects is large. ``catch_up`` waits longer before it lists a large kind.

Listing a large kind is slow, and its events are frequent.
"""

_LOOK_SECONDS: Final = 0.01
"""Seconds after which ``catch_up`` checks the reflectors again."""

_PATIENCE_SECONDS: Final = 0.1
_LONG_PATIENCE_SECONDS: Final = 1.0
_LIST_PATIENCE_SECONDS: Final = 10.0
"""The three limits of ``catch_up``, in seconds: for events, for lists of small kinds, and for lists of large kinds."""

_LOG: Final = structlog.get_logger(__name__)


class _FailedRead(Struct, frozen=True):
    """Failed read, not repeated before ``until``.

    ``cause``: text of the ``Unreadable`` to raise again. If it is empty, the object counts as missing.
    """

    until: float
    cause: str


class LiveFeed:
    """Feed from a live cluster. Implements ``feeds.Feed``. The constructor raises ``CredentialsError``.

    ``max_age``: if the API server has sent nothing about a kind for this many seconds, the snapshot must not be used.
    ``post_seconds``: timeout of the request that binds a pod. ``beside``: true for a second snapshot, which is filled
    while another one serves decisions.
    """

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
        beside: bool = False,
    ) -> None:
        self._beside = beside
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
        self._missed = Newest[tuple[Kind[Any], str, str], _FailedRead](_MOST_MISSED)
        self._faults: dict[Kind[Any], tuple[str, float]] = {}
        self._fresh_until = -inf

    @property
    def client(self) -> KubeClient:
        """Client for the API server, which the feed and its writers share. It is closed when the feed stops."""
        return self._client

    @property
    def post_seconds(self) -> float:
        """Time limit in seconds of a request that binds or evicts a pod. Later, the request cannot take effect."""
        return self._post_seconds

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
            key_of=attrgetter("key"),
            store=store_for(self._cluster, kind),
            metadata_only=kind.metadata_only,
            field_selector=NOT_FINISHED if kind == PODS else "",
            beside=self._beside,
            quiet=min(QUIET_SECONDS, self._max_age / _PROBES_BEFORE_TOO_OLD),
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
            seconds = round(monotonic() - self._began, 3)
            if self._beside:
                _LOG.info("explain snapshot complete", objects=objects, seconds=seconds)
                return
            _LOG.info("snapshot complete", objects=objects, seconds=seconds)
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
        """Look up and list a kind again after an unexpected exception in its task.

        The task's state might have caused the exception, so it is discarded. ``problem`` reports the fault until the
        kind has contact with the API server again.
        """
        self._faults[kind] = (f"the watch of {kind!r} failed with {type(fault).__name__}: {fault}", monotonic())
        self._reflectors[kind].start_anew()

    def stalled(self) -> str:
        """Return a message about a task that has failed after every restart for a minute; empty if none has."""
        return self._background.problem()

    async def stop(self) -> None:
        await self._background.stop()
        await self._client.aclose()

    async def complete(self) -> None:
        await self._complete.wait()

    async def catch_up(self) -> None:
        """Wait until the snapshot has all changes that were written before this call.

        A probe for each kind reads the newest resource version. The kind is up to date once its watch has reached that
        version. A kind that does not reach it in time is listed, because its watch can be silent for minutes. Kinds
        that are forbidden or not served are not awaited.
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
        """Return the reflectors with a ``fresh_as_of`` before ``since``.

        Kinds that are forbidden or not served are omitted.
        """
        absent = ("not_served", "forbidden")
        return [it for it in self._reflectors.values() if it.fresh_as_of < since and it.state not in absent]

    async def _until_fresh(self, since: float, seconds: float) -> None:
        until = monotonic() + seconds
        while self._behind(since) and monotonic() < until:  # noqa: ASYNC110  # reflectors have no event for it
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
            return  # owner references can contain any text, so an invalid name is neither requested nor cached
        qualified = f"{namespace}/{name}" if namespace else name
        try:
            raw = await self._client.get(
                resource, namespace, name, metadata_only=kind.metadata_only, timeout=_FETCH_SECONDS
            )
            obj = as_requested(self._cluster.decoder(kind)(raw), namespace if resource.namespaced else "", name)
        except (ApiError, ApiUnavailable) as cause:
            _LOG.debug("not read", kind=repr(kind), object=qualified, cause=str(cause))
            is_miss = kind != NODES or (isinstance(cause, ApiError) and cause.status in _MISSES)
            self._remember_miss(kind, namespace, name, "" if is_miss else str(cause))
            if not is_miss:
                raise Unreadable(kind.kind, name, str(cause)) from None
            return
        except ValueError as cause:
            raise Unreadable(kind.kind, qualified, str(cause)) from None
        if kind == NODES:
            self._cluster.upsert_read_node(obj)
        else:
            self._cluster.others.upsert_read(kind, obj)

    def _remember_miss(self, kind: Kind[Any], namespace: str, name: str, cause: str) -> None:
        """Cache a failed read. Otherwise each evaluation of a pod whose owner is missing would repeat the read."""
        self._missed.put((kind, namespace, name), _FailedRead(monotonic() + _MISS_SECONDS, cause))

    async def fetch_pod(self, namespace: str, name: str) -> None:
        try:
            raw = await self._client.get(PODS_RESOURCE, namespace, name, timeout=_FETCH_SECONDS)
            pod = as_requested(self._cluster.core.decode_pod(raw), namespace, name)
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                return
            raise OSError(refused.message) from refused
        except (ApiUnavailable, ValueError) as cause:
            raise OSError(str(cause)) from cause
        self._cluster.upsert_read_pod(pod)

    def _follows(self) -> bool:
        return all(self._reflectors[kind].follows for kind in (NODES, PODS))

    def problem(self) -> str:
        if not self._faults and monotonic() < self._fresh_until:
            return ""
        for kind, (fault, since) in self._faults.items():
            if self._reflectors[kind].last_contact <= since:
                return fault
        if not self._complete.is_set():
            return f"the snapshot of the cluster is not complete: waiting for {self._waiting_for()}"
        oldest = monotonic() - self._max_age
        for kind, reflector in self._reflectors.items():
            if reflector.last_contact < oldest:
                return f"nothing heard of {kind!r} ({_condition(reflector)}) for more than {self._max_age:g} s"
        self._fresh_until = min(it.last_contact for it in self._reflectors.values()) + self._max_age
        return ""

    def _waiting_for(self) -> str:
        """Return a text with the kinds that are not synced, grouped by state and cause."""
        by_cause: dict[str, list[str]] = {}
        for kind, reflector in self._reflectors.items():
            if not reflector.synced:
                by_cause.setdefault(_condition(reflector), []).append(repr(kind))
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
                left_out=tuple("/".join(filter(None, key)) for key in sorted(it.unreadable)),
            )
            for kind, it in self._reflectors.items()
        }


def _condition(reflector: Reflector[Any]) -> str:
    return f"{reflector.state}: {reflector.cause}" if reflector.cause else reflector.state
