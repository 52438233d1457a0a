"""Verdicts about nodes for the claims of one pod: can they have, or get, their volumes there?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final, TypeVar

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
from plugins.in_tree.volume_binding.by_label import ANYWHERE, keys_of_affinity, keys_of_selector
from plugins.in_tree.volume_binding.demand import Demand
from plugins.in_tree.volume_binding.filling import REASON_NO_VOLUME, Making, Plan, Taking, need_of, needs_of, once
from plugins.in_tree.volume_binding.room import Room
from plugins.in_tree.volume_binding.shelf import PIECE, Placed, Shelf, Work
from plugins.in_tree.volume_binding.supply import Fitting, UnreadableRequest, Volumes, Wanted, smallest_first

REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_STEPS: Final = (
    "node(s) can't be judged: to find volumes for the pod's claims takes more steps than a search may have"
)

STEPS_AT_ONCE: Final = 4_000
"""Steps that one evaluation takes before others have their turn: some 5 ms."""

MOST_STEPS: Final = 1 << 17
"""Steps of one node: some 0.1 s. 256 claims and 10,000 free volumes that any node can use take a fifth of them."""

MOST_LOOKS: Final = 1 << 22
"""Looks of the selectors of a pod's claims at free volumes: some 4 s. 256 selectors and 16,000 volumes take these."""

_FEW_STEPS: Final = 4
"""Bound volumes that take no more are asked directly: to remember the answer would take longer."""

_MOST_KEYS: Final = 16
"""Maximum number of labels by which nodes are grouped; with more, each label set is judged by itself."""

_STEPS_OF_A_CLAIM: Final = 4
_STEPS_OF_A_NODE: Final = 12


class UntranslatableVolume(Exception):
    """A volume of an in-tree driver has no place with the CSI driver that does its work on the node."""


class _TooManySteps(Exception):  # no error: a verdict, in place of a guess
    """To find volumes takes more than ``MOST_STEPS`` or ``MOST_LOOKS``."""


class BoundVolume(Struct, frozen=True):
    """The volume of a claim. ``migrated``: as the CSI driver has it, where that does the in-tree one's work."""

    plain: Placed
    migrated: Placed


_Stock = Sequence[tuple[PersistentVolumeClaim, Fitting]]

_Part = tuple[Hashable, Callable[[], Work[Any]], int]
"""A part of a verdict: its key, how it is worked out, and the maximum number of steps for that."""

_BOUND: Final = "bound"
_STOCK: Final = "stock"
_UNBOUNDED: Final = 1 << 62
_STEPS_OF_A_PIECE: Final = 4 * PIECE
_BYTES_OF_A_VERDICT: Final = 300
_NONE: Final[frozenset[str]] = frozenset()
_TOO_MANY_KEYS: Final = tuple(map(str, range(_MOST_KEYS + 1)))
_NOTHING_FITS: Final = Fitting((), ())

T = TypeVar("T")


class Placing:
    """Verdicts about all nodes for the claims of one pod, each worked out once.

    A verdict that takes long is worked out in pieces. ``reasons`` and ``plan`` raise ``Unprepared`` once an evaluation
    has taken ``STEPS_AT_ONCE``; what was done by then is not lost. ``rests_on`` is all that the verdicts depend on
    beside the nodes, and the volumes and room of which ``is_current`` tells: while it is equal they hold, for later
    evaluations too. ``stamp`` moves when anything that they depend on may have changed.

    A volume that is gone is ``None`` among the bound ones. A waiting claim with ``selected_node`` was given to a node
    already. A claim that several volumes of the pod name is looked at once; an open one takes a volume for each of
    them, as in kube-scheduler.
    """

    def __init__(
        self,
        demand: Demand,
        rests_on: tuple[Any, ...],
        objects: Objects,
        nodes: NodeLister,
        volumes: Volumes,
        room: Room,
        stamp: Callable[[], Hashable],
    ) -> None:
        self.rests_on = rests_on
        self.waiting = demand.waiting
        self._objects = objects
        self._nodes = nodes
        self._volumes = volumes
        self._room = room
        self._stamp = stamp
        self._claims_bound = demand.bound
        self._given = once(it for it in demand.waiting if it.selected_node is not None)
        self._given_to = {it.selected_node for it in self._given}
        self._open = smallest_first(it for it in demand.waiting if it.selected_node is None)
        self._followed = [
            (changes, name)
            for name in dict.fromkeys(it.class_name for it in demand.waiting)
            for changes in (volumes.changes, room.changes)
        ]
        self._seen = self._numbers()
        self._known: dict[Hashable, Any] = {}
        self._under_way: dict[Hashable, Iterator[int]] = {}
        self._keys: Collection[str] | None = None
        self._reasons: dict[LabelSet, tuple[str, ...]] = {}
        self._bound: Sequence[BoundVolume | None] = ()
        self._has_in_tree = False
        self._bound_takes_long = False
        self._is_simple = False
        self.begin()

    @property
    def weight(self) -> int:
        """Bytes of what is remembered, about."""
        stock = self._known.get(_STOCK)
        sets = 0 if not isinstance(stock, list) else sum(len(shelf) // 8 for _, it in stock for shelf, _ in it.free)
        return (1 + len(self.waiting) + len(self._known) + len(self._reasons)) * _BYTES_OF_A_VERDICT + sets

    def begin(self) -> None:
        """Begin an evaluation, for which ``rests_on`` was compared."""
        self._spent = 0
        self._first_asked = ""
        self._began_at = self._stamp()

    def is_current(self) -> bool:
        """Return whether no volumes and no room came or went since this was made, of the classes of its claims."""
        return self._seen == self._numbers()

    def take_over(self, earlier: Placing) -> None:
        """Take over verdicts of ``earlier``, which has an equal ``rests_on``, about nodes that are not near a change.

        Where room for volumes changes all the time, a pod that takes several evaluations would never be decided on
        else.
        """
        near = earlier.near_changes()
        if near is not None:
            self._reasons = {
                labels: reasons
                for labels, reasons in earlier._reasons.items()
                if not any(labels.get(key) in values for key, values in near.items())
            }

    def _numbers(self) -> Sequence[int]:
        return [changes.number(name) for changes, name in self._followed]

    def near_changes(self) -> Mapping[str, Collection[str]] | None:
        """Return the labels of nodes, with their values, near what changed; ``None`` if it may matter to all nodes."""
        near: dict[str, set[str]] = {}
        if isinstance(self._known.get(_STOCK), Exception):
            return None
        own = {(it.namespace, it.name) for it in self.waiting}
        for (changes, name), seen in zip(self._followed, self._seen, strict=True):
            found = changes.since(name, seen)
            if found is None:
                return None
            for change in found:
                if change.claim in own or (change.claim is None and change.places == ANYWHERE):
                    return None
                for key, values in () if change.claim is not None else change.places or ():
                    near.setdefault(key, set()).update(values)
        return near

    def reasons(self, node: NodeInfo) -> tuple[str, ...]:
        """Return why the node will not do, in kube-scheduler's order; empty if it will.

        Raises ``UnreadableRequest``, ``UntranslatableVolume``, ``Unreadable`` or ``Unprepared``.
        """
        if self._is_simple:
            found = self._bound_reason(node.node.labels, _NONE)
            return (found,) if found else ()
        if self._open:
            self._objects.in_namespace(PERSISTENT_VOLUMES, "")  # all have to be readable: any may be the one
        labels = node.node.labels
        reasons = None if self._given else self._reasons.get(labels)
        if reasons is None:
            self._work_out(node, self._parts)
            reasons = self._put_together(node)
        return reasons

    def _put_together(self, node: NodeInfo) -> tuple[str, ...]:
        reasons = self._all_reasons(node)
        if not self._given and not self._has_in_tree:
            self._reasons[node.node.labels] = reasons
        return reasons

    def _all_reasons(self, node: NodeInfo) -> tuple[str, ...]:
        found = self._of_bound(node)
        if not self.waiting:
            return (found,) if found else ()
        gone = (found,) if found == REASON_GONE else ()
        return (*((found,) if found and not gone else ()), *self._of_waiting(node), *gone)

    def plan(self, node: NodeInfo) -> Plan:
        """Return what would be done for the claims that wait, on a node that will do. Raises what ``reasons`` does."""
        self._work_out(node, self._parts_of_plan)
        found: Plan = self._read(_plan_key(node))
        return found

    @property
    def all_bound(self) -> bool:
        return not self.waiting

    # How verdicts are worked out.

    def _work_out(self, node: NodeInfo, parts: Callable[[NodeInfo], Iterable[_Part]]) -> None:
        """Work out parts of a verdict. Raises ``Unprepared`` where this evaluation has taken its steps.

        It works ahead for all nodes then, unless the evaluation has asked about this one alone.
        """
        if self._began_at != self._stamp():
            self._begin_anew()
        is_first = self._first_asked in ("", node.name)
        self._first_asked = self._first_asked or node.name
        self._spent += _STEPS_OF_A_NODE
        for steps in self._working(parts(node)):
            self._spent += steps
            if self._spent > STEPS_AT_ONCE:
                others = () if is_first else tuple(self._nodes.list())
                raise Unprepared(self._ahead(parts, (node, *others)))

    def _ahead(self, parts: Callable[[NodeInfo], Iterable[_Part]], nodes: Iterable[NodeInfo]) -> Iterator[None]:
        """Work out verdicts for an evaluation to come, as long as what they rest on is unchanged."""
        taken = 0
        for node in nodes:
            for steps in chain((_STEPS_OF_A_NODE,), self._working(parts(node))):
                taken += steps
                if taken > _STEPS_OF_A_PIECE:
                    taken = 0
                    yield
                    if self._began_at != self._stamp():
                        return
            with suppress(Exception):  # raised where it is asked about this node
                self._put_together(node)

    def _working(self, parts: Iterable[_Part]) -> Iterator[int]:
        """Yield the steps taken. Who stops in between leaves a part to the next one that needs it."""
        for key, work, most in parts:
            if key not in self._known:
                running = self._under_way.get(key)
                if running is None:
                    running = self._under_way[key] = self._run(key, work(), most)
                for steps in running:  # noqa: UP028  # not "yield from": that would close it
                    yield steps

    def _run(self, key: Hashable, work: Work[Any], most: int) -> Iterator[int]:
        """Run work to its end and remember its result, be it an exception."""
        result: Any = None
        steps = 0
        try:
            while steps <= most:
                taken = next(work)
                steps += taken
                yield taken
            result = _TooManySteps()
        except StopIteration as done:
            result = done.value
        except Exception as fault:  # noqa: BLE001  # raised where the result is read
            result = fault
        self._known[key] = result
        del self._under_way[key]

    def _read(self, key: Hashable) -> Any:
        """Return a result. Raises the exception that it may be."""
        found = self._known[key]
        if isinstance(found, Exception):
            raise found.with_traceback(None)
        return found

    def _begin_anew(self) -> None:
        """Drop all results: the cluster has changed since the evaluation began. Raises ``Unprepared``."""
        self.rests_on = ()
        self._known.clear()
        self._under_way.clear()
        self._reasons.clear()
        self._keys, self._is_simple = None, False
        self._volumes.catch_up()
        self._room.catch_up()
        self._began_at = self._stamp()

    def _parts(self, node: NodeInfo) -> Iterator[_Part]:
        """The parts of a verdict about a node. Each rests on those before it."""
        yield _BOUND, self._find_bound, _UNBOUNDED
        if self._bound_takes_long:
            as_on = self._as_on(node)
            yield (_BOUND, *as_on), partial(self._bound_reason_in_steps, *as_on), MOST_STEPS
        if self._waits_for(node):
            if self._open:
                yield _STOCK, self._stocked, _UNBOUNDED
            if not isinstance(self._known.get(_STOCK), Exception):
                labels = node.node.labels
                yield self._waiting_key(node), partial(self._waiting_reasons, labels), MOST_STEPS

    def _parts_of_plan(self, node: NodeInfo) -> Iterator[_Part]:
        yield from self._parts(node)
        yield _plan_key(node), partial(self._planned, node.node.labels), _UNBOUNDED

    # Claims that are bound.

    def _find_bound(self) -> Work[str]:
        """Find the volumes of bound claims, one of each kind."""
        found: list[BoundVolume | None] = []
        for claim in once(self._claims_bound):
            volume = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
            if volume is None:
                found.append(None)
                continue
            plain = self._volumes.placed(volume, volume.affinity)
            migrated = self._volumes.placed(volume, volume.migrated_affinity)
            found.append(BoundVolume(plain, migrated))
            yield plain.steps + migrated.steps
        self._bound = _distinct(found)
        self._has_in_tree = any(it is not None and it.plain.volume.in_tree_plugin for it in self._bound)
        self._bound_takes_long = sum(0 if it is None else it.plain.steps for it in self._bound) > _FEW_STEPS
        self._is_simple = not (self.waiting or self._has_in_tree or self._bound_takes_long)
        return ""

    def _as_on(self, node: NodeInfo) -> tuple[LabelSet, frozenset[str]]:
        """All of a node that matters to bound claims: its labels, and in-tree plugins whose work CSI drivers do."""
        csi_node = self._objects.get(CSI_NODES, "", node.name) if self._has_in_tree else None
        return node.node.labels, _NONE if csi_node is None else csi_node.migrated

    def _of_bound(self, node: NodeInfo) -> str:
        """Return what is wrong with the first volume with which something is."""
        self._read(_BOUND)
        labels, migrated = self._as_on(node)
        if not self._bound_takes_long:
            return self._bound_reason(labels, migrated)
        try:
            found: str = self._read((_BOUND, labels, migrated))
        except _TooManySteps:
            return REASON_STEPS
        return found

    def _bound_reason(self, labels: LabelSet, migrated: Collection[str]) -> str:
        for it in self._bound:
            if it is None:
                return REASON_GONE
            if not _as_it_is(it, migrated).is_usable_from(labels):
                return REASON_AFFINITY
        return ""

    def _bound_reason_in_steps(self, labels: LabelSet, migrated: Collection[str]) -> Work[str]:
        steps = 0
        for it in self._bound:
            if it is None:
                return REASON_GONE
            if not _as_it_is(it, migrated).is_usable_from(labels):
                return REASON_AFFINITY
            steps += it.plain.steps
            if steps >= PIECE:
                yield steps
                steps = 0
        yield steps
        return ""

    # Claims that wait for a node.

    def _waits_for(self, node: NodeInfo) -> bool:
        """Whether claims wait, and none of them for another node."""
        return bool(self.waiting) and (not self._given or self._given_to == {node.name})

    def _of_waiting(self, node: NodeInfo) -> tuple[str, ...]:
        if not self.waiting:
            return ()
        if not self._waits_for(node):
            return (REASON_NO_VOLUME,)
        try:
            if self._open:
                self._read(_STOCK)
            found: tuple[str, ...] = self._read(self._waiting_key(node))
        except _TooManySteps:
            return (REASON_STEPS,)
        return found

    def _waiting_key(self, node: NodeInfo) -> Hashable:
        """All of a node that matters to claims that wait: its labels, or those that do where they are few."""
        labels = node.node.labels
        if self._keys is None:
            self._keys = self._label_keys()
        return tuple(map(labels.get, self._keys)) if len(self._keys) <= _MOST_KEYS else labels

    def _label_keys(self) -> Collection[str]:
        """The labels of a node on which verdicts about claims that wait depend, or some of them where they are many."""
        keys: set[str] = set()
        stock = self._read(_STOCK) if self._open else ()
        for shelf in {shelf for _, it in stock for shelf, _ in it.free}:
            keys.update(islice(shelf.keys, _MOST_KEYS + 1))
        for it in {it.volume.name: it for _, fitting in stock for it in fitting.kept}.values():
            keys.update(keys_of_affinity(it.volume.affinity))
        try:
            for name in dict.fromkeys(it.class_name for it in self.waiting):
                keys.update(self._keys_of_class(name))
        except Unreadable:  # reported where it matters to a node
            return _TOO_MANY_KEYS
        return keys

    def _keys_of_class(self, name: str) -> Iterable[str]:
        found = self._class_of(name)
        if found is None or not self._room.is_made(found):
            return ()
        return chain(*map(keys_of_selector, found.topologies), islice(self._room.keys(found), _MOST_KEYS + 1))

    def _stocked(self) -> Work[_Stock]:
        """Return open claims, the smallest first, with the volumes that fit them; none where nothing fits any."""
        free: dict[Wanted, list[tuple[Shelf, int]]] = {}
        fitting: dict[str, Fitting] = {}
        looks: dict[tuple[Shelf, Selector], int] = {}
        for claim in once(self._open):
            if claim.invalid:
                where = f"{claim.namespace}/{claim.name}"
                raise UnreadableRequest(f"error creating internal label selector for claim: {where}: {claim.invalid}")
            wanted = Wanted.by(claim)
            if wanted not in free:
                free[wanted] = []
                for shelf in self._volumes.shelves(wanted):
                    if wanted.selector is not None:
                        looks[shelf, wanted.selector] = len(shelf)
                        if sum(looks.values()) > MOST_LOOKS:
                            raise _TooManySteps
                    positions = yield from shelf.selected(wanted.selector, wanted.least)
                    if positions:
                        free[wanted].append((shelf, positions))
            fitting[claim.name] = Fitting(self._volumes.kept_for(claim, wanted.least), free[wanted])
            yield _STEPS_OF_A_CLAIM
        return [(it, fitting[it.name]) for it in self._open] if any(fitting.values()) else []

    def _waiting_reasons(self, labels: Mapping[str, str]) -> Work[tuple[str, ...]]:
        """Return why the claims cannot have their volumes on a node: the reason of the first that cannot."""
        making = Making(self._class_of, self._room, labels)
        stock = self._read(_STOCK) if self._open else ()
        for need in map(need_of, self._given) if stock else needs_of((*self._given, *self._open)):
            reason = yield from making.refusal(need)
            if reason:
                return (reason,)
        taking = Taking(labels)
        for claim, fitting in stock:
            volume = yield from taking.volume(fitting)
            if volume is None:
                reason = yield from making.refusal(need_of(claim))
                if reason:
                    return (reason,)
        return ()

    def _planned(self, labels: Mapping[str, str]) -> Work[Plan]:
        taking = Taking(labels)
        bound: dict[str, PersistentVolume] = {}
        left: list[PersistentVolumeClaim] = []
        stock = self._read(_STOCK) if self._open else ()
        for claim, fitting in stock or [(it, _NOTHING_FITS) for it in self._open]:
            volume = yield from taking.volume(fitting)
            if volume is None:
                left.append(claim)
            else:
                bound[claim.name] = volume
        return Plan(bound, (*self._given, *once(left)))

    def _class_of(self, name: str) -> StorageClass | None:
        return self._objects.get(STORAGE_CLASSES, "", name)


def _plan_key(node: NodeInfo) -> Hashable:
    return ("plan", node.node.labels)


def _as_it_is(found: BoundVolume, migrated: Collection[str]) -> Placed:
    """Return a volume as a node has it."""
    volume = found.plain.volume
    if not volume.in_tree_plugin or volume.in_tree_plugin not in migrated:
        return found.plain
    if volume.migrated is None:
        raise UntranslatableVolume(f"could not translate pv: {volume.untranslatable}")
    return found.migrated


def _distinct(volumes: Iterable[BoundVolume | None]) -> list[BoundVolume | None]:
    """Those that differ in the nodes from which they can be used, the first of each; not those for all nodes."""
    found: dict[object, BoundVolume | None] = {}
    for it in volumes:
        if it is None:
            found.setdefault(None, None)
        elif it.plain.matcher is not None or it.plain.volume.in_tree_plugin:
            volume = it.plain.volume
            of = (volume.in_tree_plugin, volume.untranslatable if volume.migrated is None else None)
            found.setdefault((it.plain.matcher, it.migrated.matcher, *of), it)
    return list(found.values())
