"""Settings of the process: from the command line, then ``HOMEPORT_*``, then the configuration file, then defaults."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from app.config.addresses import is_address
from app.config.document import Document, UnreadableFile, read_document
from app.config.mistakes import Conflict, Mistake, Place, checked, field_names, follows, meant, misread, original
from app.config.profile import DEFAULT_PROFILES, Profile
from app.config.sources import Sources
from app.config.variables import read_variables
from app.kube.durations import Seconds

API_VERSION: Final = "homeport.dev/v1alpha1"
KIND: Final = "HomeportConfiguration"
KUBE_SCHEDULER_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"

_LONGEST_LABEL: Final = 63
_LONGEST_COMMON_NAME: Final = 64
_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


_OF_ONE_VERB: Final = "The httpTimeout of who calls {}, where it is another. Default: httpTimeout."


LONGEST_LEASE: Final = 300.0
"""Maximum ``leaseDuration`` in seconds, and the maximum that counts of what another holder writes into the Lease."""


class SettingsError(ValueError):
    """Everything that is wrong with the settings, a sentence a line."""


def parse_names(value: Any) -> Any:
    """The names of a list that is written with commas between, as on a command line; others are left as they are."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(parse_names)]
"""Names in certificates: a common name, or an alternative name of any kind."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on ``host``; empty stands for every address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class LeaderElection(BaseModel):
    """KubeSchedulerConfiguration's ``leaderElection``. Durations are seconds once they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    leader_elect: bool = Field(default=False, description="Several replicas run, and one of them decides.")
    lease_duration: Seconds = Field(
        default=15.0,
        ge=1.0,
        le=LONGEST_LEASE,
        description="How long the others wait for a leader after its last renewal: 5 minutes at most.",
    )
    renew_deadline: Seconds = Field(
        default=10.0, gt=0.0, description="A leader whose renewals are not answered for this long stops leading."
    )
    retry_period: Seconds = Field(
        default=2.0, gt=0.0, description="Between two renewals, and between two attempts to take over."
    )
    resource_lock: Literal["leases"] = Field(default="leases", description="No other is known.")
    resource_namespace: str = Field(default="kube-system", min_length=1, description="Where the Lease is.")
    resource_name: str = Field(default="homeport", min_length=1, description="Name of the Lease.")
    lock_file: str | None = Field(
        default=None,
        min_length=1,
        description="File in an emptyDir of the pod. With it a restarted container takes its Lease back at once.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_duration > self.renew_deadline > self.retry_period:
            raise Conflict(
                ("lease_duration", "renew_deadline", "retry_period"),
                "leaseDuration must be longer than renewDeadline, and that longer than retryPeriod",
            )
        if self.retry_period > self.lease_duration / 3:
            raise Conflict(("lease_duration", "retry_period"), "retryPeriod must be at most a third of leaseDuration")
        return self


def _is_url(value: str) -> bool:
    try:
        found = urlsplit(value)
        return (
            found.scheme in ("http", "https")
            and bool(found.hostname)
            and found.port != 0
            and not (found.query or found.fragment)
        )
    except ValueError:
        return False


def _is_collector(value: str | None) -> str | None:
    """Raises ``ValueError`` for what is no URL of a collector."""
    if value is not None and not _is_url(value):
        raise ValueError("must be the URL of a collector for OTLP over HTTP, such as http://collector:4318")
    return value


class TracingConfiguration(BaseModel):
    """The words of kube-apiserver's and kubelet's ``TracingConfiguration``."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    endpoint: Annotated[str | None, AfterValidator(_is_collector)] = Field(
        default=None,
        description="Collector to which spans are sent, OTLP over HTTP: http://collector:4318. Default: none.",
    )
    sampling_rate_per_million: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Of a million verbs, how many begin a trace. 0: only those that come as part of one.",
    )


def _is_dns_name(value: str) -> str:
    if any(len(label) > _LONGEST_LABEL for label in value.split(".")):
        raise ValueError(f"must have at most {_LONGEST_LABEL} characters between two dots")
    return value


def _fits_a_certificate(value: str) -> str:
    if len(value.encode(errors="replace")) > _LONGEST_COMMON_NAME:
        raise ValueError(f"must have at most {_LONGEST_COMMON_NAME} bytes, in UTF-8")
    return value


class SelfSigned(BaseModel):
    """Certificates that Homeport makes itself, from an authority that all replicas share."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    secret_namespace: str = Field(pattern=_LABEL, max_length=63, description="Where the Secrets are.")
    secret_name: str = Field(
        pattern=_SUBDOMAIN, max_length=253, description="Secret that keeps the authority; it must be there, also empty."
    )
    dns_names: Annotated[
        tuple[Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253), AfterValidator(_is_dns_name)], ...],
        BeforeValidator(parse_names),
    ] = Field(min_length=1, description="Names in the serving certificate; by the first one replicas know each other.")
    client_secret_name: str | None = Field(
        default=None,
        pattern=_SUBDOMAIN,
        max_length=253,
        description="Secret for the pair that the scheduler calls with.",
    )
    client_name: Annotated[str, AfterValidator(_fits_a_certificate)] = Field(
        default="homeport-scheduler", min_length=1, description="The common name in that pair."
    )
    client_duration: Seconds = Field(
        default=8760 * 3600.0,
        ge=3600.0,
        le=10 * 8760 * 3600.0,
        description="How long that pair is good; it is renewed at two thirds.",
    )

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        if all(it.rpartition(".")[2] == "localhost" for it in self.dns_names):
            raise Conflict(("dns_names",), "replicas know each other by one of them: localhost is anybody's")
        if self.client_secret_name == self.secret_name:
            said = "the authority's key is for Homeport alone: a Secret of its own"
            raise Conflict(("client_secret_name", "secret_name"), said)
        if self.client_name in self.dns_names:
            raise Conflict(("client_name", "dns_names"), "by a name among dnsNames a client would pass for a replica")
        return self


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


class Loaded(Struct, frozen=True):
    """Settings, their sources and all ``mistakes``. What is wrong is ``removed`` and has its default instead."""

    settings: Settings
    sources: Sources
    mistakes: tuple[Mistake, ...]
    removed: frozenset[Place]

    def is_sound(self, name: str) -> bool:
        """Return true if nothing is wrong with a field."""
        return all(self.sources.field(place) != name for mistake in self.mistakes for place in mistake.places)

    def further(self, in_profiles: Sequence[Mistake]) -> Iterator[str]:
        """Sentences for mistakes in ``settings.profiles`` that do not follow from those that ``mistakes`` names."""
        for mistake in in_profiles:
            places = tuple(original(place, self.removed) for place in mistake.places)
            # ``pick`` depends on all that a profile enables.
            about = [place[:2] if place[-1:] == ("pick",) else place for place in places]
            if not follows(about, self.removed):
                yield self.sources.sentence(Mistake(places, mistake.said))


_WRITTEN: Final = {name: key for key, name in field_names(Settings).items()}
"""Names of the fields in the file."""


def load_settings(given: Mapping[str, Any], *, config: str | None = None) -> Settings:
    """Merge the sources. ``given`` is what the command line sets; ``config`` the path of the file, if there is one.

    Raises ``SettingsError`` with every mistake found.
    """
    found = read_settings(given, config=config)
    if found.mistakes:
        raise SettingsError("\n".join(map(found.sources.sentence, found.mistakes)))
    return found.settings


def read_settings(given: Mapping[str, Any], *, config: str | None = None) -> Loaded:
    """Merge the sources as ``load_settings`` does, and return the mistakes beside the settings."""
    mistakes: list[Mistake] = []
    document = _document(Path(config), mistakes) if config else None
    in_file = _fields_of(document, mistakes) if document is not None else {}
    variables = read_variables(Settings, os.environ)
    mistakes += variables.mistakes
    sources = Sources(Settings, given, variables, in_file, document)
    misread = list(_misread(sources))
    mistakes += misread
    removed = {place for mistake in misread for place in mistake.places}
    removed |= {(_WRITTEN[name],) for name in variables.unreadable if isinstance(given.get(name, {}), Mapping)}
    settings, invalid = checked(
        Settings, {_WRITTEN[name]: value for name, value in sources.values.items()}, removed, _settings_of
    )
    mistakes += invalid
    settings = settings or Settings()
    return Loaded(settings, sources, (*mistakes, *_together(settings, sources)), frozenset(removed))


def _settings_of(written: Mapping[str, Any]) -> Settings:
    """Settings of values by their names in the file. Raises ``ValidationError``."""
    names = field_names(Settings)
    return Settings.model_validate({names[key]: value for key, value in written.items()})


def _document(path: Path, mistakes: list[Mistake]) -> Document | None:
    try:
        found = read_document(path)
    except UnreadableFile as error:
        mistakes.append(Mistake((), str(error)))
        return None
    mistakes += found.mistakes
    return found


def _fields_of(document: Document, mistakes: list[Mistake]) -> dict[str, Any]:
    """What the file sets, by field; ``null`` is absent, as in Go.

    Of a KubeSchedulerConfiguration the profiles are taken; all else in it is the scheduler's business.
    """
    found = document.value if isinstance(document.value, dict) else {}
    named = (found.get("apiVersion"), found.get("kind"))
    if named == (KUBE_SCHEDULER_API_VERSION, KUBE_SCHEDULER_KIND):
        return {"profiles": found["profiles"]} if found.get("profiles") else {}
    if named != (API_VERSION, KIND):
        wanted = f"apiVersion: {API_VERSION} and kind: {KIND}, or a {KUBE_SCHEDULER_KIND}"
        shown = f"{named[0]}, {named[1]}" if found else "no mapping"
        mistakes.append(Mistake((), f"{document.path}: expected {wanted}; found {shown}"))
        return {}
    names = field_names(Settings)
    unknown = [key for key in found if key not in names and key not in ("apiVersion", "kind")]
    mistakes += [Mistake(((key,),), f"no such setting{meant(key, names)}") for key in unknown]
    return {name: found[key] for key, name in names.items() if found.get(key) is not None}


def _misread(sources: Sources) -> Iterator[Mistake]:
    """Find values of the file and of the variables that pydantic would convert to something else."""
    for key, name in field_names(Settings).items():
        yield from misread(Settings, sources.from_elsewhere(name), (key,))


def _together(settings: Settings, sources: Sources) -> Iterator[Mistake]:
    given = sources.values
    if given.get("cluster") is not None and given.get("kubeconfig") is not None:
        said = "a saved cluster is served without an API server: give one of them"
        yield Mistake((("cluster",), ("kubeconfig",)), said)
    if settings.advertise_address is not None and not is_address(settings.advertise_address):
        yield Mistake(
            (("advertiseAddress",),),
            "must be host:port at which others reach this replica: a name, an IPv4 address or an IPv6 address in "
            "brackets, and a port from 1 to 65535",
        )
