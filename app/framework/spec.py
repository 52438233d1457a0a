"""Declaration of a plugin: its name, its arguments, and the data that it reads and writes."""

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
    """Inputs of a plugin's verdicts and raw scores, besides its arguments and objects of its declared kinds.

    A plugin that does not read the cluster sees only the parts of the pod that its ``PluginSpec`` declares. The default
    parts are namespace, labels, spec, annotations and owner.
    """

    NODE = "node"
    """The pod and the Node object."""

    PODS_ON_NODE = "pods on node"
    """The pod, the Node object, and the pods on that node. More pods on the node must never turn a rejection into
    Success.
    """

    CLUSTER = "cluster"
    """The whole cluster, and the whole pod, including its name and UID."""


class PluginArgs(BaseModel):
    """Base class of plugin arguments (``<PluginName>Args``). Fields are in camelCase like in
    KubeSchedulerConfiguration; unknown fields are rejected.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    apiVersion: str | None = None  # noqa: N815  # args objects in a KubeSchedulerConfiguration can have both
    kind: str | None = None


Args = TypeVar("Args", bound=PluginArgs)


class Writes(Struct, frozen=True):
    """Writes of the plugin to objects of ``kind`` through ``Handle.writer``. ``what``: the writes, described for
    users.

    ``whole``: True if the plugin also creates and deletes objects; False if it only annotates or changes them.
    """

    kind: Kind[Any]
    what: str
    whole: bool = False


class Needs(Struct, frozen=True):
    """Access to the cluster's objects that a plugin with given arguments needs.

    ``kinds``: kinds that it reads besides pods and nodes. ``writes``: kinds that it writes and can also read.
    Homeport's RBAC permissions are derived from ``kinds`` and ``writes``. ``parts``: parts that it reads besides
    ``PluginSpec.parts``, for plugins that read the cluster. ``node_annotations``: keys of the node annotations that it
    reads; others are not decoded.
    """

    kinds: tuple[Kind[Any], ...] = ()
    writes: tuple[Writes, ...] = ()
    parts: Collection[Part] = ()
    node_annotations: Collection[str] = ()


def _nothing(_args: Any) -> Needs:
    return Needs()


class PluginSpec(Generic[Args]):
    """Plugin that a profile can name, created by ``plugin(args, handle)``.

    ``reads`` and ``parts`` declare the inputs of its verdicts and scores. The plugin cannot see other parts of the pod
    unless it reads the cluster. Some parts are decoded only if a plugin declares them. ``needs`` is called with the
    arguments and returns the further access that the plugin needs. ``variant`` returns the class for given arguments,
    if options add extension points; the class must inherit from ``plugin``.
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
        variant: Callable[[Args], Any] | None = None,
    ) -> None:
        self.name = name
        self.args = args
        self.plugin: Any = plugin
        self.reads = reads
        self.parts = None if parts is None else frozenset(parts)
        self.needs = needs
        self._variant = variant

    def for_args(self, args: Args) -> PluginSpec[Args]:
        """Return this declaration with the class that ``variant`` returns for the arguments."""
        plugin = self.plugin if self._variant is None else self._variant(args)
        if plugin is self.plugin:
            return self
        return PluginSpec(self.name, self.args, plugin, reads=self.reads, parts=self.parts, needs=self.needs)

    def build(self, args: PluginArgs, handle: Handle) -> Plugin:
        """Create the plugin for one profile."""
        built: Plugin = self.plugin(args, handle)
        return built

    def __repr__(self) -> str:
        return f"PluginSpec({self.name!r})"
