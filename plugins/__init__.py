"""Plugins shipped with Homeport, in the order of the catalogue (``README.md`` in this directory).

``sticky_node`` is Homeport's own plugin; those in ``in_tree`` are equivalents of kube-scheduler's. Each plugin is one
module or package. Of ``app``, plugins import only ``app.framework`` and modules of ``app.kube`` without I/O, and
``sticky_node`` also ``app.homes.protocol``. A ``Handle`` gives them access to everything else.

Plugins do no I/O of their own, start no threads and do not import each other.
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
"""Plugins, with their weights, that a profile enables at ``multiPoint`` by default (preset ``delegated``).

The preset ``complete`` enables kube-scheduler's default plugins and StickyNode. The preset ``delegated`` leaves most of
them out, because kube-scheduler runs its own equivalents before it calls Homeport. A plugin of neither preset runs only
in profiles that enable it.
"""
