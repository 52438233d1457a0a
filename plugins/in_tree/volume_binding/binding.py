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
from plugins.in_tree.volume_binding.demand import NoNode, claims_of
from plugins.in_tree.volume_binding.filling import Plan
from plugins.in_tree.volume_binding.placing import Placing

REASON_TIMEOUT: Final = "the volumes of the pod were not bound in time"
REASON_TAKEN_BACK: Final = "provisioning failed: the node was taken off a PersistentVolumeClaim of the pod"
REASON_STATIC: Final = (
    "a PersistentVolumeClaim of the pod waits to be bound to a PersistentVolume that is there: "
    "Homeport does not bind volumes, and nobody else did"
)

_LOOK_SECONDS: Final = 0.25
_GRACE_SECONDS: Final = 5.0
"""Time to wait for another component's binding of a claim to appear, because the watch lags behind writes."""

_MARGIN_SECONDS: Final = 0.5
"""Time reserved before the deadline for the bind itself."""


class _Verdict(Struct, frozen=True):
    """Reasons against a node, the waiting claims, and the plan for them; ``None`` if no claim waits."""

    reasons: tuple[str, ...]
    waiting: Sequence[PersistentVolumeClaim]
    plan: Plan | None


class Binding:
    """Waits for the volumes of pods at bind. ``timeout`` in seconds; ``placing`` raises ``NoNode``."""

    def __init__(self, handle: Handle, placing: Callable[[Pod], Placing], timeout: float) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._writer = handle.writer
        self._clock = handle.timing.clock
        self._sleep = handle.timing.sleep
        self._placing = placing
        self._timeout = timeout

    def is_done(self, pod: Pod) -> bool:
        """Return whether all claims are bound according to the snapshot."""
        try:
            return all(it.is_bound for it in claims_of(self._objects, pod))
        except NoNode:
            return False

    async def done(self, pod: Pod, node_name: str, deadline: float) -> Status:
        """Wait until all claims are bound to volumes that the node can use; return success or a refusal."""
        now = self._clock()
        until = min(now + self._timeout, deadline - _MARGIN_SECONDS)
        patient_until = now + _GRACE_SECONDS
        given: set[str] = set()
        while True:
            node = self._nodes.get(node_name)
            if node is None:
                return unschedulable(f"the node {node_name} is gone")
            try:
                found = await self._judged(pod, node)
            except NoNode as none:
                return unschedulable(none.reason)
            if found.reasons:
                return unschedulable(*found.reasons)
            if found.plan is None:
                return SUCCESS
            if any(it.name in given and it.selected_node is None for it in found.waiting):
                return unschedulable(REASON_TAKEN_BACK)
            refusal = await self._had_made(found.plan, node, given, patient=self._clock() < patient_until)
            if refusal is not None:
                return refusal
            if self._clock() >= until:
                return unschedulable(REASON_TIMEOUT)
            await self._sleep(_LOOK_SECONDS)

    async def _judged(self, pod: Pod, node: NodeInfo) -> _Verdict:
        """Evaluate the node, without an await between the result and its return. Raises ``NoNode``."""
        while True:
            try:
                placing = self._placing(pod)
                reasons = placing.reasons(node)
                plan = None if reasons or placing.all_bound else placing.plan(node)
                return _Verdict(reasons, placing.waiting, plan)
            except Unprepared as missing:
                for _ in missing.steps:
                    await self._sleep(0)

    async def _had_made(self, plan: Plan, node: NodeInfo, given: set[str], *, patient: bool) -> Status | None:
        """Annotate the claims to provision with the selected node. A returned status ends the bind."""
        own = [it for name, it in plan.bound.items() if it.claim is None]
        if own:
            return None if patient else unschedulable(REASON_STATIC)
        given.update(it.name for it in plan.made if it.selected_node is not None)
        return await self._give([it for it in plan.made if it.selected_node is None], node.name, given)

    async def _give(self, claims: Sequence[PersistentVolumeClaim], node_name: str, given: set[str]) -> Status | None:
        for claim in claims:
            try:
                await self._writer.annotate(PERSISTENT_VOLUME_CLAIMS, claim, {SELECTED_NODE: node_name})
            except WriteConflict:
                return None  # retried with a fresh read: another component may have set it
            except ObjectGone as gone:
                return unschedulable(f"{gone} is gone")
            except OSError as cause:
                return error(f"PersistentVolumeClaim {claim.namespace}/{claim.name} cannot be given a node: {cause}")
            given.add(claim.name)
        return None
