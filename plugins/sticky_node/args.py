"""``StickyNodeArgs``: whose pods have a home, and how strict it is."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.framework.spec import PluginArgs
from app.homes.protocol import Policy
from app.kube.durations import Seconds as Duration
from app.kube.selectors import InvalidSelector, LabelSelectorObject, Selector

SHORTEST_GRACE: Final = 350.0
"""Seconds from the last heartbeat of a node that fails to the first moment at which its pods can be evicted: 50 s until
it counts as unreachable, 300 s of toleration (Kubernetes 1.32 and later). A shorter grace is over when it begins.
"""

Seconds = Annotated[Duration, Field(ge=0.0, allow_inf_nan=False)]


def _unswitched(value: Any) -> Any:
    """YAML reads a bare ``off`` as a truth value."""
    return Policy.OFF if value is False else value


PolicyName = Annotated[Policy, BeforeValidator(_unswitched)]


def _selector(value: dict[str, Any]) -> Selector:
    return msgspec.convert(value, LabelSelectorObject).parse()


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(value.keys() - {"matchLabels", "matchExpressions"})
    if unknown:
        raise ValueError(f"{unknown[0]}: no such field of a label selector")
    try:
        _selector(value)
    except (InvalidSelector, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from None
    return value


LabelSelector = Annotated[dict[str, Any], AfterValidator(_checked)]
CLAIM: Final = ("v1", "PersistentVolumeClaim")
STATEFUL_SET: Final = ("apps/v1", "StatefulSet")
LEADER_WORKER_SET: Final = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
_NEVER_OWNERS: Final = frozenset({("v1", "Pod"), ("v1", "Node")})


class _ArgsModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class KindName(_ArgsModel):
    """A kind by its ``apiVersion`` and ``kind``."""

    api_version: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, Field(min_length=1)]

    @property
    def pair(self) -> tuple[str, str]:
        return (self.api_version, self.kind)


def _words(pair: tuple[str, str]) -> str:
    return " ".join(pair)


def _repeated(chain: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    return next(it for it in chain if chain.count(it) > 1)


class OwnerRule(KindName):
    """An owner that keeps the home of its pods.

    ``through`` are the controllers between pod and owner, nearest the pod first. ``perOrdinal``: each of the owner's
    pods has a home of its own, told apart by its index or the number its name ends in. ``policy``: instead of the
    plugin's. ``remember``: whose home it is, the name's or the UID's; left out, the name's for KubeVirt's kinds and the
    ordinals of a StatefulSet.

    A PersistentVolumeClaim keeps the home of the pods that use it: no controllers lead there, and ``selector`` says by
    their labels which claims do. Of other kinds there is none.
    """

    through: tuple[KindName, ...] = ()
    per_ordinal: bool = False
    policy: PolicyName | None = None
    remember: Literal["name", "uid"] | None = None
    selector: LabelSelector | None = None

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if self.is_claim:
            return self._of_a_claim()
        if self.selector is not None:
            raise ValueError(f"selector: says which {_words(CLAIM)} keep homes, and nothing of {_words(self.pair)}")
        for pair in self.chain:
            if pair in _NEVER_OWNERS:
                raise ValueError(f"{_words(pair)} neither keeps homes nor leads to what does")
        if len(set(self.chain)) < len(self.chain):
            raise ValueError(f"through: {_words(_repeated(self.chain))} is on the way twice")
        if self.pair == LEADER_WORKER_SET and self.chain[:-1] != (STATEFUL_SET,):
            raise ValueError(f"through: pods of {_words(self.pair)} belong to {_words(STATEFUL_SET)}, and to it alone")
        return self

    def _of_a_claim(self) -> Self:
        if self.through or self.per_ordinal:
            word = "through" if self.through else "perOrdinal"
            raise ValueError(f"{word}: the pods of a {_words(CLAIM)} are those that use it, and share one home")
        if self.selector is None:
            raise ValueError(f"selector: must say which {_words(CLAIM)} keep homes; {{}} are all")
        return self

    @property
    def is_claim(self) -> bool:
        """Return whether pods have their home from a volume of theirs, not from their controllers."""
        return self.pair == CLAIM

    @property
    def claims(self) -> Selector | None:
        """Which claims keep homes; ``None`` where other objects do."""
        return None if self.selector is None else _selector(self.selector)

    @property
    def chain(self) -> tuple[tuple[str, str], ...]:
        """Every kind on the way, from the pod's controller to the object that keeps the home."""
        return tuple(it.pair for it in (*self.through, self))

    @property
    def by_name(self) -> bool:
        """Return whether an owner made anew under the name has the home of the one before."""
        if self.remember is not None:
            return self.remember == "name"
        is_set = self.pair == STATEFUL_SET and self.per_ordinal
        return is_set or self.api_version.startswith("kubevirt.io/")


class NamespaceRule(_ArgsModel):
    """A policy for the namespaces that ``namespaceSelector`` matches; of several, the first that matches counts."""

    namespace_selector: LabelSelector
    policy: PolicyName
    grace_period: Seconds | None = None

    @property
    def selector(self) -> Selector:
        return _selector(self.namespace_selector)


class MaintenanceMarker(_ArgsModel):
    """What says that a node takes no pods for a while: one of a taint, an annotation or a label, by its key.

    ``value``: only this one; for a taint too. Left out: any.
    """

    taint: str = ""
    annotation: str = ""
    label: str = ""
    value: str | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if sum(map(bool, (self.taint, self.annotation, self.label))) != 1:
            raise ValueError("must name one of taint, annotation and label")
        return self


MAINTENANCE: Final = (
    MaintenanceMarker(taint="medik8s.io/drain"),
    MaintenanceMarker(taint="kubevirt.io/drain"),
    MaintenanceMarker(annotation="weave.works/kured-reboot-in-progress"),
    MaintenanceMarker(annotation="machineconfiguration.openshift.io/state", value="Working"),
    MaintenanceMarker(annotation="harvesterhci.io/maintain-status"),
)
"""Medik8s' node maintenance, KubeVirt's drain taint, kured (``--annotate-nodes``), OpenShift's machine config operator,
Harvester.
"""

KUBEVIRT: Final = OwnerRule(
    api_version="kubevirt.io/v1",
    kind="VirtualMachine",
    through=(KindName(api_version="kubevirt.io/v1", kind="VirtualMachineInstance"),),
)


class StickyNodeArgs(PluginArgs):
    """``owners`` replaces the default, which is KubeVirt's VirtualMachine."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, alias_generator=to_camel, use_enum_values=False
    )

    owners: tuple[OwnerRule, ...] = (KUBEVIRT,)
    policy: PolicyName = Policy.GRACE
    grace_period: Seconds = 900.0
    namespaces: tuple[NamespaceRule, ...] = ()
    identity: Literal["name", "machine"] = "name"
    when_gone: Literal["wait", "release"] = "wait"
    failback: bool = False
    follow_migration: bool = True
    adopt: bool = True
    maintenance: tuple[MaintenanceMarker, ...] = MAINTENANCE

    @property
    def claims(self) -> Selector | None:
        """Which PersistentVolumeClaims keep homes; ``None`` where no rule speaks of them."""
        return next((it.claims for it in self.owners if it.is_claim), None)

    @model_validator(mode="after")
    def _each_chain_once(self) -> Self:
        seen = set()
        for rule in self.owners:
            if rule.chain in seen:
                raise ValueError(f"owners: more than one rule for pods of {' of '.join(map(_words, rule.chain))}")
            seen.add(rule.chain)
        return self

    @model_validator(mode="after")
    def _each_keeper_alike(self) -> Self:
        """A home is looked after where it is written, whatever pods it is of: by what its kind says."""
        first: dict[tuple[str, str], OwnerRule] = {}
        for rule in self.owners:
            other = first.setdefault(rule.pair, rule)
            for word, is_same in (
                ("policy", rule.policy == other.policy),
                ("perOrdinal", rule.per_ordinal == other.per_ordinal),
                ("remember", rule.by_name == other.by_name),
            ):
                if not is_same:
                    raise ValueError(f"owners: rules for homes on {_words(rule.pair)} differ in {word}")
        return self
