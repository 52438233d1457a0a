"""The plugin: its extension points, and what they share."""

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
from plugins.in_tree.volume_binding.binding import Binding
from plugins.in_tree.volume_binding.demand import Demand, NoNode, demand_of
from plugins.in_tree.volume_binding.placing import Placing
from plugins.in_tree.volume_binding.room import Room
from plugins.in_tree.volume_binding.supply import SUPPLY, Volumes

NAME: Final = "VolumeBinding"

_MOST_PLACINGS: Final = 256
_MOST_PLACINGS_BYTES: Final = 32 << 20
_FEWEST_PLACINGS: Final = 8
"""Pods whose verdicts are remembered: the last ones in any case, others while they are few and small."""


class _Found(Struct, frozen=True):
    """What PreFilter leaves for Filter."""

    placing: Placing

    def clone(self) -> _Found:
        return self


_STATE: Final[StateKey[_Found]] = StateKey(NAME)


@final
class VolumeBinding(PreFilterPlugin, ClusterFilterPlugin, PreScorePlugin, ScorePlugin, PreBindPlugin):
    """Source of the rules: ``framework/plugins/volumebinding`` of Kubernetes 1.36, with its default feature gates.

    1.35 decides alike. No pod in flight matters: a volume is only looked at as taken once the API server has it so,
    and no pod is bound before all of its own are.
    """

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._volumes = Volumes(handle.objects)
        self._room = Room(handle.objects)
        self._binding = Binding(handle, self._placing, args.bindTimeoutSeconds)
        self._placings: dict[ObjectKey, Placing] = {}
        self._statuses: dict[tuple[str, ...], Status] = {}

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if not _has_claims(pod.spec.volumes) and VOLUMES not in pod.spec.oversized:
            return SKIP, None
        try:
            state.write(_STATE, _Found(self._placing(pod)))
        except NoNode as found:
            return unresolvable(found.reason), None
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        try:
            placing = state.read(_STATE).placing
        except StateNotFound:
            raise StateNotFound("not found") from None
        reasons = placing.reasons(node)
        if not reasons:
            return SUCCESS
        found = self._statuses.get(reasons)
        if found is None:
            found = self._statuses[reasons] = unresolvable(*reasons).by(NAME)
        return found

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return False

    def signature(self, pod: Pod) -> Hashable | None:
        found = claims_signature(self._objects, pod)
        if found is NO_CLAIMS:
            return NO_CLAIMS
        return (found, self._nodes.generation, *(self._objects.version(it) for it in (*SUPPLY, CSI_NODES)))

    def pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Status:
        """Scores are behind the feature gate StorageCapacityScoring, which is off by default."""
        return SKIP

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """Asked only where a profile leaves out PreScore."""
        return 0

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS if self._binding.is_done(pod) else await self._binding.done(pod, node_name, state.deadline)

    def _placing(self, pod: Pod) -> Placing:
        """Return the verdicts for the pod's claims, those of an earlier evaluation if they still hold.

        Raises ``NoNode`` or ``Unprepared``.
        """
        demand = demand_of(self._objects, pod)
        if demand.waiting:
            self._volumes.catch_up()
            self._room.catch_up()
        rests_on = self._rests_on(demand)
        found = self._placings.pop(pod.key, None)
        if found is not None and found.rests_on == rests_on and found.is_current():
            found.begin()
        else:
            earlier, stamp = found, partial(self._stamp, pod.namespace)
            found = Placing(demand, rests_on, self._objects, self._nodes, self._volumes, self._room, stamp)
            if earlier is not None and earlier.rests_on == rests_on:
                found.take_over(earlier)
        self._placings[pod.key] = found
        self._make_room()
        return found

    def _rests_on(self, demand: Demand) -> tuple[Any, ...]:
        """Everything that verdicts for these claims depend on, beside nodes, volumes that are free, and room."""
        volumes = [self._objects.get(PERSISTENT_VOLUMES, "", it.volume_name) for it in demand.bound]
        return demand, volumes, [self._objects.version(it) for it in (STORAGE_CLASSES, CSI_DRIVERS, CSI_NODES)]

    def _stamp(self, namespace: str) -> Hashable:
        """Moves whenever what verdicts for claims of a namespace rest on may have changed."""
        claims = self._objects.version(PERSISTENT_VOLUME_CLAIMS, namespace)
        return (claims, *(self._objects.version(it) for it in (*SUPPLY, STORAGE_CLASSES, CSI_NODES)))

    def _make_room(self) -> None:
        """Forget the oldest verdicts. Those of the last evaluations stay: their pods may be about to be judged anew."""
        total = sum(it.weight for it in self._placings.values())
        while len(self._placings) > _FEWEST_PLACINGS and (
            total > _MOST_PLACINGS_BYTES or len(self._placings) > _MOST_PLACINGS
        ):
            total -= self._placings.pop(next(iter(self._placings))).weight


def _has_claims(volumes: tuple[PodVolume, ...]) -> bool:
    return any(it.claim is not None or it.ephemeral for it in volumes)


def _needs(_args: VolumeBindingArgs) -> Needs:
    of_pods = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    return Needs(
        kinds=(*of_pods, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES),
        writes=(Writes(PERSISTENT_VOLUME_CLAIMS, f"{SELECTED_NODE}: the node for which a volume is to be made"),),
    )


SPEC: Final = PluginSpec(
    NAME,
    VolumeBindingArgs,
    VolumeBinding,
    needs=_needs,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
