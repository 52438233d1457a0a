"""DynamicResources plugin: filters and scores nodes by a pod's claims, and delays a bind until they are reserved."""

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
from plugins.in_tree.dynamic_resources.cached_allocator import CachedAllocator
from plugins.in_tree.dynamic_resources.errors import NAME, OVERSIZED_CLAIMS, REASON_LONG_OBJECT, CannotEvaluate
from plugins.in_tree.dynamic_resources.extended import device_requests, resources_from_devices
from plugins.in_tree.dynamic_resources.inventory import Inventory
from plugins.in_tree.dynamic_resources.pod_claims import (
    PLACEHOLDER,
    ClaimNotFound,
    ClaimResolver,
    PodDeviceClaims,
    may_need_devices,
)
from plugins.in_tree.dynamic_resources.pools import node_selected
from plugins.in_tree.dynamic_resources.readiness import has_conditions, is_late, is_ready

REASON_ELSEWHERE: Final = "resourceclaim not available on the node"
REASON_STALE: Final = "cannot schedule extended resource claim"
REASON_NO_RESOURCE: Final = "cannot fit resource"
REASON_NOT_ALLOCATED: Final = "the pod's resource claims are not allocated and reserved for it"
REASON_NOTHING_TO_FREE: Final = "no new claims to deallocate"
REASON_STILL: Final = "still not schedulable"

MAX_WAIT_SECONDS: Final = 900.0
"""Maximum time in seconds that a pod waits at Permit. The time limit of the bind can end the wait sooner."""

_MAX_ALTERNATIVES: Final = 8
"""Maximum number of alternatives of a request. It is also the score of the first alternative."""

_ELSEWHERE: Final = unresolvable(REASON_ELSEWHERE).by(NAME)
_STALE: Final = unresolvable(REASON_STALE).by(NAME)
_NO_RESOURCE: Final = unresolvable(REASON_NO_RESOURCE).by(NAME)
_LONG_OBJECT: Final = unresolvable(REASON_LONG_OBJECT).by(NAME)
_WAIT: Final = Status(Code.WAIT)

_STATE: Final[StateKey[PodDeviceClaims]] = StateKey(NAME)
_NO_CLAIMS: Final = PodDeviceClaims()


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
    """Evaluates the devices that a pod requests by ResourceClaims and by extended resources of DeviceClasses.

    Source of the rules: ``framework/plugins/dynamicresources`` of Kubernetes 1.36 with its default feature gates.
    """

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._binding_timeout = seconds_of(args.binding_timeout)
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._inventory = Inventory(handle.objects)
        self._allocator = CachedAllocator(self._inventory)
        self._claims = ClaimResolver(handle.objects, self._inventory)
        self._waiting = handle.waiting

    # PreEnqueue.

    def pre_enqueue(self, pod: Pod) -> Status:
        if CLAIMS in pod.spec.oversized:
            return OVERSIZED_CLAIMS
        try:
            self._claims.of(pod)
        except ClaimNotFound as cause:
            return unresolvable(str(cause))
        return SUCCESS

    # Filter.

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        if CLAIMS in pod.spec.oversized:
            return OVERSIZED_CLAIMS, None
        if not may_need_devices(pod):
            state.write(_STATE, _NO_CLAIMS)
            return SKIP, None
        self._inventory.refresh()
        self._allocator.begin()
        try:
            pod_claims = self._claims.pod_claims(pod)
        except ClaimNotFound as cause:
            return unresolvable(str(cause)), None
        state.write(_STATE, pod_claims)
        if not pod_claims.all_claims:
            return SKIP, None
        return self._pre_filter(pod_claims), None

    def _pre_filter(self, pod_claims: PodDeviceClaims) -> Status:
        for claim in pod_claims.all_claims:
            if claim.allocation is None and claim is not pod_claims.extended:
                if claim.spec.oversized:
                    return _LONG_OBJECT
                for request in claim.spec.requests:
                    status = self._check_classes(claim, request)
                    if not status.is_success:
                        return status
        return SUCCESS

    def _check_classes(self, claim: ResourceClaim, request: DeviceRequest) -> Status:
        """Return success if all DeviceClasses of a request exist, else a rejection or error for all nodes."""
        named = [(f"{request.name}/{it.name}", it.device_class) for it in request.first_available]
        if request.exactly is not None:
            named = [(request.name, request.exactly.device_class)]
        if not named:
            return unresolvable(f"resource claim {claim}, request {request.name}: unknown request type")
        for name, device_class in named:
            if not device_class:
                return error(f"request {name}: unsupported request type")
            if self._inventory.device_class(device_class) is None:
                return unresolvable(f"request {name}: device class {device_class} does not exist")
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        pod_claims = _read(state)
        claims, status = self._to_allocate(pod_claims, pod, node)
        if status is not None:
            return status
        try:
            unavailable = not all(self._is_available(it, node) for it in pod_claims.all_claims)
        except CannotEvaluate as cause:
            return unresolvable(cause.reason).by(NAME)
        if claims:
            outcome = self._allocator.outcome(claims, node, self._other_nodes(pod_claims, pod))
            if isinstance(outcome, Status):
                return outcome
            if not unavailable:
                pod_claims.solutions[node.name] = outcome
        return _ELSEWHERE if unavailable else SUCCESS

    def _other_nodes(self, pod_claims: PodDeviceClaims, pod: Pod) -> Iterator[tuple[Sequence[ResourceClaim], NodeInfo]]:
        for node in tuple(self._nodes.list()):
            claims, status = self._to_allocate(pod_claims, pod, node)
            if status is None and claims:
                yield claims, node

    def _to_allocate(
        self, pod_claims: PodDeviceClaims, pod: Pod, node: NodeInfo
    ) -> tuple[tuple[ResourceClaim, ...], Status | None]:
        """Return (claims that need devices on the node, status of the node if it is already known, else ``None``)."""
        missing = tuple(it for it in pod_claims.claims if it.allocation is None)
        extended = pod_claims.extended
        if extended is None:
            return missing, None
        if extended.name != PLACEHOLDER:
            mine = extended.allocation is not None and pod.uid in extended.reserved_for
            return missing, None if mine else _STALE
        resources = self._from_devices(pod_claims, node)
        if resources is None:
            return (), _NO_RESOURCE
        if not resources and not pod_claims.claims:
            return (), SUCCESS
        return (*missing, self._extended_claim(pod_claims, pod, tuple(resources))), None

    def _extended_claim(self, pod_claims: PodDeviceClaims, pod: Pod, resources: tuple[str, ...]) -> ResourceClaim:
        """Return the placeholder claim for the resources that the node has no device plugin for."""
        claim = pod_claims.variants.get(resources)
        if claim is None:
            requests = device_requests(pod.spec.claims.containers, resources, self._inventory.class_of_resource)
            claim = ResourceClaim(pod.namespace, PLACEHOLDER, "", False, None, self._allocator.spec_of(requests))
            pod_claims.variants[resources] = claim
        return claim

    def _is_available(self, claim: ResourceClaim, node: NodeInfo) -> bool:
        """Return true if the claim is not allocated, or usable on the node now or soon. Raises ``CannotEvaluate``."""
        allocation = claim.allocation
        if allocation is None:
            return True
        if allocation.node_selector is not None and not node_selected(allocation.node_selector, node.node):
            return False
        ready = is_ready(claim, allocation)
        return ready or (ready is False and not is_late(allocation, self._binding_timeout))

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        """Return ``False``, because devices are taken by allocated claims, no matter which pods use the claims."""
        return False

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        return self.filter(state, pod, node)

    def signature(self, pod: Pod) -> tuple[Any, ...] | None:
        """Return a key of the verdict's inputs; ``None`` if binding conditions of a named claim add the time."""
        if CLAIMS in pod.spec.oversized:
            return pod.spec.oversized
        claims = pod.spec.claims
        if not may_need_devices(pod):
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
        """Return a rejection. Claims are deallocated by the scheduler that calls Homeport, not by this plugin.

        If an earlier plugin rejected the pod at PreFilter, there is no state. Homeport then returns a rejection,
        although kube-scheduler returns an error.
        """
        yield from ()
        try:
            pod_claims = state.read(_STATE)
        except StateNotFound:
            pod_claims = _NO_CLAIMS
        return None, unschedulable(REASON_STILL if pod_claims.all_claims else REASON_NOTHING_TO_FREE)

    # Score.

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Run PreFilter and Filter for ``nodes`` if they have not run in this cycle, as in a prioritize request."""
        try:
            state.read(_STATE)
        except StateNotFound:
            status, _ = self.pre_filter(state, pod)
            if status.is_success:
                for node in nodes:
                    self.filter(state, pod, node)
            elif not status.is_skip:
                return SKIP
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Return the sum of the scores of the chosen alternatives; 0 without a solution. Earlier ones score more."""
        pod_claims = _read(state)
        solution = pod_claims.solutions.get(node.name)
        if solution is None:
            return 0
        chosen = iter(solution)
        return sum(_score(it, next(chosen) if it.allocation is None else _chosen(it)) for it in pod_claims.all_claims)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """Return the nodes' scores, all 0 if no node has a solution, for example because the pod needs no devices."""
        if not _read(state).solutions:
            return ScoreClasses([0] * len(nodes), {0: 0}, all_used=len(nodes) > 0)
        return ScoreClasses.by_value([self.score(state, pod, node) for node in nodes])

    def normalize(self, state: CycleState, pod: Pod, scores: Mapping[Any, int]) -> Mapping[Any, int]:
        return default_normalize(scores)

    # Bind.

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        """Let the pod wait until the snapshot, which can be outdated, shows the pod's claims as reserved."""
        if self._has_own_claims(pod, node_name):
            return SUCCESS, 0.0
        return _WAIT, MAX_WAIT_SECONDS

    def object_changed(self, kind: Kind[Any], old: object, new: object) -> None:
        """Allow the waiting pods, of all profiles, whose claims are now reserved for them."""
        for waiting in self._waiting.all():
            if NAME in waiting.pending_plugins() and self._has_own_claims(waiting.pod, waiting.node_name):
                waiting.allow(NAME)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS if self._has_own_claims(pod, node_name) else unresolvable(REASON_NOT_ALLOCATED)

    def _has_own_claims(self, pod: Pod, node_name: str) -> bool:
        """Return true if all claims that the pod needs on the node are allocated and reserved for it."""
        if CLAIMS in pod.spec.oversized:
            return False
        if not may_need_devices(pod):
            return True
        self._inventory.refresh_at_once()
        try:
            pod_claims = self._claims.pod_claims(pod)
        except ClaimNotFound:
            return False
        needed = pod_claims.claims
        if pod_claims.extended is not None and not self._has_device_plugins(pod_claims, node_name):
            needed = pod_claims.all_claims
        return all(it.allocation is not None and pod.uid in it.reserved_for for it in needed)

    def _has_device_plugins(self, pod_claims: PodDeviceClaims, node_name: str) -> bool:
        """Return true if the node's device plugins provide all ``pod_claims.resources``, so that no claim is needed."""
        node = self._nodes.get(node_name)
        return node is not None and self._from_devices(pod_claims, node) == []

    def _from_devices(self, pod_claims: PodDeviceClaims, node: NodeInfo) -> list[str] | None:
        class_of = self._inventory.class_of_resource
        return resources_from_devices(pod_claims.resources, node.node.allocatable, class_of)


def _read(state: CycleState) -> PodDeviceClaims:
    try:
        return state.read(_STATE)
    except StateNotFound:
        raise StateNotFound("not found") from None  # kube-scheduler's text


def _chosen(claim: ResourceClaim) -> frozenset[str]:
    devices = claim.allocation.devices if claim.allocation is not None else ()
    return frozenset(it.request for it in devices if "/" in it.request)


def _score(claim: ResourceClaim, chosen: frozenset[str]) -> int:
    return sum(
        _MAX_ALTERNATIVES - position
        for request in claim.spec.requests
        if request.exactly is None
        for position, it in enumerate(request.first_available)
        if f"{request.name}/{it.name}" in chosen
    )


SPEC: Final = PluginSpec(
    NAME,
    DynamicResourcesArgs,
    DynamicResources,
    parts=(Part.CLAIMS, Part.RESOURCES),
    needs=lambda _: Needs(kinds=(RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES)),
)
