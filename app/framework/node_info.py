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

    Hot plugins work on ``names`` with set and dict operations; others iterate over the node infos.
    """

    __slots__ = ("_info", "names")

    def __init__(self, names: Sequence[str], info: Callable[[str], NodeInfo]) -> None:
        self.names = names
        self._info = info

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

    def without(self, names: Collection[str]) -> Candidates:
        """The others, in the same order."""
        return Candidates([name for name in self.names if name not in names], self._info) if names else self
