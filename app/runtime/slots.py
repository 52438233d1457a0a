"""Plugin at an extension point, with the optional methods that its class overrides, looked up once at start."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Self

from msgspec import Struct

from app.framework import points
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, FilterPlugin, PreFilterPlugin, ScorePlugin
from app.framework.spec import Reads
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.clock_reads import ClockReads
from app.runtime.views import DeclaredParts, NodeView

BASES: Final = tuple(
    it
    for it in vars(points).values()
    if isinstance(it, type) and getattr(it, "_is_protocol", False) and it.__name__.endswith("Plugin")
)
"""Bases in ``framework.points`` that a plugin can have: ``Plugin``, and the protocols that inherit from it."""


_OVERRIDES: Final[dict[tuple[object, object, str], bool]] = {}
"""Cached results of ``overrides``."""


def declares(plugin: object, base: type[Any]) -> bool:
    """Return True if a plugin class inherits from ``base``; False for a factory function."""
    return isinstance(plugin, type) and base in plugin.__mro__


def overrides(plugin: type[Any], base: type[Any], method: str) -> bool:
    """Return True if the class overrides a method for which ``base`` has a default."""
    key: tuple[object, object, str] = (plugin, base, method)
    result = _OVERRIDES.get(key)
    if result is None:
        own = declares(plugin, base) and getattr(plugin, method) is not getattr(base, method)
        result = _OVERRIDES[key] = own
    return result


@cache
def flaws(plugin: Any, reads: Reads) -> tuple[str, ...]:
    """Return the mistakes of a plugin class, one text each. Missing abstract methods are not reported, because Python
    raises an error for them when the plugin is created.
    """
    return tuple(_flaws(plugin, reads))


def _flaws(plugin: Any, reads: Reads) -> Iterator[str]:
    if not isinstance(plugin, type):
        yield "is not a class: PluginSpec.plugin must be a class that names its extension points as bases"
        return
    for base in BASES:
        methods = [name for name, it in vars(base).items() if callable(it) and not name.startswith("_")]
        for name in methods:
            if hasattr(plugin, name) and not any(declares(plugin, it) and hasattr(it, name) for it in BASES):
                yield f"has {name}, and does not name {base.__name__} as a base"
    if declares(plugin, ScorePlugin) and not any(overrides(plugin, ScorePlugin, it) for it in ("score", "score_nodes")):
        yield "names ScorePlugin as a base, and has neither score nor score_nodes"
    if len({overrides(plugin, PreFilterPlugin, it) for it in ("add_pod", "remove_pod")}) > 1:
        yield "has one of add_pod and remove_pod: a dry run needs both"
    if declares(plugin, ClusterFilterPlugin) and reads is not Reads.CLUSTER:
        yield f"names ClusterFilterPlugin as a base, and declares that it reads no more than Reads.{reads.name}"


def has_unknown_inputs(plugin: object, reads: Reads) -> bool:
    """Return True if a plugin filters nodes and does not declare its inputs. Its verdicts are then never cached, and
    no ``Recheck`` with this plugin is ``certain`` while other binds are in flight.
    """
    takes_part = declares(plugin, FilterPlugin) or declares(plugin, PreFilterPlugin)
    return takes_part and not declares(plugin, ClusterFilterPlugin) and reads is Reads.CLUSTER


class PluginSlot(Struct, frozen=True, eq=False):
    """Plugin at an extension point. ``weight`` is used only at score.

    ``parts``: parts of a pod that a deciding method sees, ``None`` for the whole pod. ``any_names``: value of
    ``takes_any_names`` if the plugin implements ``filter_nodes``, else False. ``filters_last``: True if the plugin
    implements ``filter_last``. ``depends_on``, ``signature`` and ``score_depends_on`` are methods that the plugin
    overrides, else ``None``. ``filter_certain`` is ``None`` unless the plugin is a ``ClusterFilterPlugin``.
    ``clock_reads``: counter of the plugin's clock reads if its verdicts are cached.
    """

    name: str
    plugin: Any
    weight: int = 1
    reads: Reads = Reads.CLUSTER
    parts: DeclaredParts | None = None
    kinds: tuple[Kind[Any], ...] = ()
    filters_in_batch: bool = False
    any_names: bool = False
    filters_last: bool = False
    scores_in_batch: bool = False
    normalizes: bool = False
    depends_on: Callable[..., bool] | None = None
    filter_certain: Callable[..., Any] | None = None
    signature: Callable[..., Any] | None = None
    score_depends_on: Callable[..., bool] | None = None
    clock_reads: ClockReads | None = None

    @classmethod
    def of(
        cls,
        name: str,
        plugin: Any,
        *,
        weight: int = 1,
        reads: Reads = Reads.CLUSTER,
        parts: frozenset[Part] | None = None,
        kinds: tuple[Kind[Any], ...] = (),
        clock_reads: ClockReads | None = None,
    ) -> PluginSlot:
        """Create a slot, and look up the methods that the plugin overrides. ``reads`` and ``parts``: as declared in its
        ``PluginSpec``. ``kinds``: kinds that it reads or writes, besides pods and nodes.
        """
        form = type(plugin)

        def own(base: type[Any], method: str) -> Any:
            return getattr(plugin, method) if overrides(form, base, method) else None

        batch = overrides(form, FilterPlugin, "filter_nodes")
        return cls(
            name,
            plugin,
            weight,
            reads,
            None if reads is Reads.CLUSTER else declared_parts(parts),
            kinds,
            filters_in_batch=batch,
            any_names=batch and bool(plugin.takes_any_names),
            filters_last=overrides(form, FilterPlugin, "filter_last"),
            scores_in_batch=overrides(form, ScorePlugin, "score_nodes"),
            normalizes=overrides(form, ScorePlugin, "normalize"),
            depends_on=own(ClusterFilterPlugin, "depends_on"),
            filter_certain=plugin.filter_certain if declares(form, ClusterFilterPlugin) else None,
            signature=own(ClusterFilterPlugin, "signature"),
            score_depends_on=own(ScorePlugin, "score_depends_on"),
            clock_reads=clock_reads,
        )

    @property
    def is_cached(self) -> bool:
        """True if verdicts and raw scores depend only on the node, its pods, and objects of ``kinds``.

        They are then cached, except raw scores of ``score_nodes``.
        """
        return self.reads is not Reads.CLUSTER


class ActiveFilters(Struct, frozen=True):
    """Filters that PreFilter did not skip (``every``), and groups of them.

    ``cached``: filters whose verdicts are cached. ``uncached``: all others. ``last``: filters that implement
    ``filter_last``. ``by_pods_on_node``: cached filters that read the pods of a node.
    """

    every: Sequence[PluginSlot]
    cached: Sequence[PluginSlot]
    uncached: Sequence[PluginSlot]
    last: Sequence[PluginSlot]
    by_pods_on_node: Sequence[PluginSlot]

    @classmethod
    def of(cls, filters: Iterable[PluginSlot], skipped: Container[str]) -> Self:
        every = [it for it in filters if it.name not in skipped]
        cached = [it for it in every if it.is_cached]
        uncached = [it for it in every if not it.is_cached]
        by_pods_on_node = [it for it in cached if it.reads is Reads.PODS_ON_NODE]
        return cls(every, cached, uncached, [it for it in every if it.filters_last], by_pods_on_node)


def pod_view(slot: PluginSlot, state: CycleState, pod: Pod) -> Pod:
    """Return the pod as the plugin's deciding methods see it: whole with ``Reads.CLUSTER``, else the declared parts."""
    parts = slot.parts
    if parts is None:
        return pod
    view = state.views.get(parts)
    if view is None:
        view = state.views[parts] = parts.view(pod)
    return view


def node_view(slot: PluginSlot, node: NodeInfo) -> NodeInfo:
    """Return the node as the plugin's deciding methods see it: without pods if it declares ``Reads.NODE``."""
    return NodeView(node) if slot.reads is Reads.NODE else node


def nodes_view(slot: PluginSlot, nodes: Candidates) -> Candidates:
    """Return the candidates as the plugin's deciding methods see them: without pods if it declares ``Reads.NODE``."""
    return nodes.seen_as(NodeView) if slot.reads is Reads.NODE else nodes


declared_parts: Final = cache(DeclaredParts)
"""Cached constructor, so that plugins with equal declarations share one object."""
