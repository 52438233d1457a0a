"""The plugins that come with Homeport, in the order the catalogue (``README.md`` beside this) lists them.

``sticky_node`` is Homeport's own; those in ``in_tree`` mirror kube-scheduler's. One module or package per plugin. It
sees ``app.framework`` and the object models of ``app.kube``, and nothing else: what it needs of the world comes in
through its ``Handle``.

Not here: I/O, clocks, threads, and anything one plugin would have to know of another.
"""

from __future__ import annotations

from typing import Any, Final

from app.framework.spec import PluginSpec
from plugins import sticky_node
from plugins.in_tree import (
    default_binder,
    default_preemption,
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    priority_sort,
    scheduling_gates,
    selector_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)

SHIPPED: Final[tuple[PluginSpec[Any], ...]] = (
    priority_sort.SPEC,
    pod_topology_spread.SPEC,
    sticky_node.SPEC,
    default_binder.SPEC,
    scheduling_gates.SPEC,
    node_unschedulable.SPEC,
    node_name.SPEC,
    taint_toleration.SPEC,
    node_affinity.SPEC,
    node_ports.SPEC,
    node_resources_fit.SPEC,
    volume_restrictions.SPEC,
    node_volume_limits.SPEC,
    volume_binding.SPEC,
    volume_zone.SPEC,
    inter_pod_affinity.SPEC,
    dynamic_resources.SPEC,
    default_preemption.SPEC,
    node_resources_balanced_allocation.SPEC,
    image_locality.SPEC,
    node_declared_features.SPEC,
    selector_spread.SPEC,
)

DEFAULT_WEIGHTS: Final = {"PrioritySort": 1, "PodTopologySpread": 2, "StickyNode": 1, "DefaultBinder": 1}
"""What a profile enables at ``multiPoint`` unless it says otherwise, with its weights: the preset ``delegated``.

The other plugins run in the preset ``complete``, which is kube-scheduler's default profile and those of these that it
lacks, or where a profile names them: kube-scheduler has them, and runs them before it asks Homeport.
"""
