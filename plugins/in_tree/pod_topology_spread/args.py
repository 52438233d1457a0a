"""Arguments of PodTopologySpread: those of kube-scheduler, with exactly its validation, and Homeport's ``beyond``."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from app.framework.spec import PluginArgs
from app.kube.core_v1 import HONOR, SCHEDULE_ANYWAY, TopologySpreadConstraint
from app.kube.durations import Seconds
from app.kube.selectors import is_label_key, is_label_value

NAME: Final = "PodTopologySpread"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""Default constraints with ``defaultingType: System``."""


MOST_KEYS: Final = 16
"""Maximum number of topology keys whose domains a profile can declare."""

MOST_DOMAINS: Final = 100
"""Maximum number of declared domains of a topology key."""

MOST_MATCH_LABEL_KEYS: Final = 8
"""Maximum number of ``matchLabelKeys`` in ``beyond.defaults``."""


def _label_key(value: str) -> str:
    if not is_label_key(value):
        raise ValueError("not a valid label name")
    return value


LabelKey: TypeAlias = Annotated[str, AfterValidator(_label_key)]
Policy: TypeAlias = Literal["Honor", "Ignore"]


class DefaultConstraint(BaseModel):
    """Default constraint, for pods without constraints of their own. Its selector is derived for each pod."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    max_skew: Annotated[int, Field(gt=0)]
    topology_key: Annotated[LabelKey, Field(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []

    @field_validator("label_selector", mode="before")
    @classmethod
    def _no_selector(cls, value: Any) -> None:
        if value is not None:
            raise ValueError("constraint must not define a selector, as they deduced for each pod")

    def slim(self) -> TopologySpreadConstraint:
        return TopologySpreadConstraint(
            max_skew=self.max_skew,
            topology_key=self.topology_key,
            when_unsatisfiable=self.when_unsatisfiable,
            min_domains=self.min_domains,
            node_affinity_policy=self.node_affinity_policy,
            node_taints_policy=self.node_taints_policy,
        )


class MissingFields(BaseModel):
    """Values of fields that a constraint leaves out, whether it is a pod's own or a default constraint.

    ``matchLabelKeys``: only for constraints with a selector, without the keys that the selector uses itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    node_affinity_policy: Policy | None = None
    node_taints_policy: Policy | None = None
    match_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=MOST_MATCH_LABEL_KEYS)] = ()

    @field_validator("match_label_keys")
    @classmethod
    def _are_distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a key is given twice")
        return value

    def filled(self, constraint: TopologySpreadConstraint) -> tuple[TopologySpreadConstraint, tuple[str, ...]]:
        """Return the constraint with missing fields filled in, and a text for each field that was filled in."""
        values: dict[str, Any] = {}
        if self.node_affinity_policy and constraint.node_affinity_policy is None:
            values["node_affinity_policy"] = self.node_affinity_policy
        if self.node_taints_policy and constraint.node_taints_policy is None:
            values["node_taints_policy"] = self.node_taints_policy
        if constraint.selector is not None and not constraint.match_label_keys:
            selected = {it.key for it in constraint.selector.requirements}
            values["match_label_keys"] = tuple(it for it in self.match_label_keys if it not in selected)
        values = {field: value for field, value in values.items() if value}
        if not values:
            return constraint, ()
        shown = {field: value if isinstance(value, str) else ", ".join(value) for field, value in values.items()}
        return replace(constraint, **values), tuple(f"{to_camel(it)} {text} by profile" for it, text in shown.items())


class Fallback(BaseModel):
    """Option ``fallback``: a hard constraint becomes soft for a pod that, for ``after`` seconds, would have fit on a
    node without this constraint.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[Seconds, Field(ge=10.0, le=86_400.0)]


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not value or not is_label_value(value):
            raise ValueError(f"{value!r} is not a valid label value")
    if len(set(values)) < len(values):
        raise ValueError("a domain is given twice")
    return values


DomainNames: TypeAlias = Annotated[
    tuple[str, ...], Field(min_length=1, max_length=MOST_DOMAINS), AfterValidator(_distinct)
]


class Beyond(BaseModel):
    """Options for rules that kube-scheduler does not have; see ADR 59. Without them, the rules are exactly
    kube-scheduler's.

    ``defaults``: values of fields that constraints leave out. ``untoleratedDomains``: with ``Ignore``, domains count
    for the minimum only if one of their nodes is open for the pod (see ``RelaxedConstraint``). ``onViolation``: with
    ``AllowNotWorse``, nodes also pass if the pod does not raise the skew of a violated constraint there. ``fallback``:
    time after which a hard constraint becomes soft for a waiting pod. ``scaleDown``: with ``Spread``, pods of a
    ReplicaSet get a deletion cost at bind, so that a scale-down keeps the spread. ``rerank``: true to also change the
    cost of bound pods, so that they close the holes that deleted pods leave.

    ``domains``: domains of a topology key that exist even while they have no node. ``remember``: seconds for which
    Homeport remembers domains that had nodes. These two options never affect a verdict.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    defaults: MissingFields | None = None
    untolerated_domains: Literal["Count", "Ignore"] = "Count"
    on_violation: Literal["Reject", "AllowNotWorse"] = "Reject"
    fallback: Fallback | None = None
    scale_down: Literal["Any", "Spread"] = "Any"
    rerank: bool = False
    domains: Annotated[dict[LabelKey, DomainNames], Field(max_length=MOST_KEYS)] = {}
    remember: Annotated[Seconds, Field(ge=60.0, le=2_592_000.0)] | None = None

    @field_validator("domains")
    @classmethod
    def _no_hosts(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        if HOSTNAME in value:
            raise ValueError(f"hosts come and go, so domains of {HOSTNAME} cannot be declared")
        return value

    @model_validator(mode="after")
    def _reranks_what_is_ranked(self) -> Self:
        if self.rerank and self.scale_down != "Spread":
            raise ValueError("rerank: true needs scaleDown: Spread, because no pod has a rank without it")
        return self

    @property
    def reads_tolerations(self) -> bool:
        """True if verdicts can depend on a pod's tolerations even without ``nodeTaintsPolicy: Honor`` in the pod."""
        honours_taints = self.defaults is not None and self.defaults.node_taints_policy == HONOR
        return honours_taints or self.untolerated_domains == "Ignore"


class PodTopologySpreadArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``defaultingType: System`` prefers to spread the pods of a Service or controller over hosts and zones.
    ``defaultingType: List`` uses ``defaultConstraints`` instead, which can be empty. ``beyond`` has rules that
    kube-scheduler does not have.
    """

    default_constraints: tuple[DefaultConstraint, ...] = Field(default=(), alias="defaultConstraints")
    defaulting_type: Literal["System", "List"] = Field(default="System", alias="defaultingType")
    beyond: Beyond | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultingType: System: when .defaultConstraints are not empty")
        seen = set()
        for constraint in self.default_constraints:
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ValueError(f"defaultConstraints: duplicate {{{pair[0]}, {pair[1]}}}")
            seen.add(pair)
        return self

    @property
    def system_defaulted(self) -> bool:
        """True if pods without constraints of their own get kube-scheduler's default constraints."""
        return self.defaulting_type == "System"

    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default constraints of the ``defaultingType``, with missing fields taken from ``missing``."""
        own = SYSTEM_DEFAULTS if self.system_defaulted else tuple(it.slim() for it in self.default_constraints)
        return own if self.missing is None else tuple(self.missing.filled(it)[0] for it in own)

    @property
    def scales_down_spread(self) -> bool:
        """True if pods of a ReplicaSet get a deletion cost at bind."""
        return self.beyond is not None and self.beyond.scale_down == "Spread"

    @property
    def missing(self) -> MissingFields | None:
        """Values of fields that constraints leave out; ``None`` if the option ``beyond.defaults`` is not set."""
        return None if self.beyond is None else self.beyond.defaults
