"""Extension points PreScore, Score and NormalizeScore, and the weighted sum of scores.

Source of the rules: ``pkg/scheduler/framework/runtime`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import add
from typing import Any, Final

from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.points import MAX_NODE_SCORE, MIN_NODE_SCORE
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.framework.status import error
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, PluginError, plugin_error, score_each, timed_point
from app.runtime.score_cache import CachedScores, ScoreCache
from app.runtime.slots import PluginSlot, nodes_view, pod_view
from app.runtime.snapshot import Snapshot

_NO_INTEGER: Final = 'plugin "{}" returns a score that is not an integer'
_NO_PLUGIN_TOTAL: Final = 1
"""Score of every node in a profile without score plugins."""


class Scores(Struct, frozen=True):
    """Scores of the nodes ``names``. ``of_plugin``: normalized, unweighted scores. ``total``: weighted sums.

    ``weight``: sum of the weights of the plugins that scored; 0 if none did. A normalized score outside 0..100 is
    replaced with 0. ``out_of_range``: for each plugin with scores outside this range, one of them.
    """

    names: Sequence[str]
    of_plugin: Mapping[str, ScoreClasses]
    total: ScoreClasses
    weight: int
    out_of_range: Mapping[str, int] = {}

    @property
    def by_plugin(self) -> dict[str, dict[str, int]]:
        """Scores by plugin, then by node, 0..100."""
        return {plugin: scores.by_name(self.names) for plugin, scores in self.of_plugin.items()}

    @property
    def totals(self) -> dict[str, int]:
        """Weighted sums by node."""
        return self.total.by_name(self.names)

    @property
    def best(self) -> list[str]:
        """Nodes with the highest weighted sum, in the order of ``names``, which must not be empty."""
        total, names = self.total, self.names
        scores = {key: total.scores[key] for key in total.classes()}
        most = max(scores.values())
        winners = {key for key, score in scores.items() if score == most}
        if isinstance(total.of, SparseClasses) and total.of.usual not in winners:
            others = total.of.others
            return [name for name in names if name in others and others[name] in winners]
        return list(compress(names, map(winners.__contains__, total.of)))


class Scoring:
    """PreScore and Score plugins of one profile, and the cache of their raw scores."""

    def __init__(
        self, scheduler_name: str, slots: Mapping[str, Sequence[PluginSlot]], *, guard: Guard, snapshot: Snapshot
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self.guard = guard
        self._snapshot = snapshot
        self._score_cache = ScoreCache(snapshot)
        self._score_depends_on = [
            (it.name, it.score_depends_on) for it in self.slots["score"] if it.score_depends_on is not None
        ]

    def score_depends_on(self, pod: Pod, other: Pod) -> bool:
        """Return True if a score for ``pod`` can depend on the pod ``other``. Raises ``PluginError``."""
        return any(
            self.guard.call(name, "ScoreDependsOn", depends_on, pod, other)
            for name, depends_on in self._score_depends_on
        )

    def score(self, state: CycleState, pod: Pod, nodes: Candidates) -> Scores:
        """Run PreScore, Score and NormalizeScore, with cached raw scores where possible.

        Without a score plugin every node has the total 1, and PreScore does not run. Raises ``PluginError`` or
        ``Unprepared``.
        """
        if not self.slots["score"]:
            return Scores(nodes.names, {}, _alike(len(nodes), _NO_PLUGIN_TOTAL), 0)
        self.guard.begin_evaluation(pod)
        (self._timed_pre_score if self.guard.sampled else self._pre_score)(state, pod, nodes)
        slots = [slot for slot in self.slots["score"] if slot.name not in state.skip_score]
        out_of_range: dict[str, int] = {}
        score_all = self._timed_score_all if self.guard.sampled else self._score_all
        of_plugin = score_all(slots, state, pod, nodes, out_of_range)
        weights = {slot.name: slot.weight for slot in slots}
        total = _total(of_plugin, weights, len(nodes))
        return Scores(nodes.names, of_plugin, total, sum(weights.values()), out_of_range)

    def checking_scores(self) -> Iterator[str]:
        """Compare cached scores with new ones, in steps. Yields for each step a sentence that names the plugin whose
        scores differ, or an empty string.
        """
        yield from self._score_cache.checking_scores(self._score_alone)

    def _score_all(
        self,
        slots: Sequence[PluginSlot],
        state: CycleState,
        pod: Pod,
        nodes: Candidates,
        out_of_range: dict[str, int],
    ) -> dict[str, ScoreClasses]:
        """Return the normalized scores by plugin. Adds to ``out_of_range``, see ``Scores``."""
        raw = self._cached_raw(slots, state, pod, nodes)
        return {slot.name: self._score_by(slot, state, pod, nodes, raw.get(slot.name), out_of_range) for slot in slots}

    _timed_score_all = timed_point("Score")(_score_all)

    def _cached_raw(
        self, slots: Sequence[PluginSlot], state: CycleState, pod: Pod, nodes: Candidates
    ) -> Mapping[str, ScoreClasses]:
        """Return, by plugin, the raw scores of plugins with cached scores; missing scores are computed.

        Empty if there is no such plugin, the cache is not valid for these nodes, or a plugin fails. The caller then
        runs all plugins in order, so that the first fault is reported. Raises ``Unprepared``.
        """
        cached = [slot for slot in slots if slot.is_cached and not slot.scores_in_batch]
        if not cached or self._differ_from_cache(pod, nodes):
            return {}
        try:
            return self._score_cache.raw_scores(cached, pod, nodes.names, partial(self._score_cached, state))
        except PluginError:
            return {}

    def _pre_score(self, state: CycleState, pod: Pod, nodes: Candidates) -> None:
        for slot in self.slots["preScore"]:
            status = self._call_pre_score(slot, state, pod, nodes)
            if status.is_skip:
                state.skip_score.add(slot.name)
            elif not status.is_success:
                raise plugin_error(slot.name, "PreScore", status.message)

    _timed_pre_score = timed_point("PreScore")(_pre_score)

    def _call_pre_score(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> Any:
        return self.guard.status(slot.name, "PreScore", slot.plugin.pre_score, state, pod_view(slot, state, pod), nodes)

    def _score_by(
        self,
        slot: PluginSlot,
        state: CycleState,
        pod: Pod,
        nodes: Candidates,
        raw: ScoreClasses | None,
        out_of_range: dict[str, int],
    ) -> ScoreClasses:
        """Return one plugin's scores, each in 0..100. ``raw``: its cached raw scores, if any."""
        scores = self._raw(slot, state, pod, nodes) if raw is None else raw
        try:
            if slot.normalizes:
                scores = self._normalized(slot, state, pod, scores, by_value=raw is not None)
            wrong = _out_of_range(slot.name, scores, nodes)
        except (TypeError, AttributeError) as fault:
            raise self.guard.wrong_answer(
                slot.name, "Score", scores, f"a score for each class of nodes: {fault}"
            ) from fault
        if not wrong:
            return scores
        place = next(index for index, key in enumerate(scores.of) if key in wrong)
        out_of_range[slot.name] = wrong[scores.of[place]]
        self.guard.out_of_range(slot.name, pod, nodes.names[place], wrong[scores.of[place]])
        return ScoreClasses(scores.of, {**scores.scores, **dict.fromkeys(wrong, MIN_NODE_SCORE)}, scores.all_used)

    def _normalized(
        self, slot: PluginSlot, state: CycleState, pod: Pod, raw: ScoreClasses, *, by_value: bool
    ) -> ScoreClasses:
        """Run NormalizeScore. ``by_value``: pass the plugin one class per raw score instead of the classes of ``raw``,
        which are shared with other plugins.
        """
        shown: Mapping[Any, int] = {it: it for it in set(raw.scores.values())} if by_value else raw.scores
        seen = pod_view(slot, state, pod)
        scores = self.guard.call(slot.name, "NormalizeScore", slot.plugin.normalize, state, seen, shown)
        if not isinstance(scores, Mapping):
            raise self.guard.wrong_answer(slot.name, "NormalizeScore", scores, "a mapping of scores")
        if by_value:
            scores = {key: scores[value] for key, value in raw.scores.items() if value in scores}
        return ScoreClasses(raw.of, scores, all_used=raw.all_used and scores.keys() == raw.scores.keys())

    def _raw(self, slot: PluginSlot, state: CycleState, pod: Pod, nodes: Candidates) -> ScoreClasses:
        """Run Score of one plugin on all candidates, without the cache."""
        seen = pod_view(slot, state, pod)
        if slot.scores_in_batch:
            scores: Any = self.guard.call(
                slot.name, "Score", slot.plugin.score_nodes, state, seen, nodes_view(slot, nodes)
            )
            if not isinstance(scores, ScoreClasses):
                raise self.guard.wrong_answer(slot.name, "Score", scores, "ScoreClasses")
            return scores
        return ScoreClasses.by_value(self._score_each(slot, state, seen, nodes))

    def _score_each(self, slot: PluginSlot, state: CycleState, seen: Pod, nodes: Candidates) -> list[int]:
        before = 0 if slot.clock_reads is None else slot.clock_reads.count
        scores = self.guard.call(
            slot.name, "Score", score_each, slot.plugin.score, state, seen, nodes_view(slot, nodes)
        )
        if slot.clock_reads is not None and slot.clock_reads.count != before:
            raise self.guard.missing_expiry(slot.name, "Score")
        if set(map(type, scores)) - {int}:
            raise PluginError(error(_NO_INTEGER.format(slot.name), slot.name))
        return scores

    def _differ_from_cache(self, pod: Pod, nodes: Candidates) -> bool:
        """Return True if cached scores are not valid for the candidates.

        That is so if the request sent nodes that differ from the snapshot. It is also so if a candidate is the pod's
        own node, or one of the snapshot's ``overlaid_nodes``.
        """
        places = (self._snapshot.place_of(pod.uid, pod.key), *self._snapshot.overlaid_nodes)
        return bool(nodes.sent) or not nodes.name_set.isdisjoint(places)

    def _score_cached(self, state: CycleState, entry: CachedScores, names: Sequence[str]) -> list[int]:
        nodes = Candidates(names, self._snapshot.base_nodes.__getitem__)
        return self._score_each(entry.slot, state, pod_view(entry.slot, state, entry.pod), nodes)

    def _score_alone(self, entry: CachedScores, names: Sequence[str]) -> Sequence[int]:
        """Like ``_score_cached``, for use outside of a request. It creates a state and runs the plugin's PreScore
        itself.
        """
        state = CycleState()
        nodes = Candidates(names, self._snapshot.base_nodes.__getitem__)
        for slot in self.slots["preScore"]:
            if slot.name == entry.slot.name:
                self._call_pre_score(slot, state, entry.pod, nodes)
        return self._score_cached(state, entry, names)


def _alike(size: int, score: int) -> ScoreClasses:
    """Return the scores of ``size`` nodes that all have ``score``."""
    return ScoreClasses([score] * size, {score: score})


def _total(of_plugin: Mapping[str, ScoreClasses], weights: Mapping[str, int], size: int) -> ScoreClasses:
    """Return the weighted sums for ``size`` nodes; 0 for each if no plugin scored.

    To save work, a score that a plugin gives to all nodes is added once to the sum, not node by node. Plugins that
    share their node classes are summed by class.
    """
    alike = 0
    sums: dict[int, tuple[Sequence[Any], dict[Any, int]]] = {}
    for plugin, scores_of_plugin in of_plugin.items():
        weight, scores = weights[plugin], scores_of_plugin.scores
        values = set(scores.values()) if len(of_plugin) > 1 else ()
        if len(values) == 1:
            alike += weight * values.pop()
        elif id(scores_of_plugin.of) in sums:
            known = sums[id(scores_of_plugin.of)][1]
            for key in known:
                known[key] += scores[key] * weight
        else:
            sums[id(scores_of_plugin.of)] = (scores_of_plugin.of, scores_of_plugin.weighted(weight))
    if not sums:
        return _alike(size, alike)
    (of, scores), *others = sums.values()
    first = ScoreClasses(of, scores)
    if not others:
        return ScoreClasses(of, first.weighted(1, alike))
    added: list[int] = first.each(1, alike)
    for of, scores in others:
        added = list(map(add, added, ScoreClasses(of, scores).each()))
    return ScoreClasses.by_value(added)


def _out_of_range(plugin: str, scores_by_class: ScoreClasses, nodes: Candidates) -> dict[Any, int]:
    """Return the scores below 0 or above 100, by class. Raises ``PluginError`` unless every node has an integer score.

    In kube-scheduler such a score fails the scheduling attempt. Homeport uses 0 for the node. Otherwise one node whose
    requests overflow 64 bits would stop every pod for which the node is feasible.
    """
    used = scores_by_class.classes()
    if len(scores_by_class.of) != len(nodes) or not scores_by_class.scores.keys() >= used:
        raise PluginError(error(f'plugin "{plugin}" did not score every node', plugin))
    scores = [scores_by_class.scores[key] for key in used]
    if set(map(type, scores)) - {int}:
        raise PluginError(error(_NO_INTEGER.format(plugin), plugin))
    if min(scores, default=0) >= MIN_NODE_SCORE and max(scores, default=0) <= MAX_NODE_SCORE:
        return {}
    return {
        key: scores_by_class.scores[key]
        for key in used
        if not MIN_NODE_SCORE <= scores_by_class.scores[key] <= MAX_NODE_SCORE
    }
