"""In-tree filters for one node at a time, for messages of plugins and for the sampling guard.

Only filters that read nothing but the node and its pods are run. Other filters need further objects, which the snapshot
lacks if the profile does not have these filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle, NodeVerdict
from app.framework.node_info import NodeInfo
from app.framework.objects import Objects
from app.framework.parts import Part, extras_of
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.spec import PluginSpec, Reads
from app.framework.status import Status
from app.kube.core_decoding import CoreV1, core_v1
from app.kube.core_v1 import Pod
from app.kube.kinds import DEVICE_CLASSES, Kind
from app.kube.resource_v1 import DeviceClass
from app.runtime.guard import Guard, PluginError
from app.runtime.profiles import ResolvedProfile
from app.runtime.registry import Registry, kube_scheduler_defaults
from app.runtime.slots import declares

_ALONE: Final = (Reads.NODE, Reads.PODS_ON_NODE)
"""Values of ``Reads`` that plugins declare if their verdict depends on a single node."""


class _AnyDeviceClass:
    """Partial ``Objects`` in which a DeviceClass backs each resource that the pod requests.

    The real DeviceClasses are unknown here. If one backs a resource, DynamicResources decides about nodes that lack the
    resource. So from release 1.36 on, the filters of this module do not reject a node because it has none of a
    requested resource.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._version = 0

    def set_resources(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._version += 1

    def version(self, kind: Kind[Any], namespace: str | None = None) -> int:
        return self._version

    def every(self, kind: Kind[Any]) -> Iterator[DeviceClass]:
        return (DeviceClass(name, name, extended_resource=name) for name in self._names)


class OneNodeFilters:
    """In-tree filters for one node. A filter whose plugin the profile enables has the profile's arguments, any other
    filter the default arguments.

    ``core``: decoder of pods and nodes with the parts that these filters need. ``unasked``: in-tree filters that run
    neither here nor in the profile.
    """

    def __init__(self, profile: ResolvedProfile, registry: Registry, handle: Handle, guard: Guard) -> None:
        self._guard = guard
        self._classes = _AnyDeviceClass()
        own_handle = replace(
            handle,
            objects=cast("Objects", self._classes),
            profile=replace(handle.profile, release=profile.release),
        )
        self._plugins: dict[str, Any] = {}
        runs = {it.name for it in profile.at("filter")}
        unasked: list[str] = []
        parts: set[Part] = set()
        for name in kube_scheduler_defaults(profile.release):
            spec = registry.get(name)
            if spec is None:
                unasked.append(name)
            elif declares(spec.plugin, FilterPlugin):
                args = profile.args[name] if name in profile.args else spec.args()
                if _stands_alone(spec, args):
                    self._plugins[name] = spec.build(args, own_handle)
                    parts.update(spec.parts or ())
                elif name not in runs:
                    unasked.append(name)
        self.unasked = tuple(unasked)
        self.core: CoreV1 = core_v1(extras_of(parts))

    @property
    def nothing(self) -> NodeVerdict:
        """Verdict for a pod or node that could not be read: no filter has run."""
        return NodeVerdict((), (*self._plugins, *self.unasked))

    def verdict(self, pod: Pod, node: NodeInfo) -> NodeVerdict:
        """Return the verdict on a pod and a node, both decoded by ``core``. ``node`` must have all pods that run on
        it.
        """
        self._classes.set_resources(tuple(pod.spec.resources.requests))
        reasons: dict[str, None] = {}
        failed: list[str] = []
        for name, plugin in self._plugins.items():
            try:
                status = self._guard.call(name, "Filter", _status_of, plugin, pod, node)
            except PluginError:  # the guard has logged it
                failed.append(name)
                continue
            if status.is_rejected:
                reasons.update(dict.fromkeys(status.reasons))
            elif not (status.is_success or status.is_skip):
                failed.append(name)
        return NodeVerdict(tuple(reasons), (*failed, *self.unasked))


def _stands_alone(spec: PluginSpec[Any], args: Any) -> bool:
    """Return True if a verdict of the plugin depends only on the node, the pods on it, and DeviceClasses."""
    return spec.reads in _ALONE and set(spec.needs(args).kinds) <= {DEVICE_CLASSES}


def _status_of(plugin: Any, pod: Pod, node: NodeInfo) -> Status:
    state = CycleState()
    if isinstance(plugin, PreFilterPlugin):
        status, _ = plugin.pre_filter(state, pod)
        if not status.is_success:
            return status
    filtered: Status = plugin.filter(state, pod, node)
    return filtered
