"""The plugin: finds a pod's claims, says of each node whether they can be used or met there, and guards its bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.normalize import default_normalize
from app.framework.parts import Part
from app.framework.points import (
    ClusterFilterPlugin,
    PermitPlugin,
    PostFilterPlugin,
    PostFilterSteps,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from app.framework.score_classes import ScoreClasses
from app.framework.spec import Needs, PluginSpec
from app.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable
from app.kube.claims import CLAIMS
from app.kube.core_v1 import Pod
from app.kube.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from app.kube.resource_v1 import DeviceRequest, ResourceClaim
from plugins.in_tree.dynamic_resources.args import DynamicResourcesArgs, seconds_of
from plugins.in_tree.dynamic_resources.extended import device_requests, from_devices
from plugins.in_tree.dynamic_resources.inventory import Inventory
from plugins.in_tree.dynamic_resources.judging import Judging
from plugins.in_tree.dynamic_resources.pools import node_selected
from plugins.in_tree.dynamic_resources.readiness import has_conditions, is_late, is_ready
from plugins.in_tree.dynamic_resources.unjudged import NAME, REASON_LONG_OBJECT, UNREAD_CLAIMS, Unjudged
from plugins.in_tree.dynamic_resources.wanted import MADE_UP, ClaimNotFound, PodClaims, Wanted, may_want_devices

REASON_ELSEWHERE: Final = "resourceclaim not available on the node"
REASON_STALE: Final = "cannot schedule extended resource claim"
REASON_NO_RESOURCE: Final = "cannot fit resource"
REASON_NOT_ALLOCATED: Final = "the pod's resource claims are not allocated and reserved for it"
REASON_NOTHING_TO_FREE: Final = "no new claims to deallocate"
REASON_STILL: Final = "still not schedulable"

LONGEST_WAIT: Final = 900.0
"""Seconds at Permit; the caller's own time limit is shorter."""

_ALTERNATIVES: Final = 8

_ELSEWHERE: Final = unresolvable(REASON_ELSEWHERE).by(NAME)
_STALE: Final = unresolvable(REASON_STALE).by(NAME)
_NO_RESOURCE: Final = unresolvable(REASON_NO_RESOURCE).by(NAME)
_LONG_OBJECT: Final = unresolvable(REASON_LONG_OBJECT).by(NAME)
_WAIT: Final = Status(Code.WAIT)


_WANTED: Final[StateKey[Wanted]] = StateKey(NAME)
_NOTHING_WANTED: Final = Wanted()


@final
class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    ClusterFilterPlugin,
    PostFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    PermitPlugin,
    PreBindPlugin,
):
    """Source of the rules: ``framework/plugins/dynamicresources`` of Kubernetes 1.36 with its default feature gates."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._binding_timeout = seconds_of(args.binding_timeout)
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._inventory = Inventory(handle.objects)
        self._judging = Judging(self._inventory)
        self._claims = PodClaims(handle.objects, self._inventory)
        self._waiting = handle.waiting

    # Which claims a pod has.

    def pre_enqueue(self, pod: Pod) -> Status:
        if CLAIMS in pod.spec.oversized:
            return UNREAD_CLAIMS
        try:
            self._claims.of(pod)
        except ClaimNotFound as cause:
            return unresolvable(str(cause))
        return SUCCESS

    # Filter.

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        if CLAIMS in pod.spec.oversized:
            return UNREAD_CLAIMS, None
        if not may_want_devices(pod):
            state.write(_WANTED, _NOTHING_WANTED)
            return SKIP, None
        self._inventory.refresh()
        self._judging.begin()
        try:
            wanted = self._claims.wanted(pod)
        except ClaimNotFound as cause:
            return unresolvable(str(cause)), None
        state.write(_WANTED, wanted)
        if not wanted.everything:
            return SKIP, None
        return self._pre_filter(wanted), None

    def _pre_filter(self, wanted: Wanted) -> Status:
        for claim in wanted.everything:
            if claim.allocation is None and claim is not wanted.extended:
                if claim.spec.oversized:
                    return _LONG_OBJECT
                for request in claim.spec.requests:
                    status = self._checked(claim, request)
                    if not status.is_success:
                        return status
        return SUCCESS

    def _checked(self, claim: ResourceClaim, request: DeviceRequest) -> Status:
        """Whether all classes of a request exist: without one, no node can be right."""
        named = [(request.name, request.exactly.device_class)] if request.exactly is not None else []
        if not named:
            named = [(f"{request.name}/{it.name}", it.device_class) for it in request.first_available]
        if not named:
            return unresolvable(f"resource claim {claim}, request {request.name}: unknown request type")
        for name, device_class in named:
            if not device_class:
                return error(f"request {name}: unsupported request type")
            if self._inventory.device_class(device_class) is None:
                return unresolvable(f"request {name}: device class {device_class} does not exist")
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        wanted = _read(state)
        claims, status = self._to_allocate(wanted, pod, node)
        if status is not None:
            return status
        try:
            elsewhere = not all(self._is_available(it, node) for it in wanted.everything)
        except Unjudged as cause:
            return unresolvable(cause.reason).by(NAME)
        if claims:
            outcome = self._judging.of(claims, node, self._others(wanted, pod))
            if isinstance(outcome, Status):
                return outcome
            if not elsewhere:
                wanted.solutions[node.name] = outcome
        return _ELSEWHERE if elsewhere else SUCCESS

    def _others(self, wanted: Wanted, pod: Pod) -> Iterator[tuple[Sequence[ResourceClaim], NodeInfo]]:
        for node in tuple(self._nodes.list()):
            claims, status = self._to_allocate(wanted, pod, node)
            if status is None and claims:
                yield claims, node

    def _to_allocate(self, wanted: Wanted, pod: Pod, node: NodeInfo) -> tuple[tuple[ResourceClaim, ...], Status | None]:
        """The claims that still need devices there; with a status that says all there is to say."""
        missing = tuple(it for it in wanted.claims if it.allocation is None)
        extended = wanted.extended
        if extended is None:
            return missing, None
        if extended.name != MADE_UP:
            mine = extended.allocation is not None and pod.uid in extended.reserved_for
            return missing, None if mine else _STALE
        resources = from_devices(wanted.resources, node.node.allocatable, self._inventory.class_of_resource)
        if resources is None:
            return (), _NO_RESOURCE
        if not resources and not wanted.claims:
            return (), SUCCESS
        return (*missing, self._variant(wanted, pod, tuple(resources))), None

    def _variant(self, wanted: Wanted, pod: Pod, resources: tuple[str, ...]) -> ResourceClaim:
        """The claim for the resources that a node has no device plugin for."""
        claim = wanted.variants.get(resources)
        if claim is None:
            requests = device_requests(pod.spec.claims.containers, resources, self._inventory.class_of_resource)
            claim = ResourceClaim(pod.namespace, MADE_UP, "", False, None, self._judging.spec_of(requests))
            wanted.variants[resources] = claim
        return claim

    def _is_available(self, claim: ResourceClaim, node: NodeInfo) -> bool:
        """Whether an allocated claim can be used there, and its devices will be ready. Raises ``Unjudged``."""
        allocation = claim.allocation
        if allocation is None:
            return True
        if allocation.node_selector is not None and not node_selected(allocation.node_selector, node.node):
            return False
        ready = is_ready(claim, allocation)
        return ready or (ready is False and not is_late(allocation, self._binding_timeout))

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """It is claims that have devices, wherever the pods are that use them."""
        return False

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        return self.filter(state, pod, node)

    def signature(self, pod: Pod) -> tuple[Any, ...] | None:
        """What there is, and which claims the pod means; ``None`` where time alone can change the answer."""
        if CLAIMS in pod.spec.oversized:
            return pod.spec.oversized
        claims = pod.spec.claims
        if not may_want_devices(pod):
            return ()
        try:
            named = self._claims.of(pod)
        except ClaimNotFound:
            return (pod.key, pod.uid, claims, self._objects.version(RESOURCE_CLAIMS, pod.namespace))
        conditional = (it.allocation is not None and has_conditions(it.allocation) for it in named)
        if any(conditional):
            return None
        return (pod.key, pod.uid, claims, self._nodes.generation, *self._inventory.versions())

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """Free nothing: the scheduler in front of us does.

        There is no state where an earlier plugin's PreFilter refused the pod; kube-scheduler then fails with an Error.
        """
        yield from ()
        try:
            wanted = state.read(_WANTED)
        except StateNotFound:
            wanted = _NOTHING_WANTED
        return None, unschedulable(REASON_STILL if wanted.everything else REASON_NOTHING_TO_FREE)

    # Score.

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Where nothing was filtered before, as in prioritize, what there is to be had is found out now."""
        try:
            state.read(_WANTED)
        except StateNotFound:
            status, _ = self.pre_filter(state, pod)
            if status.is_success:
                for node in nodes:
                    self.filter(state, pod, node)
            elif not status.is_skip:
                return SKIP
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Of alternatives, the first is worth most."""
        wanted = _read(state)
        solution = wanted.solutions.get(node.name)
        if solution is None:
            return 0
        chosen = iter(solution)
        return sum(_worth(it, next(chosen) if it.allocation is None else _chosen(it)) for it in wanted.everything)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """All alike for a pod that wants no devices, as most."""
        if not _read(state).solutions:
            return ScoreClasses([0] * len(nodes), {0: 0}, all_used=len(nodes) > 0)
        return ScoreClasses.by_value([self.score(state, pod, node) for node in nodes])

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return default_normalize(scores)

    # Bind.

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        """The scheduler has written that the claims are the pod's; that word may still be on its way to us."""
        if self._are_its_own(pod, node_name):
            return SUCCESS, 0.0
        return _WAIT, LONGEST_WAIT

    def object_changed(self, kind: Kind[Any], old: object, new: object) -> None:
        """Let each pod of any profile go on that waits and has all claims now."""
        for waiting in self._waiting.all():
            if NAME in waiting.pending_plugins() and self._are_its_own(waiting.pod, waiting.node_name):
                waiting.allow(NAME)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS if self._are_its_own(pod, node_name) else unresolvable(REASON_NOT_ALLOCATED)

    def _are_its_own(self, pod: Pod, node_name: str) -> bool:
        """Whether all claims that it needs there have devices and are reserved for it."""
        if CLAIMS in pod.spec.oversized:
            return False
        if not may_want_devices(pod):
            return True
        self._inventory.refresh_at_once()
        try:
            wanted = self._claims.wanted(pod)
        except ClaimNotFound:
            return False
        needed = wanted.claims
        if wanted.extended is not None and not self._has_device_plugins(wanted, node_name):
            needed = wanted.everything
        return all(it.allocation is not None and pod.uid in it.reserved_for for it in needed)

    def _has_device_plugins(self, wanted: Wanted, node_name: str) -> bool:
        """Whether the node has no need of a claim for the extended resources."""
        node = self._nodes.get(node_name)
        if node is None:
            return False
        return from_devices(wanted.resources, node.node.allocatable, self._inventory.class_of_resource) == []


def _read(state: CycleState) -> Wanted:
    try:
        return state.read(_WANTED)
    except StateNotFound:
        raise StateNotFound("not found") from None  # in-tree, in these words


def _chosen(claim: ResourceClaim) -> frozenset[str]:
    devices = claim.allocation.devices if claim.allocation is not None else ()
    return frozenset(it.request for it in devices if "/" in it.request)


def _worth(claim: ResourceClaim, chosen: frozenset[str]) -> int:
    return sum(
        _ALTERNATIVES - place
        for request in claim.spec.requests
        if request.exactly is None
        for place, it in enumerate(request.first_available)
        if f"{request.name}/{it.name}" in chosen
    )


SPEC: Final = PluginSpec(
    NAME,
    DynamicResourcesArgs,
    DynamicResources,
    parts=(Part.CLAIMS, Part.RESOURCES),
    needs=lambda _: Needs(kinds=(RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)),
)
