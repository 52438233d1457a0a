"""A node with the pods that run on it, as plugins see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from app.kube.core_v1 import Node, Pod


class NodeInfo:
    """A node of the picture. ``pods`` holds bound and assumed pods by UID, terminating ones included.

    Plugins read it and never change it.
    """

    __slots__ = ("node", "pods")

    def __init__(self, node: Node, pods: dict[str, Pod] | None = None) -> None:
        self.node = node
        self.pods: dict[str, Pod] = {} if pods is None else pods

    @property
    def name(self) -> str:
        return self.node.name

    def with_pods(self, pods: Iterable[Pod]) -> NodeInfo:
        """A copy on which ``pods`` run too."""
        return NodeInfo(self.node, {**self.pods, **{pod.uid: pod for pod in pods}})

    def without_pods(self, uids: Collection[str]) -> NodeInfo:
        """A copy from which the pods of ``uids`` are gone."""
        return NodeInfo(self.node, {uid: pod for uid, pod in self.pods.items() if uid not in uids})


class Candidates:
    """The nodes one request asks about: unique names in the order asked, each with its node info.

    Hot plugins work on ``names`` with set and dict operations; others iterate over the node infos. ``sent`` are nodes
    that are judged by what the caller sent of them, since the picture has no such node, or another version of it.
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
        return Candidates([name for name in self.names if name not in names], self._info, self.sent)

    def among(self, names: Sequence[str]) -> Candidates:
        """Those of ``names``, in that order."""
        return Candidates(names, self._info, self.sent)

    def values(self, key: str, known: Mapping[str, str]) -> Mapping[str, str]:
        """Node to value of the label ``key``: ``known`` by the picture, but for the nodes that were sent."""
        if not self.sent:
            return known
        sent = {name: info.node.labels[key] for name, info in self.sent.items() if key in info.node.labels}
        return {name: value for name, value in known.items() if name not in self.sent} | sent
