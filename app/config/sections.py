"""Parts of the settings that are objects of their own: leader election, traces, the authority that replicas share."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import NoDecode

from app.config.mistakes import Conflict
from app.kube.durations import Seconds

_LONGEST_LABEL: Final = 63
_LONGEST_COMMON_NAME: Final = 64
_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

LONGEST_LEASE: Final = 300.0
"""Maximum ``leaseDuration`` in seconds, and the maximum that counts of what another holder writes into the Lease."""


def parse_names(value: Any) -> Any:
    """The names of a list that is written with commas between, as on a command line; others are left as they are."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(parse_names)]
"""Names in certificates: a common name, or an alternative name of any kind."""


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
