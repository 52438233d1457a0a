"""The prioritize verb: PreScore, Score, NormalizeScore and weights, on the wire's scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress

from msgspec import Struct

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.points import MAX_NODE_SCORE
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.kube.core_v1 import Pod
from app.memory.filter_results import FilterResultCache
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.scoring import Scores
from app.verbs.candidates import SentNode, asked_nodes, read_nodes, unreadable_nodes
from app.verbs.context import VerbContext, read_again, require_snapshot
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.slices import prepared
from app.wire.extender_answers import encode_classed, encode_priorities
from app.wire.extender_v1 import MalformedRequest, decode_args, split_args


def quantised(total: int, weight: int, max_priority: int) -> int:
    """A sum of weighted scores (0..100 each) on the scale 0..``max_priority``.

    The weighted mean, scaled and rounded half up: ``round(total / weight / 10)`` for the scale of 10. kube-scheduler
    multiplies it by the extender's weight and by 10. Without any score it is 0 for every node.
    """
    if weight == 0:
        return 0
    whole = MAX_NODE_SCORE * weight
    return (2 * total * max_priority + whole) // (2 * whole)


class _Asked(Struct, frozen=True):
    """``node_set``: all ``hosts`` were nodes of the picture when it was this; -1: not known to be."""

    pod: Pod
    hosts: Sequence[str]
    sent: Sequence[SentNode] | None
    node_set: int = -1


class PrioritizeVerb:
    """Scores every host that was asked for, with an integer: a host left out would get 0, an empty list all pods.

    ``lean`` tells only what differs from the score that most hosts have (``docs/wire.md``). That needs the names in an
    order drawn by lot, as the lean filter gives them.
    """

    def __init__(self, context: VerbContext, results: FilterResultCache, *, lean: bool = False) -> None:
        self._context = context
        self._decode = partial(decode_args, core=context.cluster.core)
        self._results = results
        self._lean = lean

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a prioritize request. Raises ``VerbFailure``."""
        kept = self._results.take(split_args(body))
        asked = await self._read(body) if kept is None else _Asked(kept.pod, kept.names, None, kept.node_set)
        pod, hosts = asked.pod, asked.hosts
        framework = self._context.asked_framework("prioritize", pod)
        if framework is None or not hosts:
            return Answer(encode_priorities({} if self._lean else dict.fromkeys(hosts, 0)), "nothing_to_do")
        require_snapshot(self._context.problem, hosts)
        await self._context.look_up_missing(framework, pod, hosts)
        try:
            await self._context.due.wait(framework.scoring.score_depends_on, pod)
            scores = await prepared(partial(self._scored, framework, asked))
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}", hosts) from fault
        return Answer(self._encoded(hosts, scores), "scored")

    async def _read(self, body: bytes | memoryview) -> _Asked:
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await read_again(self._decode, body, refused, "prioritize")
        try:
            sent = await read_nodes(args, self._context.cluster.nodes, self._context.cluster.core)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed prioritize request: {error}") from None
        return _Asked(args.pod, args.names if args.names is not None else [node.name for node in sent or ()], sent)

    def _scored(self, framework: Framework, asked: _Asked) -> Scores:
        """Raises ``PluginError`` or ``Unprepared``."""
        with self._context.cluster.without(asked.pod.uid, asked.pod.key):
            return framework.scoring.score(CycleState(), asked.pod, self._candidates(asked))

    def _candidates(self, asked: _Asked) -> Candidates:
        cluster = self._context.cluster
        if asked.node_set == cluster.node_set:
            candidates = Candidates(asked.hosts, cluster.nodes.__getitem__)
            if len(candidates.name_set) == len(asked.hosts):
                return candidates
        names = None if asked.sent is not None else asked.hosts
        return asked_nodes(names, asked.sent, cluster.nodes, unreadable_nodes(cluster), cluster.core).candidates

    def _encoded(self, hosts: Sequence[str], scores: Scores) -> bytes:
        weight, most = scores.weight, self._context.max_priority
        names = scores.names
        wire = ScoreClasses(
            scores.total.of, {key: quantised(it, weight, most) for key, it in scores.total.scores.items()}
        )
        if len(hosts) != len(names):  # some are not known here, or named twice
            found = {**dict.fromkeys(hosts, 0), **wire.by_name(names)}
            names, wire = list(found), ScoreClasses(list(found), found)
        return _differing(names, wire) if self._lean else encode_classed(names, wire.of, wire.scores)


def _differing(names: Sequence[str], found: ScoreClasses) -> bytes:
    """The hosts whose score is not the commonest one, by how much it differs. A host left out counts as 0."""
    sizes, scores, classes = found.sizes(), found.scores, found.of
    by_score: dict[int, int] = {}
    for key, size in sizes.items():
        by_score[scores[key]] = by_score.get(scores[key], 0) + size
    commonest = max(by_score, key=by_score.__getitem__)
    told = {key: scores[key] - commonest for key in sizes if scores[key] != commonest}
    if not told:
        return encode_priorities({})
    if isinstance(classes, SparseClasses) and classes.usual not in told:
        return encode_priorities({name: told[key] for name, key in classes.others.items() if key in told})
    chosen = list(map(told.__contains__, classes))
    return encode_classed(list(compress(names, chosen)), list(compress(classes, chosen)), told)
