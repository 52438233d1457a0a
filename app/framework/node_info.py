"""Node with the pods that run on it, and the candidates of a request, as plugins see them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse

from msgspec.structs import replace

from app.framework.resources import HostPorts, Mounts, Totals, add
from app.kube.core_v1 import Node, Pod
from app.kube.requests import ResourceList


class NodeInfo:
    """Node with its pods. ``pods``: bound and assumed pods by UID, terminating ones included.

    Totals of the pods, for example their requests, exist only if a plugin declares the ``Part`` that the property's
    docstring names. Otherwise reading the property raises ``NotDecoded``. Plugins must not change a node info.
    """

    __slots__ = ("_totals", "node", "pods")

    def __init__(self, node: Node, pods: dict[str, Pod] | None = None, totals: Totals | None = None) -> None:
        """Create a node info. ``totals``: totals of ``pods``; if omitted, they are computed when first read."""
        self.node = node
        self.pods: dict[str, Pod] = {} if pods is None else pods
        self._totals = totals

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def allocatable(self) -> ResourceList:
        """Allocatable resources (``Part.RESOURCES``). The resource ``pods`` is the maximum number of pods."""
        return self.node.allocatable

    @property
    def requested(self) -> ResourceList:
        """Sum of the requests of the node's pods (``Part.RESOURCES``). The number of pods is ``len(pods)``."""
        return self.totals.requested

    def free(self, resources: Iterable[str]) -> dict[str, int]:
        """Return how much of each resource is free (``Part.RESOURCES``); 0 if the pods request more than there is."""
        allocatable, requested = self.allocatable, self.requested
        return {name: max(0, allocatable.get(name, 0) - requested.get(name, 0)) for name in resources}

    @property
    def non_zero_requested(self) -> ResourceList:
        """Like ``requested`` for cpu and memory, with default requests for containers that have none."""
        return self.totals.non_zero_requested

    @property
    def ports(self) -> HostPorts:
        """Host ports that the node's pods use (``Part.PORTS``)."""
        return self.totals.ports

    @property
    def mounts(self) -> Mapping[str, Mounts]:
        """Volumes that have a claim or name a disk, by pod UID; pods without any are absent (``Part.VOLUMES``)."""
        return self.totals.mounts

    @property
    def mounts_stamp(self) -> int:
        """Stamp that changes with ``mounts``. A copy with an equal stamp has equal mounts (``Part.VOLUMES``)."""
        return self.totals.mounts_stamp

    @property
    def images(self) -> Mapping[str, int]:
        """Sizes in bytes of the images on the node, by name (``Part.IMAGES``)."""
        return self.node.images

    @property
    def totals(self) -> Totals:
        """Totals of the node's pods for the declared parts; computed at the first access if none are stored."""
        if self._totals is None:
            self._totals = Totals(self.node.parts.extras, self.pods.values())
        return self._totals

    def keep(self, totals: Totals) -> None:
        """Store the totals of the node's pods. Code that later changes ``pods`` must update these totals, too."""
        self._totals = totals

    def with_node(self, node: Node) -> NodeInfo:
        """Return a node info with another version of the Node object and the same ``pods``."""
        return NodeInfo(node, self.pods, self._totals)

    def with_pods(self, pods: Iterable[Pod]) -> NodeInfo:
        """Return a copy with ``pods`` added. An added pod replaces a pod with the same UID."""
        added = {pod.uid: pod for pod in pods}
        return NodeInfo(self.node, {**self.pods, **added}, self._totals and self._totals_without(added, added.values()))

    def without_pods(self, uids: Collection[str]) -> NodeInfo:
        """Return a copy without the pods that have these UIDs."""
        stay = {uid: pod for uid, pod in self.pods.items() if uid not in uids}
        return NodeInfo(self.node, stay, self._totals and self._totals_without(uids))

    def drop(self, uid: str) -> None:
        """Remove a pod from this node info, which must be a copy. Raises ``KeyError`` if it does not have the pod."""
        pod = self.pods.pop(uid)
        if self._totals is not None:
            self._totals.add(pod, -1)

    def put(self, pod: Pod) -> None:
        """Add a pod to this node info, which must be a copy, and must not have a pod with the same UID."""
        self.pods[pod.uid] = pod
        if self._totals is not None:
            self._totals.add(pod)

    def _totals_without(self, uids: Iterable[str], added: Iterable[Pod] = ()) -> Totals:
        totals = self.totals.copy()
        for uid in uids:
            if uid in self.pods:
                totals.add(self.pods[uid], -1)
        for pod in added:
            totals.add(pod)
        return totals


class HypotheticalPods:
    """Pods that can be added to any node for an evaluation, with UIDs that no other pod has."""

    __slots__ = ("_pods", "_requested")

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = {uid: replace(pod, uid=uid) for uid, pod in ((f"hypothetical-{it.uid}", it) for it in pods)}
        self._requested: dict[str, int] | None = None

    def on(self, node: NodeInfo) -> NodeInfo:
        """Return the node with these pods added. The result shares data with ``node``, so it is valid only until
        ``node`` changes.
        """
        return _CrowdedNodeInfo(node, {**node.pods, **self._pods}, self)

    @property
    def requested(self) -> ResourceList:
        """Sum of the requests of these pods."""
        if self._requested is None:
            self._requested = {}
            for pod in self._pods.values():
                add(pod.spec.resources.requested, self._requested)
        return self._requested


class _CrowdedNodeInfo(NodeInfo):
    """Node with hypothetical pods added. ``requested`` adds their sum to that of the node, without new ``Totals``."""

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
    """Nodes that are evaluated for one request; iterating yields their node infos.

    ``names``: node names in the order of the request. A name can occur twice. Names of nodes that do not exist are
    passed only to filters with ``takes_any_names``. Set and dict operations on ``names`` are much faster than a loop
    over node infos. ``sent``: nodes that are evaluated as the request sent them, because the snapshot lacks them or has
    another version.
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
        """Create candidates from all of ``infos``, which are node infos by name."""
        return cls(tuple(infos), infos.__getitem__)

    def __iter__(self) -> Iterator[NodeInfo]:
        return map(self._info, self.names)

    def __len__(self) -> int:
        return len(self.names)

    def info(self, name: str) -> NodeInfo:
        return self._info(name)

    @property
    def name_set(self) -> frozenset[str]:
        """Set of the names, for lookups."""
        if self._set is None:
            self._set = frozenset(self.names)
        return self._set

    def without(self, names: Collection[str]) -> Candidates:
        """Return these candidates without the nodes in ``names``. The order does not change."""
        if not names:
            return self
        return Candidates(list(filterfalse(names.__contains__, self.names)), self._info, self.sent)

    def seen_as(self, view: Callable[[NodeInfo], NodeInfo]) -> Candidates:
        """Return these candidates with each node info replaced by the result of ``view``. ``sent`` is not replaced."""
        info = self._info
        return Candidates(self.names, lambda name: view(info(name)), self.sent)

    def among(self, names: Sequence[str]) -> Candidates:
        """Return candidates for the nodes in ``names``, in the order of ``names``."""
        return Candidates(names, self._info, self.sent)

    def values(self, key: str, known: Mapping[str, str]) -> Mapping[str, str]:
        """Return ``known`` with the values of the nodes in ``sent`` replaced by those that the request sent.

        ``known``: value of the label ``key`` by node name, for all nodes of the snapshot that have the label.
        """
        if not self.sent:
            return known
        sent = {name: info.node.labels[key] for name, info in self.sent.items() if key in info.node.labels}
        return {name: value for name, value in known.items() if name not in self.sent} | sent
