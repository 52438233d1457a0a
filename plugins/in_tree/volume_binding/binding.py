"""Delays the bind of a pod until its claims are bound, and triggers the provisioning of missing volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from app.framework.counts import Unprepared
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.objects import ObjectGone, WriteConflict
from app.framework.status import SUCCESS, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.kube.persistent_volumes import SELECTED_NODE, PersistentVolumeClaim
from plugins.in_tree.volume_binding.evaluation import ClaimsEvaluation
from plugins.in_tree.volume_binding.pod_volume_claims import NoNodeFits, claims_of
from plugins.in_tree.volume_binding.pod_volumes import PodVolumes

REASON_TIMEOUT: Final = "the volumes of the pod were not bound in time"
REASON_PROVISIONING_FAILED: Final = "provisioning failed: the node was taken off a PersistentVolumeClaim of the pod"
REASON_NOT_BOUND: Final = (
    "a PersistentVolumeClaim of the pod waits to be bound to a PersistentVolume that is there: "
    "Homeport does not bind volumes, and nobody else did"
)

_POLL_SECONDS: Final = 0.25
"""Interval in seconds at which a waiting bind evaluates the claims again."""

_GRACE_SECONDS: Final = 5.0
"""Maximum seconds to wait for another component to bind a claim to an existing volume that is not reserved for it, and
for the watch to report the change.
"""

_MARGIN_SECONDS: Final = 0.5
"""Time in seconds before the deadline that is reserved for the Binding of the pod."""


class _NodeEvaluation(Struct, frozen=True):
    """Evaluation of a pod's claims on one node.

    ``reasons``: why the node is rejected. ``waiting``: claims that are not bound. ``pod_volumes``: volumes to bind and
    to provision for ``waiting``; ``None`` if the node is rejected or no claim waits.
    """

    reasons: tuple[str, ...]
    waiting: Sequence[PersistentVolumeClaim]
    pod_volumes: PodVolumes | None


class VolumeBinder:
    """Delays the bind of a pod until its claims have volumes.

    ``evaluation`` returns the evaluation of a pod's claims, or raises ``NoNodeFits`` or ``Unprepared``. ``timeout`` is
    in seconds.
    """

    def __init__(self, handle: Handle, evaluation: Callable[[Pod], ClaimsEvaluation], timeout: float) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._writer = handle.writer
        self._clock = handle.timing.clock
        self._sleep = handle.timing.sleep
        self._evaluation = evaluation
        self._timeout = timeout

    def all_claims_bound(self, pod: Pod) -> bool:
        """Return true if all claims of the pod are bound in the snapshot; false also after ``NoNodeFits``."""
        try:
            return all(it.is_bound for it in claims_of(self._objects, pod))
        except NoNodeFits:
            return False

    async def wait_until_bound(self, pod: Pod, node_name: str, deadline: float) -> Status:
        """Trigger the provisioning of missing volumes, and wait until all claims are bound to volumes that the node can
        use.

        ``deadline``: latest end of the bind, on the handle's clock. Returns success, or the reason why the pod cannot
        be bound.
        """
        now = self._clock()
        until = min(now + self._timeout, deadline - _MARGIN_SECONDS)
        patient_until = now + _GRACE_SECONDS
        annotated: set[str] = set()
        while True:
            node = self._nodes.get(node_name)
            if node is None:
                return unschedulable(f"the node {node_name} is gone")
            try:
                result = await self._evaluate_node(pod, node)
            except NoNodeFits as rejection:
                return unschedulable(rejection.reason)
            if result.reasons:
                return unschedulable(*result.reasons)
            if result.pod_volumes is None:
                return SUCCESS
            if any(it.name in annotated and it.selected_node is None for it in result.waiting):
                return unschedulable(REASON_PROVISIONING_FAILED)
            refusal = await self._trigger(result.pod_volumes, node, annotated, patient=self._clock() < patient_until)
            if refusal is not None:
                return refusal
            if self._clock() >= until:
                return unschedulable(REASON_TIMEOUT)
            await self._sleep(_POLL_SECONDS)

    async def _evaluate_node(self, pod: Pod, node: NodeInfo) -> _NodeEvaluation:
        """Evaluate the pod's claims on the node in the current snapshot. Raises ``NoNodeFits``."""
        while True:
            try:
                evaluation = self._evaluation(pod)
                reasons = evaluation.reasons(node)
                pod_volumes = None if reasons or evaluation.all_bound else evaluation.pod_volumes(node)
                return _NodeEvaluation(reasons, evaluation.waiting, pod_volumes)
            except Unprepared as missing:
                for _ in missing.steps:
                    await self._sleep(0)

    async def _trigger(
        self, pod_volumes: PodVolumes, node: NodeInfo, annotated: set[str], *, patient: bool
    ) -> Status | None:
        """Trigger the provisioning of missing volumes by annotating their claims with the node.

        Claims are not annotated while a claim must be bound to an existing volume that is not reserved for it. A
        returned status ends the bind.

        ``annotated``: names of claims that have the selected-node annotation; this adds to them. ``patient``: true if
        another component might still bind claims to existing volumes.
        """
        if any(it.claim is None for it in pod_volumes.static_bindings.values()):
            return None if patient else unschedulable(REASON_NOT_BOUND)
        annotated.update(it.name for it in pod_volumes.dynamic_provisions if it.selected_node is not None)
        return await self._select_node(
            [it for it in pod_volumes.dynamic_provisions if it.selected_node is None], node.name, annotated
        )

    async def _select_node(
        self, claims: Sequence[PersistentVolumeClaim], node_name: str, annotated: set[str]
    ) -> Status | None:
        """Annotate the claims with the selected node, and add their names to ``annotated``. A returned status ends the
        bind.
        """
        for claim in claims:
            try:
                await self._writer.annotate(PERSISTENT_VOLUME_CLAIMS, claim, {SELECTED_NODE: node_name})
            except WriteConflict:
                return None  # tried again after the next evaluation, because another component has changed the claim
            except ObjectGone as gone:
                return unschedulable(f"{gone} is gone")
            except OSError as cause:
                name = f"{claim.namespace}/{claim.name}"
                return error(f"PersistentVolumeClaim {name} cannot be annotated with a node: {cause}")
            annotated.add(claim.name)
        return None
