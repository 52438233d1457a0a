"""Settings of the process: each with its type, bounds and default, and which of them exclude one another."""

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

_OF_ONE_VERB: Final = "The httpTimeout of who calls {}, where it is another. Default: httpTimeout."


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on ``host``; empty stands for every address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(BaseSettings):
    """Each field is ``--name`` (``app.config.flags``), ``HOMEPORT_NAME``, and ``name`` in the file."""

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
        description="Address on which the verbs are answered. Off loopback it needs clientCAFile, or insecure.",
    )
    port: int = Field(default=8888, ge=0, le=65535, description="Port of the verbs; 0 picks a free one.")
    tls: bool | None = Field(
        default=None, description="Whether the verbs are answered over TLS. Default: where there is a certificate."
    )
    operator_host: str = Field(default="127.0.0.1", description="Address of the operator listener.")
    operator_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of a listener of its own for probes, metrics and reading. Without it they are answered where "
        "the verbs are, to whoever may call these.",
    )
    operator_tls: bool | None = Field(
        default=None, description="Whether the operator listener speaks TLS. Default: where there is a certificate."
    )
    peer_host: str = Field(default="", description="Address of the peer listener; empty for every address.")
    peer_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of a listener of its own for what other replicas send on, TLS on both sides only: for verbs "
        "that stay on loopback.",
    )
    tls_cert_file: str | None = Field(
        default=None, description="Certificate chain, PEM, leaf first; read again whenever it changes."
    )
    tls_private_key_file: str | None = Field(default=None, description="The key of tlsCertFile, PEM.")
    client_ca_file: str | None = Field(
        default=None,
        description="Authorities, PEM: who calls a verb must have a certificate of one of them, and so must replicas.",
    )
    self_signed: SelfSigned | None = Field(
        default=None,
        description="Certificates made by Homeport itself, in the place of the three files: its authority is in a "
        "Secret, which must be there.",
    )
    allowed_names: Names = Field(
        default=(), description="Names (CN or SAN) of which a caller's certificate needs one; any if there are none."
    )
    reader_names: Names = Field(
        default=(), description="Names (CN or SAN) whose certificates may read all pages of the operator listener."
    )
    open_reads: bool = Field(
        default=False, description="Let anybody who reaches the operator listener read all of its pages."
    )
    insecure: bool = Field(
        default=False, description="Let anybody who reaches the verbs off loopback call them. Nothing else allows it."
    )
    max_connections: int = Field(
        default=2000, ge=10, description="Open connections to the verbs; what is beyond is closed at once."
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
        description="The same for bind. It is also the longest that a pod can wait at Permit, of 15m at most.",
    )
    max_priority: int = Field(
        default=20,
        ge=1,
        le=100,
        description="Top of the prioritize scale. A higher top is finer and weighs more in kube-scheduler.",
    )
    max_body_bytes: int = Field(
        default=128 * 1024 * 1024, ge=1024, description="Larger request bodies are refused unread."
    )
    max_in_flight: int = Field(
        default=100,
        ge=1,
        description="Calls of filter, prioritize and preempt under way at once; what is beyond is turned away.",
    )
    due_bind_wait: Seconds = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="The longest a call waits for a bind that is on its way and matters to it; 0s: never.",
    )
    bind_batch_window: Seconds = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="The longest a Binding is held so that several leave together, where many leave; 0s: never.",
    )
    sampling_guard: bool = Field(
        default=True,
        description="Nominate a pod that Homeport refused on a whole sample of the nodes to a node outside of it.",
    )
    smallest_sample: int = Field(
        default=100,
        ge=1,
        le=100_000,
        description="Fewest names that make a filter request a sample of the nodes. Behind another extender: 1.",
    )
    bind_others: bool = Field(
        default=True,
        description="Bind pods of no profile here too, without a check. false: their bind is an Error.",
    )
    events: bool = Field(
        default=True,
        description="Write Events (events.k8s.io/v1) about homes, nominations and leaders for people to see.",
    )
    max_feed_age: Seconds = Field(
        default=180.0,
        ge=5.0,
        description="Nothing heard of a watch for this long: verbs fail rather than guess. "
        "A quiet kind is asked after four times within it, and every 30 s at the latest.",
    )
    repair_interval: Seconds = Field(
        default=60.0, ge=1.0, description="Time between two background repairs of half-done writes."
    )
    leader_election: LeaderElection = Field(
        default=LeaderElection(),
        description="Several replicas, one of which decides, in KubeSchedulerConfiguration's words.",
    )
    tracing: TracingConfiguration = Field(
        default=TracingConfiguration(), description="Spans of verbs, in TracingConfiguration's words."
    )
    advertise_address: str | None = Field(
        default=None,
        description="host:port at which the other replicas reach this one. Default: host and port; $POD_IP and port "
        "where it listens on all addresses.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged. Single requests are logged at debug."
    )
    log_format: Literal["json", "console"] = Field(default="json", description="A JSON object a line, or plain text.")
    profiles: tuple[Profile, ...] = Field(
        default=DEFAULT_PROFILES,
        min_length=1,
        description="Profiles by schedulerName, in KubeSchedulerConfiguration's words; * takes all other names.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What it is made of and nothing else: ``read_settings`` has read the variables."""
        return (init_settings,)

    @model_validator(mode="after")
    def _can_be_trusted(self) -> Self:
        for conflict in self._distrusted():
            raise conflict
        return self

    def _distrusted(self) -> Iterator[Conflict]:
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            pair = ("tls_cert_file", "tls_private_key_file")
            yield Conflict(pair, "a certificate and its key are given together")
        if self.self_signed is not None:
            yield from self._against_self_signed()
        for name in ("tls", "operator_tls"):
            if getattr(self, name) and not self.has_certificate:
                yield Conflict((name,), "needs tlsCertFile and tlsPrivateKeyFile, or selfSigned")
        if self.client_ca_file is not None and not (self.serves_tls or self.operator_serves_tls or self.peer_port):
            yield Conflict(("client_ca_file",), "asks for certificates of callers, and no listener speaks TLS")
        if self.allowed_names and not self.asks_for_certificates:
            yield Conflict(("allowed_names",), "needs clientCAFile, and verbs that are answered over TLS")
        if self.reader_names and not (self.operator_serves_tls and self.has_authority):
            yield Conflict(("reader_names",), "needs clientCAFile, and an operator listener that speaks TLS")
        if self.peer_port is not None and not (self.has_certificate and self.has_authority):
            files = "tlsCertFile, tlsPrivateKeyFile and clientCAFile, or selfSigned"
            yield Conflict(("peer_port",), f"needs {files}: replicas know each other by them")
        if not (is_loopback(self.host) or self.asks_for_certificates or self.insecure):
            said = (
                "is not on loopback: whoever reaches it could bind any pod. Give tlsCertFile, tlsPrivateKeyFile and "
                "clientCAFile, or selfSigned, or say insecure: true"
            )
            yield Conflict(("host",), said)

    def _against_self_signed(self) -> Iterator[Conflict]:
        for name in ("tls_cert_file", "tls_private_key_file", "client_ca_file"):
            if getattr(self, name) is not None:
                yield Conflict(("self_signed", name), "certificates are made here, or read from files")
        if self.cluster is not None:
            yield Conflict(("self_signed", "cluster"), "a saved cluster has no Secrets")
        made, allowed = self.self_signed, self.allowed_names
        if made is not None and made.client_secret_name and allowed and made.client_name not in allowed:
            said = "the scheduler's pair could call no verb: its clientName has to be among allowedNames"
            yield Conflict(("self_signed", "allowed_names"), said)
        if not (self.serves_tls or self.operator_serves_tls or self.peer_port):
            yield Conflict(("self_signed",), "makes certificates, and no listener speaks TLS")

    @property
    def has_certificate(self) -> bool:
        """Whether a listener can speak TLS."""
        return self.tls_cert_file is not None or self.self_signed is not None

    @property
    def has_authority(self) -> bool:
        """Whether callers can be known by their certificates."""
        return self.client_ca_file is not None or self.self_signed is not None

    @property
    def time_limits(self) -> Mapping[str, float]:
        """By verb, how long its caller waits, in seconds."""
        own = {
            "filter": self.filter_timeout,
            "prioritize": self.prioritize_timeout,
            "preempt": self.preempt_timeout,
            "bind": self.bind_timeout,
        }
        return {verb: self.http_timeout if limit is None else limit for verb, limit in own.items()}

    @property
    def serves_tls(self) -> bool:
        """Whether the verbs are answered over TLS."""
        return self.has_certificate if self.tls is None else self.tls

    @property
    def operator_serves_tls(self) -> bool:
        """Whether there is an operator listener, and it speaks TLS."""
        if self.operator_port is None:
            return False
        return self.has_certificate if self.operator_tls is None else self.operator_tls

    @property
    def asks_for_certificates(self) -> bool:
        """Whether who calls a verb needs a certificate."""
        return self.serves_tls and self.has_authority

    @property
    def hops_over_tls(self) -> bool:
        """Whether replicas speak TLS to each other."""
        return self.peer_port is not None or self.asks_for_certificates

    @model_validator(mode="after")
    def _can_be_led(self) -> Self:
        if self.leader_election.leader_elect:
            if self.cluster is not None:
                raise Conflict(
                    ("leader_election", "cluster"), "a saved cluster has no leases, several replicas need an API server"
                )
            if self.serves_tls and not self.hops_over_tls:
                raise Conflict(
                    ("leader_election", "client_ca_file"),
                    "replicas that speak TLS to each other check by clientCAFile who the other one is",
                )
            if not self.advertised:
                raise Conflict(
                    ("advertise_address", "host", "port"),
                    "the other replicas cannot be told where this one is: it listens on all "
                    "addresses and $POD_IP is not set, or on a port that is not known yet",
                )
        return self

    @property
    def advertised(self) -> str:
        """Where the other replicas reach this one; empty if that is not known."""
        if self.advertise_address is not None:
            return self.advertise_address
        host, port = (self.host, self.port) if self.peer_port is None else (self.peer_host, self.peer_port)
        if host in ("", "0.0.0.0", "::"):
            host = os.environ.get("POD_IP", "")
        if not host or not port:
            return ""
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
