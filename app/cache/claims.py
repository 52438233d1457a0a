"""How many volumes of pods on nodes name a claim: what tells whether one that a single pod may use is in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from app.framework.node_info import NodeInfo
from app.framework.resources import add
from app.kube.core_v1 import Node, Pod

_DIFFER: Final = "uses of claims differ from a recount"
_BETWEEN: Final = "/"
"""No name of a namespace has it, hence no two claims are one by namespace, this and name."""


class ClaimUses:
    """An ``Index``: kept where a plugin declares volumes. Pods on nodes that the picture lacks count nowhere."""

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self._nodes = nodes
        self._on: dict[str, dict[str, int]] = {}
        self._uses: dict[str, int] = {}
        self.changes = 0

    def uses(self, namespace: str, name: str, moves: Iterable[tuple[Pod | None, Pod | None]] = ()) -> int:
        """``moves``: pods as they are counted here, each with how it is to be counted instead."""
        found = self._uses.get(_key(namespace, name), 0)
        for old, new in moves:
            found += self._of(new, namespace, name) - self._of(old, namespace, name)
        return found

    def _of(self, pod: Pod | None, namespace: str, name: str) -> int:
        if pod is None or pod.namespace != namespace or pod.node_name not in self._nodes:
            return 0
        return sum(it.claim == name for it in pod.spec.volumes)

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        if not pod.spec.volumes:
            return
        self.changes += 1
        claims = _claims(pod)
        if not claims:
            return
        on = self._on.setdefault(node, {})
        add(claims, on, delta)
        if not on:
            del self._on[node]
        if node in self._nodes:
            add(claims, self._uses, delta)

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        if (old is None) != (new is None):
            self.changes += 1
            add(self._on.get(name, {}), self._uses, 1 if old is None else -1)

    def differences(self) -> Iterator[str]:
        for name in tuple(self._nodes):
            info = self._nodes.get(name)
            if info is not None:
                yield "" if self._on.get(name, {}) == _counted(info.pods.values()) else _DIFFER
        found: dict[str, int] = {}
        for name in self._nodes:
            add(self._on.get(name, {}), found)
        yield "" if found == self._uses else _DIFFER


def _key(namespace: str, name: str) -> str:
    return f"{namespace}{_BETWEEN}{name}"


def _claims(pod: Pod) -> dict[str, int]:
    found: dict[str, int] = {}
    for volume in pod.spec.volumes:
        if volume.claim is not None:
            add({_key(pod.namespace, volume.claim): 1}, found)
    return found


def _counted(pods: Iterable[Pod]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        add(_claims(pod), found)
    return found
