"""Settings of the process: from the command line, then ``HOMEPORT_*``, then the configuration file, then defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel, to_snake
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableVariable

from app.config.profile import DEFAULT_PROFILES, Profile

API_VERSION: Final = "homeport.dev/v1alpha1"
KIND: Final = "HomeportConfiguration"
KUBE_SCHEDULER_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)(ms|s|m|h))")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class SettingsError(ValueError):
    """Everything that is wrong with the settings, a sentence a line."""


def parse_duration(value: Any) -> Any:
    """Seconds of a duration as Go writes it (``5s``, ``500ms``, ``1m30s``); anything else is left as it is."""
    if not isinstance(value, str):
        return value
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError(f'"{value}" is not a duration such as 5s, 500ms or 1m30s')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


Seconds = Annotated[float, BeforeValidator(parse_duration)]


class LeaderElection(BaseModel):
    """KubeSchedulerConfiguration's ``leaderElection``. Durations are seconds once they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    leader_elect: bool = False
    lease_duration: Seconds = Field(default=15.0, ge=1.0)
    renew_deadline: Seconds = Field(default=10.0, gt=0.0)
    retry_period: Seconds = Field(default=2.0, gt=0.0)
    resource_lock: Literal["leases"] = "leases"
    resource_namespace: str = Field(default="kube-system", min_length=1)
    resource_name: str = Field(default="homeport", min_length=1)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.lease_duration > self.renew_deadline > self.retry_period:
            raise ValueError("leaseDuration must be longer than renewDeadline, and that longer than retryPeriod")
        if self.retry_period > self.lease_duration / 3:
            raise ValueError("retryPeriod must be at most a third of leaseDuration")
        return self


class Settings(BaseSettings):
    """Each field is ``--name`` where the command line has it, ``HOMEPORT_NAME``, and ``name`` in the file."""

    model_config = SettingsConfigDict(env_prefix="HOMEPORT_", extra="forbid", frozen=True)

    kubeconfig: str | None = Field(
        default=None, description="Path of a kubeconfig. Default: $KUBECONFIG, then in-cluster, then ~/.kube/config."
    )
    cluster: str | None = Field(
        default=None, description="Serve this saved cluster (kubectl get … -o yaml|json) without an API server."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8888, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    http_timeout: Seconds = Field(
        default=5.0,
        ge=0.5,
        le=600.0,
        description="The scheduler's httpTimeout for this extender; the two must be equal. Durations as in Go: 5s.",
    )
    max_priority: int = Field(
        default=10,
        ge=1,
        le=100,
        description="Top of the prioritize scale. Above 10 buys resolution: kube-scheduler does not clamp.",
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
    sampling_guard: bool = Field(
        default=True,
        description="Lead a pod that was refused on every node shown to one that was not, by its nominatedNodeName.",
    )
    bind_others: bool = Field(
        default=True,
        description="Bind pods of no profile here too, without a check. false: their bind is an Error.",
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

    @model_validator(mode="after")
    def _can_be_led(self) -> Self:
        if self.leader_election.leader_elect:
            if self.cluster is not None:
                raise ValueError("leaderElection: a saved cluster has no leases, several replicas need an API server")
            if not self.advertised:
                raise ValueError(
                    "advertiseAddress: the other replicas cannot be told where this one is: it listens on all "
                    "addresses and $POD_IP is not set, or on a port that is not known yet"
                )
        return self

    @property
    def advertised(self) -> str:
        """Where the other replicas reach this one; empty if that is not known."""
        if self.advertise_address is not None:
            return self.advertise_address
        host = os.environ.get("POD_IP", "") if self.host in ("", "0.0.0.0", "::") else self.host
        if not host or not self.port:
            return ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def load_settings(given: Mapping[str, Any], *, config: str | None = None) -> Settings:
    """Merge the sources. ``given`` is what the command line sets; ``config`` the path of the file, if there is one.

    Raises ``SettingsError`` with every mistake found.
    """
    from_file = read_config(Path(config)) if config else {}
    try:
        from_env = EnvSettingsSource(Settings)()
    except UnreadableVariable as error:
        raise SettingsError(f"environment: {error}") from None
    try:
        return Settings.model_validate({**from_file, **from_env, **given})
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(it) for it in error.errors())) from None


def read_config(path: Path) -> dict[str, Any]:
    """The fields of a configuration file by their names here. Raises ``SettingsError``.

    Of a KubeSchedulerConfiguration the profiles are taken; all else in it is the scheduler's business.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not YAML: {error}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: expected a mapping with apiVersion and kind")
    named = (found.get("apiVersion"), found.get("kind"))
    if named == (KUBE_SCHEDULER_API_VERSION, KUBE_SCHEDULER_KIND):
        return {"profiles": found["profiles"]} if found.get("profiles") else {}
    if named != (API_VERSION, KIND):
        wanted = f"apiVersion: {API_VERSION} and kind: {KIND}, or a {KUBE_SCHEDULER_KIND}"
        raise SettingsError(f"{path}: expected {wanted}; found {named[0]}, {named[1]}")
    return {to_snake(str(key)): value for key, value in found.items() if key not in ("apiVersion", "kind")}


def _sentence(found: Any) -> str:
    if not found["loc"]:
        return str(found["msg"]).removeprefix("Value error, ")
    at = ".".join(to_camel(part) if isinstance(part, str) else str(part) for part in found["loc"])
    return f"{at}: unknown setting" if found["type"] == "extra_forbidden" else f"{at}: {found['msg']}"
