"""What pods make of claims.

How many volumes of pods on nodes name one, which tells whether one that a single pod may use is in use; and which pods,
wherever they are.
"""

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
    """An ``PodIndex``: kept where a plugin declares volumes. Pods on nodes that the picture lacks count nowhere."""

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


class PodsByClaim:
    """The pods that name each claim, by its namespace and name; of ephemeral volumes none is named."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self.kept: dict[str, dict[str, Pod]] = {}
        for pod in pods:
            self.move(None, pod)

    def move(self, old: Pod | None, new: Pod | None) -> None:
        """From one form of a pod to another."""
        if old is not None:
            for key in claim_keys(old):
                self._leave(key, old.uid)
        if new is not None:
            for key in claim_keys(new):
                self.kept.setdefault(key, {})[new.uid] = new

    def _leave(self, key: str, uid: str) -> None:
        pods = self.kept.get(key)
        if pods is not None:
            pods.pop(uid, None)
            if not pods:
                del self.kept[key]

    def has(self, pod: Pod) -> bool:
        """Whether the pod is where it belongs, as it is."""
        return all(self.kept.get(key, {}).get(pod.uid) == pod for key in claim_keys(pod))


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """The claims that the pod names, each once: ``namespace/name``. Raises ``NotDecoded`` without ``Part.VOLUMES``."""
    if not pod.spec.volumes:
        return ()
    return tuple(_claims(pod))


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
