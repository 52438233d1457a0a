"""A picture with machines in it, and StickyNode on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.feeds.saved import MemoryWriter
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle, ProfileContext, Timing
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import extras_of
from app.framework.status import SUCCESS, Status
from app.kube.api_errors import ApiError
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import AnnotatedObject, Kind, owner_kind
from app.runtime.waiting import PodsAtPermit
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.home_state import PARTS, node_annotations
from plugins.sticky_node.plugin import SPEC, StickyNode
from tests.builders import JsonObject, NodeFields, PodFields, controller, encoded, node_object, pod_object
from tests.fakes import ManualClock, RecordingBinder, RecordingRecorder

KUBEVIRT: Final = "kubevirt.io/v1"
HOME: Final = "homeport.dev/home"
HOME_POD: Final = "homeport.dev/home-pod"
HOME_OWNER: Final = "homeport.dev/home-owner"
HOME_AFTER: Final = "homeport.dev/home-after"
HOME_REPLACES: Final = "homeport.dev/home-replaces"
NODES: Final = ("n1", "n2", "n3")
INSTANCE: Final = owner_kind(KUBEVIRT, "VirtualMachineInstance")
MACHINE: Final = owner_kind(KUBEVIRT, "VirtualMachine")
SET: Final = owner_kind("apps/v1", "StatefulSet")
LWS: Final = owner_kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
DATABASE: Final = owner_kind("example.com/v1", "Database")
CORE: Final = core_v1(extras_of(PARTS))
"""How pods are decoded beside this plugin."""


class UnwillingWriter(MemoryWriter):
    """Raises or does what it was told before a write, in turn."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.before: list[Exception | Callable[[], Exception | None]] = []
        self.unwritable: set[str] = set()
        self.written: list[tuple[str, Mapping[str, str | None]]] = []

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        if found.name in self.unwritable:
            raise OSError("forbidden") from ApiError(403, "Forbidden", "forbidden")
        if self.before:
            do = self.before.pop(0)
            failure = do if isinstance(do, Exception) else do()
            if failure is not None:
                raise failure
        await super().annotate(kind, found, annotations)
        self.written.append((found.name, annotations))


class Machines:
    """Three nodes and whatever owners a test adds. No machine is adopted unless the test says so."""

    def __init__(self, args: JsonObject | None = None, *, served: str = "default-scheduler") -> None:
        self._args = StickyNodeArgs.model_validate({"adopt": False, **(args or {})})
        parts = extras_of((*PARTS, *SPEC.needs(self._args).parts))
        self.cluster = Cluster(core_v1(parts, node_annotations(self._args)))
        self.writer = UnwillingWriter(self.cluster)
        self.events = RecordingRecorder()
        self.clock = ManualClock()
        self.wall_clock = ManualClock()
        self.handle = Handle(
            counts=self.cluster.counts,
            objects=self.cluster,
            writer=self.writer,
            binder=RecordingBinder(),
            waiting=PodsAtPermit(),
            nodes=Nodes(self.cluster),
            timing=Timing(self.clock, self.wall_clock),
            profile=ProfileContext(served.__eq__),
            event_recorder=self.events,
        )
        self._version = 0
        self.restart()
        for name in NODES:
            self.node(name)

    def node(self, name: str, **fields: Any) -> None:
        """A node comes or changes; ``metadata`` is added to its own."""
        metadata = fields.pop("metadata", {})
        found = node_object(name, **fields)
        found["metadata"] |= metadata
        self.cluster.upsert_node(self.cluster.core.decode_node(encoded(found)))

    async def repair(self) -> None:
        """What the plugin does in the background at once and then each interval."""
        await self.plugin._repair()

    def restart(self) -> None:
        """What is in memory is gone; what is in the cluster stays."""
        self.plugin = StickyNode(self._args, self.handle)

    def add(self, kind: Kind[Any], name: str = "db", **annotations: str) -> None:
        """An owner appears or changes; ``home="n1"`` is the annotation ``homeport.dev/home``."""
        self._put(kind, name, None, annotations)

    def change(self, kind: Kind[Any], annotations: Mapping[str, str], name: str = "db") -> None:
        """A person edits: these are all its annotations now."""
        self.add(kind, name, **{key.removeprefix("homeport.dev/"): value for key, value in annotations.items()})

    def add_owned(
        self,
        kind: Kind[Any],
        owner: JsonObject,
        name: str = "db",
        *,
        runs_on: str = "",
        moved: tuple[str, str] = ("", ""),
    ) -> None:
        """One link of a chain."""
        migration = {"sourceNode": moved[0], "targetNode": moved[1], "completed": True}
        self._put(kind, name, owner, {}, {"nodeName": runs_on, "migrationState": migration if moved[0] else None})

    def _put(
        self,
        kind: Kind[Any],
        name: str,
        owner: JsonObject | None,
        annotations: Mapping[str, str],
        status: JsonObject | None = None,
    ) -> None:
        self._version += 100  # what the plugin wrote meanwhile is older, however often it wrote
        metadata: JsonObject = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{kind.kind}-{name}",
            "resourceVersion": str(self._version),
            "annotations": {f"homeport.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        found = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": {}, "status": status}
        self.cluster.others.upsert(kind, kind.decode(encoded(found)))

    def machine(self, name: str = "db", *, runs_on: str = "", **annotations: str) -> None:
        """A virtual machine that is started: VirtualMachine and VirtualMachineInstance."""
        self.add(MACHINE, name, **annotations)
        self.runs(name, runs_on)

    def runs(self, name: str = "db", node: str = "", *, moved: tuple[str, str] = ("", "")) -> None:
        """KubeVirt says where the machine is, as it does once its pod is ready or its migration is done.

        ``moved``: from where its last migration was to lead whereto, which ended in whatever way.
        """
        self.add_owned(INSTANCE, reference(MACHINE, name), name, runs_on=node, moved=moved)

    def gone(self, kind: Kind[Any], name: str = "db") -> None:
        self.cluster.others.delete(kind, ("default", name))

    def annotations(self, kind: Kind[Any] = MACHINE, name: str = "db") -> dict[str, str]:
        found = self.cluster.get(kind, "default", name)
        assert found is not None
        return dict(found.annotations)

    def allowed(self, pod: Pod) -> list[str] | str:
        """The nodes the pod may use, or the reason why it may use none whatsoever."""
        state = CycleState()
        status, _ = self.plugin.pre_filter(state, pod)
        if status.is_skip:
            return list(NODES)
        if not status.is_success:
            return status.message
        one_by_one = {name: self.plugin.filter(state, pod, info) for name, info in self.nodes.items()}
        found = self.plugin.filter_nodes(state, pod, Candidates.of(self.nodes))
        rejected = found.rejected()
        assert set(found.passed) == self.nodes.keys() - rejected.keys()
        assert rejected == {name: status for name, status in one_by_one.items() if not status.is_success}
        return [name for name in NODES if name not in rejected]

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        return self.cluster.nodes

    async def bind(self, pod: Pod, node: str, *, succeeds: bool = True, copies: bool = True) -> dict[str, str]:
        """A transaction as bind runs it; returns the Binding's annotations. ``copies``: no crash before post-bind."""
        assert self.reserve(pod, node) == SUCCESS
        return await self.arrives(pod, node, succeeds=succeeds, copies=copies)

    async def arrives(self, pod: Pod, node: str, *, succeeds: bool = True, copies: bool = True) -> dict[str, str]:
        """The rest of it, after Reserve."""
        state = CycleState()
        assert await self.plugin.pre_bind(state, pod, node) == SUCCESS
        if succeeds:
            await self.lands(state, pod, node, copies=copies)
        else:
            self.plugin.unreserve(state, pod, node)
        return state.annotations

    async def lands(self, state: CycleState, pod: Pod, node: str, *, copies: bool = True) -> None:
        """The rest of it, after PreBind."""
        self.cluster.upsert_pod(bound(pod, node, state.annotations))
        if copies:
            await self.plugin.post_bind(state, pod, node)

    def reserve(self, pod: Pod, node: str) -> Status:
        return self.plugin.reserve(CycleState(), pod, node)


def reference(kind: Kind[Any], name: str = "db") -> JsonObject:
    """An owner reference to what ``Machines.add`` makes."""
    return {**controller(kind.kind, name, api_version=kind.api_version), "uid": f"uid-{kind.kind}-{name}"}


def own_home(
    node: str, pod_uid: str = "", kind: Kind[Any] = MACHINE, name: str = "db", slot: str = ""
) -> dict[str, str]:
    """What is written on an owner whose home is its own."""
    written = {HOME: node, HOME_POD: pod_uid, HOME_OWNER: f"uid-{kind.kind}-{name} {node}"}
    return {f"{key}.{slot}" if slot else key: value for key, value in written.items() if value}


def make_pod(name: str = "web-1", **fields: Unpack[PodFields]) -> Pod:
    """A pod as the plugin reads it."""
    return CORE.decode_pod(encoded(pod_object(name, **fields)))


def make_node(name: str = "n1", **fields: Unpack[NodeFields]) -> Node:
    """A node as the plugin reads it."""
    return CORE.decode_node(encoded(node_object(name, **fields)))


def launcher(name: str = "launcher", machine: str = "db", **fields: Unpack[PodFields]) -> Pod:
    """The pod of a virtual machine."""
    given: PodFields = {"owner": reference(INSTANCE, machine), **fields}
    return make_pod(name, **given)


def bound(pod: Pod, node: str, annotations: Mapping[str, str]) -> Pod:
    """The pod as its Binding left it."""
    return replace(pod, node_name=node, annotations={**pod.annotations, **annotations})
