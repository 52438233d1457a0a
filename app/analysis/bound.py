"""Describes the node of a bound pod: each filter's present verdict there, and the consequence of a rejection.

The filters judge without the pod in the snapshot, so that the pod does not compete with itself for room. The counts for
topology spread are still the present ones, because PodTopologySpread adds the judged pod to the count of its domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app.analysis.judging import Judgement
from app.cache.cluster import Cluster
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.taints import NO_EXECUTE, UNSCHEDULABLE, Tolerance

GONE: Final = "the node is not in the snapshot; Kubernetes deletes the pods of a node that does not exist"
UNREADABLE: Final = "the node cannot be decoded, so nothing was judged"
NOT_JUDGED: Final = "the node was not judged, because the time for one answer was over"
STAYS: Final = "no scheduler evicts a running pod for this"


class BoundNode(Struct, frozen=True):
    """Node of a bound pod. ``verdicts``: verdict of each plugin; empty if the node was not judged.

    ``note``: consequence of a rejection, or why the node was not judged; empty if each plugin accepts the pod.
    """

    name: str
    verdicts: Mapping[str, Status]
    note: str = ""

    @property
    def violated(self) -> list[str]:
        """Plugins that would reject the pod on its node now."""
        return [plugin for plugin, status in self.verdicts.items() if not status.is_success]


def bound_node(pod: Pod, judgement: Judgement, cluster: Cluster) -> BoundNode:
    """Describe the node of a bound pod. ``judgement``: verdicts on this pod on nodes of ``cluster``."""
    name = pod.node_name
    if name not in judgement.rejected and name not in judgement.feasible:
        unread = GONE if cluster.misses_node(name) else UNREADABLE
        return BoundNode(name, {}, NOT_JUDGED if name in cluster.nodes else unread)
    verdicts = verdicts_on(name, judgement)
    node = BoundNode(name, verdicts)
    if not node.violated:
        return node
    evicting = _evicting_taint(pod, cluster)
    return BoundNode(name, verdicts, f"Kubernetes evicts the pod for the taint {evicting}" if evicting else STAYS)


def verdicts_on(node: str, judgement: Judgement) -> Mapping[str, Status]:
    """Return the verdict of each plugin on a node that was judged, by plugin."""
    rejected = {status.plugin: status for status in judgement.rejected.get(node, ())}
    return {plugin: rejected.get(plugin, SUCCESS) for plugin in judgement.plugins}


def lasting_taints(pod: Pod, node: str, cluster: Cluster) -> list[str]:
    """Return the taints of a node that keep the pod out, in kubectl's notation, except the taint of a cordon."""
    info, tolerance = cluster.nodes.get(node), Tolerance(pod.spec.tolerations)
    taints = () if info is None else info.node.taints
    return [it.text for it in taints if it.keeps_out and it.key != UNSCHEDULABLE.key and not tolerance.tolerates(it)]


def _evicting_taint(pod: Pod, cluster: Cluster) -> str:
    """Return a NoExecute taint of the node that the pod does not tolerate; empty if there is none."""
    info = cluster.nodes.get(pod.node_name)
    tolerance = Tolerance(pod.spec.tolerations)
    for taint in () if info is None else info.node.taints:
        if taint.effect == NO_EXECUTE and not tolerance.tolerates(taint):
            return taint.text
    return ""
