"""Arguments of NodeAffinity, with exactly kube-scheduler's validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.framework.spec import PluginArgs
from app.kube.field_errors import aggregate
from app.kube.node_affinity import NodeMatcher, Preferences, RequiredNodeAffinity
from app.kube.node_selectors import PreferredTermObject, RequirementObject, TermObject, preferred

_REQUIRED: Final = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_PREFERRED: Final = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"

_Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class _AffinityModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class NodeSelectorRequirementArgs(_AffinityModel):
    """Requirement on a node label, or on the node field ``metadata.name``."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None

    def wire(self) -> RequirementObject:
        return RequirementObject(self.key, self.operator, None if self.values is None else list(self.values))


class Term(_AffinityModel):
    """Requirements that must all be met. A term without requirements matches no node."""

    match_expressions: tuple[NodeSelectorRequirementArgs, ...] | None = None
    match_fields: tuple[NodeSelectorRequirementArgs, ...] | None = None

    def wire(self) -> TermObject:
        return TermObject(
            [it.wire() for it in self.match_expressions or ()], [it.wire() for it in self.match_fields or ()]
        )


class PreferredTerm(_AffinityModel):
    """Term with a weight that is added to the score of each matching node. Weight 0 disables the term."""

    weight: _Int32 = 0
    preference: Term = Term()

    def wire(self) -> PreferredTermObject:
        return PreferredTermObject(self.weight, self.preference.wire())


class Required(_AffinityModel):
    """List of terms. At least one of them must match."""

    node_selector_terms: tuple[Term, ...] | None = None


class AddedAffinity(_AffinityModel):
    """Node affinity that a profile adds to each pod, in the form of the pod's ``spec.affinity.nodeAffinity``."""

    required_during_scheduling_ignored_during_execution: Required | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] | None = None

    def required_terms(self) -> list[TermObject] | None:
        required = self.required_during_scheduling_ignored_during_execution
        return None if required is None else [it.wire() for it in required.node_selector_terms or ()]

    def preferred_terms(self) -> list[PreferredTermObject]:
        return [it.wire() for it in self.preferred_during_scheduling_ignored_during_execution or ()]

    def flaws(self) -> Iterator[str]:
        """Yield the validation errors of the terms, each with its field path."""
        for index, term in enumerate(self.required_terms() or ()):
            yield from term.flaws(f"{_REQUIRED}[{index}]")
        if invalid := preferred(self.preferred_terms(), _PREFERRED).invalid:
            yield invalid


class NodeAffinityArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``: ``addedAffinity`` applies to every pod of the profile."""

    added_affinity: AddedAffinity | None = Field(default=None, alias="addedAffinity")

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        flaws = list(self.added_affinity.flaws()) if self.added_affinity is not None else []
        if flaws:
            raise ValueError(aggregate(flaws))
        return self

    def required(self) -> NodeMatcher | None:
        """Return the matcher of the added required terms, which every node must pass; ``None`` without such a list.

        With an empty list, no node matches.
        """
        terms = None if self.added_affinity is None else self.added_affinity.required_terms()
        return None if terms is None else RequiredNodeAffinity((), tuple(it.slim() for it in terms)).compiled()

    def preferences(self) -> Preferences | None:
        """Return the added preferred terms, compiled; ``None`` if there are none."""
        terms = [] if self.added_affinity is None else self.added_affinity.preferred_terms()
        return preferred(terms).compiled() if terms else None
