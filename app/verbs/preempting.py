"""Filter and preempt for profiles with ``preemption: Own``, in which Homeport evicts pods for topology spread.

A plan names a node and the pods to evict there. While Homeport carries out a plan for a pod, filter reports the planned
node in ``FailedNodes``, so that kube-scheduler keeps the pod's nomination to that node. Preempt then answers with no
node, so that kube-scheduler does not evict pods on another node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from app.framework.status import unresolvable
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.memory.preemption_tracker import PreemptionTracker
from app.runtime.framework import Framework
from app.verbs.context import VerbContext
from app.verbs.filter import FilterVerb
from app.verbs.filter_answer import AnswerForm, FilterVerdict
from app.verbs.outcome import Answer
from app.verbs.preempt import PreemptVerb
from app.wire.extender_answers import LongBody, encode_filter, encode_filter_nodes, encode_victims
from app.wire.extender_v1 import NodesRequest, PreemptionArgs, SplitArgs

_SPREAD: Final = b"topology spread constraints"
"""Text in each reason of PodTopologySpread. A refusal without it is not reported to the tracker, because Homeport
evicts pods only for topology spread.
"""


_WAITS: Final = unresolvable("node(s) were not the one on which pods are evicted for this pod")
"""Status of a node that is not the planned one, and for which ``FilterVerb`` has no status: it passes, or a lean answer
does not list it.
"""

_EVICTING: Final = unresolvable("node(s) had pods that are being evicted for this pod")
"""Status of the planned node, if ``FilterVerb`` has no status for it, and it is not passed as the only node."""


class PreemptingFilterVerb(FilterVerb):
    """The filter verb. It reports to the ``tracker`` which pods pass, and which ones topology spread refuses."""

    def __init__(self, *parts: Any, lean: bool = False, tracker: PreemptionTracker) -> None:
        """``parts``: positional arguments of ``FilterVerb``."""
        super().__init__(*parts, lean=lean)
        self._tracker = tracker

    def _cached_refusal(self, request: SplitArgs | None) -> Answer | None:
        cached = None if request is None else self._refusals.find(request)
        if cached is None or not cached.framework.preempts:
            return super()._cached_refusal(request)
        if self._tracker.planned(cached.pod.uid):
            return None
        answer = super()._cached_refusal(request)
        if answer is not None and isinstance(answer.body, bytes) and _SPREAD in answer.body:
            self._tracker.refused(cached.pod, partial(_names, cached.request))
        return answer

    async def _decide(self, framework: Framework, args: NodesRequest, request: SplitArgs | None) -> Answer:
        answer = await super()._decide(framework, args, request)
        if not framework.preempts:
            return answer
        if answer.outcome == "feasible":
            self._tracker.passed(args.pod)
        if answer.outcome != "no_fit":
            return answer
        names, body = args.names, answer.body if isinstance(answer.body, bytes) else b"".join(answer.body.chunks())
        if _SPREAD in body:
            every = tuple(_rejected(body)) if names is None else names
            self._tracker.refused(args.pod, lambda: every)
        planned = self._tracker.planned(args.pod.uid)
        return Answer(_with_failed(body, planned, whole=names is None), "no_fit") if planned else answer

    def _evaluate(self, framework: Framework, form: AnswerForm, pod: Pod, *request: Any) -> FilterVerdict:
        """Evaluate nodes as ``FilterVerb`` does. While there is a plan for the pod, no node passes until the last
        eviction was sent, and then only the planned node, if the request has it.

        So no eviction follows the bind, and the pod is not bound to another node after the evictions. If the request
        lacks the planned node, the verdict after the last eviction is that of ``FilterVerb``.
        """
        verdict = super()._evaluate(framework, form, pod, *request)
        planned = self._tracker.planned(pod.uid) if framework.preempts else ""
        is_evicting = bool(planned) and self._tracker.is_evicting(pod.uid)
        if not is_evicting and (planned not in verdict.names or set(verdict.passed) <= {planned}):
            return verdict
        passed = [planned] if planned in verdict.passed and not is_evicting else []
        statuses = {planned: _EVICTING, **verdict.rejected}
        rejected = {name: statuses.get(name, _WAITS) for name in verdict.names if name not in passed}
        return FilterVerdict(verdict.names, passed, rejected, verdict.raw, lasts=False)


def _names(request: SplitArgs) -> Sequence[str]:
    return [name.decode() for name in request.each()]


class _RefusalBody(Struct, rename="pascal"):
    failed_and_unresolvable_nodes: dict[str, str]


_REFUSAL: Final[Decoder[_RefusalBody]] = Decoder(_RefusalBody)


def _rejected(body: bytes) -> dict[str, str]:
    return _REFUSAL.decode(body).failed_and_unresolvable_nodes


def _with_failed(body: bytes, planned: str, *, whole: bool) -> bytes | LongBody:
    """Return the refusal ``body`` with the planned node moved to ``FailedNodes``; unchanged if it lacks this node.

    ``whole``: true if the request has whole nodes.
    """
    rejected = _rejected(body)
    if planned not in rejected:
        return body
    failed = {planned: rejected.pop(planned)}
    return encode_filter_nodes(rejected, (), failed) if whole else encode_filter(rejected, (), failed)


class PreemptingPreemptVerb(PreemptVerb):
    """The preempt verb. For profiles with ``preemption: Own``, it reports calls to the ``tracker``, and answers with no
    node for a pod with a plan.
    """

    def __init__(self, context: VerbContext, tracker: PreemptionTracker) -> None:
        super().__init__(context)
        self._tracker = tracker

    async def _answer(self, framework: Framework, args: PreemptionArgs) -> Answer:
        if not framework.preempts:
            return await super()._answer(framework, args)
        pod: Pod = args.pod
        answer = Answer(encode_victims({}), "no_fit")
        self._tracker.preempt_begins(pod)
        try:
            if not self._tracker.planned(pod.uid):
                answer = await super()._answer(framework, args)
            if self._tracker.planned(pod.uid):  # the plan can have begun meanwhile
                answer = Answer(encode_victims({}), "no_fit")
            return answer
        finally:
            self._tracker.preempt_ends(pod, answer.outcome == "candidates")
