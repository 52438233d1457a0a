"""NodeVolumeLimits plugin: compares the number of attached volumes of each CSI driver with the node's limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, final

from app.framework.claims import NO_CLAIMS, claims_signature
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin
from app.framework.resources import Mounts
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import CSI_NODES, VOLUME_ATTACHMENTS, Kind
from app.kube.volumes import VOLUMES
from plugins.in_tree.node_volume_limits.attachment_counts import AttachmentCounts, CountedVolumes, NodeAttachments
from plugins.in_tree.node_volume_limits.volume_resolver import (
    CLAIM_KINDS,
    NO_NODE,
    MissingClaim,
    VolumeDrivers,
    VolumeResolver,
)

NAME: Final = "NodeVolumeLimits"

REASON_FULL: Final = "node(s) exceed max volume count"
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

_FULL: Final = unschedulable(REASON_FULL).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_VOLUMES).by(NAME)


class NodeVolumeLimitsArgs(PluginArgs):
    """The plugin takes no arguments."""


class _IncomingVolumes:
    """Volumes that the incoming pod would attach to a node. All nodes of a search share one instance.

    ``counts``: number of these volumes by driver, for a node that has a CSINode but none of the volumes yet.
    ``counted``: number of volumes that the search has counted on nodes. ``attachments_read``: true if all
    VolumeAttachments are known to be readable.
    """

    __slots__ = ("_resolve", "_volumes", "attachments_read", "counted", "counts")

    def __init__(self, resolve: Callable[[bool], VolumeDrivers | Status]) -> None:
        self._resolve = resolve
        self._volumes: dict[bool, VolumeDrivers | Status] = {}
        self.counts: Mapping[str, int] = {}
        self.counted = CountedVolumes()
        self.attachments_read = False

    def volumes(self, *, has_csi_node: bool) -> VolumeDrivers | Status:
        """Return the volumes for nodes that have, or lack, a CSINode; or the status that rejects all such nodes.

        Raises ``UncountableVolume`` or ``Unreadable``.
        """
        volumes = self._volumes.get(has_csi_node)
        if volumes is None:
            volumes = self._volumes[has_csi_node] = self._resolve(has_csi_node)
            if has_csi_node and not isinstance(volumes, Status):
                self.counts = _count_by_driver(volumes, {})
        return volumes

    def clone(self) -> _IncomingVolumes:
        return self


_STATE: Final[StateKey[_IncomingVolumes]] = StateKey(NAME)


@final
class NodeVolumeLimits(PreFilterPlugin, ClusterFilterPlugin):
    """Compares the number of attached volumes of each CSI driver with the limits in the node's CSINode.

    Source of the rules: ``framework/plugins/nodevolumelimits`` of Kubernetes 1.36.

    Kubernetes 1.35 counts a volume of an in-tree driver only on nodes whose CSINode lists the driver as migrated. Here,
    the rules of 1.36 apply in every profile.
    """

    def __init__(self, args: NodeVolumeLimitsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._resolver = VolumeResolver(handle.objects)
        self._attachments = AttachmentCounts(handle.objects, handle.nodes, self._resolver)

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD, None
        return (SUCCESS if _has_counted_volumes(pod) else SKIP), None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        csi_node = self._objects.get(CSI_NODES, "", node.name)
        incoming = self._incoming(state, pod)
        volumes = incoming.volumes(has_csi_node=csi_node is not None)
        if isinstance(volumes, Status):
            return volumes
        if not volumes or csi_node is None or not csi_node.limits:
            return SUCCESS
        attachments = self._attachments.of(node, incoming.counted)
        if attachments.faults:
            attachments.require_countable(node.mounts)
        attached = attachments.volumes
        counts = incoming.counts if _are_disjoint(attached, volumes) else _count_by_driver(volumes, attached)
        for driver, count in counts.items():
            limit = csi_node.limits.get(driver)
            if limit is not None:
                unused = self._unused(attachments, node, incoming)
                if attachments.by_driver.get(driver, 0) + count > limit - unused.get(driver, 0):
                    return _FULL
        return SUCCESS

    def _unused(self, attachments: NodeAttachments, node: NodeInfo, incoming: _IncomingVolumes) -> Mapping[str, int]:
        if not incoming.attachments_read:
            self._require_attachments(incoming)
        if attachments.unused is not None:
            return attachments.unused
        return self._attachments.unused(attachments, node.name, incoming.counted)

    def _require_attachments(self, incoming: _IncomingVolumes) -> None:
        """Raise ``Unreadable`` if any VolumeAttachment is unreadable, because that object could belong to the node."""
        self._objects.in_namespace(VOLUME_ATTACHMENTS, "")
        incoming.attachments_read = True

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return _has_counted_volumes(pod) and _has_counted_volumes(other)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Like ``filter``, for the worst outcome of the binds in flight.

        A volume that the pod shares with a pod that is not in flight needs no further attachment.
        """
        uids = {it.uid for it in in_flight if it.node_name == node.name}
        csi_node = self._objects.get(CSI_NODES, "", node.name)
        incoming = self._incoming(state, pod)
        volumes = incoming.volumes(has_csi_node=csi_node is not None)
        if isinstance(volumes, Status) or csi_node is None or uids.isdisjoint(node.mounts):
            return self.filter(state, pod, node)
        attachments = self._attachments.of(node, incoming.counted)
        attachments.require_countable(node.mounts)
        self._require_attachments(incoming)
        certain, attached = attachments.without(uids), self._attachments.attached(attachments, node.name)
        for driver in {driver for name, driver in volumes.items() if name not in certain}:
            limit = csi_node.limits.get(driver)
            if limit is not None and _max_count(driver, volumes, certain, attachments.volumes, attached) > limit:
                return _FULL
        return SUCCESS

    def signature(self, pod: Pod) -> Hashable | None:
        claims = claims_signature(self._objects, pod)
        if claims is NO_CLAIMS:
            return NO_CLAIMS
        return (claims, self._nodes.mounts_generation, self._versions(*CLAIM_KINDS, CSI_NODES, VOLUME_ATTACHMENTS))

    def _incoming(self, state: CycleState, pod: Pod) -> _IncomingVolumes:
        """Return the pod's ``_IncomingVolumes``, created once for each cycle state. Raises ``Unprepared``."""
        try:
            return state.read(_STATE)
        except StateNotFound:
            self._attachments.begin()
            incoming = _IncomingVolumes(lambda has_csi_node: self._volumes_of(pod, has_csi_node=has_csi_node))
            state.write(_STATE, incoming)
            return incoming

    def _volumes_of(self, pod: Pod, *, has_csi_node: bool) -> VolumeDrivers | Status:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD
        try:
            return dict(self._resolver.of_pod(Mounts.of(pod), NO_NODE, has_csi_node=has_csi_node))
        except MissingClaim as missing:
            return missing.status

    def _versions(self, *kinds: Kind[Any]) -> tuple[int, ...]:
        return tuple(self._objects.version(it) for it in kinds)


def _has_counted_volumes(pod: Pod) -> bool:
    return any(it.is_attachable for it in pod.spec.volumes)


def _are_disjoint(one: VolumeDrivers, other: VolumeDrivers) -> bool:
    """Return true if the mappings share no volume. The volumes of the smaller one are looked up in the larger one."""
    return one.keys().isdisjoint(other) if len(other) < len(one) else other.keys().isdisjoint(one)


def _count_by_driver(incoming: VolumeDrivers, attached: VolumeDrivers) -> Mapping[str, int]:
    """Return the number of incoming volumes that are not attached, by driver."""
    return Counter(driver for name, driver in incoming.items() if name not in attached)


def _max_count(
    driver: str, incoming: VolumeDrivers, certain: VolumeDrivers, with_in_flight: VolumeDrivers, attached: VolumeDrivers
) -> int:
    """Return the maximum number of a driver's volumes on a node with the incoming pod, over all outcomes of the binds
    in flight.

    ``certain``: volumes of pods that are not in flight. ``with_in_flight``: volumes of all pods. ``attached``: volumes
    that VolumeAttachments name. An attached volume that the incoming pod shares only with pods in flight counts twice.
    If the binds of these pods fail, kube-scheduler counts the volume as an unused attachment and also as a new volume.
    """

    def of_driver(volumes: VolumeDrivers) -> set[str]:
        return {name for name, its_driver in volumes.items() if its_driver == driver}

    ours, sure, all_, named = map(of_driver, (incoming, certain, with_in_flight, attached))
    return len(all_ | named) + len(ours - all_) + len((ours & all_ & named) - sure)


def _needs(_args: NodeVolumeLimitsArgs) -> Needs:
    return Needs(kinds=(*CLAIM_KINDS, CSI_NODES, VOLUME_ATTACHMENTS))


SPEC: Final = PluginSpec(
    NAME,
    NodeVolumeLimitsArgs,
    NodeVolumeLimits,
    needs=_needs,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
