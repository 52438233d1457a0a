"""Factories that create parts of the service from the settings.

These parts are the feeds, the snapshots, the frameworks of explain, permissions, certificates and tracing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from app.analysis.explain_snapshot import ExplainedProfile, ExplainSnapshot
from app.cache.assumed import AssumedPods
from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.config.sections import SelfSigned
from app.config.settings import Settings
from app.controllers.nominations import CountedNominations
from app.feeds.feed import Feed, Loader, SavedFeed
from app.feeds.live import LiveFeed
from app.feeds.saved import load_saved
from app.framework.handle import Handle
from app.framework.uses import Use
from app.homes.lists import share_memory
from app.kube.client import REQUEST_SECONDS
from app.kube.kinds import PRIORITY_CLASSES
from app.memory.known_domains import SpreadTables
from app.replicas.authority import Authority, CertificateSpec
from app.replicas.lease import post_seconds
from app.rights.access_review import PermissionCheck
from app.rights.permissions import EnabledFeatures, LeaseName, ManagedSecret
from app.runtime.building import build, names_of, served_names, subscribe_plugins
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.profiles import ResolvedProfile, core_for, kinds_of
from app.runtime.read_only import NoWriter
from app.runtime.waiting import PodsAtPermit
from app.server.tls import CertificateFiles, Certificates, CertificateSource, InMemoryCertificates, unusable
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing
from app.writes.batches import BindBatches

if TYPE_CHECKING:
    from app.telemetry.otlp import OtlpTracing


def snapshot(settings: Settings, resolved: Sequence[ResolvedProfile]) -> Cluster:
    """Create the empty snapshot that decisions read. For a saved cluster, it also has the fields that explain reads."""
    return Cluster(core_for((*resolved, *(_explained(settings, resolved) if settings.cluster is not None else ()))))


def _explained(settings: Settings, resolved: Iterable[ResolvedProfile]) -> list[ResolvedProfile]:
    """Return the profiles as explain uses them: with the default plugins that they lack, if ``explains_all``."""
    return [it.with_defaults() if settings.explains_all else it for it in resolved]


def saved_feed(
    settings: Settings, cluster: Cluster, resolved: Sequence[ResolvedProfile], load: Loader | None
) -> SavedFeed:
    """Create the feed of a saved cluster. ``load`` fills ``cluster``; ``None`` loads the file that the settings name.

    Raises ``SavedClusterError``, or what ``load`` raises.
    """
    kinds, optional = kinds_of(resolved), (*kinds_of(_explained(settings, resolved)), PRIORITY_CLASSES)
    if load is not None:
        return SavedFeed(load, cluster, kinds, optional, state="listed")
    return SavedFeed(partial(load_saved, Path(settings.cluster or "")), cluster, kinds, optional)


def live_feed(
    settings: Settings,
    cluster: Cluster,
    resolved: Sequence[ResolvedProfile],
    metrics: Metrics,
    tracing: Tracing | None,
) -> LiveFeed | None:
    """Create the feed of a live cluster; ``None`` if the settings name a saved cluster. Raises ``CredentialsError``."""
    if settings.cluster is not None:
        return None
    election = settings.leader_election
    longest = post_seconds(election.lease_duration) if election.leader_elect else REQUEST_SECONDS
    return LiveFeed(
        settings.kubeconfig,
        cluster,
        kinds_of(resolved),
        max_age=settings.max_feed_age,
        post_seconds=longest,
        batches=BindBatches(settings.bind_batch_window, monotonic, metrics.bind_batch_wait.observe),
        tracing=tracing,
    )


def work_of(settings: Settings, resolved: Iterable[ResolvedProfile]) -> EnabledFeatures:
    """Return the features that settings and profiles enable. They determine the permissions that Homeport needs."""
    election = settings.leader_election
    lease = LeaseName(election.resource_namespace, election.resource_name) if election.leader_elect else None
    every = tuple(resolved)
    return EnabledFeatures(
        tuple(use for profile in every for use in profile.uses()),
        settings.sampling_guard,
        lease,
        settings.events,
        tuple(_secrets_of(settings.self_signed)),
        explained=tuple(_uses_of_explain(settings, every)),
        evicts=any(profile.preemption == "Own" for profile in every),
    )


def _uses_of_explain(settings: Settings, resolved: Iterable[ResolvedProfile]) -> Iterator[Use]:
    """Yield the uses of the plugins that run for explain only."""
    for profile in resolved if settings.explains_all else ():
        yield from (use for use in profile.with_defaults().uses() if use.plugin in profile.lacking)


def explain_snapshot(
    settings: Settings,
    resolved: Sequence[ResolvedProfile],
    cluster: Cluster,
    feed: Feed,
    frameworks: Mapping[str, Framework],
    nominations: CountedNominations,
    spread: SpreadTables,
) -> ExplainSnapshot:
    """Create the snapshot of explain. ``cluster`` and all parameters after it are parts that decisions use.

    If explain judges no further filters, it uses the snapshot and the plugins of the decisions. Otherwise, with a live
    cluster, it gets its own feed, and ``CredentialsError`` can be raised.
    """
    described = {it.scheduler_name: ExplainedProfile.of(it, complete=settings.explains_all) for it in resolved}
    merged = _explained(settings, resolved)
    own, own_feed, own_frameworks = cluster, feed, frameworks
    if any(it.adds_filters for it in described.values()):
        if settings.cluster is None:
            own = Cluster(core_for(merged))
            own_feed = LiveFeed(settings.kubeconfig, own, kinds_of(merged), max_age=settings.max_feed_age, beside=True)
        own_frameworks = frameworks_of_explain(merged, own, nominations.on(own), frameworks, spread)
    return ExplainSnapshot(
        own,
        own_feed,
        own_frameworks,
        described,
        resolved={it.scheduler_name: it for it in merged},
        deciding=cluster,
        deciding_feed=feed,
        max_age=settings.max_feed_age,
        saved_at=_saved_at(settings),
    )


def _saved_at(settings: Settings) -> float | None:
    """Return the time in seconds since 1970 at which the saved cluster was written; ``None`` without a file."""
    try:
        return None if settings.cluster is None else Path(settings.cluster).stat().st_mtime
    except OSError:
        return None  # there is no such file, because a command has listed the cluster


def frameworks_of_explain(
    profiles: Sequence[ResolvedProfile],
    cluster: Cluster,
    nominations: CountedNominations,
    deciding: Mapping[str, Framework],
    spread: SpreadTables,
) -> dict[str, Framework]:
    """Create the frameworks of explain. Their plugins cannot write or bind, and metrics do not count their calls."""
    guard = Guard(Metrics())
    waiting = PodsAtPermit(AssumedPods(), lambda: "")
    names = [it.scheduler_name for it in profiles]
    frameworks: dict[str, Framework] = {}
    for profile in profiles:
        serves = names_of(profile.scheduler_name, names).__contains__
        handle = Handle(
            counts=cluster.counts,
            objects=cluster,
            writer=NoWriter(),
            binder=NoWriter(),
            waiting=waiting,
            nodes=Nodes(cluster),
            terms=cluster.terms,
            profile=spread.context_of(profile.scheduler_name, serves, lambda _names: False),
            is_asked=lambda: True,
        )
        framework = build(
            profile,
            handle,
            served=served_names(names),
            nominations=nominations,
            snapshot=cluster,
            waiting=waiting,
            guard=guard,
        )
        decides = deciding.get(profile.scheduler_name)
        if decides is not None:
            share_memory(framework, decides)
        frameworks[profile.scheduler_name] = framework
    subscribe_plugins(profiles, frameworks, cluster.others.on_change, guard)
    return frameworks


def _secrets_of(self_signed: SelfSigned | None) -> Iterator[ManagedSecret]:
    if self_signed is not None:
        namespace = self_signed.secret_namespace
        yield ManagedSecret(namespace, self_signed.secret_name, "the authority that replicas share")
        if self_signed.client_secret_name is not None:
            yield ManagedSecret(namespace, self_signed.client_secret_name, "the pair that the scheduler calls with")


def authority(settings: Settings, live: LiveFeed | None) -> Authority | None:
    """Create the authority of self-signed certificates; ``None`` without a live feed or ``self_signed``."""
    self_signed = settings.self_signed
    if live is None or self_signed is None:
        return None
    spec = CertificateSpec(
        self_signed.secret_namespace,
        self_signed.secret_name,
        self_signed.dns_names,
        client_secret=self_signed.client_secret_name or "",
        client_name=self_signed.client_name,
        client_seconds=self_signed.client_duration,
    )
    return Authority(live.client, spec, unusable)


def permission_check(
    settings: Settings, live: LiveFeed | None, resolved: Sequence[ResolvedProfile], metrics: Metrics
) -> PermissionCheck | None:
    if live is None:
        return None
    return PermissionCheck(live.client, work_of(settings, resolved), metrics.permissions_missing.set)


def tracing(settings: Settings, version: str) -> OtlpTracing | None:
    """Create the tracing; ``None`` if no endpoint is configured.

    OpenTelemetry is imported only if an endpoint is configured, because it is an optional dependency.
    """
    endpoint = settings.tracing.endpoint
    if endpoint is None:
        return None
    from app.telemetry.otlp import otlp

    rate = settings.tracing.sampling_rate_per_million
    return otlp(endpoint, rate, version=version, instance=socket.gethostname())


def certificates_of(settings: Settings, authority: Authority | None = None) -> Certificates | None:
    """Load the certificates of the listeners; ``None`` if the settings have none.

    Raises ``CertificateError`` if listeners cannot use them. If replicas forward verbs to each other over TLS, it is
    also raised if they cannot use the certificates to verify each other.
    """
    source: CertificateSource
    if authority is not None:
        source = InMemoryCertificates(lambda: authority.stamp, lambda: authority.contents)
    elif settings.tls_cert_file is not None and settings.tls_private_key_file is not None:
        source = CertificateFiles(settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file)
    else:
        return None
    replicas = settings.hops_over_tls and settings.leader_election.leader_elect
    certificates = Certificates(source, replicas=replicas)
    if replicas:
        certificates.peer()
    return certificates
