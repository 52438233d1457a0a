"""Dry runs for plugins: remove pods from a node, add pods to it, and run the profile's filters on the result."""

from __future__ import annotations

from app.framework.cycle_state import CycleState
from app.framework.handle import DryRun
from app.framework.node_info import NodeInfo
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.filters import Filters
from app.runtime.guard import PluginError


class FilterDryRun:
    """Implements ``framework.DryRun`` with the filters of one profile.

    Plugins that read the pods of a node see the change in ``node``. The state that plugins prepared in PreFilter is
    updated through their ``add_pod`` and ``remove_pod``.
    """

    __slots__ = ("_filters", "_pod", "_state", "node")

    def __init__(self, filters: Filters, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        self._filters = filters
        self._state = state.clone()
        self._pod = pod
        self.node = node.with_pods(())

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod from the simulated node. Raises ``PluginError``, or ``KeyError`` if the pod is not on
        the node.
        """
        self.node.drop(pod.uid)
        self._filters.remove_pods(self._state, self._pod, (pod,), self.node)

    def add_pod(self, pod: Pod) -> None:
        """Add a pod to the simulated node. Raises ``PluginError``."""
        self.node.put(pod)
        self._filters.add_pods(self._state, self._pod, (pod,), self.node)

    def filter(self) -> Status:
        """Return the status of the first filter that rejects the simulated node, or Success. A fault of a plugin
        becomes an Error. Raises ``Unprepared``.
        """
        try:
            return self._filters.filter_node(self._state, self._pod, self.node)
        except PluginError as fault:
            return fault.status


class DryRuns:
    """Factory of dry runs with a profile's filters. ``filters`` is set after the plugins are created, because the
    filters consist of these plugins. Each plugin gets this factory in its handle when it is created.
    """

    __slots__ = ("filters",)

    def __init__(self) -> None:
        self.filters: Filters | None = None

    def __call__(self, state: CycleState, pod: Pod, node: NodeInfo) -> DryRun:
        """Start a dry run. Raises ``LookupError`` while the plugins of the profile are being created."""
        if self.filters is None:
            raise LookupError("the profile's filters cannot be run before all of its plugins are created")
        return FilterDryRun(self.filters, state, pod, node)
