"""The plugins that come with Homeport, in the order the catalogue (``README.md`` beside this) lists them.

One small module or package per plugin. A plugin sees ``app.framework`` and the object models of ``app.kube``, and
nothing else: what it needs of the world comes in through its ``Handle``.

Not here: I/O, clocks, threads, and anything one plugin would have to know of another.
"""

from __future__ import annotations

from typing import Any, Final

from app.framework.interface import PluginSpec
from plugins import (
    default_binder,
    default_preemption,
    node_name,
    node_unschedulable,
    pod_topology_spread,
    priority_sort,
    selector_spread,
    sticky_node,
    taint_toleration,
)

IN_TREE: Final[tuple[PluginSpec[Any], ...]] = (
    priority_sort.SPEC,
    pod_topology_spread.SPEC,
    sticky_node.SPEC,
    default_binder.SPEC,
    node_unschedulable.SPEC,
    node_name.SPEC,
    taint_toleration.SPEC,
    default_preemption.SPEC,
    selector_spread.SPEC,
)

DEFAULT_WEIGHTS: Final = {"PrioritySort": 1, "PodTopologySpread": 2, "StickyNode": 1, "DefaultBinder": 1}
"""What a profile enables at ``multiPoint`` unless it says otherwise, with its weights.

The other plugins run where a profile names them: kube-scheduler has them, and runs them before it asks Homeport.
"""
