"""Factories that ``app.main`` calls with the settings: the feed, permissions, certificates and tracing."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from app.cache.cluster import Cluster
from app.config.sections import SelfSigned
from app.config.settings import Settings
from app.feeds.live import LiveFeed
from app.kube.client import REQUEST_SECONDS
from app.kube.kinds import Kind
from app.replicas.authority import Authority, CertificateSpec
from app.replicas.lease import post_seconds
from app.rights.access_review import PermissionCheck
from app.rights.permissions import EnabledFeatures, LeaseName, ManagedSecret
from app.runtime.profiles import ResolvedProfile
from app.server.tls import CertificateFiles, Certificates, CertificateSource, InMemoryCertificates, unusable
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing
from app.writes.batches import BindBatches

if TYPE_CHECKING:
    from app.telemetry.otlp import OtlpTracing


def live_feed(
    settings: Settings, cluster: Cluster, kinds: Sequence[Kind[Any]], metrics: Metrics, tracing: Tracing | None
) -> LiveFeed | None:
    if settings.cluster is not None:
        return None
    asked = settings.leader_election
    longest = post_seconds(asked.lease_duration) if asked.leader_elect else REQUEST_SECONDS
    return LiveFeed(
        settings.kubeconfig,
        cluster,
        kinds,
        max_age=settings.max_feed_age,
        post_seconds=longest,
        batches=BindBatches(settings.bind_batch_window, monotonic, metrics.bind_batch_wait.observe),
        tracing=tracing,
    )


def work_of(settings: Settings, resolved: Iterable[ResolvedProfile]) -> EnabledFeatures:
    """Return the features that these settings enable, from which the required permissions on a live cluster follow."""
    asked = settings.leader_election
    lease = LeaseName(asked.resource_namespace, asked.resource_name) if asked.leader_elect else None
    uses = tuple(use for profile in resolved for use in profile.uses())
    return EnabledFeatures(uses, settings.sampling_guard, lease, settings.events, tuple(_kept(settings.self_signed)))


def _kept(asked: SelfSigned | None) -> Iterator[ManagedSecret]:
    if asked is not None:
        yield ManagedSecret(asked.secret_namespace, asked.secret_name, "the authority that replicas share")
        if asked.client_secret_name is not None:
            yield ManagedSecret(
                asked.secret_namespace, asked.client_secret_name, "the pair that the scheduler calls with"
            )


def authority(settings: Settings, live: LiveFeed | None) -> Authority | None:
    found = settings.self_signed
    if live is None or found is None:
        return None
    asked = CertificateSpec(
        found.secret_namespace,
        found.secret_name,
        found.dns_names,
        client_secret=found.client_secret_name or "",
        client_name=found.client_name,
        client_seconds=found.client_duration,
    )
    return Authority(live.client, asked, unusable)


def permission_check(
    settings: Settings, live: LiveFeed | None, resolved: Sequence[ResolvedProfile], metrics: Metrics
) -> PermissionCheck | None:
    if live is None:
        return None
    return PermissionCheck(live.client, work_of(settings, resolved), metrics.permissions_missing.set)


def tracing(settings: Settings, version: str) -> OtlpTracing | None:
    """Create the tracer, or ``None`` without an endpoint. OpenTelemetry is imported only here, and only if needed."""
    endpoint = settings.tracing.endpoint
    if endpoint is None:
        return None
    from app.telemetry.otlp import otlp

    rate = settings.tracing.sampling_rate_per_million
    return otlp(endpoint, rate, version=version, instance=socket.gethostname())


def certificates_of(settings: Settings, authority: Authority | None = None) -> Certificates | None:
    """Load the certificates. Raises ``CertificateError``, for replicas also if other replicas would reject them."""
    source: CertificateSource
    if authority is not None:
        source = InMemoryCertificates(lambda: authority.stamp, lambda: authority.contents)
    elif settings.tls_cert_file is not None and settings.tls_private_key_file is not None:
        source = CertificateFiles(settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file)
    else:
        return None
    replicas = settings.hops_over_tls and settings.leader_election.leader_elect
    found = Certificates(source, replicas=replicas)
    if replicas:
        found.peer()
    return found
