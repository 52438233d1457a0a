"""Composition root: makes every part, hands each what it needs, and runs them for the life of the process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import structlog
from fastapi import FastAPI

from app.cluster.feeds import Feed, SavedFeed
from app.cluster.live import LiveFeed
from app.cluster.store import Cluster
from app.config.settings import Settings
from app.framework.interface import Handle, PluginSpec, RepairPlugin
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError
from app.runtime.profiles import ResolvedProfile, build, resolve
from app.runtime.registry import Registry
from app.runtime.waiting import WaitingPods
from app.server.admission import Admission
from app.server.cycle import cycle_router
from app.server.operator import FeedStatus, ProfileStatus, Status, operator_router, points_of
from app.server.ops import ops_router
from app.server.routes import LEAN, Verbs, direct, verb_router
from app.server.waiting import waiting_router
from app.server.web import create_web, listen, run
from app.telemetry.metrics import Metrics
from app.telemetry.picture import PictureCollector
from app.verbs.bind import BindVerb
from app.verbs.candidates import asked_hosts
from app.verbs.cycle import CycleVerb
from app.verbs.due import DueBinds
from app.verbs.filter import FilterVerb
from app.verbs.nominating import Leads, SamplingGuard
from app.verbs.outcome import Outcome
from app.verbs.preempt import PreemptVerb
from app.verbs.prioritize import PrioritizeVerb
from app.verbs.service import Deciding
from app.verbs.standing import StandingRefusals

_LOG: Final = structlog.get_logger(__name__)
_MARGIN: Final = 0.25
"""Seconds before the caller's time limit by which an answer must leave."""


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
        resolved = resolve(settings.profiles, Registry(specs, defaults))
        self._feed = _feed(settings, self._cluster, _kinds(resolved))
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
                ),
                max_priority=settings.max_priority,
            ),
            self._feed.binder,
            self._feed.gate,
            monotonic,
            time_limit=settings.http_timeout - _MARGIN,
        )
        self._sampling = SamplingGuard(deciding, self._feed.nominator, self._leads, monotonic, self._metrics)
        self._cycle = CycleVerb(deciding)
        self._standing = StandingRefusals(
            self._cluster,
            remembered=self._metrics.refusals.labels("remembered"),
            computed=self._metrics.refusals.labels("computed"),
        )
        self._callers = {"": self._verbs(deciding), LEAN: self._verbs(deciding, lean=True)}
        self._metrics.add_collector(PictureCollector(self._feed.states, lambda: len(self._cluster.assumed)))
        for profile in resolved:
            for notice in profile.notices:
                _LOG.warning(notice)

    def _verbs(self, deciding: Deciding, *, lean: bool = False) -> Verbs:
        answered = self._sampling.answered if self._settings.sampling_guard else _nobody_listens
        return {
            "filter": FilterVerb(deciding, self._standing, answered, lean=lean),
            "prioritize": PrioritizeVerb(deciding, lean=lean),
            "preempt": PreemptVerb(deciding),
            "bind": self._bind,
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

    def _handle(self, scheduler_name: str) -> Handle:
        return Handle(
            counts=self._cluster.counts,
            objects=self._cluster,
            writer=self._feed.writer,
            binder=self._feed.binder,
            clock=monotonic,
            waiting=self._waiting,
            scheduler_name=scheduler_name,
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
        )
        routers = (
            verbs,
            cycle_router(self._cycle, max_body_bytes=self._settings.max_body_bytes),
            operator_router(self),
            waiting_router(self._waiting, max_body_bytes=self._settings.max_body_bytes),
            ops_router(self._feed.problem, self._metrics),
        )
        return create_web(routers, self._lifespan, version=self._version, direct=direct(verbs))

    @asynccontextmanager
    async def _lifespan(self, _web: FastAPI) -> AsyncIterator[None]:
        await self._feed.start()
        repair = asyncio.create_task(self._repair_forever())
        gc.freeze()
        try:
            yield
        finally:
            repair.cancel()
            await self._sampling.stop()
            await self._bind.drain()
            await self._feed.stop()

    async def _repair_forever(self) -> None:
        """Put right what a crash left half done: as soon as the picture is complete, then again and again."""
        await self._feed.complete()
        while True:
            for framework in self._frameworks.values():
                await self._repair(framework)
            await asyncio.sleep(self._settings.repair_interval)

    async def _repair(self, framework: Framework) -> None:
        for name, plugin in framework.plugins.items():
            if isinstance(plugin, RepairPlugin):
                try:
                    await self._guard.acall(name, "Repair", plugin.repair)
                except PluginError:
                    continue  # logged by the guard; tried again next time

    def status(self) -> Status:
        feeds = {
            kind: FeedStatus(state=it.state, objects=it.objects, age_seconds=it.age)
            for kind, it in self._feed.states().items()
        }
        return Status(
            version=self._version,
            problem=self._feed.problem(),
            feeds=feeds,
            assumed_pods=len(self._cluster.assumed),
            counters=self._cluster.counts.statistics(),
            profiles=[_profile_status(it) for it in self._frameworks.values()],
        )

    def check(self) -> list[str]:
        return self._cluster.check()


def serve(settings: Settings, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int], *, version: str) -> None:
    """Serve until told to stop. Raises what ``Service`` raises, and ``OSError`` if it cannot listen."""
    service = Service(settings, specs, defaults, version=version)
    listening = listen(settings.host, settings.port)
    _LOG.info("serving", host=settings.host, port=listening.getsockname()[1], version=version)
    run(service.web(), listening)


def _nobody_listens(_pod: Pod, _shown: int, _only: str, _outcome: Outcome) -> None:
    """The sampling guard is off."""


def _kinds(resolved: Iterable[ResolvedProfile]) -> list[Kind[Any]]:
    return list(dict.fromkeys(kind for profile in resolved for kind in sorted(profile.kinds(), key=repr)))


def _feed(settings: Settings, cluster: Cluster, kinds: Sequence[Kind[Any]]) -> Feed:
    if settings.cluster is not None:
        return SavedFeed(Path(settings.cluster), cluster, kinds)
    return LiveFeed(settings.kubeconfig, cluster, kinds, max_age=settings.max_feed_age)


def _profile_status(framework: Framework) -> ProfileStatus:
    points = {point: [slot.name for slot in slots] for point, slots in framework.slots.items()}
    return ProfileStatus(scheduler_name=framework.scheduler_name, points=points_of(points))
