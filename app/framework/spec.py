"""How a plugin is declared: its name, its arguments, and what it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, Generic, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from app.framework.handle import Handle
from app.framework.parts import Part
from app.framework.points import Plugin
from app.kube.kinds import Kind


class Reads(Enum):
    """What the verdicts and raw scores of a plugin rest on, beside its arguments and objects of its declared kinds.

    Of the pod it reads the parts that its ``PluginSpec`` names, else namespace, labels, spec, annotations and owner.
    """

    NODE = "node"
    """The pod and the Node object."""

    PODS_ON_NODE = "pods on node"
    """The pods on that node too; more of them never turn a rejection into a Success."""

    CLUSTER = "cluster"
    """Anything, the pod's name and UID included."""


class PluginArgs(BaseModel):
    """Base of every ``<PluginName>Args``: camelCase as in KubeSchedulerConfiguration, unknown fields refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    apiVersion: str | None = None  # noqa: N815  # a KubeSchedulerConfiguration carries both on every args object
    kind: str | None = None


Args = TypeVar("Args", bound=PluginArgs)


class Writes(Struct, frozen=True):
    """Objects of ``kind`` are written through ``Handle.writer``; ``what`` is written there, for a person.

    ``whole``: they are also made and deleted; without it only annotated, or changed.
    """

    kind: Kind[Any]
    what: str
    whole: bool = False


class Needs(Struct, frozen=True):
    """What a plugin needs with some arguments.

    ``kinds``: those that it reads beside pods and nodes. ``writes``: those that it writes, which it may read too; what
    Homeport must be allowed follows from both. ``parts``: what it reads beside ``PluginSpec.parts``; for plugins that
    read the cluster. ``node_annotations``: keys of the annotations of nodes that it reads, others are not decoded.
    """

    kinds: tuple[Kind[Any], ...] = ()
    writes: tuple[Writes, ...] = ()
    parts: Collection[Part] = ()
    node_annotations: Collection[str] = ()


def _nothing(_args: Any) -> Needs:
    return Needs()


class PluginSpec(Generic[Args]):
    """How a plugin is found, configured and built: ``plugin(args, handle)``.

    ``reads`` and ``parts`` say what its verdicts and scores rest on: it sees no other parts of the pod, unless it reads
    the cluster. Some parts are decoded only if a plugin names them. ``needs`` gives the rest, from its arguments.
    """

    def __init__(
        self,
        name: str,
        args: type[Args],
        plugin: Callable[[Args, Handle], Plugin],
        *,
        reads: Reads = Reads.CLUSTER,
        parts: Collection[Part] | None = None,
        needs: Callable[[Args], Needs] = _nothing,
    ) -> None:
        self.name = name
        self.args = args
        self.plugin: Any = plugin
        self.reads = reads
        self.parts = None if parts is None else frozenset(parts)
        self.needs = needs

    def build(self, args: PluginArgs, handle: Handle) -> Plugin:
        """One plugin of one profile."""
        built: Plugin = self.plugin(args, handle)
        return built

    def __repr__(self) -> str:
        return f"PluginSpec({self.name!r})"
