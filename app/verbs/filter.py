"""The filter verb: runs PreFilter and Filter for the nodes of a request."""

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
from app.verbs.candidates import SentNode, nodes_to_search, read_sent
from app.verbs.context import VerbContext, decide_beside_pending, decode_deep, require_room, require_snapshot
from app.verbs.filter_answer import AnswerForm, FilterVerdict
from app.verbs.outcome import Answer, Outcome, VerbFailure
from app.wire.extender_answers import encode_passing
from app.wire.extender_v1 import MalformedRequest, NodesRequest, SplitArgs, decode_args, split_args

Answered = Callable[[Pod, int, str, Outcome], None]
"""Callback after an answer: (pod, number of requested nodes, name of the only requested node or "", outcome)."""


class FilterVerb:
    """The filter verb. Rejected nodes are returned in ``FailedAndUnresolvableNodes``.

    Reasons must not change from call to call: if they did, kube-scheduler would retry the pod in a loop. ``lean``: see
    ``AnswerForm``. ``answered``: called after each answer, except errors, about a pod that has a profile here.
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
        self._form_without_profile = AnswerForm(lean)
        self._forms = {it: AnswerForm.of(it, lean=lean) for it in context.profiles.values()}
        self._refusals = refusals
        self._results = results
        self._answered = answered
        self._picks = picks

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a filter request. Raises ``VerbFailure``."""
        request = split_args(body)
        refusal = self._cached_refusal(request)
        if refusal is not None:
            return refusal
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await decode_deep(self._decode, body, refused, "filter")
        framework = self._context.framework_for_request("filter", args.pod)
        if framework is None:
            return self._form_without_profile.pass_all(args)
        require_snapshot(self._context.problem)
        try:
            return await self._decide(framework, args, request)
        except MalformedRequest as error:
            raise VerbFailure("bad_request", f"homeport: malformed filter request: {error}") from None
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault

    def _cached_refusal(self, request: SplitArgs | None) -> Answer | None:
        """Return the answer of a cached refusal that is still valid.

        Return ``None`` if there is no such refusal, or if an expected bind can change it. Raises ``VerbFailure``.
        """
        cached = None if request is None else self._refusals.find(request)
        if cached is None:
            return None
        require_snapshot(self._context.problem)
        try:
            if self._context.due.expects(cached.framework.filters.depends, cached.pod):
                return None
            refusal = self._refusals.answer(cached)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
        if refusal is None:
            return None
        if self._forms[cached.framework].picks:
            self._picks.requested(cached.pod.uid, self._context.cluster.generation)
        self._answered(cached.pod, cached.request.size, cached.request.only, "no_fit")
        return Answer(refusal, "no_fit")

    async def _decide(self, framework: Framework, args: NodesRequest, request: SplitArgs | None) -> Answer:
        """Decode whole nodes, look up missing objects, and wait for expected binds. Then decide without an ``await``.

        So the whole decision uses one state of the snapshot.
        """
        cluster, binds, pod, form = self._context.cluster, self._context.due, args.pod, self._forms[framework]
        sent = None if args.names is not None else await read_sent(args.nodes or (), cluster.nodes, cluster.core)
        await self._context.look_up_missing(framework, pod)
        due = await binds.wait(_every_bind if form.picks else framework.filters.depends, pod)
        if form.picks:
            self._picks.requested(pod.uid, cluster.generation)
        verdict = await decide_beside_pending(
            binds, pod, due, partial(self._evaluate, framework, form, pod, args.names, sent)
        )
        names = verdict.names
        only_passed = verdict.passed and (form.lean or not verdict.rejected)
        if only_passed and request is not None and args.names is not None and request.are(args.names):
            answer = self._cacheable_answer(form, request, pod, verdict.passed)
        else:
            answer = form.answer(verdict)
        if verdict.passed:
            binds.expect(pod, verdict.passed)
        if answer.outcome == "no_fit":
            self._refusals.keep(request, framework, pod, names, verdict.rejected, lasts=verdict.lasts)
        self._answered(pod, len(names), names[0] if len(names) == 1 else "", answer.outcome)
        return answer

    def _cacheable_answer(self, form: AnswerForm, request: SplitArgs, pod: Pod, passed: Sequence[str]) -> Answer:
        """Return an answer with passing names only. Cache these names for prioritize, unless there is only one.

        The request's names contained no JSON escapes, so they can be copied into the answer unchanged.
        """
        chosen = form.chosen(passed, pod, request.before) if form.lean else passed
        names = '","'.join(chosen).encode()
        if len(chosen) > 1:  # with one node kube-scheduler does not call prioritize
            self._results.keep(request.before, names, FilterResults(pod, chosen, self._context.cluster.node_set))
        return Answer(encode_passing(names), "feasible")

    def _evaluate(
        self,
        framework: Framework,
        form: AnswerForm,
        pod: Pod,
        names: Sequence[str] | None,
        sent: Sequence[SentNode] | None,
        due: ExpectedPods,
    ) -> FilterVerdict:
        """Return the passing nodes and, if the answer needs them, the statuses of the rejected nodes.

        Raises ``PluginError``, ``Unprepared``, ``PendingBindsConflict`` or ``MalformedRequest``.
        """
        cluster = self._context.cluster
        with cluster.without(pod.uid, (pod.namespace, pod.name)):
            requested = nodes_to_search(names, sent, cluster)
            state = CycleState()
            search = framework.search.find_nodes_that_fit(pod, requested.candidates, state)
            passed = search.passed
            if due:
                require_room(framework, state, pod, passed, due)
            if passed and form.picks:
                passed = [self._pick(framework, pod, requested.candidates.among(passed))]
            if (form.lean and passed) or (names is not None and len(passed) == len(names)):
                return FilterVerdict(requested.names, passed, {}, requested.raw)
            rejected = requested.with_unknown(passed, search.rejected())
            if len(passed) + len(rejected) != len(requested.names):  # a name was requested twice
                passed = list(filterfalse(rejected.__contains__, requested.names))
            return FilterVerdict(requested.names, passed, rejected, requested.raw, search.lasts)

    def _pick(self, framework: Framework, pod: Pod, nodes: Candidates) -> str:
        """Return the best node. Among equals, it is the last pick on a retry (``Picks``), else a random one.

        Raises ``PluginError`` or ``Unprepared``.
        """
        if len(nodes.name_set) != len(nodes):
            nodes = nodes.among(list(dict.fromkeys(nodes.names)))
        if len(nodes) == 1:
            return nodes.names[0]
        best = framework.scoring.score(CycleState(), pod, nodes).best
        return self._picks.pick(best, pod.uid, self._context.cluster.generation)


def _every_bind(_pod: Pod, _other: Pod) -> bool:
    """Return true, so that the request waits for every expected bind.

    Used if the answer has only the best node: every bound pod takes resources of a node and so changes the scores.
    """
    return True
