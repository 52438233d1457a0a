"""A node with the pods that run on it, as plugins see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse

from msgspec.structs import replace

from app.framework.resources import HostPorts, Mounts, Totals, add
from app.kube.core_v1 import Node, Pod
from app.kube.requests import ResourceList


class NodeInfo:
    """A node of the snapshot. ``pods`` holds bound and assumed pods by UID, terminating ones included.

    What they take together is kept where a plugin declares the part it rests on; to read it where none does raises
    ``NotDecoded``. Plugins read all this and never change it.
    """

    __slots__ = ("_totals", "node", "pods")

    def __init__(self, node: Node, pods: dict[str, Pod] | None = None, totals: Totals | None = None) -> None:
        """``totals`` are those of ``pods``; without them they are worked out when they are read."""
        self.node = node
        self.pods: dict[str, Pod] = {} if pods is None else pods
        self._totals = totals

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def allocatable(self) -> ResourceList:
        """What the node has to give (``Part.RESOURCES``). Of ``pods``: how many it takes."""
        return self.node.allocatable

    @property
    def requested(self) -> ResourceList:
        """What its pods take of it (``Part.RESOURCES``); how many they are is ``len(pods)``."""
        return self.totals.requested

    @property
    def non_zero_requested(self) -> ResourceList:
        """The same of cpu and memory, with something for each container that does not say what it asks for."""
        return self.totals.non_zero_requested

    @property
    def ports(self) -> HostPorts:
        """The host ports that its pods take (``Part.PORTS``)."""
        return self.totals.ports

    @property
    def mounts(self) -> Mapping[str, Mounts]:
        """The volumes of those of its pods that have some that matter, by UID (``Part.VOLUMES``)."""
        return self.totals.mounts

    @property
    def mounts_stamp(self) -> int:
        """Moves whenever ``mounts`` does; an equal one means the same, on whatever copy (``Part.VOLUMES``)."""
        return self.totals.mounts_stamp

    @property
    def images(self) -> Mapping[str, int]:
        """Sizes in bytes of the images that are there, by name (``Part.IMAGES``)."""
        return self.node.images

    @property
    def totals(self) -> Totals:
        """What its pods take together."""
        if self._totals is None:
            self._totals = Totals(self.node.parts.extras, self.pods.values())
        return self._totals

    def keep(self, totals: Totals) -> None:
        """From now on ``totals`` are those of its pods: who changes the pods changes these too."""
        self._totals = totals

    def with_node(self, node: Node) -> NodeInfo:
        """The same pods on another form of the node."""
        return NodeInfo(node, self.pods, self._totals)

    def with_pods(self, pods: Iterable[Pod]) -> NodeInfo:
        """A copy on which ``pods`` run too."""
        came = {pod.uid: pod for pod in pods}
        return NodeInfo(self.node, {**self.pods, **came}, self._totals and self._totals_without(came, came.values()))

    def without_pods(self, uids: Collection[str]) -> NodeInfo:
        """A copy from which the pods of ``uids`` are gone."""
        stay = {uid: pod for uid, pod in self.pods.items() if uid not in uids}
        return NodeInfo(self.node, stay, self._totals and self._totals_without(uids))

    def drop(self, uid: str) -> None:
        """A pod is gone from this copy. Raises ``KeyError`` if it was not there."""
        pod = self.pods.pop(uid)
        if self._totals is not None:
            self._totals.add(pod, -1)

    def put(self, pod: Pod) -> None:
        """A pod runs on this copy, which had none of its UID."""
        self.pods[pod.uid] = pod
        if self._totals is not None:
            self._totals.add(pod)

    def _totals_without(self, uids: Iterable[str], came: Iterable[Pod] = ()) -> Totals:
        totals = self.totals.copy()
        for uid in uids:
            if uid in self.pods:
                totals.add(self.pods[uid], -1)
        for pod in came:
            totals.add(pod)
        return totals


class HypotheticalPods:
    """Pods that are imagined to run on nodes, under UIDs that no pod there has."""

    __slots__ = ("_pods", "_requested")

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = {uid: replace(pod, uid=uid) for uid, pod in ((f"imagined-{it.uid}", it) for it in pods)}
        self._requested: dict[str, int] | None = None

    def on(self, node: NodeInfo) -> NodeInfo:
        """Return the node with the pods on it: cheaper than a copy, and to be used at once, as it shares with it."""
        return _CrowdedNodeInfo(node, {**node.pods, **self._pods}, self)

    @property
    def requested(self) -> ResourceList:
        """What they take together."""
        if self._requested is None:
            self._requested = {}
            for pod in self._pods.values():
                add(pod.spec.resources.requested, self._requested)
        return self._requested


class _CrowdedNodeInfo(NodeInfo):
    __slots__ = ("_alone", "_more")

    def __init__(self, alone: NodeInfo, pods: dict[str, Pod], more: HypotheticalPods) -> None:
        super().__init__(alone.node, pods)
        self._alone = alone
        self._more = more

    @property
    def requested(self) -> ResourceList:
        total = dict(self._alone.requested)
        for name, amount in self._more.requested.items():
            total[name] = total.get(name, 0) + amount
        return total


class Candidates:
    """The nodes one request asks about: names in the order asked, unique unless the caller repeated some, each with its
    node info. Only for a filter that takes any names there may be names of no node among them.

    Hot plugins work on ``names`` with set and dict operations; others iterate over the node infos. ``sent`` are nodes
    that are judged by what the caller sent of them, since the snapshot has no such node, or another version of it.
    """

    __slots__ = ("_info", "_set", "names", "sent")

    def __init__(
        self, names: Sequence[str], info: Callable[[str], NodeInfo], sent: Mapping[str, NodeInfo] | None = None
    ) -> None:
        self.names = names
        self.sent = sent or {}
        self._info = info
        self._set: frozenset[str] | None = None

    @classmethod
    def of(cls, infos: Mapping[str, NodeInfo]) -> Candidates:
        """All of ``infos``."""
        return cls(tuple(infos), infos.__getitem__)

    def __iter__(self) -> Iterator[NodeInfo]:
        return map(self._info, self.names)

    def __len__(self) -> int:
        return len(self.names)

    def info(self, name: str) -> NodeInfo:
        return self._info(name)

    @property
    def name_set(self) -> frozenset[str]:
        """The names, to look them up."""
        if self._set is None:
            self._set = frozenset(self.names)
        return self._set

    def without(self, names: Collection[str]) -> Candidates:
        """The others, in the same order."""
        if not names:
            return self
        return Candidates(list(filterfalse(names.__contains__, self.names)), self._info, self.sent)

    def seen_as(self, view: Callable[[NodeInfo], NodeInfo]) -> Candidates:
        """The same names, each with its node info as ``view`` gives it."""
        info = self._info
        return Candidates(self.names, lambda name: view(info(name)), self.sent)

    def among(self, names: Sequence[str]) -> Candidates:
        """Those of ``names``, in that order."""
        return Candidates(names, self._info, self.sent)

    def values(self, key: str, known: Mapping[str, str]) -> Mapping[str, str]:
        """Node to value of the label ``key``: ``known`` by the snapshot, but for the nodes that were sent."""
        if not self.sent:
            return known
        sent = {name: info.node.labels[key] for name, info in self.sent.items() if key in info.node.labels}
        return {name: value for name, value in known.items() if name not in self.sent} | sent
