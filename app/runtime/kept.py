"""Verdicts and raw scores that are kept, of the plugins that read no more than nodes and the pods on them.

Per plugin and pod signature: the nodes that were judged, and what was said of them. Before each use they are brought up
to date by the journal of changed nodes, so that a plain filter by node costs its calls once a workload and next to
nothing after that. kube-scheduler had such a cache and gave it up: locks and a look-up for every node cost it more than
its predicates, and invalidation was scattered. Here there is one thread, one journal, and one set for all plugins.

What keeps it sound: absent is not judged, hence not passed; no Error is kept; a node that the picture has otherwise
than the request, the node that the pod itself stands on and nodes with nominated pods are judged afresh by the caller
and never stored; objects of declared kinds count by their version.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import filterfalse
from typing import Final, TypeVar

from app.framework.filter_result import FilterResult
from app.framework.interface import Reads
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.picture import Picture
from app.runtime.recent import Recent
from app.runtime.slots import PluginSlot, pod_parts

_MOST_BYTES: Final = 48 << 20
"""Of verdicts, of scores, and of what passes all: each."""

_ENTRY_BYTES: Final = 1500
_NAME_BYTES: Final = 60
"""Of a name in a set or dictionary that is never full; the name itself is the picture's."""

_MOST_AGAIN: Final = 256
"""Rejected nodes that are judged again where they changed; if more did, all is judged anew when asked for."""

_PIECE: Final = 64
"""Nodes compared in one step of a check."""

_SERIALS: Final = itertools.count(1)
"""No number is given out twice, whatever is given up and made anew."""

Judge = Callable[["Kept", Sequence[str]], FilterResult]
"""What the plugin of a ``Kept`` says now of nodes of the picture. Raises ``PluginError``."""

Score = Callable[["KeptScores", Sequence[str]], Sequence[int]]
"""The raw scores that the plugin of a ``KeptScores`` gives nodes of the picture now. Raises ``PluginError``."""


class _Dated:
    """Something derived from nodes. ``pods``: from the pods on them too."""

    __slots__ = ("_node_seen", "_pod_seen", "_pods")

    def __init__(self, picture: Picture, *, pods: bool) -> None:
        self._pods = pods
        self._node_seen = picture.node_changes.now
        self._pod_seen = picture.pod_changes.now if pods else 0

    def changed(self, picture: Picture) -> Iterable[str] | None:
        """The nodes that changed since this was asked last; ``None``: not known."""
        if not self._pods:
            if self._node_seen == picture.node_changes.now:
                return ()
        elif (self._node_seen, self._pod_seen) == (picture.node_changes.now, picture.pod_changes.now):
            return ()
        found = picture.node_changes.since(self._node_seen)
        self._node_seen = picture.node_changes.now
        if not self._pods or found is None:
            self._pod_seen = picture.pod_changes.now
            return found
        others = picture.pod_changes.since(self._pod_seen)
        self._pod_seen = picture.pod_changes.now
        return None if others is None else {*found, *others}


class Kept(_Dated):
    """What one plugin said of nodes, for the pods of one signature. ``pod`` is what it sees of them.

    ``stands``: moves whenever a rejection no longer stands; never seen before for another ``Kept``.
    """

    __slots__ = ("key", "objects", "passed", "pod", "rejected", "serial", "slot", "stands")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, picture: Picture) -> None:
        super().__init__(picture, pods=slot.reads is Reads.PODS_ON_NODE)
        self.key = key
        self.slot = slot
        self.pod = pod
        self.objects = objects
        self.serial = self.stands = next(_SERIALS)
        self.passed: set[str] = set()
        self.rejected: dict[str, Status] = {}

    def weight(self) -> int:
        """Bytes, as estimated."""
        return _ENTRY_BYTES + _NAME_BYTES * (len(self.passed) + 2 * len(self.rejected))

    def refresh(self, picture: Picture, judge: Judge) -> None:
        """Nodes that passed and changed count as not judged; those that were rejected are judged again at once."""
        changed = self.changed(picture)
        if changed is None:
            self.forget()
        elif changed:
            self.passed.difference_update(changed)
            again = [name for name in changed if name in self.rejected]
            if len(again) > _MOST_AGAIN:
                self.forget()
            elif again:
                self._again(again, picture, judge)

    def _again(self, names: Sequence[str], picture: Picture, judge: Judge) -> None:
        before = {name: self.rejected.pop(name) for name in names}
        try:
            self.judge([name for name in names if name in picture.kept_nodes], judge)
        finally:
            if any(self.rejected.get(name) != status for name, status in before.items()):
                self.stands = next(_SERIALS)

    def judge(self, names: Sequence[str], judge: Judge) -> None:
        """Have nodes of the picture judged that are not."""
        if names:
            result = judge(self, names)
            self.rejected.update(result.rejected())
            self.passed.update(result.passed)

    def forget(self) -> None:
        """Nothing is judged."""
        self.passed.clear()
        self.rejected.clear()
        self.stands = next(_SERIALS)


class KeptPass(_Dated):
    """The nodes that pass several plugins, for the pods of one signature with each: one look a name, whatever they are.

    ``rejected``: nodes that at least one of them rejects. A node that is in neither is not judged by all.
    """

    __slots__ = ("each", "passing", "rejected")

    def __init__(self, each: Sequence[Kept], picture: Picture) -> None:
        super().__init__(picture, pods=any(it.slot.reads is Reads.PODS_ON_NODE for it in each))
        self.each = each
        self.passing = set[str].intersection(*(it.passed for it in each))
        self.rejected = set[str]().union(*(it.rejected for it in each))

    def weight(self) -> int:
        """Bytes, as estimated, with what it is made of: that may be given up by itself, and stays with it then."""
        own = _ENTRY_BYTES + _NAME_BYTES * (len(self.passing) + len(self.rejected))
        return own + sum(it.weight() for it in self.each)

    def refresh(self, picture: Picture, judge: Judge) -> None:
        for kept in self.each:
            kept.refresh(picture, judge)
        changed = self.changed(picture)
        if changed is None:
            self.passing.clear()
            self.rejected.clear()
        elif changed:
            self.passing.difference_update(changed)
            self.rejected.difference_update(changed)

    def judge(self, names: Sequence[str], judge: Judge) -> None:
        """Have nodes judged that are in neither set, by one plugin after the other up to the first that rejects."""
        left = names
        for kept in self.each:
            kept.judge([it for it in left if it not in kept.passed and it not in kept.rejected], judge)
            self.rejected.update(it for it in left if it in kept.rejected)
            left = [it for it in left if it in kept.passed]
        self.passing.update(left)


class KeptScores(_Dated):
    """The raw scores that one plugin gave nodes, for the pods of one signature. ``pod`` is what it sees of them."""

    __slots__ = ("key", "objects", "pod", "scores", "slot")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, picture: Picture) -> None:
        super().__init__(picture, pods=slot.reads is Reads.PODS_ON_NODE)
        self.key = key
        self.slot = slot
        self.pod = pod
        self.objects = objects
        self.scores: dict[str, int] = {}

    def weight(self) -> int:
        """Bytes, as estimated."""
        return _ENTRY_BYTES + 2 * _NAME_BYTES * len(self.scores)

    def refresh(self, picture: Picture) -> None:
        """Nodes that changed are not scored."""
        changed = self.changed(picture)
        if changed is None:
            self.scores.clear()
        else:
            for name in changed:
                self.scores.pop(name, None)


E = TypeVar("E", Kept, KeptScores)


class KeptVerdicts:
    """Verdicts and scores of one profile. Bounded by bytes, what was used last stays."""

    def __init__(self, picture: Picture, most_bytes: int = _MOST_BYTES) -> None:
        self._picture = picture
        self._verdicts: Recent[Hashable, Kept] = Recent(most_bytes)
        self._passes: Recent[Hashable, KeptPass] = Recent(most_bytes)
        self._scores: Recent[Hashable, KeptScores] = Recent(most_bytes)

    def of(self, slot: PluginSlot, pod: Pod) -> Kept:
        """The verdicts of a plugin on pods like this one. Not brought up to date."""
        return self._entry(Kept, self._verdicts, slot, pod)

    def _entry(self, form: type[E], entries: Recent[Hashable, E], slot: PluginSlot, pod: Pod) -> E:
        parts = slot.parts or pod_parts(None)
        key = (slot.name, parts.signature(pod))
        objects = self._objects(slot)
        found = entries.get(key)
        if found is None or found.objects != objects:
            found = form(key, slot, parts.view(pod), objects, self._picture)
            entries.put(key, found, found.weight())
        return found

    def _objects(self, slot: PluginSlot) -> Hashable:
        """Moves with the objects of all kinds that the plugin declares."""
        return tuple(map(self._picture.kind_version, slot.kinds)) if slot.kinds else ()

    def passing(
        self, slots: Sequence[PluginSlot], pod: Pod, names: Sequence[str], judge: Judge
    ) -> tuple[KeptPass, Sequence[str]]:
        """What the plugins let through, with all of ``names`` judged that are nodes of the picture; and those of them
        that pass, in order. Raises ``PluginError``.
        """
        picture = self._picture
        each = [self.of(slot, pod) for slot in slots]
        key = tuple(it.serial for it in each)
        found = self._passes.get(key)
        if found is None:
            for kept in each:
                kept.refresh(picture, judge)
            found = KeptPass(each, picture)
        else:
            found.refresh(picture, judge)
        passes, nodes = found.passing.__contains__, picture.kept_nodes
        left = list(filter(passes, names))
        if len(left) < len(names) and len(found.passing) + len(found.rejected) < len(nodes):
            new = [it for it in filterfalse(passes, names) if it not in found.rejected and it in nodes]
            if new:
                found.judge([nodes[it].name for it in dict.fromkeys(new)], judge)
                for kept in each:
                    self._verdicts.put(kept.key, kept, kept.weight())
                self._passes.put(key, found, found.weight())
                left = list(filter(passes, names))
        return found, left

    def standing(self, slot: PluginSlot, pod: Pod, judge: Judge) -> Hashable:
        """Equal as long as every rejection stands that the plugin gave pods like this one. Raises ``PluginError``."""
        kept = self.of(slot, pod)
        kept.refresh(self._picture, judge)
        return kept.stands

    def scores(self, slot: PluginSlot, pod: Pod, names: Sequence[str], score: Score) -> list[int]:
        """The raw scores of ``names``, all of them nodes of the picture, in their order. Raises ``PluginError``."""
        found = self._entry(KeptScores, self._scores, slot, pod)
        found.refresh(self._picture)
        known = found.scores
        new = list(filterfalse(known.__contains__, names))
        if new:
            nodes = self._picture.kept_nodes
            own = [nodes[it].name for it in dict.fromkeys(new)]
            known.update(zip(own, score(found, own), strict=True))
            self._scores.put(found.key, found, found.weight())
        return list(map(known.__getitem__, names))

    def checking_verdicts(self, judge: Judge) -> Iterator[str]:
        """What is kept and differs from what plugins say now, by plugin; empty for each step in which nothing does."""
        for kept in self._verdicts.values():
            names = [*kept.passed, *kept.rejected]
            for start in range(0, len(names), _PIECE):
                if kept.objects != self._objects(kept.slot):
                    break  # made anew when it is used next
                yield self._differs(kept, names[start : start + _PIECE], judge)

    def checking_scores(self, score: Score) -> Iterator[str]:
        """The same of scores."""
        for kept in self._scores.values():
            names = list(kept.scores)
            for start in range(0, len(names), _PIECE):
                if kept.objects != self._objects(kept.slot):
                    break  # made anew when it is used next
                kept.refresh(self._picture)
                some = [it for it in names[start : start + _PIECE] if it in kept.scores]
                same = [kept.scores[it] for it in some] == list(score(kept, some))
                yield "" if same else f"kept scores of {kept.slot.name} differ"

    def _differs(self, kept: Kept, names: Sequence[str], judge: Judge) -> str:
        """The picture may have changed since ``names`` were read."""
        kept.refresh(self._picture, judge)
        passed = {it for it in names if it in kept.passed}
        rejected = {it: kept.rejected[it] for it in names if it in kept.rejected}
        found = judge(kept, [*passed, *rejected])
        same = set(found.passed) == passed and dict(found.rejected()) == rejected
        return "" if same else f"kept verdicts of {kept.slot.name} differ"
