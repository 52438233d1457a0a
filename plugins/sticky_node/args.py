"""``StickyNodeArgs``: whose pods have a home."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.framework.interface import PluginArgs


class KindName(BaseModel):
    """A kind by its ``apiVersion`` and ``kind``."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    api_version: Annotated[str, Field(min_length=1)]
    kind: Annotated[str, Field(min_length=1)]

    @property
    def pair(self) -> tuple[str, str]:
        return (self.api_version, self.kind)


class OwnerRule(KindName):
    """An owner that keeps the home of its pods.

    ``through`` are the controllers between pod and owner, nearest the pod first. ``perOrdinal``: each of the owner's
    pods has a home of its own, told apart by the number its name ends in.
    """

    through: tuple[KindName, ...] = ()
    per_ordinal: bool = False


KUBEVIRT: Final = OwnerRule(
    api_version="kubevirt.io/v1",
    kind="VirtualMachine",
    through=(KindName(api_version="kubevirt.io/v1", kind="VirtualMachineInstance"),),
)


class StickyNodeArgs(PluginArgs):
    """``owners`` replaces the default, which is KubeVirt's VirtualMachine."""

    owners: tuple[OwnerRule, ...] = (KUBEVIRT,)

    @model_validator(mode="after")
    def _each_pod_owner_once(self) -> Self:
        seen = set()
        for rule in self.owners:
            nearest = (rule.through[0] if rule.through else rule).pair
            if nearest in seen:
                raise ValueError(f"owners: more than one rule for pods of {nearest[0]} {nearest[1]}")
            seen.add(nearest)
        return self
