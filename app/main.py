"""Composition root: makes every part, hands each what it needs, and runs them for the life of the process."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import structlog
from fastapi import FastAPI
from msgspec import Struct
from msgspec.structs import replace

from app.cluster.checking import check_in_turns
from app.cluster.feeds import Feed, FeedState, SavedFeed
from app.cluster.leader import Elector
from app.cluster.lease import Election, never_stopping, post_seconds
from app.cluster.live import LiveFeed
from app.cluster.replica import Replica
from app.cluster.store import Cluster
from app.config.settings import Settings
from app.framework.interface import Handle, PluginSpec, RepairPlugin
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_v1 import Pod
from app.kube.credentials import load
from app.kube.kinds import Kind
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError
from app.runtime.profiles import ResolvedProfile, build, resolve
from app.runtime.registry import Registry
from app.runtime.waiting import WaitingPods
from app.server.admission import Admission
from app.server.cycle import cycle_router
from app.server.forward import Forwarder
from app.server.operator import FeedStatus, LeaderStatus, ProfileStatus, Status, operator_router, points_of
from app.server.ops import ops_router
from app.server.routes import LEAN, VerbCall, Verbs, direct, verb_router
from app.server.waiting import waiting_router
from app.server.web import create_web, listen, run
from app.telemetry.metrics import Metrics
from app.telemetry.picture import PictureCollector
from app.verbs.bind import BindVerb
from app.verbs.candidates import asked_hosts
from app.verbs.cycle import CycleVerb
from app.verbs.due import DueBinds
from app.verbs.filter import FilterVerb
from app.verbs.handed import HandedBack
from app.verbs.led import LedBind
from app.verbs.nominating import Leads, SamplingGuard
from app.verbs.outcome import Outcome
from app.verbs.preempt import PreemptVerb
from app.verbs.prioritize import PrioritizeVerb
from app.verbs.service import Deciding
from app.verbs.standing import StandingRefusals

_LOG: Final = structlog.get_logger(__name__)
_MOST_NAMED: Final = 10
"""Objects of a kind that the status page names."""

_MARGIN: Final = 0.25
"""Seconds before the caller's time limit by which an answer must leave."""


class _Replicated(Struct, frozen=True):
    """What one of several replicas has more than a single process."""

    replica: Replica
    forwarder: Forwarder
    client: KubeClient

    async def stop(self) -> None:
        await self.replica.stop()
        self.forwarder.close()
        await self.client.aclose()


class Service:
    """Everything that runs, wired together. Raises ``ProfileErrors`` or ``SavedClusterError`` when made."""

    def __init__(
        self, settings: Settings, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int], *, version: str
    ) -> None:
        self._settings = settings
        self._version = version
        self._cluster = Cluster()
        self._metrics = Metrics()
        self._guard = Guard(self._metrics)
        self._waiting = WaitingPods()
        self._checking: asyncio.Task[list[str]] | None = None
        resolved = resolve(settings.profiles, Registry(specs, defaults))
        live = _live_feed(settings, self._cluster, _kinds(resolved))
        self._feed: Feed = live or SavedFeed(Path(settings.cluster or ""), self._cluster, _kinds(resolved))
        elected = settings.leader_election.leader_elect
        self._replicated = self._replicate(live) if live is not None and elected else None
        self._metrics.leader.set(self._replicated is None)
        self._leads = Leads(self._cluster)
        self._frameworks = self._build(resolved)
        self._bind = BindVerb(
            deciding := Deciding(
                self._cluster,
                self._frameworks,
                self._feed,
                self._feed.problem,
                DueBinds(
                    monotonic,
                    wait_seconds=settings.due_bind_wait,
                    observe=self._metrics.due_bind_wait.observe,
                    is_placed=self._is_placed,
                ),
                max_priority=settings.max_priority,
            ),
            self._feed.binder,
            self._feed.gate,
            monotonic,
            time_limit=(limit := settings.http_timeout - _MARGIN),
        )
        guarding = replace(deciding, problem=self._problem_here)
        self._sampling = SamplingGuard(guarding, self._feed.nominator, self._leads, monotonic, self._metrics)
        self._cycle = CycleVerb(deciding)
        self._handed = HandedBack()
        self._standing = StandingRefusals(
            self._cluster,
            remembered=self._metrics.refusals.labels("remembered"),
            computed=self._metrics.refusals.labels("computed"),
        )
        bind: VerbCall = self._bind
        if self._replicated is not None:
            bind = LedBind(self._bind, self._replicated.replica, monotonic, time_limit=limit)
        self._callers = {"": self._verbs(deciding, bind), LEAN: self._verbs(deciding, bind, lean=True)}
        self._metrics.add_collector(PictureCollector(self._feed.states, lambda: len(self._cluster.assumed)))
        for profile in resolved:
            for notice in profile.notices:
                _LOG.warning(notice)

    def _problem_here(self) -> str:
        """Why this replica must not act on pods by itself; empty if it may."""
        if self._replicated is not None and not self._replicated.replica.leads:
            return "another replica decides"
        return self._feed.problem()

    def _is_placed(self, pod: Pod) -> bool:
        known = self._cluster.pod(*pod.key)
        return known is not None and bool(known.node_name)

    def _verbs(self, deciding: Deciding, bind: VerbCall, *, lean: bool = False) -> Verbs:
        answered = self._sampling.answered if self._settings.sampling_guard else _nobody_listens
        return {
            "filter": FilterVerb(deciding, self._standing, self._handed, answered, lean=lean),
            "prioritize": PrioritizeVerb(deciding, self._handed, lean=lean),
            "preempt": PreemptVerb(deciding),
            "bind": bind,
        }

    def _build(self, resolved: Sequence[ResolvedProfile]) -> dict[str, Framework]:
        served = [profile.scheduler_name for profile in resolved]
        return {
            profile.scheduler_name: build(
                profile,
                self._handle(profile.scheduler_name),
                served=served,
                nominations=self._leads,
                waiting=self._waiting,
                guard=self._guard,
            )
            for profile in resolved
        }

    def _replicate(self, feed: LiveFeed) -> _Replicated:
        """It renews its lease over connections of its own: binds are not in the way."""
        asked = self._settings.leader_election
        election = Election(
            f"{socket.gethostname()}_{uuid4()}",
            self._settings.advertised,
            lease_duration=asked.lease_duration,
            renew_deadline=asked.renew_deadline,
            retry_period=asked.retry_period,
            clock=never_stopping,
        )
        client = KubeClient(load(self._settings.kubeconfig))
        elector = Elector(
            client,
            election,
            namespace=asked.resource_namespace,
            name=asked.resource_name,
            retry_period=asked.retry_period,
            attempt_seconds=asked.renew_deadline / 2,
        )
        replica = Replica(
            elector,
            feed,
            feed.fences,
            [profile.scheduler_name for profile in self._settings.profiles],
            post_seconds=post_seconds(asked.lease_duration),
            clock=never_stopping,
            on_change=self._metrics.leader.set,
            on_leader=self._metrics.leader_transitions.inc,
        )
        feed.lead_by(replica.may_bind, replica.may_write)
        forwarder = Forwarder(
            replica, self._metrics, lambda body: asked_hosts(body, self._cluster.nodes), clock=monotonic
        )
        return _Replicated(replica, forwarder, client)

    def _handle(self, scheduler_name: str) -> Handle:
        return Handle(
            counts=self._cluster.counts,
            objects=self._cluster,
            writer=self._feed.writer,
            binder=self._feed.binder,
            clock=monotonic,
            waiting=self._waiting,
            serves=scheduler_name.__eq__,
        )

    @property
    def picture(self) -> Cluster:
        """The picture of the cluster, for tests and benchmarks that fill it themselves."""
        return self._cluster

    def web(self) -> FastAPI:
        """The HTTP application; its lifespan starts and stops the rest."""
        verbs = verb_router(
            self._callers,
            self._metrics,
            Admission(
                self._settings.http_timeout - _MARGIN,
                self._settings.max_in_flight,
                lambda body: asked_hosts(body, self._cluster.nodes),
            ),
            max_body_bytes=self._settings.max_body_bytes,
            forwarder=self._replicated.forwarder if self._replicated is not None else None,
        )
        routers = (
            verbs,
            cycle_router(self._cycle, max_body_bytes=self._settings.max_body_bytes),
            operator_router(self),
            waiting_router(self._waiting, max_body_bytes=self._settings.max_body_bytes),
            ops_router(self.problem, self._metrics, self._replicated.replica.role if self._replicated else str),
        )
        return create_web(routers, self._lifespan, version=self._version, direct=direct(verbs))

    @asynccontextmanager
    async def _lifespan(self, _web: FastAPI) -> AsyncIterator[None]:
        await self._feed.start()
        if self._replicated is not None:
            await self._replicated.replica.start()
        repair = asyncio.create_task(self._repair_forever())
        gc.freeze()
        try:
            yield
        finally:
            repair.cancel()
            await self._sampling.stop()
            await self._bind.drain()
            if self._replicated is not None:
                await self._replicated.stop()
            await self._feed.stop()

    async def _repair_forever(self) -> None:
        """Put right what a crash left half done: as soon as the picture is complete, then again and again.

        Of several replicas the one that leads does it.
        """
        await self._feed.complete()
        interval = self._settings.repair_interval
        while True:
            if self._replicated is not None:
                await self._replicated.replica.leading()
            for framework in self._frameworks.values():
                await self._repair(framework)
            await (self._replicated.replica.led_for(interval) if self._replicated else asyncio.sleep(interval))

    async def _repair(self, framework: Framework) -> None:
        for name, plugin in framework.plugins.items():
            if isinstance(plugin, RepairPlugin):
                try:
                    await self._guard.acall(name, "Repair", plugin.repair)
                except PluginError:
                    continue  # logged by the guard; tried again next time

    def problem(self) -> str:
        """Why no verb can be answered; empty if all is well."""
        return self._feed.problem() or (self._replicated.replica.problem() if self._replicated else "")

    async def hand_over(self) -> None:
        """Let another replica lead, if there are several and this one does; before the end of the process."""
        if self._replicated is not None:
            await self._replicated.replica.hand_over(self._bind.drain)

    def status(self) -> Status:
        feeds = {kind: _feed_status(it) for kind, it in self._feed.states().items()}
        return Status(
            version=self._version,
            problem=self.problem(),
            feeds=feeds,
            leader=_leader_status(self._replicated.replica) if self._replicated else None,
            assumed_pods=len(self._cluster.assumed),
            counters=self._cluster.counts.statistics(),
            profiles=[_profile_status(it) for it in self._frameworks.values()],
        )

    async def check(self) -> list[str]:
        """Who asks while one is under way gets its result: it costs what one costs, however many ask."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(check_in_turns(self._cluster))
        return await asyncio.shield(self._checking)


def serve(settings: Settings, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int], *, version: str) -> None:
    """Serve until told to stop. Raises what ``Service`` raises, and ``OSError`` if it cannot listen."""
    service = Service(settings, specs, defaults, version=version)
    listening = listen(settings.host, settings.port)
    _LOG.info("serving", host=settings.host, port=listening.getsockname()[1], version=version)
    run(service.web(), listening, service.hand_over if settings.leader_election.leader_elect else None)


def _nobody_listens(_pod: Pod, _shown: int, _only: str, _outcome: Outcome) -> None:
    """The sampling guard is off."""


def _kinds(resolved: Iterable[ResolvedProfile]) -> list[Kind[Any]]:
    return list(dict.fromkeys(kind for profile in resolved for kind in sorted(profile.kinds(), key=repr)))


def _live_feed(settings: Settings, cluster: Cluster, kinds: Sequence[Kind[Any]]) -> LiveFeed | None:
    if settings.cluster is not None:
        return None
    asked = settings.leader_election
    longest = post_seconds(asked.lease_duration) if asked.leader_elect else REQUEST_SECONDS
    return LiveFeed(settings.kubeconfig, cluster, kinds, max_age=settings.max_feed_age, post_seconds=longest)


def _leader_status(replica: Replica) -> LeaderStatus:
    record = replica.record
    found = (record.holder, record.address, record.since) if record is not None and record.holder else ("", "", "")
    return LeaderStatus(
        here=replica.leads, identity=found[0], address=found[1], since=found[2], replica=replica.identity
    )


def _feed_status(found: FeedState) -> FeedStatus:
    named = list(found.left_out[:_MOST_NAMED])
    return FeedStatus(state=found.state, objects=found.objects, age_seconds=found.age, left_out=named)


def _profile_status(framework: Framework) -> ProfileStatus:
    points = {point: [slot.name for slot in slots] for point, slots in framework.slots.items()}
    return ProfileStatus(scheduler_name=framework.scheduler_name, points=points_of(points))
