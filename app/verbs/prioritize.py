"""The prioritize verb: runs PreScore, Score and NormalizeScore, and scales the weighted scores to ``maxPriority``."""

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
from app.verbs.candidates import SentNode, read_nodes, requested_nodes, unreadable_nodes
from app.verbs.context import VerbContext, decode_deep, require_snapshot
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.stepwise import decide_prepared
from app.wire.extender_answers import encode_classed, encode_priorities
from app.wire.extender_v1 import MalformedRequest, decode_args, split_args


def quantised(total: int, weight: int, max_priority: int) -> int:
    """Return the weighted mean of a node's scores on the scale 0..``max_priority``, rounded half up.

    ``total``: sum of the node's scores, 0..100 each, multiplied by their weights. ``weight``: sum of the weights; 0 if
    no plugin scores, and then the result is 0. kube-scheduler multiplies the result by the extender's weight, and by 10
    to convert extender scores of 0..10 to 0..100.
    """
    if weight == 0:
        return 0
    whole = MAX_NODE_SCORE * weight
    return (2 * total * max_priority + whole) // (2 * whole)


class _PrioritizeRequest(Struct, frozen=True):
    """Decoded request. ``sent``: whole nodes of the request; ``None`` if it has names.

    ``node_set``: a value of ``Cluster.node_set`` for which all ``hosts`` are nodes of the snapshot; -1 if unknown.
    """

    pod: Pod
    hosts: Sequence[str]
    sent: Sequence[SentNode] | None
    node_set: int = -1


class PrioritizeVerb:
    """The prioritize verb. Without ``lean``, each requested host gets an integer score, because kube-scheduler scores a
    missing host 0.

    ``lean``: return only hosts whose score differs from the most frequent score, each with the difference
    (``docs/wire.md``). Use it only with a lean filter answer, in which the names are in random order.
    """

    def __init__(self, context: VerbContext, results: FilterResultCache, *, lean: bool = False) -> None:
        self._context = context
        self._decode = partial(decode_args, core=context.cluster.core)
        self._results = results
        self._lean = lean

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a prioritize request. Raises ``VerbFailure``."""
        cached = self._results.take(split_args(body))
        request = (
            await self._read(body)
            if cached is None
            else _PrioritizeRequest(cached.pod, cached.names, None, cached.node_set)
        )
        pod, hosts = request.pod, request.hosts
        framework = self._context.framework_for_request("prioritize", pod)
        if framework is None or not hosts:
            return Answer(encode_priorities({} if self._lean else dict.fromkeys(hosts, 0)), "nothing_to_do")
        require_snapshot(self._context.problem, hosts)
        await self._context.look_up_missing(framework, pod, hosts)
        try:
            await self._context.due.wait(framework.scoring.score_depends_on, pod)
            scores = await decide_prepared(partial(self._scored, framework, request))
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}", hosts) from fault
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed prioritize request: {error}", hosts) from None
        return Answer(self._encoded(hosts, scores), "scored")

    async def _read(self, body: bytes | memoryview) -> _PrioritizeRequest:
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await decode_deep(self._decode, body, refused, "prioritize")
        try:
            sent = await read_nodes(args, self._context.cluster.nodes, self._context.cluster.core)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed prioritize request: {error}") from None
        return _PrioritizeRequest(
            args.pod, args.names if args.names is not None else [node.name for node in sent or ()], sent
        )

    def _scored(self, framework: Framework, request: _PrioritizeRequest) -> Scores:
        """Score the nodes. Raises ``PluginError``, ``Unprepared`` or ``MalformedRequest``."""
        with self._context.cluster.without(request.pod.uid, request.pod.key):
            return framework.scoring.score(CycleState(), request.pod, self._candidates(request))

    def _candidates(self, request: _PrioritizeRequest) -> Candidates:
        cluster = self._context.cluster
        if request.node_set == cluster.node_set:
            candidates = Candidates(request.hosts, cluster.nodes.__getitem__)
            if len(candidates.name_set) == len(request.hosts):
                return candidates
        names = None if request.sent is not None else request.hosts
        return requested_nodes(names, request.sent, cluster.nodes, unreadable_nodes(cluster), cluster.core).candidates

    def _encoded(self, hosts: Sequence[str], scores: Scores) -> bytes:
        weight, most = scores.weight, self._context.max_priority
        names = scores.names
        wire = ScoreClasses(
            scores.total.of, {key: quantised(it, weight, most) for key, it in scores.total.scores.items()}
        )
        if len(hosts) != len(names):  # some hosts are unknown here, or repeated
            by_name = {**dict.fromkeys(hosts, 0), **wire.by_name(names)}
            names, wire = list(by_name), ScoreClasses(list(by_name), by_name)
        return _encode_differences(names, wire) if self._lean else encode_classed(names, wire.of, wire.scores)


def _encode_differences(names: Sequence[str], classed: ScoreClasses) -> bytes:
    """Encode the hosts whose score is not the most frequent score, each with the difference from that score.

    kube-scheduler gives each missing host the score 0, so the ranking of the hosts does not change.
    """
    sizes, scores, classes = classed.sizes(), classed.scores, classed.of
    by_score: dict[int, int] = {}
    for key, size in sizes.items():
        by_score[scores[key]] = by_score.get(scores[key], 0) + size
    commonest = max(by_score, key=by_score.__getitem__)
    differences = {key: scores[key] - commonest for key in sizes if scores[key] != commonest}
    if not differences:
        return encode_priorities({})
    if isinstance(classes, SparseClasses) and classes.usual not in differences:
        return encode_priorities({name: differences[key] for name, key in classes.others.items() if key in differences})
    chosen = list(map(differences.__contains__, classes))
    return encode_classed(list(compress(names, chosen)), list(compress(classes, chosen)), differences)
