"""Decides which nominated pods a filter must leave room for."""

from __future__ import annotations

from app.kube.core_v1 import Pod


def has_precedence(nominated: Pod, node_name: str, pod: Pod) -> bool:
    """Return true if ``pod`` must leave room for the ``nominated`` pod on the node.

    The nominated pod must be another pod of at least the same priority. In addition, it must be nominated to this node,
    or have no nomination yet, or have a hard topology spread constraint that counts ``pod``. In the last two cases, a
    place is reserved for the nominated pod on all nodes of a domain.
    """
    if nominated.uid == pod.uid or nominated.spec.priority < pod.spec.priority:
        return False
    return nominated.nominated_node_name in ("", node_name) or _is_counted(nominated, pod)


def _is_counted(nominated: Pod, pod: Pod) -> bool:
    """Return true if a hard topology spread constraint of the nominated pod counts ``pod``."""
    return nominated.namespace == pod.namespace and any(
        it.is_hard and it.selector is not None and it.selector.matches(pod.labels) for it in nominated.spec.spread
    )
