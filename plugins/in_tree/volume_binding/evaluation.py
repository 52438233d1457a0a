"""Evaluates a pod's claims on nodes: each claim must have, or be able to get, a volume that the node can use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from msgspec import Struct

from app.framework.counts import Unprepared
from app.framework.listers import NodeLister
from app.framework.node_info import NodeInfo
from app.framework.objects import Objects, Unreadable
from app.kube.kinds import CSI_NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.labels import LabelSet
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.selectors import Selector
from app.kube.storage_v1 import StorageClass
from plugins.in_tree.volume_binding.capacity_index import CapacityIndex
from plugins.in_tree.volume_binding.free_volumes import STEPS_BETWEEN_YIELDS, FreeVolumes, LocatedVolume, Work
from plugins.in_tree.volume_binding.label_index import ANYWHERE, keys_of_affinity, keys_of_selector
from plugins.in_tree.volume_binding.pod_volume_claims import PodVolumeClaims
from plugins.in_tree.volume_binding.pod_volumes import (
    REASON_BIND_CONFLICT,
    PodVolumes,
    ProvisioningCheck,
    StaticBinder,
    once,
    provision_of,
    provisions_of,
)
from plugins.in_tree.volume_binding.volume_index import (
    InvalidClaimSelector,
    MatchingVolumes,
    VolumeIndex,
    VolumeRequirements,
    smallest_first,
)

REASON_NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_PV_NOT_EXIST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_STEPS: Final = (
    "node(s) can't be judged: to find volumes for the pod's claims takes more steps than a search may have"
)

MAX_STEPS_PER_EVALUATION: Final = 4_000
"""Number of steps (about 5 ms) after which an evaluation raises ``Unprepared``, so that other requests can run."""

MAX_STEPS_PER_NODE: Final = 1 << 17
"""Maximum number of steps for one node, about 0.1 s; for the bound and for the waiting claims each.

256 claims and 10,000 free volumes that every node can use take a fifth of these steps.
"""

MAX_SELECTOR_MATCHES: Final = 1 << 22
"""Maximum number of matches of claim selectors against free volumes in one evaluation, about 4 s.

This is enough for 256 selectors and 16,000 volumes.
"""

_FEW_STEPS: Final = 4
"""If matching the bound volumes takes at most this many steps, it is repeated for each node, because caching would cost
more.
"""

_MAX_LABEL_KEYS: Final = 16
"""Maximum number of label keys by which nodes are grouped.

With more keys, each distinct set of node labels is evaluated separately.
"""

_STEPS_PER_CLAIM: Final = 4
_STEPS_PER_NODE: Final = 12
"""Numbers of steps for matching one claim, and for looking up the results of one node."""


class UntranslatableVolume(Exception):
    """A volume of an in-tree driver cannot be translated for the CSI driver that replaces it on the node."""


class _TooManySteps(Exception):  # not an error: the node is rejected
    """The evaluation exceeds ``MAX_STEPS_PER_NODE`` or ``MAX_SELECTOR_MATCHES``."""


class BoundVolume(Struct, frozen=True):
    """Volume of a bound claim.

    ``plain``: with its stored node affinity. ``migrated``: with the affinity as translated for the CSI driver that
    replaces its in-tree driver.
    """

    plain: LocatedVolume
    migrated: LocatedVolume


_Matches = Sequence[tuple[PersistentVolumeClaim, MatchingVolumes]]
"""Claims, each with its matching volumes."""

_Part = tuple[Hashable, Callable[[], Work[Any]], int]
"""Part of an evaluation: (key of its result, function that starts the work, maximum number of steps)."""

_BOUND: Final = "bound"
_MATCHES: Final = "stock"
_UNBOUNDED: Final = 1 << 62
"""Maximum number of steps of parts whose work is limited in another way."""
_STEPS_BETWEEN_PAUSES: Final = 4 * STEPS_BETWEEN_YIELDS
"""Number of steps (about 1 ms) between two yields of ``_precompute``, so that other requests can run."""

_BYTES_PER_RESULT: Final = 300
"""Estimated size of one result in bytes."""

_NONE: Final[frozenset[str]] = frozenset()
_TOO_MANY_KEYS: Final = tuple(map(str, range(_MAX_LABEL_KEYS + 1)))
_NO_VOLUMES: Final = MatchingVolumes((), ())


class ClaimsEvaluation:
    """Evaluation of the claims of one pod on all nodes, each part computed once.

    Long computations yield, so that other requests can run. ``reasons`` and ``pod_volumes`` raise ``Unprepared`` after
    ``MAX_STEPS_PER_EVALUATION`` steps; the results so far are kept. The results depend on ``inputs``, on nodes, and on
    volumes and CSIStorageCapacity objects. ``is_current`` checks these volumes and CSIStorageCapacity objects for
    changes. Later evaluations can reuse the results while ``inputs`` are equal. ``stamp`` returns a key that changes
    whenever ``inputs``, volumes or CSIStorageCapacity objects might have changed.

    A claim in ``waiting`` with a ``selected_node`` is assigned to that node. If several volumes of the pod use one
    claim, the claim is evaluated once. While the claim is unassigned, it takes one PersistentVolume for each of these
    volumes, as in kube-scheduler.
    """

    def __init__(
        self,
        claims: PodVolumeClaims,
        inputs: tuple[Any, ...],
        objects: Objects,
        nodes: NodeLister,
        volumes: VolumeIndex,
        capacities: CapacityIndex,
        stamp: Callable[[], Hashable],
    ) -> None:
        self.inputs = inputs
        self.waiting = claims.waiting
        self._objects = objects
        self._nodes = nodes
        self._volumes = volumes
        self._capacities = capacities
        self._stamp = stamp
        self._claims_bound = claims.bound
        self._assigned = once(it for it in claims.waiting if it.selected_node is not None)
        self._assigned_nodes = {it.selected_node for it in self._assigned}
        self._unassigned = smallest_first(it for it in claims.waiting if it.selected_node is None)
        self._watched = [
            (changes, name)
            for name in dict.fromkeys(it.class_name for it in claims.waiting)
            for changes in (volumes.changes, capacities.changes)
        ]
        self._seen_numbers = self._current_numbers()
        self._results: dict[Hashable, Any] = {}
        self._running: dict[Hashable, Iterator[int]] = {}
        self._keys: Collection[str] | None = None
        self._reasons: dict[LabelSet, tuple[str, ...]] = {}
        self._bound: Sequence[BoundVolume | None] = ()
        self._has_in_tree = False
        self._bound_is_slow = False
        self._is_simple = False
        self.begin()

    @property
    def weight(self) -> int:
        """Estimated size of the results in bytes."""
        matches = self._results.get(_MATCHES)
        sets = 0 if not isinstance(matches, list) else sum(len(group) // 8 for _, it in matches for group, _ in it.free)
        return (1 + len(self.waiting) + len(self._results) + len(self._reasons)) * _BYTES_PER_RESULT + sets

    def begin(self) -> None:
        """Begin another evaluation with 0 steps taken. The caller must have checked ``inputs`` and ``is_current``."""
        self._spent = 0
        self._first_node = ""
        self._stamp_at_begin = self._stamp()

    def is_current(self) -> bool:
        """Return true if no volume or CSIStorageCapacity object of the waiting claims' classes has changed since this
        evaluation was created.
        """
        return self._seen_numbers == self._current_numbers()

    def reuse_results(self, earlier: ClaimsEvaluation) -> None:
        """Copy the reasons from ``earlier``, except those of nodes that a change since then might affect. The
        ``inputs`` of both must be equal.

        Without this reuse, a pod with a long evaluation would never get a verdict while CSIStorageCapacity objects keep
        changing.
        """
        changed = earlier.changed_topologies()
        if changed is not None:
            self._reasons = {
                labels: reasons
                for labels, reasons in earlier._reasons.items()
                if not any(labels.get(key) in values for key, values in changed.items())
            }

    def _current_numbers(self) -> Sequence[int]:
        return [changes.number(name) for changes, name in self._watched]

    def changed_topologies(self) -> Mapping[str, Collection[str]] | None:
        """Return label values by key: changes affect only nodes with one of them; ``None`` if they might affect any."""
        topologies: dict[str, set[str]] = {}
        if isinstance(self._results.get(_MATCHES), Exception):
            return None
        own = {(it.namespace, it.name) for it in self.waiting}
        for (changes, name), seen in zip(self._watched, self._seen_numbers, strict=True):
            since = changes.since(name, seen)
            if since is None:
                return None
            for change in since:
                if change.claim in own or (change.claim is None and change.topologies == ANYWHERE):
                    return None
                for key, values in () if change.claim is not None else change.topologies or ():
                    topologies.setdefault(key, set()).update(values)
        return topologies

    def reasons(self, node: NodeInfo) -> tuple[str, ...]:
        """Return the reasons why the node is rejected, in kube-scheduler's order; empty if the pod fits.

        Raises ``InvalidClaimSelector``, ``UntranslatableVolume``, ``Unreadable`` or ``Unprepared``.
        """
        if self._is_simple:
            reason = self._bound_reason(node.node.labels, _NONE)
            return (reason,) if reason else ()
        if self._unassigned:
            self._objects.in_namespace(PERSISTENT_VOLUMES, "")  # raises Unreadable, because any volume might match
        labels = node.node.labels
        reasons = None if self._assigned else self._reasons.get(labels)
        if reasons is None:
            self._compute(node, self._parts)
            reasons = self._store_reasons(node)
        return reasons

    def _store_reasons(self, node: NodeInfo) -> tuple[str, ...]:
        reasons = self._all_reasons(node)
        if not self._assigned and not self._has_in_tree:
            self._reasons[node.node.labels] = reasons
        return reasons

    def _all_reasons(self, node: NodeInfo) -> tuple[str, ...]:
        bound = self._bound_result(node)
        if not self.waiting:
            return (bound,) if bound else ()
        missing = (bound,) if bound == REASON_PV_NOT_EXIST else ()
        return (*((bound,) if bound and not missing else ()), *self._waiting_result(node), *missing)

    def pod_volumes(self, node: NodeInfo) -> PodVolumes:
        """Return the volumes for the waiting claims on a node that fits. Raises the same errors as ``reasons``."""
        self._compute(node, self._parts_of_pod_volumes)
        volumes: PodVolumes = self._read(_pod_volumes_key(node))
        return volumes

    @property
    def all_bound(self) -> bool:
        """True if no claim waits for a volume."""
        return not self.waiting

    # Computation with yields.

    def _compute(self, node: NodeInfo, parts: Callable[[NodeInfo], Iterable[_Part]]) -> None:
        """Compute parts of the evaluation of ``node``.

        Raises ``Unprepared`` if the work exceeds ``MAX_STEPS_PER_EVALUATION``. The exception carries the remaining
        work: the parts for all nodes, or for ``node`` alone if it is the first node that is evaluated.
        """
        if self._stamp_at_begin != self._stamp():
            self._reset()
        is_first = self._first_node in ("", node.name)
        self._first_node = self._first_node or node.name
        self._spent += _STEPS_PER_NODE
        for steps in self._steps(parts(node)):
            self._spent += steps
            if self._spent > MAX_STEPS_PER_EVALUATION:
                others = () if is_first else tuple(self._nodes.list())
                raise Unprepared(self._precompute(parts, (node, *others)))

    def _precompute(self, parts: Callable[[NodeInfo], Iterable[_Part]], nodes: Iterable[NodeInfo]) -> Iterator[None]:
        """Compute the parts for the next evaluation, until ``stamp`` changes."""
        taken = 0
        for node in nodes:
            for steps in chain((_STEPS_PER_NODE,), self._steps(parts(node))):
                taken += steps
                if taken > _STEPS_BETWEEN_PAUSES:
                    taken = 0
                    yield
                    if self._stamp_at_begin != self._stamp():
                        return
            with suppress(Exception):  # raised again when this node is evaluated
                self._store_reasons(node)

    def _steps(self, parts: Iterable[_Part]) -> Iterator[int]:
        """Run the parts that have no result, and yield the numbers of steps taken.

        An interrupted part can be resumed.
        """
        for key, work, max_steps in parts:
            if key not in self._results:
                running = self._running.get(key)
                if running is None:
                    running = self._running[key] = self._run(key, work(), max_steps)
                for steps in running:  # noqa: UP028  # "yield from" would close the generator
                    yield steps

    def _run(self, key: Hashable, work: Work[Any], max_steps: int) -> Iterator[int]:
        """Run work and store its result or exception; ``_TooManySteps`` if it takes more than ``max_steps``."""
        result: Any = None
        steps = 0
        try:
            while steps <= max_steps:
                taken = next(work)
                steps += taken
                yield taken
            result = _TooManySteps()
        except StopIteration as end:
            result = end.value
        except Exception as fault:  # noqa: BLE001  # raised again when the result is read
            result = fault
        self._results[key] = result
        del self._running[key]

    def _read(self, key: Hashable) -> Any:
        """Return the result of a part, or raise it if it is an exception."""
        result = self._results[key]
        if isinstance(result, Exception):
            raise result.with_traceback(None)
        return result

    def _reset(self) -> None:
        """Drop all results, because the snapshot has changed since the evaluation began.

        Raises ``Unprepared`` if many volumes or CSIStorageCapacity objects have changed.
        """
        self.inputs = ()
        self._results.clear()
        self._running.clear()
        self._reasons.clear()
        self._keys, self._is_simple = None, False
        self._volumes.catch_up()
        self._capacities.catch_up()
        self._stamp_at_begin = self._stamp()

    def _parts(self, node: NodeInfo) -> Iterator[_Part]:
        """Yield the parts of the evaluation of a node. Each depends on the parts before it."""
        yield _BOUND, self._find_bound, _UNBOUNDED
        if self._bound_is_slow:
            relevant = self._relevant_state(node)
            yield (_BOUND, *relevant), partial(self._bound_reason_in_steps, *relevant), MAX_STEPS_PER_NODE
        if self._waits_for(node):
            if self._unassigned:
                yield _MATCHES, self._match_volumes, _UNBOUNDED
            if not isinstance(self._results.get(_MATCHES), Exception):
                labels = node.node.labels
                yield self._waiting_key(node), partial(self._waiting_reasons, labels), MAX_STEPS_PER_NODE

    def _parts_of_pod_volumes(self, node: NodeInfo) -> Iterator[_Part]:
        yield from self._parts(node)
        yield _pod_volumes_key(node), partial(self._assign, node.node.labels), _UNBOUNDED

    # Bound claims.

    def _find_bound(self) -> Work[str]:
        """Find and store the volumes of bound claims, without those that ``_distinct`` omits."""
        volumes: list[BoundVolume | None] = []
        for claim in once(self._claims_bound):
            volume = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
            if volume is None:
                volumes.append(None)
                continue
            plain = self._volumes.located(volume, volume.affinity)
            migrated = self._volumes.located(volume, volume.migrated_affinity)
            volumes.append(BoundVolume(plain, migrated))
            yield plain.steps + migrated.steps
        self._bound = _distinct(volumes)
        self._has_in_tree = any(it is not None and it.plain.volume.in_tree_plugin for it in self._bound)
        self._bound_is_slow = sum(0 if it is None else it.plain.steps for it in self._bound) > _FEW_STEPS
        self._is_simple = not (self.waiting or self._has_in_tree or self._bound_is_slow)
        return ""

    def _relevant_state(self, node: NodeInfo) -> tuple[LabelSet, frozenset[str]]:
        """Return what bound claims depend on: the node's labels, and its in-tree drivers that are migrated to CSI."""
        csi_node = self._objects.get(CSI_NODES, "", node.name) if self._has_in_tree else None
        return node.node.labels, _NONE if csi_node is None else csi_node.migrated

    def _bound_result(self, node: NodeInfo) -> str:
        """Return the reason for the first bound volume that the node cannot use; empty if it can use all of them.

        The reason is ``REASON_STEPS`` if the check takes more than ``MAX_STEPS_PER_NODE`` steps.
        """
        self._read(_BOUND)
        labels, migrated = self._relevant_state(node)
        if not self._bound_is_slow:
            return self._bound_reason(labels, migrated)
        try:
            reason: str = self._read((_BOUND, labels, migrated))
        except _TooManySteps:
            return REASON_STEPS
        return reason

    def _bound_reason(self, labels: LabelSet, migrated: Collection[str]) -> str:
        for bound in self._bound:
            if bound is None:
                return REASON_PV_NOT_EXIST
            if not _for_node(bound, migrated).is_usable_from(labels):
                return REASON_NODE_CONFLICT
        return ""

    def _bound_reason_in_steps(self, labels: LabelSet, migrated: Collection[str]) -> Work[str]:
        steps = 0
        for bound in self._bound:
            if bound is None:
                return REASON_PV_NOT_EXIST
            if not _for_node(bound, migrated).is_usable_from(labels):
                return REASON_NODE_CONFLICT
            steps += bound.plain.steps
            if steps >= STEPS_BETWEEN_YIELDS:
                yield steps
                steps = 0
        yield steps
        return ""

    # Claims that wait for the pod's node.

    def _waits_for(self, node: NodeInfo) -> bool:
        """Return true if claims wait and none of them is assigned to another node."""
        return bool(self.waiting) and (not self._assigned or self._assigned_nodes == {node.name})

    def _waiting_result(self, node: NodeInfo) -> tuple[str, ...]:
        if not self.waiting:
            return ()
        if not self._waits_for(node):
            return (REASON_BIND_CONFLICT,)
        try:
            if self._unassigned:
                self._read(_MATCHES)
            reasons: tuple[str, ...] = self._read(self._waiting_key(node))
        except _TooManySteps:
            return (REASON_STEPS,)
        return reasons

    def _waiting_key(self, node: NodeInfo) -> Hashable:
        """Return the key of the result for waiting claims.

        It consists of the values of the relevant labels, or of all labels if more than ``_MAX_LABEL_KEYS`` are
        relevant.
        """
        labels = node.node.labels
        if self._keys is None:
            self._keys = self._label_keys()
        return tuple(map(labels.get, self._keys)) if len(self._keys) <= _MAX_LABEL_KEYS else labels

    def _label_keys(self) -> Collection[str]:
        """Return the keys of the node labels that waiting claims depend on.

        If there are more than ``_MAX_LABEL_KEYS``, the result can be incomplete, but is still longer than this limit.
        If an object is unreadable, the result is ``_TOO_MANY_KEYS``.
        """
        keys: set[str] = set()
        matches = self._read(_MATCHES) if self._unassigned else ()
        for group in {group for _, it in matches for group, _ in it.free}:
            keys.update(islice(group.keys, _MAX_LABEL_KEYS + 1))
        for reserved in {it.volume.name: it for _, matching in matches for it in matching.reserved}.values():
            keys.update(keys_of_affinity(reserved.volume.affinity))
        try:
            for name in dict.fromkeys(it.class_name for it in self.waiting):
                keys.update(self._keys_of_class(name))
        except Unreadable:  # raised again when the evaluation of a node reads the object
            return _TOO_MANY_KEYS
        return keys

    def _keys_of_class(self, name: str) -> Iterable[str]:
        storage_class = self._class_of(name)
        if storage_class is None or not self._capacities.provisions(storage_class):
            return ()
        return chain(
            *map(keys_of_selector, storage_class.topologies),
            islice(self._capacities.keys(storage_class), _MAX_LABEL_KEYS + 1),
        )

    def _match_volumes(self) -> Work[_Matches]:
        """Return the unassigned claims, the smallest first, each with its matching volumes.

        The result is empty if no volume matches any claim.
        """
        free: dict[VolumeRequirements, list[tuple[FreeVolumes, int]]] = {}
        matching: dict[str, MatchingVolumes] = {}
        tested: dict[tuple[FreeVolumes, Selector], int] = {}
        for claim in once(self._unassigned):
            if claim.invalid:
                where = f"{claim.namespace}/{claim.name}"
                raise InvalidClaimSelector(
                    f"error creating internal label selector for claim: {where}: {claim.invalid}"
                )
            required = VolumeRequirements.by(claim)
            if required not in free:
                free[required] = []
                for group in self._volumes.groups(required):
                    if required.selector is not None:
                        tested[group, required.selector] = len(group)
                        if sum(tested.values()) > MAX_SELECTOR_MATCHES:
                            raise _TooManySteps
                    positions = yield from group.selected(required.selector, required.min_rank)
                    if positions:
                        free[required].append((group, positions))
            matching[claim.name] = MatchingVolumes(self._volumes.reserved_for(claim, required.min_rank), free[required])
            yield _STEPS_PER_CLAIM
        return [(it, matching[it.name]) for it in self._unassigned] if any(matching.values()) else []

    def _waiting_reasons(self, labels: Mapping[str, str]) -> Work[tuple[str, ...]]:
        """Return the reason for the first claim that cannot get a volume on a node with these labels.

        The result is empty if all claims can get a volume.
        """
        check = ProvisioningCheck(self._class_of, self._capacities, labels)
        matches = self._read(_MATCHES) if self._unassigned else ()
        for provision in (
            map(provision_of, self._assigned) if matches else provisions_of((*self._assigned, *self._unassigned))
        ):
            reason = yield from check.refusal(provision)
            if reason:
                return (reason,)
        binder = StaticBinder(labels)
        for claim, matching in matches:
            volume = yield from binder.volume(matching)
            if volume is None:
                reason = yield from check.refusal(provision_of(claim))
                if reason:
                    return (reason,)
        return ()

    def _assign(self, labels: Mapping[str, str]) -> Work[PodVolumes]:
        binder = StaticBinder(labels)
        bindings: dict[str, PersistentVolume] = {}
        unmatched: list[PersistentVolumeClaim] = []
        matches = self._read(_MATCHES) if self._unassigned else ()
        for claim, matching in matches or [(it, _NO_VOLUMES) for it in self._unassigned]:
            volume = yield from binder.volume(matching)
            if volume is None:
                unmatched.append(claim)
            else:
                bindings[claim.name] = volume
        return PodVolumes(bindings, (*self._assigned, *once(unmatched)))

    def _class_of(self, name: str) -> StorageClass | None:
        return self._objects.get(STORAGE_CLASSES, "", name)


def _pod_volumes_key(node: NodeInfo) -> Hashable:
    return ("plan", node.node.labels)


def _for_node(bound: BoundVolume, migrated: Collection[str]) -> LocatedVolume:
    """Return the volume with the affinity that counts on the node: ``migrated`` if the node migrates its driver.

    Raises ``UntranslatableVolume``.
    """
    volume = bound.plain.volume
    if not volume.in_tree_plugin or volume.in_tree_plugin not in migrated:
        return bound.plain
    if volume.migrated is None:
        raise UntranslatableVolume(f"could not translate pv: {volume.untranslatable}")
    return bound.migrated


def _distinct(volumes: Iterable[BoundVolume | None]) -> list[BoundVolume | None]:
    """Return one volume for each distinct node affinity and in-tree driver, and ``None`` once if a volume is missing.

    Volumes that every node can use are omitted, except those of in-tree drivers.
    """
    distinct: dict[object, BoundVolume | None] = {}
    for bound in volumes:
        if bound is None:
            distinct.setdefault(None, None)
        elif bound.plain.matcher is not None or bound.plain.volume.in_tree_plugin:
            volume = bound.plain.volume
            of = (volume.in_tree_plugin, volume.untranslatable if volume.migrated is None else None)
            distinct.setdefault((bound.plain.matcher, bound.migrated.matcher, *of), bound)
    return list(distinct.values())
