"""VolumeBinding plugin: implements the extension points, and caches the evaluations that they share."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, Final, final

from msgspec import Struct

from app.framework.claims import NO_CLAIMS, claims_signature
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreBindPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.spec import Needs, PluginSpec, Reads, Writes
from app.framework.status import SKIP, SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from app.kube.meta_v1 import ObjectKey
from app.kube.persistent_volumes import SELECTED_NODE
from app.kube.volumes import VOLUMES, PodVolume
from plugins.in_tree.volume_binding.args import VolumeBindingArgs
from plugins.in_tree.volume_binding.binding import VolumeBinder
from plugins.in_tree.volume_binding.capacity_index import CapacityIndex
from plugins.in_tree.volume_binding.evaluation import ClaimsEvaluation
from plugins.in_tree.volume_binding.pod_volume_claims import NoNodeFits, PodVolumeClaims, pod_volume_claims
from plugins.in_tree.volume_binding.volume_index import SUPPLY_KINDS, VolumeIndex

NAME: Final = "VolumeBinding"

_MAX_EVALUATIONS: Final = 256
"""Maximum number of pods whose evaluations are cached."""

_MAX_EVALUATION_BYTES: Final = 32 << 20
"""Maximum estimated size of the cached evaluations in bytes."""

_MIN_EVALUATIONS: Final = 8
"""Number of latest evaluations that are cached regardless of their size, because their pods might soon be retried."""


class _FilterState(Struct, frozen=True):
    """Evaluation of the pod's claims, which PreFilter stores for Filter."""

    evaluation: ClaimsEvaluation

    def clone(self) -> _FilterState:
        return self


_STATE: Final[StateKey[_FilterState]] = StateKey(NAME)


@final
class VolumeBinding(PreFilterPlugin, ClusterFilterPlugin, PreScorePlugin, ScorePlugin, PreBindPlugin):
    """Filters nodes by the pod's claims, and waits at PreBind until the claims are bound.

    Source of the rules: ``framework/plugins/volumebinding`` of Kubernetes 1.36 with its default feature gates; 1.35 has
    the same rules. Verdicts do not depend on pods in flight. A volume is taken only after the API server has bound it
    to a claim, and a pod is bound only after all its claims.
    """

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._volumes = VolumeIndex(handle.objects)
        self._capacities = CapacityIndex(handle.objects)
        self._binder = VolumeBinder(handle, self._evaluation, args.bindTimeoutSeconds)
        self._evaluations: dict[ObjectKey, ClaimsEvaluation] = {}
        self._statuses: dict[tuple[str, ...], Status] = {}

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if not _has_claims(pod.spec.volumes) and VOLUMES not in pod.spec.oversized:
            return SKIP, None
        try:
            state.write(_STATE, _FilterState(self._evaluation(pod)))
        except NoNodeFits as rejection:
            return unresolvable(rejection.reason), None
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        try:
            evaluation = state.read(_STATE).evaluation
        except StateNotFound:
            raise StateNotFound("not found") from None
        reasons = evaluation.reasons(node)
        if not reasons:
            return SUCCESS
        status = self._statuses.get(reasons)
        if status is None:
            status = self._statuses[reasons] = unresolvable(*reasons).by(NAME)
        return status

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return False

    def signature(self, pod: Pod) -> Hashable | None:
        claims = claims_signature(self._objects, pod)
        if claims is NO_CLAIMS:
            return NO_CLAIMS
        return (claims, self._nodes.generation, *(self._objects.version(it) for it in (*SUPPLY_KINDS, CSI_NODES)))

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Skip Score, as kube-scheduler does unless the feature gate StorageCapacityScoring is on."""
        return SKIP

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Return 0. It is called only if a profile disables PreScore."""
        return 0

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if self._binder.all_claims_bound(pod):
            return SUCCESS
        return await self._binder.wait_until_bound(pod, node_name, state.deadline)

    def _evaluation(self, pod: Pod) -> ClaimsEvaluation:
        """Return the evaluation of the pod's claims: the cached one if it is still valid, else a new one.

        Raises ``Unprepared`` and the errors of ``pod_volume_claims``.
        """
        claims = pod_volume_claims(self._objects, pod)
        if claims.waiting:
            self._volumes.catch_up()
            self._capacities.catch_up()
        inputs = self._inputs(claims)
        evaluation = self._evaluations.pop(pod.key, None)
        if evaluation is not None and evaluation.inputs == inputs and evaluation.is_current():
            evaluation.begin()
        else:
            earlier, stamp = evaluation, partial(self._stamp, pod.namespace)
            evaluation = ClaimsEvaluation(
                claims, inputs, self._objects, self._nodes, self._volumes, self._capacities, stamp
            )
            if earlier is not None and earlier.inputs == inputs:
                evaluation.reuse_results(earlier)
        self._evaluations[pod.key] = evaluation
        self._evict_oldest()
        return evaluation

    def _inputs(self, claims: PodVolumeClaims) -> tuple[Any, ...]:
        """Return all inputs of the evaluation, except nodes, CSIStorageCapacity objects, and volumes to be bound."""
        volumes = [self._objects.get(PERSISTENT_VOLUMES, "", it.volume_name) for it in claims.bound]
        return claims, volumes, [self._objects.version(it) for it in (STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES)]

    def _stamp(self, namespace: str) -> Hashable:
        """Return a key that changes whenever anything that evaluations depend on, except nodes, might have changed."""
        claims = self._objects.version(PERSISTENT_VOLUME_CLAIMS, namespace)
        return (claims, *(self._objects.version(it) for it in (*SUPPLY_KINDS, STORAGE_CLASSES, CSI_NODES)))

    def _evict_oldest(self) -> None:
        """Evict the oldest evaluations until the cache is within its limits, but keep the last ``_MIN_EVALUATIONS``."""
        total = sum(it.weight for it in self._evaluations.values())
        while len(self._evaluations) > _MIN_EVALUATIONS and (
            total > _MAX_EVALUATION_BYTES or len(self._evaluations) > _MAX_EVALUATIONS
        ):
            total -= self._evaluations.pop(next(iter(self._evaluations))).weight


def _has_claims(volumes: tuple[PodVolume, ...]) -> bool:
    return any(it.claim is not None or it.ephemeral for it in volumes)


def _needs(_args: VolumeBindingArgs) -> Needs:
    of_pods = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    return Needs(
        kinds=(*of_pods, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES),
        writes=(
            Writes(PERSISTENT_VOLUME_CLAIMS, f"{SELECTED_NODE}: the node for which a volume is to be provisioned"),
        ),
    )


SPEC: Final = PluginSpec(
    NAME,
    VolumeBindingArgs,
    VolumeBinding,
    needs=_needs,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
