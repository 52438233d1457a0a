"""The filter verb: PreFilter and Filter over the nodes that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import filterfalse

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedPods
from app.memory.filter_results import FilterResultCache, FilterResults
from app.memory.picks import Picks
from app.memory.refusal_cache import RefusalCache
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.candidates import SentNode, read_sent, searched_nodes
from app.verbs.context import VerbContext, decided, read_again, require_room, require_snapshot
from app.verbs.filter_answer import AnswerForm, Judged
from app.verbs.outcome import Answer, Outcome, VerbFailure
from app.wire.extender_answers import encode_passing
from app.wire.extender_v1 import ExtenderArgs, MalformedRequest, SplitArgs, decode_args, split_args

Answered = Callable[[Pod, int, str, Outcome], None]
"""Callback: (pod, number of nodes asked about, name of the only one or empty, outcome)."""


class FilterVerb:
    """Refusals go into ``FailedAndUnresolvableNodes`` with constant reasons: anything else makes the scheduler loop.

    ``lean``: see ``AnswerForm``.
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
        self._form_of_strangers = AnswerForm(lean)
        self._forms = {it: AnswerForm.of(it, lean=lean) for it in context.profiles.values()}
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
            return self._form_of_strangers.passes_all(args)
        require_snapshot(self._context.problem)
        try:
            return await self._decide(framework, args, request)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed filter request: {error}") from None
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault

    def _remembered(self, request: SplitArgs | None) -> Answer | None:
        """A refusal that nothing has changed since, unless a bind that matters to it is due."""
        asked = None if request is None else self._refusals.find(request)
        if asked is None:
            return None
        require_snapshot(self._context.problem)
        try:
            if self._context.due.expects(asked.framework.filters.depends, asked.pod):
                return None
            refusal = self._refusals.answer(asked)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        if refusal is None:
            return None
        if self._forms[asked.framework].picks:
            self._picks.requested(asked.pod.uid, self._context.cluster.generation)
        self._answered(asked.pod, asked.request.size, asked.request.only, "no_fit")
        return Answer(refusal, "no_fit")

    async def _decide(self, framework: Framework, args: ExtenderArgs, request: SplitArgs | None) -> Answer:
        """Gather what may take a moment; then, without an await, decide on the picture as it is."""
        cluster, binds, pod, form = self._context.cluster, self._context.due, args.pod, self._forms[framework]
        sent = None if args.names is not None else await read_sent(args.nodes or (), cluster.nodes, cluster.core)
        await self._context.look_up_missing(framework, pod)
        due = await binds.wait(_every_bind if form.picks else framework.filters.depends, pod)
        if form.picks:
            self._picks.requested(pod.uid, cluster.generation)
        found = await decided(binds, pod, due, partial(self._judged, framework, form, pod, args.names, sent))
        names = found.asked
        only_passed = found.passed and (form.lean or not found.rejected)
        if only_passed and request is not None and args.names is not None and request.are(args.names):
            answer = self._kept_answer(form, request, pod, found.passed)
        else:
            answer = form.answer(found)
        if found.passed:
            binds.expect(pod, found.passed)
        if answer.outcome == "no_fit":
            self._refusals.keep(request, framework, pod, names, found.rejected, lasts=found.lasts)
        self._answered(pod, len(names), names[0] if len(names) == 1 else "", answer.outcome)
        return answer

    def _kept_answer(self, form: AnswerForm, request: SplitArgs, pod: Pod, passed: Sequence[str]) -> Answer:
        """Answer with the names that pass and nothing else, cached for prioritize.

        The request's names contained no JSON escapes, so they can be copied into the answer unchanged.
        """
        chosen = form.chosen(passed, pod, request.before) if form.lean else passed
        names = '","'.join(chosen).encode()
        if len(chosen) > 1:  # else kube-scheduler does not ask any more
            self._results.keep(request.before, names, FilterResults(pod, chosen, self._context.cluster.node_set))
        return Answer(encode_passing(names), "feasible")

    def _judged(
        self,
        framework: Framework,
        form: AnswerForm,
        pod: Pod,
        names: Sequence[str] | None,
        sent: Sequence[SentNode] | None,
        due: ExpectedPods,
    ) -> Judged:
        """Return which nodes pass, which is mostly all that is read; reasons are worked out for the others alone.

        Raises ``PluginError``, ``Unprepared`` or ``Crowded``.
        """
        cluster = self._context.cluster
        with cluster.without(pod.uid, (pod.namespace, pod.name)):
            asked = searched_nodes(names, sent, cluster)
            state = CycleState()
            found = framework.search.find_nodes_that_fit(pod, asked.candidates, state)
            passed = found.passed
            if due:
                require_room(framework, state, pod, passed, due)
            if passed and form.picks:
                passed = [self._picked(framework, pod, asked.candidates.among(passed))]
            if (form.lean and passed) or (names is not None and len(passed) == len(names)):
                return Judged(asked.names, passed, {}, asked.raw)
            rejected = asked.with_unknown(passed, found.rejected())
            if len(passed) + len(rejected) != len(asked.names):  # a name is repeated
                passed = list(filterfalse(rejected.__contains__, asked.names))
            return Judged(asked.names, passed, rejected, asked.raw, found.lasts)

    def _picked(self, framework: Framework, pod: Pod, nodes: Candidates) -> str:
        """Return the best of the nodes; a single one is no pick. Raises ``PluginError`` or ``Unprepared``."""
        if len(nodes.name_set) != len(nodes):
            nodes = nodes.among(list(dict.fromkeys(nodes.names)))
        if len(nodes) == 1:
            return nodes.names[0]
        best = framework.scoring.score(CycleState(), pod, nodes).best
        return self._picks.pick(best, pod.uid, self._context.cluster.generation)


def _every_bind(_pod: Pod, _other: Pod) -> bool:
    """Where a pick is made, all of them matter: a pod takes room of its node."""
    return True
