"""Nested settings: leader election, traces, and self-signed certificates."""

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
"""Maximum ``leaseDuration`` in seconds. A longer duration in another holder's Lease is treated as this maximum."""


def parse_names(value: Any) -> Any:
    """Split a string of names at commas, for flags and variables; return values of other types unchanged."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(parse_names)]
"""Names of clients. Each is compared with the common name and all alternative names of the client certificate."""


class LeaderElection(BaseModel):
    """Settings of leader election: the fields of ``leaderElection`` in KubeSchedulerConfiguration, and a lock file.

    Durations are in seconds after parsing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    leader_elect: bool = Field(default=False, description="Elect a leader among several replicas; the leader decides.")
    lease_duration: Seconds = Field(
        default=15.0,
        ge=1.0,
        le=LONGEST_LEASE,
        description="Time after a leader's last renewal until another replica can take over: at most 5 minutes.",
    )
    renew_deadline: Seconds = Field(
        default=10.0, gt=0.0, description="Time without a successful renewal after which a leader stops leading."
    )
    retry_period: Seconds = Field(
        default=2.0, gt=0.0, description="Delay between two renewals, and between two attempts to take over."
    )
    resource_lock: Literal["leases"] = Field(default="leases", description="Only leases are supported.")
    resource_namespace: str = Field(default="kube-system", min_length=1, description="Namespace of the Lease.")
    resource_name: str = Field(default="homeport", min_length=1, description="Name of the Lease.")
    lock_file: str | None = Field(
        default=None,
        min_length=1,
        description="File in an emptyDir of the pod. With it, a leader that restarts after a crash takes its Lease "
        "back at once.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_duration > self.renew_deadline > self.retry_period:
            raise Conflict(
                ("lease_duration", "renew_deadline", "retry_period"),
                "leaseDuration must be longer than renewDeadline, and renewDeadline longer than retryPeriod",
            )
        if self.retry_period > self.lease_duration / 3:
            raise Conflict(("lease_duration", "retry_period"), "retryPeriod must be at most a third of leaseDuration")
        return self


def _is_url(value: str) -> bool:
    try:
        url = urlsplit(value)
        return (
            url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and not (url.query or url.fragment)
        )
    except ValueError:
        return False


def _is_collector(value: str | None) -> str | None:
    """Return the value unchanged if it is ``None``, or a URL that ``_is_url`` accepts; else raise ``ValueError``."""
    if value is not None and not _is_url(value):
        raise ValueError("must be the URL of a collector for OTLP over HTTP, such as http://collector:4318")
    return value


class TracingConfiguration(BaseModel):
    """Settings of traces, with the fields of ``TracingConfiguration`` in kube-apiserver and kubelet."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    endpoint: Annotated[str | None, AfterValidator(_is_collector)] = Field(
        default=None,
        description="Collector to which spans are sent, OTLP over HTTP: http://collector:4318. Default: none.",
    )
    sampling_rate_per_million: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Number of traces begun per million requests. 0: only traces of callers are continued.",
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
    """Settings of self-signed certificates. All replicas share the authority that issues them."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    secret_namespace: str = Field(pattern=_LABEL, max_length=63, description="Namespace of the Secrets.")
    secret_name: str = Field(
        pattern=_SUBDOMAIN, max_length=253, description="Secret for the authority; it must exist, and can be empty."
    )
    dns_names: Annotated[
        tuple[Annotated[str, Field(pattern=_SUBDOMAIN, max_length=253), AfterValidator(_is_dns_name)], ...],
        BeforeValidator(parse_names),
    ] = Field(
        min_length=1,
        description="Names in the serving certificate; replicas verify the first in alphabetical order, other than "
        "localhost.",
    )
    client_secret_name: str | None = Field(
        default=None,
        pattern=_SUBDOMAIN,
        max_length=253,
        description="Secret for the scheduler's client certificate and key.",
    )
    client_name: Annotated[str, AfterValidator(_fits_a_certificate)] = Field(
        default="homeport-scheduler", min_length=1, description="Common name in the client certificate."
    )
    client_duration: Seconds = Field(
        default=8760 * 3600.0,
        ge=3600.0,
        le=10 * 8760 * 3600.0,
        description="Validity of the client certificate; it is renewed after two thirds.",
    )

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        if all(it.rpartition(".")[2] == "localhost" for it in self.dns_names):
            raise Conflict(
                ("dns_names",),
                "replicas verify each other by one of these names, and localhost does not identify a replica",
            )
        if self.client_secret_name == self.secret_name:
            message = "the scheduler must not read the authority's key: use another Secret"
            raise Conflict(("client_secret_name", "secret_name"), message)
        if self.client_name in self.dns_names:
            raise Conflict(
                ("client_name", "dns_names"), "a client whose name is among dnsNames would be accepted as a replica"
            )
        return self
