"""The prioritize verb: PreScore, Score, NormalizeScore and weights, on the wire's scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from app.framework.classed import Classed
from app.framework.cycle_state import CycleState
from app.framework.interface import MAX_NODE_SCORE
from app.runtime.framework import Framework, Scores
from app.runtime.guard import PluginError
from app.verbs.candidates import SentNode, asked_nodes, read_nodes
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.readiness import require_picture
from app.verbs.service import Deciding
from app.wire.extender_v1 import ExtenderArgs, MalformedRequest, decode_args, encode_classed, encode_priorities


def quantised(total: int, weight: int, max_priority: int) -> int:
    """A sum of weighted scores (0..100 each) on the scale 0..``max_priority``.

    The weighted mean, scaled and rounded half up: ``round(total / weight / 10)`` for the scale of 10. kube-scheduler
    multiplies it by the extender's weight and by 10. Without any score it is 0 for every node.
    """
    if weight == 0:
        return 0
    whole = MAX_NODE_SCORE * weight
    return (2 * total * max_priority + whole) // (2 * whole)


class PrioritizeVerb:
    """Scores every host that was asked for, with an integer: a host left out would get 0, an empty list all pods.

    ``lean`` tells only what differs from the score that most hosts have (``docs/wire.md``). That needs the names in an
    order drawn by lot, as the lean filter gives them.
    """

    def __init__(self, deciding: Deciding, *, lean: bool = False) -> None:
        self._deciding = deciding
        self._lean = lean

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a prioritize request. Raises ``VerbFailure``."""
        args, sent = await self._read(body)
        hosts = args.names if args.names is not None else [node.name for node in sent or ()]
        framework = self._deciding.framework_for(args.pod)
        if framework is None or not hosts:
            return Answer(encode_priorities({} if self._lean else dict.fromkeys(hosts, 0)), "nothing_to_do")
        require_picture(self._deciding.problem, hosts)
        await self._deciding.look_up_missing(framework, args.pod, hosts)
        try:
            await self._deciding.due.wait(framework.prefers_by, args.pod)
            scores = self._scores(framework, args, sent)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}", hosts) from fault
        return Answer(self._encoded(hosts, scores), "scored")

    async def _read(self, body: bytes | memoryview) -> tuple[ExtenderArgs, list[SentNode] | None]:
        try:
            args = decode_args(body)
            return args, await read_nodes(args, self._deciding.cluster.nodes)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed prioritize request: {error}") from None

    def _scores(self, framework: Framework, args: ExtenderArgs, sent: Sequence[SentNode] | None) -> Scores:
        candidates = asked_nodes(args.names, sent, self._deciding.cluster.nodes).candidates
        with self._deciding.cluster.without(args.pod.uid, args.pod.key):
            return framework.score(CycleState(), args.pod, candidates)

    def _encoded(self, hosts: Sequence[str], scores: Scores) -> bytes:
        weight, most = scores.weight, self._deciding.max_priority
        names, classes = scores.names, scores.total.of
        wire: Mapping[Any, int] = {key: quantised(it, weight, most) for key, it in scores.total.scores.items()}
        if len(hosts) != len(names):  # some are not known here, or named twice
            found = {**dict.fromkeys(hosts, 0), **Classed(classes, wire).by_name(names)}
            names, classes, wire = list(found), list(found), found
        return _differing(names, classes, wire) if self._lean else encode_classed(names, classes, wire)


def _differing(names: Sequence[str], classes: Sequence[Any], scores: Mapping[Any, int]) -> bytes:
    """The hosts whose score is not the commonest one, by how much it differs. A host left out counts as 0."""
    sizes = Counter(classes)
    by_score: dict[int, int] = {}
    for key, size in sizes.items():
        by_score[scores[key]] = by_score.get(scores[key], 0) + size
    commonest = max(by_score, key=by_score.__getitem__)
    told = {key: scores[key] - commonest for key in sizes if scores[key] != commonest}
    if not told:
        return encode_priorities({})
    chosen = list(map(told.__contains__, classes))
    return encode_classed(list(compress(names, chosen)), list(compress(classes, chosen)), told)
