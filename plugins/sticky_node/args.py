"""``StickyNodeArgs``: the owners whose pods have homes, and how strict homes are."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.framework.spec import PluginArgs
from app.homes.protocol import Policy
from app.kube.durations import Seconds as Duration
from app.kube.selectors import InvalidSelector, LabelSelectorObject, Selector

Seconds = Annotated[Duration, Field(ge=0.0, allow_inf_nan=False)]


def _unswitched(value: Any) -> Any:
    """Convert ``False`` into the policy ``off``, because YAML reads a bare ``off`` as false."""
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
    """Kind of object that keeps the homes of its pods.

    ``through``: controllers between the pod and the owner, nearest to the pod first. ``perOrdinal``: each pod has its
    own home, identified by its index or by the number at the end of its name. ``policy``: overrides the plugin's
    policy. ``remember``: ``name`` if an owner recreated under the same name keeps the home, ``uid`` if it does not. The
    default is ``name`` for kinds of the API group ``kubevirt.io`` and for a StatefulSet with ``perOrdinal``, else
    ``uid``.

    A PersistentVolumeClaim keeps the home of the pods that use it. Its rule must have a ``selector``, which selects
    claims by their labels, and neither ``through`` nor ``perOrdinal``. Rules for other kinds must have no ``selector``.
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
            raise ValueError(
                f"selector: only a rule for {_words(CLAIM)} can have one, not a rule for {_words(self.pair)}"
            )
        for pair in self.chain:
            if pair in _NEVER_OWNERS:
                raise ValueError(f"{_words(pair)} cannot keep homes, and cannot be in through")
        if len(set(self.chain)) < len(self.chain):
            raise ValueError(f"through: {_words(_repeated(self.chain))} occurs twice")
        if self.pair == LEADER_WORKER_SET and self.chain[:-1] != (STATEFUL_SET,):
            raise ValueError(
                f"through: must be {_words(STATEFUL_SET)} alone, which owns the pods of {_words(self.pair)}"
            )
        return self

    def _of_a_claim(self) -> Self:
        if self.through or self.per_ordinal:
            word = "through" if self.through else "perOrdinal"
            raise ValueError(f"{word}: not for {_words(CLAIM)}, because all pods that use a claim share one home")
        if self.selector is None:
            raise ValueError(f"selector: must select the {_words(CLAIM)} that keep homes; {{}} selects all")
        return self

    @property
    def is_claim(self) -> bool:
        """True if the owner is a PersistentVolumeClaim that the pods use, instead of a controller of the pods."""
        return self.pair == CLAIM

    @property
    def claims(self) -> Selector | None:
        """Selector of the PersistentVolumeClaims that keep homes; ``None`` for a rule for other kinds."""
        return None if self.selector is None else _selector(self.selector)

    @property
    def chain(self) -> tuple[tuple[str, str], ...]:
        """Every kind from the pod's controller to the object that keeps the home."""
        return tuple(it.pair for it in (*self.through, self))

    @property
    def by_name(self) -> bool:
        """True if an owner recreated under the same name inherits the home."""
        if self.remember is not None:
            return self.remember == "name"
        is_set = self.pair == STATEFUL_SET and self.per_ordinal
        return is_set or self.api_version.startswith("kubevirt.io/")


class NamespaceRule(_ArgsModel):
    """Policy for the namespaces that match ``namespaceSelector``. The first matching rule applies."""

    namespace_selector: LabelSelector
    policy: PolicyName
    grace_period: Seconds | None = None

    @property
    def selector(self) -> Selector:
        return _selector(self.namespace_selector)


class MaintenanceMarker(_ArgsModel):
    """Marker of a node in maintenance: exactly one of a taint, an annotation or a label, by its key.

    ``value``: required value; any value matches if it is omitted.
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
"""Markers of Medik8s' node maintenance, KubeVirt's drain taint, kured (``--annotate-nodes``), OpenShift's machine
config operator, and Harvester.
"""

KUBEVIRT: Final = OwnerRule(
    api_version="kubevirt.io/v1",
    kind="VirtualMachine",
    through=(KindName(api_version="kubevirt.io/v1", kind="VirtualMachineInstance"),),
)


class StickyNodeArgs(PluginArgs):
    """Arguments of the plugin, documented in ``docs/plugins/catalogue/sticky-node.md``. ``owners`` replaces the
    default, which is KubeVirt's VirtualMachine. ``grace_period`` is in seconds.
    """

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
        """Selector of the PersistentVolumeClaims that keep homes; ``None`` without a rule for them."""
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
        """Require that all rules for one kind have equal ``policy``, ``per_ordinal`` and ``by_name``.

        Otherwise a background task could not choose: it knows only an owner's kind, not the rule that found the owner.
        """
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
