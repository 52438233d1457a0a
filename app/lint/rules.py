"""Catalogue of the rules: their ids, short descriptions and needed inputs. Also the types of their findings.

``docs/lint.md`` has one entry for each id. Never change an id: manifests and annotations contain it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Severity(StrEnum):
    """Severity of a finding. The values are levels of SARIF and commands of GitHub's workflows."""

    ERROR = "error"
    """Pods are rejected, wait, or are not spread."""

    WARNING = "warning"
    """The setting has no effect or less than expected, or pods wait only under further conditions."""


class Need(StrEnum):
    """Input that a rule needs besides the object. The value completes ``skipped without …``."""

    NOTHING = ""
    CLUSTER = "a cluster"
    SCHEDULERS = "a cluster or a KubeSchedulerConfiguration"
    BOTH_CONFIGURATIONS = "a KubeSchedulerConfiguration and the HomeportConfiguration of its extender"


class LintRule(Struct, frozen=True):
    """Rule with its stable ``id``. ``summary``: the mistake in a few words."""

    id: str
    summary: str
    need: Need = Need.NOTHING


SELECTOR_MISMATCH: Final = LintRule(
    "selector-mismatch", "the selector of a constraint does not match the pods that have the constraint"
)
DUPLICATE_KEY: Final = LintRule("duplicate-key", "two constraints have the same topology key")
MATCH_LABEL_KEYS: Final = LintRule(
    "match-label-keys", "a hard constraint with maxSkew 1 also counts the pods of the previous revision"
)
UNKNOWN_POLICY: Final = LintRule("unknown-policy", "the home policy of an annotation does not exist")
UNKNOWN_FALLBACK: Final = LintRule(
    "unknown-fallback", "the annotation of a pod that keeps its constraints hard has an unknown value"
)
UNKNOWN_KEY: Final = LintRule("unknown-key", "no node has the topology key of a constraint", Need.CLUSTER)
MIN_DOMAINS: Final = LintRule("min-domains", "minDomains is larger than the number of usable domains", Need.CLUSTER)
TAINTED_DOMAINS: Final = LintRule(
    "tainted-domains", "the pods do not tolerate the taints of some domains, so the minimum stays 0", Need.CLUSTER
)
ZONE_AND_HOST: Final = LintRule(
    "zone-and-host", "two hard constraints together allow fewer pods than there are replicas", Need.CLUSTER
)
VOLUME_ZONE: Final = LintRule(
    "volume-zone", "volumes bind more pods to a domain than a hard constraint allows there", Need.CLUSTER
)
MISSING_MIN_DOMAINS: Final = LintRule(
    "missing-min-domains", "a hard constraint does not count declared domains that have no node yet"
)
UNKNOWN_SCHEDULER: Final = LintRule("unknown-scheduler", "no known scheduler has the schedulerName", Need.SCHEDULERS)
SHORT_GRACE: Final = LintRule(
    "short-grace", "the grace period of homes ends before the pods of a failed node are evicted"
)
SPREAD_TWICE: Final = LintRule(
    "spread-twice", "both the scheduler and Homeport run PodTopologySpread", Need.BOTH_CONFIGURATIONS
)
SPREAD_NOWHERE: Final = LintRule(
    "spread-nowhere", "neither the scheduler nor Homeport runs PodTopologySpread", Need.BOTH_CONFIGURATIONS
)
COSTS_UNWRITTEN: Final = LintRule(
    "costs-unwritten",
    "scaleDown: Spread has no effect, because Homeport does not bind the pods",
    Need.BOTH_CONFIGURATIONS,
)

RULES: Final = (
    SELECTOR_MISMATCH,
    DUPLICATE_KEY,
    MATCH_LABEL_KEYS,
    UNKNOWN_POLICY,
    UNKNOWN_FALLBACK,
    UNKNOWN_KEY,
    MIN_DOMAINS,
    TAINTED_DOMAINS,
    ZONE_AND_HOST,
    VOLUME_ZONE,
    MISSING_MIN_DOMAINS,
    UNKNOWN_SCHEDULER,
    SHORT_GRACE,
    SPREAD_TWICE,
    SPREAD_NOWHERE,
    COSTS_UNWRITTEN,
)
"""All rules, in the order of the documentation."""


class Mistaken(Struct, frozen=True):
    """Mistake that a rule finds in an object, before the object's file and line are added.

    ``place``: path of the field within the object.
    """

    rule: LintRule
    severity: Severity
    place: tuple[str | int, ...]
    message: str
    fix: str


class LintFinding(Struct, frozen=True):
    """Mistake in one object.

    ``file``: empty for an object of a live cluster. ``line``: counted from 1; 0 if unknown. ``namespace`` is empty if
    the manifest has none. ``field``: path of the field in Kubernetes' notation.
    """

    id: str
    severity: Severity
    file: str
    line: int
    kind: str
    namespace: str
    name: str
    field: str
    message: str
    fix: str

    @property
    def object_name(self) -> str:
        """Kind, namespace and name, for example ``Deployment shop/web``."""
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"
