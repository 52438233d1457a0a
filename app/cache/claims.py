"""Indexes of pods by the PersistentVolumeClaims that their volumes name.

``ClaimUses`` counts, for each claim, how many volumes of pods on nodes name the claim. The check of ReadWriteOncePod
needs this number. ``PodsByClaim`` lists, for each claim, the pods that name the claim, including pending pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from app.framework.node_info import NodeInfo
from app.framework.resources import add
from app.kube.core_v1 import Node, Pod

_DIFFER: Final = "uses of claims differ from a recount"
_SEPARATOR: Final = "/"
"""Separator of namespace and name. Names of namespaces cannot contain it, so each key identifies one claim."""


class ClaimUses:
    """Number of volumes of pods on known nodes that name each claim. Implements ``CheckedIndex``.

    The numbers are updated only if a plugin declares ``Part.VOLUMES``. ``changes``: number that increases when a pod
    with volumes joins or leaves a node, and when a node is added or deleted.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo]) -> None:
        self._nodes = nodes
        self._on: dict[str, dict[str, int]] = {}
        self._uses: dict[str, int] = {}
        self.changes = 0

    def uses(self, namespace: str, name: str, moves: Iterable[tuple[Pod | None, Pod | None]] = ()) -> int:
        """Return the number of volumes of pods on known nodes that name the claim.

        ``moves``: pods that an overlay changes, in pairs: the version in the index, and the version in the overlay.
        ``None`` stands for a pod that is absent.
        """
        uses = self._uses.get(_key(namespace, name), 0)
        for old, new in moves:
            uses += self._uses_by(new, namespace, name) - self._uses_by(old, namespace, name)
        return uses

    def _uses_by(self, pod: Pod | None, namespace: str, name: str) -> int:
        """Return the number of volumes of the pod that name the claim; 0 if the pod is not on a known node."""
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
        uses: dict[str, int] = {}
        for name in self._nodes:
            add(self._on.get(name, {}), uses)
        yield "" if uses == self._uses else _DIFFER


class PodsByClaim:
    """Pods by claim (``namespace/name``) and pod UID. A pod is listed under each claim that it names.

    A generic ephemeral volume does not name its claim, so its pod is not listed under that claim.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        self.pods: dict[str, dict[str, Pod]] = {}
        for pod in pods:
            self.move(None, pod)

    def move(self, old: Pod | None, new: Pod | None) -> None:
        """Replace a version of a pod. ``old`` is ``None`` for an added pod, ``new`` is ``None`` for a deleted one."""
        if old is not None:
            for key in claim_keys(old):
                self._leave(key, old.uid)
        if new is not None:
            for key in claim_keys(new):
                self.pods.setdefault(key, {})[new.uid] = new

    def _leave(self, key: str, uid: str) -> None:
        pods = self.pods.get(key)
        if pods is not None:
            pods.pop(uid, None)
            if not pods:
                del self.pods[key]

    def has(self, pod: Pod) -> bool:
        """Return true if this version of the pod is listed under each of its claims."""
        return all(self.pods.get(key, {}).get(pod.uid) == pod for key in claim_keys(pod))


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Return each claim that the pod names, as ``namespace/name``. Raises ``NotDecoded`` without ``Part.VOLUMES``."""
    if not pod.spec.volumes:
        return ()
    return tuple(_claims(pod))


def _key(namespace: str, name: str) -> str:
    return f"{namespace}{_SEPARATOR}{name}"


def _claims(pod: Pod) -> dict[str, int]:
    """Return the number of the pod's volumes that name each claim, by ``namespace/name`` of the claim."""
    uses: dict[str, int] = {}
    for volume in pod.spec.volumes:
        if volume.claim is not None:
            add({_key(pod.namespace, volume.claim): 1}, uses)
    return uses


def _counted(pods: Iterable[Pod]) -> dict[str, int]:
    uses: dict[str, int] = {}
    for pod in pods:
        add(_claims(pod), uses)
    return uses
