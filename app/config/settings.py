"""Settings of the process, with type, bounds and default of each, and the checks for invalid combinations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.config.mistakes import Conflict
from app.config.profile import DEFAULT_PROFILES, Profile
from app.config.sections import LeaderElection, Names, SelfSigned, TracingConfiguration
from app.kube.durations import Seconds

_OF_ONE_VERB: Final = "Time limit of the caller of {}, if it differs from httpTimeout."


def is_loopback(host: str) -> bool:
    """Return true for ``localhost`` and loopback addresses; false for an empty ``host``, which means all addresses."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(BaseSettings):
    """Settings of the process.

    A field ``some_name`` is ``--some-name`` on the command line (see ``app.config.flags``), ``HOMEPORT_SOME_NAME`` in
    the environment, and ``someName`` in the file.
    """

    model_config = SettingsConfigDict(env_prefix="HOMEPORT_", extra="forbid", frozen=True)

    kubeconfig: str | None = Field(
        default=None, description="Path of a kubeconfig. Default: $KUBECONFIG, then in-cluster, then ~/.kube/config."
    )
    cluster: str | None = Field(
        default=None,
        description="Serve this saved cluster (homeport dump, or kubectl get … -o yaml|json) without an API server.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address of the listener for verbs. An address other than loopback needs clientCAFile, "
        "selfSigned or insecure.",
    )
    port: int = Field(default=8888, ge=0, le=65535, description="Port of the verbs; 0 picks a free one.")
    tls: bool | None = Field(default=None, description="Serve verbs over TLS. Default: if there is a certificate.")
    operator_host: str = Field(default="127.0.0.1", description="Address of the operator listener.")
    operator_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of a separate listener for probes, metrics and pages. Without it, the listener for verbs "
        "serves them, to callers of verbs.",
    )
    operator_tls: bool | None = Field(
        default=None, description="Serve the operator listener over TLS. Default: if there is a certificate."
    )
    peer_host: str = Field(default="", description="Address of the peer listener; empty for every address.")
    peer_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of a separate listener, with mutual TLS, for verbs that other replicas forward. Use it if "
        "verbs are served on loopback.",
    )
    tls_cert_file: str | None = Field(
        default=None, description="Certificate chain, PEM, leaf first; read again whenever it changes."
    )
    tls_private_key_file: str | None = Field(default=None, description="Private key of tlsCertFile, PEM.")
    client_ca_file: str | None = Field(
        default=None,
        description="Authorities, PEM. Replicas and callers of verbs need a certificate that one of them has issued.",
    )
    self_signed: SelfSigned | None = Field(
        default=None,
        description="Self-signed certificates instead of tlsCertFile, tlsPrivateKeyFile and clientCAFile. The "
        "authority is stored in a Secret, which must exist.",
    )
    allowed_names: Names = Field(
        default=(), description="Allowed names (CN or SAN) in callers' certificates; empty allows all."
    )
    reader_names: Names = Field(
        default=(),
        description="Names (CN or SAN) whose certificates are allowed to read all pages of the operator listener.",
    )
    open_reads: bool = Field(
        default=False, description="Serve all pages of the operator listener without authentication."
    )
    insecure: bool = Field(
        default=False, description="Serve verbs without authentication on an address other than loopback."
    )
    max_connections: int = Field(
        default=2000,
        ge=10,
        description="Maximum number of open connections to the verbs; further ones are closed at once.",
    )
    http_timeout: Seconds = Field(
        default=5.0,
        ge=0.5,
        le=600.0,
        description="The scheduler's httpTimeout for this extender; the two must be equal. Durations as in Go: 5s.",
    )
    filter_timeout: Seconds | None = Field(default=None, ge=0.5, le=600.0, description=_OF_ONE_VERB.format("filter"))
    prioritize_timeout: Seconds | None = Field(
        default=None, ge=0.5, le=600.0, description=_OF_ONE_VERB.format("prioritize")
    )
    preempt_timeout: Seconds | None = Field(default=None, ge=0.5, le=600.0, description=_OF_ONE_VERB.format("preempt"))
    bind_timeout: Seconds | None = Field(
        default=None,
        ge=0.5,
        le=1200.0,
        description="The httpTimeout of the caller of bind. It also limits the wait at Permit, which is 15m at most.",
    )
    max_priority: int = Field(
        default=20,
        ge=1,
        le=100,
        description="Highest score in an answer of prioritize. A higher value makes scores finer, and they weigh more.",
    )
    max_body_bytes: int = Field(
        default=128 * 1024 * 1024,
        ge=1024,
        description="Maximum size of a request body; larger bodies are rejected unread.",
    )
    max_in_flight: int = Field(
        default=100,
        ge=1,
        description="Maximum number of filter, prioritize and preempt calls in flight; further ones are rejected.",
    )
    expected_bind_wait: Seconds = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="Maximum time that a call waits for a bind in flight that affects it; 0s: never.",
    )
    bind_batch_window: Seconds = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="Maximum time that a Binding is held to be sent in a batch, under load; 0s: never.",
    )
    sampling_guard: bool = Field(
        default=True,
        description="Nominate a pod to a node outside the sample if Homeport refuses it on all nodes of the sample.",
    )
    smallest_sample: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="A filter request with at least this many names can be a sample. Behind another extender: 1.",
    )
    bind_others: bool = Field(
        default=True,
        description="Also bind pods without a profile, without a check. false: the bind of such a pod is an Error.",
    )
    events: bool = Field(
        default=True,
        description="Write Events (events.k8s.io/v1) about homes, nominations, leaders and waiting pods.",
    )
    explain: Literal["profile", "complete"] | None = Field(
        default=None,
        description="Filters that explain judges. profile: those of the profile. complete: also those of "
        "kube-scheduler's default profile, in a second snapshot of the cluster. Default: profile; for a saved cluster "
        "complete, without a second snapshot.",
    )
    max_feed_age: Seconds = Field(
        default=180.0,
        ge=5.0,
        description="Maximum time without news from a watch; afterwards verbs fail. "
        "A kind without events is checked four times within this time, and at least every 30 s.",
    )
    max_plans_per_second: int = Field(
        default=5, ge=1, le=100, description="Maximum number of preemptions that begin in a second (preemption: Own)."
    )
    repair_interval: Seconds = Field(
        default=60.0, ge=1.0, description="Interval between two background repairs of incomplete writes."
    )
    leader_election: LeaderElection = Field(
        default=LeaderElection(),
        description="Leader election, with the fields of KubeSchedulerConfiguration.",
    )
    tracing: TracingConfiguration = Field(
        default=TracingConfiguration(), description="Spans of verbs, with the fields of TracingConfiguration."
    )
    advertise_address: str | None = Field(
        default=None,
        description="host:port at which other replicas reach this one. Default: host and port; $POD_IP and port if it "
        "listens on all addresses.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged. Single requests are logged at debug."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="json: one object per line; console: plain text."
    )
    profiles: tuple[Profile, ...] = Field(
        default=DEFAULT_PROFILES,
        min_length=1,
        description="Profiles by schedulerName, with the fields of KubeSchedulerConfiguration; * matches all other "
        "names.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the constructor's arguments as source, because ``read_settings`` merges all sources itself."""
        return (init_settings,)

    @model_validator(mode="after")
    def _can_be_trusted(self) -> Self:
        for conflict in self._distrusted():
            raise conflict
        return self

    def _distrusted(self) -> Iterator[Conflict]:
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            pair = ("tls_cert_file", "tls_private_key_file")
            yield Conflict(pair, "a certificate needs its key, and a key its certificate")
        if self.self_signed is not None:
            yield from self._against_self_signed()
        for name in ("tls", "operator_tls"):
            if getattr(self, name) and not self.has_certificate:
                yield Conflict((name,), "needs tlsCertFile and tlsPrivateKeyFile, or selfSigned")
        if self.client_ca_file is not None and not (self.serves_tls or self.operator_serves_tls or self.peer_port):
            yield Conflict(("client_ca_file",), "has no effect: no listener uses TLS")
        if self.allowed_names and not self.asks_for_certificates:
            yield Conflict(("allowed_names",), "needs clientCAFile, and verbs served over TLS")
        if self.reader_names and not (self.operator_serves_tls and self.has_authority):
            yield Conflict(("reader_names",), "needs clientCAFile, and an operator listener with TLS")
        if self.peer_port is not None and not (self.has_certificate and self.has_authority):
            files = "tlsCertFile, tlsPrivateKeyFile and clientCAFile, or selfSigned"
            yield Conflict(("peer_port",), f"needs {files}: replicas verify each other with them")
        if not (is_loopback(self.host) or self.asks_for_certificates or self.insecure):
            message = (
                "is not a loopback address: every client that reaches it could bind any pod. Set tlsCertFile, "
                "tlsPrivateKeyFile and clientCAFile, or selfSigned, or insecure: true"
            )
            yield Conflict(("host",), message)

    def _against_self_signed(self) -> Iterator[Conflict]:
        for name in ("tls_cert_file", "tls_private_key_file", "client_ca_file"):
            if getattr(self, name) is not None:
                yield Conflict(("self_signed", name), "certificates are either self-signed or read from files")
        if self.cluster is not None:
            yield Conflict(("self_signed", "cluster"), "a saved cluster has no Secrets")
        made, allowed = self.self_signed, self.allowed_names
        if made is not None and made.client_secret_name and allowed and made.client_name not in allowed:
            message = "the scheduler's certificate would be rejected: add its clientName to allowedNames"
            yield Conflict(("self_signed", "allowed_names"), message)
        if not (self.serves_tls or self.operator_serves_tls or self.peer_port):
            yield Conflict(("self_signed",), "has no effect: no listener uses TLS")

    @property
    def has_certificate(self) -> bool:
        """True if listeners have a serving certificate, so that they can use TLS."""
        return self.tls_cert_file is not None or self.self_signed is not None

    @property
    def has_authority(self) -> bool:
        """True if a certificate authority is known, so that client certificates can be verified."""
        return self.client_ca_file is not None or self.self_signed is not None

    @property
    def time_limits(self) -> Mapping[str, float]:
        """Seconds after which the caller of a verb stops waiting, by verb."""
        own = {
            "filter": self.filter_timeout,
            "prioritize": self.prioritize_timeout,
            "preempt": self.preempt_timeout,
            "bind": self.bind_timeout,
        }
        return {verb: self.http_timeout if limit is None else limit for verb, limit in own.items()}

    @property
    def explains_all(self) -> bool:
        """True if explain also judges the filters of kube-scheduler's default profile that a profile does not run."""
        return self.cluster is not None if self.explain is None else self.explain == "complete"

    @property
    def serves_tls(self) -> bool:
        """True if verbs are served over TLS."""
        return self.has_certificate if self.tls is None else self.tls

    @property
    def operator_serves_tls(self) -> bool:
        """True if there is a separate operator listener and it uses TLS."""
        if self.operator_port is None:
            return False
        return self.has_certificate if self.operator_tls is None else self.operator_tls

    @property
    def asks_for_certificates(self) -> bool:
        """True if callers of verbs need a client certificate."""
        return self.serves_tls and self.has_authority

    @property
    def hops_over_tls(self) -> bool:
        """True if replicas forward verbs to each other over TLS."""
        return self.peer_port is not None or self.asks_for_certificates

    @model_validator(mode="after")
    def _can_be_led(self) -> Self:
        if self.leader_election.leader_elect:
            if self.cluster is not None:
                raise Conflict(
                    ("leader_election", "cluster"), "a saved cluster has no Leases: several replicas need an API server"
                )
            if self.serves_tls and not self.hops_over_tls:
                raise Conflict(
                    ("leader_election", "client_ca_file"),
                    "replicas that use TLS verify each other with clientCAFile",
                )
            if not self.advertised:
                raise Conflict(
                    ("advertise_address", "host", "port"),
                    "the address of this replica is unknown: it listens on all addresses "
                    "and $POD_IP is not set, or its port is not fixed",
                )
        return self

    @property
    def advertised(self) -> str:
        """Address ``host:port`` at which other replicas reach this one; empty if it is unknown."""
        if self.advertise_address is not None:
            return self.advertise_address
        host, port = (self.host, self.port) if self.peer_port is None else (self.peer_host, self.peer_port)
        if host in ("", "0.0.0.0", "::"):
            host = os.environ.get("POD_IP", "")
        if not host or not port:
            return ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
