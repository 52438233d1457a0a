"""The filter verb: PreFilter and Filter over the nodes that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import filterfalse
from random import random
from typing import Any, Final, TypeVar

from msgspec import Raw, Struct

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.memory.expected_binds import DuePods
from app.memory.filter_results import FilterResultCache, FilterResults
from app.memory.picks import Picks
from app.memory.refusal_cache import RefusalCache
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.candidates import SentNode, read_sent, searched_nodes
from app.verbs.context import VerbContext, read_again
from app.verbs.last_place import decided, require_room
from app.verbs.outcome import Answer, Outcome, VerbFailure, require_picture
from app.wire.extender_v1 import (
    ExtenderArgs,
    LongBody,
    MalformedRequest,
    SplitArgs,
    decode_args,
    encode_filter,
    encode_filter_nodes,
    encode_passing,
    split_args,
)

T = TypeVar("T")

_PREFERS: Final = b"preferredDuringSchedulingIgnoredDuringExecution"
"""In a request: the pod has preferred terms, or an annotation that speaks of them."""

Answered = Callable[[Pod, int, str, Outcome], None]
"""Told how many nodes were asked about for a pod, the name of the only one (else empty), and what came of it."""


class FilterVerb:
    """Refusals go into ``FailedAndUnresolvableNodes`` with constant reasons: anything else makes the scheduler loop.

    ``lean`` leaves refusals out where at least one node passes, and names those that pass in an order drawn by lot
    (``docs/wire.md``). Where the profile says so it names some of them, or the best one alone.
    """

    def __init__(
        self,
        context: VerbContext,
        refusals: RefusalCache,
        results: FilterResultCache,
        answered: Answered,
        picks: Picks,
        *,
        lean: bool = False,
    ) -> None:
        self._context = context
        self._decode = partial(decode_args, core=context.cluster.core)
        self._lean = lean
        self._refusals = refusals
        self._results = results
        self._answered = answered
        self._picks = picks

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a filter request. Raises ``VerbFailure``."""
        request = split_args(body)
        remembered = self._remembered(request)
        if remembered is not None:
            return remembered
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await read_again(self._decode, body, refused, "filter")
        framework = self._context.asked_framework("filter", args.pod)
        if framework is None:
            return Answer(_pass_all(args, by_lot if self._lean else _as_asked), "nothing_to_do")
        require_picture(self._context.problem)
        try:
            answer = await self._decide(framework, args, request)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed filter request: {error}") from None
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        return answer

    def _remembered(self, request: SplitArgs | None) -> Answer | None:
        """A refusal that nothing has changed since, unless a bind that matters to it is due."""
        asked = None if request is None else self._refusals.find(request)
        if asked is None:
            return None
        require_picture(self._context.problem)
        try:
            if self._context.due.expects(asked.framework.filters.depends, asked.pod):
                return None
            refusal = self._refusals.answer(asked)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        if refusal is None:
            return None
        if self._is_to_pick(asked.framework):
            self._picks.asked(asked.pod.uid, self._context.cluster.generation)
        self._answered(asked.pod, asked.request.size, asked.request.only, "no_fit")
        return Answer(refusal, "no_fit")

    async def _decide(self, framework: Framework, args: ExtenderArgs, request: SplitArgs | None) -> Answer:
        """Gather what may take a moment; then, without an await, decide on the picture as it is."""
        cluster = self._context.cluster
        sent = None if args.names is not None else await read_sent(args.nodes or (), cluster.nodes, cluster.core)
        await self._context.look_up_missing(framework, args.pod)
        if self._is_to_pick(framework):
            due = await self._context.due.wait(_every_bind, args.pod)
            self._picks.asked(args.pod.uid, cluster.generation)
        else:
            due = await self._context.due.wait(framework.filters.depends, args.pod)
        judge = partial(self._judged, framework, args.pod, args.names, sent)
        found = await decided(self._context.due, args.pod, due, judge)
        names = found.asked
        only_passed = found.passed and (self._lean or not found.rejected)
        if only_passed and request is not None and args.names is not None and request.are(args.names):
            answer = self._kept_answer(framework, request, args.pod, found.passed)
        else:
            answer = _answer(found, lean=self._lean)
        if found.passed:
            self._context.due.expect(args.pod, found.passed)
        if answer.outcome == "no_fit":
            self._refusals.keep(request, framework, args.pod, names, found.rejected, lasts=found.lasts)
        self._answered(args.pod, len(names), names[0] if len(names) == 1 else "", answer.outcome)
        return answer

    def _is_to_pick(self, framework: Framework) -> bool:
        return self._lean and framework.picks

    def _kept_answer(self, framework: Framework, request: SplitArgs, pod: Pod, passed: Sequence[str]) -> Answer:
        """The names that pass and nothing else, kept for prioritize. They came without escapes, and go so."""
        most = framework.at_most
        if not self._lean:
            told = passed
        elif most and len(passed) > most and _PREFERS not in request.before:
            told = some_by_lot(passed, most, pod.nominated_node_name)
        else:
            told = by_lot(passed)
        names = '","'.join(told).encode()
        if len(told) > 1:  # else kube-scheduler does not ask any more
            self._results.keep(request.before, names, FilterResults(pod, told, self._context.cluster.node_set))
        return Answer(encode_passing(names), "feasible")

    def _judged(
        self, framework: Framework, pod: Pod, names: Sequence[str] | None, sent: Sequence[SentNode] | None, due: DuePods
    ) -> _Judged:
        """Which pass is mostly all there is to say; why the others do not is found for these alone.

        Raises ``PluginError``, ``Unprepared`` or ``Crowded``.
        """
        cluster = self._context.cluster
        with cluster.without(pod.uid, pod.key):
            asked = searched_nodes(names, sent, cluster)
            state = CycleState()
            found = framework.search.find_nodes_that_fit(pod, asked.candidates, state)
            passed = found.passed
            require_room(framework, state, pod, passed, due)
            if passed and self._is_to_pick(framework):
                passed = [self._picked(framework, pod, asked.candidates.among(passed))]
            if (self._lean and passed) or (names is not None and len(passed) == len(names)):
                return _Judged(asked.names, passed, {}, asked.raw)
            rejected = asked.with_unknown(passed, found.rejected())
            if len(passed) + len(rejected) != len(asked.names):  # a name is repeated
                passed = list(filterfalse(rejected.__contains__, asked.names))
            return _Judged(asked.names, passed, rejected, asked.raw, found.lasts)

    def _picked(self, framework: Framework, pod: Pod, nodes: Candidates) -> str:
        """The best of the nodes that pass. A single one is nobody's pick. Raises ``PluginError`` or ``Unprepared``."""
        if len(nodes.name_set) != len(nodes):
            nodes = nodes.among(list(dict.fromkeys(nodes.names)))
        if len(nodes) == 1:
            return nodes.names[0]
        best = framework.scoring.score(CycleState(), pod, nodes).best
        return self._picks.one_of(best, pod.uid, self._context.cluster.generation)


class _Judged(Struct, frozen=True):
    """``raw``: the nodes as they came, where whole nodes did. ``rejected`` may be empty where nobody will read it.

    ``lasts``: see ``Found``.
    """

    asked: Sequence[str]
    passed: Sequence[str]
    rejected: Mapping[str, Status]
    raw: Mapping[str, Raw] | None = None
    lasts: bool = True


def _answer(found: _Judged, *, lean: bool) -> Answer:
    passed, rejected = found.passed, found.rejected
    outcome: Outcome = "feasible" if passed else ("no_fit" if found.asked else "nothing_to_do")
    if lean and passed:  # kube-scheduler reads refusals only if no node is left
        passed, rejected = by_lot(passed), {}
    messages = {key: status.message for key, status in distinct(rejected.values()).items()}
    failed = dict(zip(rejected, map(messages.__getitem__, map(id, rejected.values())), strict=True))
    if found.raw is None:
        return Answer(encode_filter(failed, passed), outcome)
    raw = found.raw
    return Answer(encode_filter_nodes(failed, [raw[name] for name in passed]), outcome)


def by_lot(items: Sequence[T]) -> Sequence[T]:
    """The same items from anywhere on, in either direction: enough for ties, and a hundredth of a shuffle's time."""
    if not items:
        return items
    start = int(random() * len(items))  # noqa: S311  # ties, no secret
    turned = [*items[start:], *items[:start]]
    return turned[::-1] if random() < 0.5 else turned  # noqa: S311  # the same


def some_by_lot(names: Sequence[str], most: int, kept: str = "") -> Sequence[str]:
    """``most`` of the names, of which there are more; each set of so many, in each order, is as likely as any other.

    If ``kept`` is one of them it is among those, in the place of any other.
    """
    pool, size = list(names), len(names)
    for place in range(most):
        other = place + int(random() * (size - place))  # noqa: S311  # ties, no secret
        pool[place], pool[other] = pool[other], pool[place]
    some = pool[:most]
    if kept and kept in names and kept not in some:
        some[int(random() * most)] = kept  # noqa: S311  # the same
    return some


def _every_bind(_pod: Pod, _other: Pod) -> bool:
    """Where a pick is made, all of them matter: a pod takes room of its node."""
    return True


def _pass_all(args: ExtenderArgs, order: Callable[[Sequence[Any]], Sequence[Any]]) -> bytes | LongBody:
    if args.names is not None:
        return encode_filter({}, order(args.names))
    return encode_filter_nodes({}, order(args.nodes or ()))


def _as_asked(items: Sequence[T]) -> Sequence[T]:
    return items
