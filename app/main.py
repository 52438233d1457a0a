"""Composition root: creates all parts of the service, connects them, starts them and stops them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from math import inf
from time import monotonic, time
from typing import Any, Final
from uuid import uuid4

import structlog
from fastapi import APIRouter, FastAPI
from msgspec import Struct
from msgspec.structs import replace

from app import wiring
from app.analysis.explaining import Explainer
from app.analysis.pending import PendingPods
from app.analysis.skew import Skews
from app.analysis.spread_blocks import SpreadBlocks
from app.analysis.why import InTreeVerdictReader
from app.analysis.workloads import WorkloadExplainer
from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.config.mistakes import Mistake
from app.config.settings import Settings, is_loopback
from app.controllers.expiring import ExpiringVerdicts
from app.controllers.fallbacks import SpreadFallbacks
from app.controllers.missing_domains import MissingDomains
from app.controllers.nominations import CountedNominations
from app.controllers.plugin_runs import runs_of
from app.controllers.preemption import PreemptionController
from app.controllers.recount import RecountController
from app.controllers.sampling_guard import SamplingGuard
from app.controllers.second_looks import SecondLooks
from app.controllers.spread_events import SpreadEvents
from app.controllers.supervisor import Supervisor
from app.feeds.collecting import short_collections
from app.feeds.feed import Feed, Loader
from app.feeds.live import LiveFeed
from app.feeds.uncached_reader import ApiUncachedReader
from app.framework.events import NO_EVENTS, EventRecorder, Reference
from app.framework.handle import Handle, Timing
from app.framework.spec import PluginSpec
from app.homes.evictable import why_never_evicted
from app.homes.homes_page import homes_router, unusable_homes
from app.homes.lists import HomeLists
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod
from app.kube.credentials import load
from app.memory.expected_binds import ExpectedBinds
from app.memory.fallbacks import FallbackTable
from app.memory.filter_results import FilterResultCache
from app.memory.known_domains import DomainTable, SpreadTables
from app.memory.picks import Picks
from app.memory.recent_refusals import RecentRefusals
from app.memory.refusal_cache import RefusalCache
from app.replicas.leader import Elector
from app.replicas.leadership import ALONE, Leadership
from app.replicas.lease import Election, never_stopping, post_seconds
from app.replicas.lease_record import LEASES
from app.replicas.pod_lock import PodLock
from app.replicas.replica import Replica
from app.runtime.building import build, names_of, served_names, subscribe_plugins
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.one_node import OneNodeFilters
from app.runtime.profiles import ProfileErrors, ResolvedProfile, core_for
from app.runtime.read_only import ReadOnlyActivate, ReadOnlyBinder, ReadOnlyEvents, ReadOnlyWriter, is_read_only
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.runtime.waiting import PodsAtPermit
from app.server.access import ListenerAccess, Role
from app.server.admission import Admission
from app.server.checks import checks
from app.server.cycle import cycle_router
from app.server.explain import explain_router
from app.server.forward import Forwarder
from app.server.incoming import Endpoint
from app.server.listener import Listener, allow_open_files, listen
from app.server.operator import (
    FeedStatus,
    LeaderStatus,
    PermissionsStatus,
    ProcessStatus,
    ProfileStatus,
    operator_router,
)
from app.server.ops import ops_router
from app.server.overview import OverviewSources, overview_router
from app.server.pages import PageQueues
from app.server.pending import pending_router
from app.server.routes import LEAN, Verbs, verb_endpoints
from app.server.skew import skew_router
from app.server.ui import ui_router
from app.server.waiting import waiting_list_router, waiting_router
from app.server.web import Lifespan, Web, create_web, run
from app.telemetry.certificates import CertificateCollector
from app.telemetry.loop import watch_lag
from app.telemetry.metrics import Metrics
from app.telemetry.snapshot import CountedCollector, SnapshotCollector
from app.verbs.bind import DRAIN_SECONDS, SHUTTING_DOWN, BindVerb
from app.verbs.candidates import requested_hosts
from app.verbs.context import VerbContext
from app.verbs.cycle import CycleVerb
from app.verbs.filter import FilterVerb
from app.verbs.outcome import VERBS, Outcome
from app.verbs.preempt import PreemptVerb
from app.verbs.preempting import PreemptingFilterVerb, PreemptingPreemptVerb
from app.verbs.prioritize import PrioritizeVerb
from app.verbs.unserved import Unserved
from app.whatif.pages import what_if_router
from app.whatif.running import what_ifs
from app.writes.activator import ApiActivator
from app.writes.events import ApiRecorder
from app.writes.evictions import Evictor
from app.writes.fences import Fences
from app.writes.read_back import BindConfirmation
from app.writes.reranking import Reranking, reranking_plugins

_LOG: Final = structlog.get_logger(__name__)
_MARGIN: Final = 0.25
"""An answer must be sent at least this many seconds before the caller's time limit."""

END_SECONDS: Final = 19.0
"""Maximum number of seconds from a signal to the end of the process. Kubernetes grants a pod 30 seconds by default."""

_LEAVE_SECONDS: Final = 12.5
"""Seconds within ``END_SECONDS`` to finish binds in flight and to hand over leadership."""

_LAST_SECONDS: Final = 2.0
"""Seconds within ``END_SECONDS`` to stop the remaining parts. Usually they stop at once."""

_NEEDS_COMPLETE: Final = (
    "beyond.fallback of PodTopologySpread needs explain: complete, because all filters of kube-scheduler must be judged"
)

_NEEDS_ELECTION: Final = (
    "preemption: Own needs leaderElection.leaderElect: true, because two processes must not evict pods for one pod"
)

_NO_LONGER_LEADS: Final = "this replica no longer leads"
"""Reason with which pods at Permit are rejected while this replica does not lead, because it cannot bind."""

_OTHER_FILES: Final = 2048
"""Open files to allow besides connections of listeners: connections to the API server and to replicas, and files."""

_MOST_OPERATORS: Final = 256
"""Maximum number of open connections to the operator listener."""


class _Elected(Struct, frozen=True):
    """Parts of the service that exist only if leader election is configured."""

    replica: Replica
    forwarder: Forwarder
    client: KubeClient

    async def stop(self) -> None:
        await self.replica.stop()
        self.forwarder.close()
        await self.client.aclose()


class HomeportService:
    """All parts of the service.

    If ``settings.cluster`` is set, ``load`` fills the snapshot; without ``load``, that file is read. With ``progress``,
    what-ifs run here and call ``progress`` with texts; else in child processes. Raises ``ProfileErrors``,
    ``DuplicatePlugin``, ``SavedClusterError``, ``CredentialsError``, ``CertificateError``, and what ``load`` raises."""

    _listeners: Sequence[Listener] = ()

    def __init__(
        self,
        settings: Settings,
        specs: Iterable[PluginSpec[Any]],
        defaults: Mapping[str, int],
        *,
        version: str,
        load: Loader | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._version = version
        self._ends_at = inf
        self._tracing = wiring.tracing(settings, version)
        self._metrics = Metrics()
        self._counted = CountedCollector()
        registry = Registry(specs, defaults)
        resolved = resolve(settings.profiles, registry)

        self._cluster = wiring.snapshot(settings, resolved)
        live = wiring.live_feed(settings, self._cluster, resolved, self._metrics, self._tracing)
        self._feed: Feed = live or wiring.saved_feed(settings, self._cluster, resolved, load)
        self._authority = wiring.authority(settings, live)
        self._certificates = wiring.certificates_of(settings, self._authority)
        self._permissions = wiring.permission_check(settings, live, resolved, self._metrics)
        self._elected = self._elect(live) if live is not None and settings.leader_election.leader_elect else None
        self._leadership: Leadership = self._elected.replica if self._elected is not None else ALONE
        self._writes = self._feed.writes(self._leadership)
        self._recorder = self._record(live) if live is not None and settings.events else None
        self._events: EventRecorder = self._recorder or NO_EVENTS

        self._guard = Guard(self._metrics)
        self._waiting = PodsAtPermit(self._cluster.assumed, lambda: "" if self._leadership.leads else _NO_LONGER_LEADS)
        self._nominations = CountedNominations(self._cluster)
        self._in_tree_verdicts = InTreeVerdictReader(
            self._cluster,
            None if live is None else ApiUncachedReader(live.client),
            monotonic,
            extras=core_for(resolved).extras,
        )
        self._spread = SpreadTables(FallbackTable(), DomainTable(monotonic))
        self._frameworks = self._build(resolved, registry)
        self._explain = wiring.explain_snapshot(
            settings, resolved, self._cluster, self._feed, self._frameworks, self._nominations, self._spread
        )

        self._supervisor = Supervisor(self._leadership)
        self._refused = RecentRefusals(self._metrics.refusals.labels)
        self._unserved = Unserved(lambda verb, name: self._metrics.unserved.labels(verb, name).inc())
        self.verb_context = context = self._verb_context()
        self._bind = self._bind_verb(context)
        self._cycle = CycleVerb(context, self._stays)
        self._homes = HomeLists(self._frameworks.values(), self._guard)
        self._callers, self._preemption = self._called(context, live)
        self._admission = Admission(
            settings.http_timeout - _MARGIN,
            settings.max_in_flight,
            lambda body: requested_hosts(body, self._cluster.nodes),
            of_verb={verb: self._time_limit(verb) for verb in VERBS},
        )
        self._pages, self._what_if = PageQueues(), what_ifs(self._explain, progress)

        self._recount = RecountController(
            self._cluster, self._frameworks.values(), self._feed.complete, self._recounted
        )
        self._sampling, self._second_looks, self._skews = self._supervise(context)
        self._collect()
        _log_notices(resolved)

    def _verb_context(self) -> VerbContext:
        """Create the context that all verbs share. The snapshot reports placed pods to its ``ExpectedBinds``."""
        due = ExpectedBinds(
            monotonic,
            wait_seconds=self._settings.expected_bind_wait,
            observe=self._metrics.batched(self._metrics.expected_bind_wait.observe),
            is_placed=self._is_placed,
        )
        self._cluster.on_placed(due.arrived)
        return VerbContext(
            self._cluster,
            self._frameworks,
            self._feed,
            self._feed.problem,
            due,
            max_priority=self._settings.max_priority,
            unserved=self._unserved,
        )

    def _collect(self) -> None:
        """Register the collectors of metrics that are computed at each scrape."""
        self._metrics.describe_process(self._version)
        self._metrics.add_collector(
            SnapshotCollector(self._feed.states, lambda: len(self._cluster.assumed), lambda: not self.problem())
        )
        self._metrics.add_collector(self._counted)
        if self._certificates is not None or isinstance(self._feed, LiveFeed):
            self._metrics.add_collector(CertificateCollector(self._certificate_ends))

    def _supervise(self, context: VerbContext) -> tuple[SamplingGuard, SecondLooks, Skews]:
        """Register the background tasks with the supervisor.

        Return the two controllers that receive filter answers, and the task that computes skews.
        """
        supervisor, acting = self._supervisor, self._acting_context()
        second_looks = SecondLooks(acting, self._writes.activate)
        sampling = SamplingGuard(
            acting,
            self._writes.nominator,
            self._nominations,
            self._in_tree_verdicts.for_profile,
            self._is_sample,
            monotonic,
            self._metrics,
            self._events,
        )
        supervisor.while_leading("sampling guard", sampling.run)
        supervisor.while_leading("second looks", second_looks.run)
        if self._recorder is not None or self._spread.fallbacks.is_enabled:
            fallbacks = self._spread_fallbacks(acting)
            blocks = SpreadBlocks(acting, self._explain, self._spread.fallbacks).of
            blocked = SpreadEvents(self._cluster, lambda: self._refused, blocks, self._events, fallbacks, monotonic)
            supervisor.while_leading("spread events", blocked.run)
            if self._spread.fallbacks.is_enabled:
                supervisor.while_leading("spread fallbacks", fallbacks.run)
        expiring = ExpiringVerdicts(self._cluster, lambda: self._refused, second_looks, time)
        supervisor.everywhere("expiring verdicts", expiring.run)
        for name, plugin_run in runs_of(self._frameworks.values(), self._guard, self._feed.complete):
            supervisor.while_leading(name, plugin_run.run)
        if isinstance(self._feed, LiveFeed):
            self._supervise_patches(self._feed.client, acting.problem)
        if isinstance(self._writes.activate, ApiActivator):
            supervisor.while_leading("activation", self._writes.activate.run)
        skews = Skews(context, monotonic)
        supervisor.while_leading("workload skew", skews.run)
        if self._recorder is not None and self._spread.domains.is_used:
            counts, profile_of = self._cluster.counts, partial(_profile_of, context)
            missing = MissingDomains(self._spread.domains, counts, skews.workloads, profile_of, self._recorder)
            supervisor.while_leading("missing domains", missing.run)
        supervisor.everywhere("check", self._recount.run)
        supervisor.everywhere("lag", partial(watch_lag, self._metrics.loop_lag.observe))
        if self._certificates is not None:
            supervisor.everywhere("certificates", self._certificates.follow)
        if self._authority is not None:
            supervisor.everywhere("authority", self._authority.run)
        if self._permissions is not None:
            supervisor.everywhere("permissions", self._permissions.run)
        return sampling, second_looks, skews

    def _supervise_patches(self, client: KubeClient, problem: Callable[[], str]) -> None:
        """Register the background tasks that read or change single pods of a live cluster."""
        if self._preemption is not None:
            self._supervisor.while_leading("preemption", self._preemption.run)
        confirmation = BindConfirmation(client, self._cluster, monotonic)
        self._supervisor.while_leading("bind confirmation", confirmation.run)
        plugins = reranking_plugins(it for framework in self._frameworks.values() for it in framework.plugins.values())
        if plugins:
            may_write = self._leadership.may_write
            reranking = Reranking(client, plugins, lambda: may_write() or problem())
            self._supervisor.while_leading("reranking", reranking.run)

    def _spread_fallbacks(self, context: VerbContext) -> SpreadFallbacks:
        def not_usable(pod: Pod, profile: str) -> str:
            problem = context.problem() or self._explain.problem()
            return problem or next(iter(self._explain.not_judged(profile, pod).values()), "")

        activate = self._writes.activate
        return SpreadFallbacks(
            self._spread.fallbacks,
            self._cluster,
            partial(_profile_of, context),
            not_usable,
            self._events,
            activate,
            monotonic,
        )

    def _is_sample(self, names: int) -> bool:
        """Like ``_can_be_sample``; false if the sampling guard is off."""
        return self._settings.sampling_guard and self._can_be_sample(names)

    def _can_be_sample(self, names: int) -> bool:
        """Return true if a filter request with this number of node names can be a sample of the feasible nodes.

        A sample can lack nodes that pass the in-tree filters.
        """
        return self._settings.smallest_sample <= names < len(self._cluster.nodes)

    def _recounted(self, differs: bool) -> None:
        self._metrics.snapshot_checks.labels("different" if differs else "consistent").inc()

    def _certificate_ends(self) -> dict[str, float]:
        held = self._certificates.ends() if self._certificates is not None else {}
        ours = self._feed.client.certificate_ends if isinstance(self._feed, LiveFeed) else None
        return {
            **held,
            **(self._authority.ends() if self._authority is not None else {}),
            **({"kubeconfig": ours} if ours is not None else {}),
        }

    def _is_placed(self, pod: Pod) -> bool:
        known = self._cluster.pod(*pod.key)
        return known is not None and bool(known.node_name)

    def _answered(self, pod: Pod, shown: int, only: str, outcome: Outcome) -> None:
        if outcome == "feasible":
            self._refused.fits(pod)
        if not self._sampling.answered(pod, shown, only, outcome) and outcome == "no_fit":
            self._second_looks.refused(pod)

    def _stays(self, pod: Pod) -> str:
        """Return why a pod must not be evicted for another one, or an empty string. Raises ``PluginError``."""
        if self._cluster.assumed.get(pod.uid) is not None:
            return "it is being bound"
        return why_never_evicted(self._homes, self.verb_context.framework_for(pod), pod)

    def _preempting(self, live: LiveFeed) -> PreemptionController:
        return PreemptionController(
            self._acting_context(),
            Evictor(live.client, self._cluster, self._leadership.may_write, live.post_seconds),
            live.catch_up,
            self._stays,
            self._can_be_sample,
            monotonic,
            self._metrics,
            self._events,
            self._nominations,
            per_second=self._settings.max_plans_per_second,
        )

    def _acting_context(self) -> VerbContext:
        """Return the context for controllers. Its ``problem`` also reports that this process does not lead."""
        supervisor = self._supervisor
        return replace(self.verb_context, problem=lambda: supervisor.problem() or self._feed.problem())

    def _time_limit(self, verb: str) -> float:
        return self._settings.time_limits[verb] - _MARGIN

    def _bind_verb(self, context: VerbContext) -> BindVerb:
        return BindVerb(
            context,
            self._writes.binder,
            self._writes.bind_guard,
            self._waiting,
            monotonic,
            time_limit=self._time_limit("bind"),
            bind_others=self._settings.bind_others,
        )

    def _called(
        self, context: VerbContext, live: LiveFeed | None
    ) -> tuple[dict[str, Verbs], PreemptionController | None]:
        """Create the verbs. Return them by path prefix and name, and the controller that evicts pods, if any."""
        preempts = any(it.preempts for it in self._frameworks.values())
        preemption = self._preempting(live) if live is not None and preempts else None
        results = FilterResultCache()
        picks = Picks(made=self._metrics.picks, failed=self._metrics.failed_picks)
        refusals = RefusalCache(
            self._cluster,
            remembered=self._metrics.refusal_answers.labels("remembered"),
            computed=self._metrics.refusal_answers.labels("computed"),
            refused=self._refused.refused,
        )

        def verbs(*, lean: bool) -> Verbs:
            parts = (context, refusals, results, self._answered, picks)
            return {
                "filter": FilterVerb(*parts, lean=lean)
                if preemption is None
                else PreemptingFilterVerb(*parts, lean=lean, tracker=preemption.preemptors),
                "prioritize": PrioritizeVerb(context, results, lean=lean),
                "preempt": PreemptVerb(context)
                if preemption is None
                else PreemptingPreemptVerb(context, preemption.preemptors),
                "bind": self._bind,
            }

        return {"": verbs(lean=False), LEAN: verbs(lean=True)}, preemption

    def _build(self, resolved: Sequence[ResolvedProfile], registry: Registry) -> dict[str, Framework]:
        names = [profile.scheduler_name for profile in resolved]
        frameworks: dict[str, Framework] = {}
        mistakes: list[Mistake] = []
        for profile in resolved:
            try:
                frameworks[profile.scheduler_name] = build(
                    profile,
                    self._handle(profile, names_of(profile.scheduler_name, names), registry),
                    served=served_names(names),
                    nominations=self._nominations,
                    snapshot=self._cluster,
                    waiting=self._waiting,
                    guard=self._guard,
                )
            except ProfileErrors as error:
                mistakes += error.mistakes
            if self._spread.fallbacks.after(profile.scheduler_name) is not None and not self._settings.explains_all:
                message = f'profile "{profile.scheduler_name}": {_NEEDS_COMPLETE}'
                mistakes.append(Mistake((profile.place, ("explain",)), message))
            if profile.preemption == "Own" and not (
                self._settings.cluster or self._settings.leader_election.leader_elect
            ):
                message = f'profile "{profile.scheduler_name}": {_NEEDS_ELECTION}'
                mistakes.append(Mistake(((*profile.place, "preemption"),), message))
        if mistakes:
            raise ProfileErrors(mistakes)
        subscribe_plugins(resolved, frameworks, self._cluster.others.on_change, self._guard)
        return frameworks

    def _record(self, feed: LiveFeed) -> ApiRecorder:
        return ApiRecorder(
            feed.client,
            f"homeport-{socket.gethostname()}",
            monotonic,
            lambda result: self._metrics.events.labels(result).inc(),
            leads=lambda: self._leadership.leads,
        )

    async def _known_to_others(self) -> None:
        """Wait until other replicas can verify the self-signed certificate of this one, if it has one."""
        if self._authority is not None:
            await self._authority.shared()

    def _lead_changed(self, leads: bool) -> None:
        self._metrics.leader.labels(self._settings.leader_election.resource_name).set(leads)
        if not leads:
            self._refused.forget()
            self._waiting.reject_all(_NO_LONGER_LEADS)
        record = self._leadership.record
        if leads and record is not None:
            settings = self._settings.leader_election
            lease = Reference(
                LEASES.api_version,
                LEASES.kind,
                settings.resource_namespace,
                settings.resource_name,
                str(record.raw.get("metadata", {}).get("uid", "")),
            )
            note = f"{record.holder} leads; it is reached at {record.address}"
            self._events.event(lease, None, "Normal", "LeaderElection", "Leading", note)

    def _elect(self, feed: LiveFeed) -> _Elected:
        """Create the parts for leader election.

        Requests for the Lease have their own connections, so that binds cannot delay renewals."""
        settings = self._settings.leader_election
        election = Election(
            f"{socket.gethostname()}_{uuid4()}",
            self._settings.advertised,
            lease_duration=settings.lease_duration,
            renew_deadline=settings.renew_deadline,
            retry_period=settings.retry_period,
            clock=never_stopping,
        )
        client = KubeClient(load(self._settings.kubeconfig))
        elector = Elector(
            client,
            election,
            namespace=settings.resource_namespace,
            name=settings.resource_name,
            retry_period=settings.retry_period,
            attempt_seconds=settings.renew_deadline / 2,
        )
        self._metrics.leader.labels(settings.resource_name)  # creates the metric with value 0, for alerts
        replica = Replica(
            elector,
            feed,
            Fences(feed.client, self._cluster),
            post_seconds=post_seconds(settings.lease_duration),
            clock=never_stopping,
            on_change=self._lead_changed,
            on_leader=self._metrics.leader_transitions.inc,
            known_to_others=self._known_to_others,
            ended=PodLock(settings.lock_file, election.identity).ended if settings.lock_file is not None else None,
        )
        forwarder = Forwarder(
            replica,
            self._metrics,
            lambda body: requested_hosts(body, self._cluster.nodes),
            clock=monotonic,
            peer_tls=self._certificates.peer if self._certificates and self._settings.hops_over_tls else None,
            tracing=self._tracing,
        )
        return _Elected(replica, forwarder, client)

    def _handle(self, profile: ResolvedProfile, serves: Container[str], registry: Registry) -> Handle:
        handle = Handle(
            counts=self._cluster.counts,
            objects=self._cluster,
            writer=ReadOnlyWriter(self._writes.writer),
            binder=ReadOnlyBinder(self._writes.binder),
            waiting=self._waiting,
            nodes=Nodes(self._cluster),
            terms=self._cluster.terms,
            timing=Timing(repair_interval=self._settings.repair_interval),
            profile=self._spread.context_of(profile.scheduler_name, serves.__contains__, self._is_sample),
            event_recorder=ReadOnlyEvents(self._events),
            activate=ReadOnlyActivate(self._writes.activate),
            is_asked=is_read_only,
        )
        why = self._in_tree_verdicts.add(profile.scheduler_name, OneNodeFilters(profile, registry, handle, self._guard))
        return replace(handle, profile=replace(handle.profile, why=why))

    @property
    def metrics(self) -> Metrics:
        """All metrics of the service. ``counting`` updates those that need the whole snapshot."""
        return self._metrics

    @property
    def snapshot(self) -> Cluster:
        """Snapshot that decisions read. Tests and benchmarks fill it themselves."""
        return self._cluster

    def web(self) -> Web:
        """Create the HTTP application with all routes. Its lifespan starts and stops all other parts."""
        return self._web(self._endpoints(), (*self._acting(), *self._reading()), self._lifespan)

    def listeners(self) -> tuple[Web, list[Listener]]:
        """Open all listeners. Return the application that starts and stops the other parts, and the listeners.

        Raises ``OSError`` if an address cannot be used."""
        settings = self._settings
        alone = settings.operator_port is None
        web = self.web() if alone else self._web(self._endpoints(), self._acting(), self._lifespan, documented=False)
        listeners = [self._listener("verbs", web, settings.host, settings.port, settings.serves_tls)]
        if settings.operator_port is not None:
            pages = self._web({}, self._reading(), None)
            host, port = settings.operator_host, settings.operator_port
            listeners.append(self._listener("operator", pages, host, port, settings.operator_serves_tls))
        if settings.peer_port is not None:
            verbs = self._web(self._endpoints(), (), None, documented=False)
            listeners.append(self._listener("peers", verbs, settings.peer_host, settings.peer_port, tls=True))
        self._listeners = listeners
        return web, listeners

    def _stalled(self) -> str:
        """Return a message about a background task that fails after every restart; empty if none does."""
        live = self._feed if isinstance(self._feed, LiveFeed) else None
        replica = self._elected.replica if self._elected is not None else None
        parts = (live, replica, self._recorder, self._supervisor, *self._listeners)
        problems = (part.stalled() for part in parts if part is not None)
        return next(filter(None, problems), "")

    def _listener(self, role: Role, web: Web, host: str, port: int, tls: bool) -> Listener:
        settings = self._settings
        certificates = self._certificates if tls else None
        access = ListenerAccess(
            role,
            loopback=is_loopback(host),
            certified=role == "peers" or (role == "verbs" and settings.asks_for_certificates),
            allowed=frozenset(settings.allowed_names),
            readers=frozenset(settings.reader_names),
            open_reads=settings.open_reads,
            pages=role == "operator" or (role == "verbs" and settings.operator_port is None),
            our_names=(lambda: certificates.names) if certificates is not None else frozenset,
        )
        return Listener(
            listen(host, port),
            web,
            access,
            most=_MOST_OPERATORS if role == "operator" else settings.max_connections,
            gives_way=role == "operator",
            certificates=certificates,
            on_rejected=lambda name, cause: self._metrics.rejections.labels(name, cause).inc(),
        )

    def _web(
        self,
        endpoints: Mapping[str, Endpoint],
        routers: Sequence[APIRouter],
        lifespan: Lifespan | None,
        *,
        documented: bool = True,
    ) -> Web:
        return create_web(
            routers, lifespan, version=self._version, direct=endpoints, pages=self._pages, documented=documented
        )

    def _acting(self) -> Sequence[APIRouter]:
        """Return the routers for whole scheduling cycles and for pods at Permit, served only with the verbs."""
        most = self._settings.max_body_bytes
        cycle = cycle_router(self._cycle, self._admission, max_body_bytes=most)
        return (cycle, waiting_router(self._waiting, max_body_bytes=most))

    def _endpoints(self) -> dict[str, Endpoint]:
        return verb_endpoints(
            self._callers,
            self._metrics,
            self._admission,
            max_body_bytes=self._settings.max_body_bytes,
            forwarder=self._elected.forwarder if self._elected is not None else None,
            tracing=self._tracing,
        )

    def _reading(self) -> Sequence[APIRouter]:
        """Return the routers of read-only pages."""
        explainer = Explainer(self.verb_context, self._explain, self._stays)
        workloads = WorkloadExplainer(explainer, self._explain, self._feed.problem)
        pending = PendingPods(self.verb_context, self._explain)
        return (
            explain_router(
                explainer,
                workloads,
                self._waiting,
                max_body_bytes=self._settings.max_body_bytes,
            ),
            pending_router(pending),
            skew_router(self._skews, self._explain.require_namespace),
            overview_router(
                OverviewSources(
                    pending,
                    self._skews,
                    workloads,
                    self._explain,
                    partial(unusable_homes, self._homes),
                    self._feed,
                    self.problem,
                    monotonic,
                )
            ),
            ui_router(),
            what_if_router(self._what_if, max_body_bytes=self._settings.max_body_bytes),
            operator_router(self.status, self.check),
            homes_router(self._homes, self._feed.problem, self._explain.require_namespace, self._cluster.pod),
            waiting_list_router(self._waiting),
            ops_router(
                self.problem,
                self._metrics,
                self._leadership.role,
                lambda: checks(self._feed, self._leadership, self._permissions, self._authority),
                self.counting,
                stalled=self._stalled,
            ),
        )

    @asynccontextmanager
    async def _lifespan(self, _web: FastAPI) -> AsyncIterator[None]:
        await self._feed.start()
        if self._recorder is not None:
            self._recorder.start()
        await self._leadership.start()
        self._supervisor.start()
        await self._explain.start()
        gc.freeze()
        try:
            with short_collections():
                yield
        finally:
            await self._supervisor.stop()
            await self._bind.drain(self._left())
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    for part in (self._explain, self._elected, self._recorder, self._feed, self._tracing):
                        if part is not None:
                            await part.stop()

    def counting(self) -> Iterator[None]:
        """Compute the metrics that need the whole cluster cache. Yields between short steps, to let requests run."""
        skews: dict[str, int] = {}
        yield from self._cluster.counts.skews(skews)
        waiting: dict[tuple[str, str], int] = {}
        yield from self._refused.count(self._cluster, waiting)
        gauges: dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]] = {}
        for framework in self._frameworks.values():
            for sample in framework.figures():
                if sample is None:
                    yield
                    continue
                _, samples = gauges.setdefault(f"homeport_{sample.name}", (sample.text, {}))
                samples[(*sample.labels.items(), ("profile", framework.scheduler_name))] = sample.value
        self._counted.skews, self._counted.unschedulable, self._counted.gauges = skews, waiting, gauges
        self._counted.workload_skews = self._skews.above()

    def problem(self) -> str:
        """Return why verbs cannot be answered; empty if they can."""
        return (
            self._feed.problem()
            or (self._authority.problem() if self._authority is not None else "")
            or self._leadership.problem()
        )

    async def leave(self) -> None:
        """Prepare the end of the process: reject pods at Permit; an elected leader finishes its binds and hands over.

        If another replica leads, requests that arrive meanwhile are forwarded to it.
        """
        self._ends_at = monotonic() + END_SECONDS
        self._waiting.close(
            SHUTTING_DOWN
        )  # rejected now, because pods can wait at Permit for longer than the server waits for requests in flight
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._leadership.hand_over(self._bind.drain)

    def _left(self) -> float:
        """Return the number of seconds that binds in flight may still take, so that the process ends in time."""
        return max(0.0, min(DRAIN_SECONDS, self._ends_at - monotonic() - _LAST_SECONDS))

    def status(self) -> ProcessStatus:
        feeds = {kind: FeedStatus.of(it) for kind, it in self._feed.states().items()}
        return ProcessStatus(
            version=self._version,
            problem=self.problem(),
            saved_at=self._explain.saved_at,
            feeds=feeds,
            leader=LeaderStatus.of(self._leadership),
            permissions=PermissionsStatus.of(self._permissions) if self._permissions else None,
            assumed_pods=len(self._cluster.assumed),
            counters=self._cluster.counts.statistics(),
            profiles=[ProfileStatus.of(it) for it in self._frameworks.values()],
            unserved=dict(self._unserved.requests),
        )

    async def check(self) -> list[str]:
        """Recount the cached objects; return a text on each difference from the cached counts, verdicts and scores."""
        return await self._recount.once()


def serve(settings: Settings, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int], *, version: str) -> None:
    """Run the service until a signal stops the process.

    Raises the exceptions of ``HomeportService``, and ``OSError`` if a listener cannot be opened.
    """
    service = HomeportService(settings, specs, defaults, version=version)
    web, listeners = service.listeners()
    allow_open_files(sum(it.most for it in listeners) + _OTHER_FILES)
    for listener in listeners:
        host, port = listener.socket.getsockname()[:2]
        tls = listener.certificates is not None
        _LOG.info("serving", listener=listener.name, host=host, port=port, tls=tls, version=version)
    run(web, listeners, service.leave)


def _profile_of(context: VerbContext, pod: Pod) -> str:
    """Return the name of the pod's profile; empty if it has none."""
    framework = context.framework_for(pod)
    return "" if framework is None else framework.scheduler_name


def _log_notices(resolved: Iterable[ResolvedProfile]) -> None:
    for profile in resolved:
        if profile.preemption == "Never" and profile.preset == "delegated" and "PodTopologySpread" in profile.specs:
            _LOG.info("no preemption for topology spread", profile=profile.scheduler_name, preemption="Never")
        for notice in profile.notices:
            _LOG.warning("profile", notice=notice)
