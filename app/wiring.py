"""Factories that create parts of the service from the settings: the feed, permissions, certificates and tracing."""

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
    """Create the feed of a live cluster; ``None`` if the settings name a saved cluster."""
    if settings.cluster is not None:
        return None
    election = settings.leader_election
    longest = post_seconds(election.lease_duration) if election.leader_elect else REQUEST_SECONDS
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
    """Return the features that settings and profiles enable. They determine the permissions that Homeport needs."""
    election = settings.leader_election
    lease = LeaseName(election.resource_namespace, election.resource_name) if election.leader_elect else None
    uses = tuple(use for profile in resolved for use in profile.uses())
    return EnabledFeatures(
        uses, settings.sampling_guard, lease, settings.events, tuple(_secrets_of(settings.self_signed))
    )


def _secrets_of(self_signed: SelfSigned | None) -> Iterator[ManagedSecret]:
    if self_signed is not None:
        namespace = self_signed.secret_namespace
        yield ManagedSecret(namespace, self_signed.secret_name, "the authority that replicas share")
        if self_signed.client_secret_name is not None:
            yield ManagedSecret(namespace, self_signed.client_secret_name, "the pair that the scheduler calls with")


def authority(settings: Settings, live: LiveFeed | None) -> Authority | None:
    """Create the authority of self-signed certificates; ``None`` if they are not configured or without a live feed."""
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

    Raises ``CertificateError`` if listeners cannot use them. With leader election, it is also raised if replicas cannot
    use them to verify each other.
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
