"""The preempt verb: nodes on which the eviction of the given victims would make our filters pass.

kube-scheduler has chosen the victims. It later evicts the victims of one node and calls filter again. So a node stays
in the answer only if our filters pass without its victims. For a pod without a profile here, all nodes stay. Victims,
their order and the numbers of PDB violations are returned unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.candidates import unreadable_nodes
from app.verbs.context import VerbContext, decode_deep, require_snapshot
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.stepwise import run_stepwise
from app.wire.extender_answers import NodeVictims, encode_victims
from app.wire.extender_v1 import MalformedRequest, PreemptionArgs, decode_preemption

_CANDIDATES_PER_STEP: Final = 16
"""Number of candidate nodes evaluated per step. A step takes 0.25 ms, or some ms with ``MOST_CONSTRAINTS``."""


class PreemptVerb:
    """The preempt verb. An answer lists victims by UID (meta form).

    The answer's map is never ``null``, and contains only nodes that have victims.
    """

    def __init__(self, context: VerbContext) -> None:
        self._context = context
        self._decode = partial(decode_preemption, core=context.cluster.core)

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a preempt request. Raises ``VerbFailure``."""
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await decode_deep(self._decode, body, refused, "preempt")
        framework = self._context.framework_for_request("preempt", args.pod)
        if framework is None or not args.victims:
            return Answer(encode_victims(args.victims), "nothing_to_do")
        require_snapshot(self._context.problem)
        return await self._answer(framework, args)

    async def _answer(self, framework: Framework, args: PreemptionArgs) -> Answer:
        await self._context.look_up_missing(framework, args.pod)
        helped: dict[str, NodeVictims] = {}
        await run_stepwise(self._steps(framework, args, helped))
        return Answer(encode_victims(helped), "candidates" if helped else "no_fit")

    def _steps(self, framework: Framework, args: PreemptionArgs, helped: dict[str, NodeVictims]) -> Iterator[None]:
        """Evaluate ``_CANDIDATES_PER_STEP`` nodes per step, and add those on which the pod would fit to ``helped``.

        Each step uses the snapshot of that moment. A change of the snapshot between two steps does no harm, because
        filter checks the nodes again after the eviction. Raises ``VerbFailure``.
        """
        candidates = iter(args.victims.items())
        some = list(islice(candidates, _CANDIDATES_PER_STEP))
        while some:
            try:
                helped.update(self._helpful(framework, args.pod, some))
            except Unprepared as missing:
                yield from missing.steps
                continue
            except PluginError as fault:
                raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
            some = list(islice(candidates, _CANDIDATES_PER_STEP))
            yield

    def _helpful(
        self, framework: Framework, pod: Pod, candidates: Iterable[tuple[str, NodeVictims]]
    ) -> dict[str, NodeVictims]:
        """Return the candidates on which the pod would fit without the victims there.

        Nodes that are unknown or unreadable are left out. Raises ``PluginError`` or ``Unprepared``.
        """
        with self._context.cluster.without(pod.uid, pod.key):
            state = CycleState()
            prepared = framework.filters.pre_filter(state, pod)
            if not prepared.status.is_success:
                return {}
            nodes, unreadable = self._context.cluster.nodes, unreadable_nodes(self._context.cluster)
            return {
                name: victims
                for name, victims in candidates
                if name in nodes
                and name not in unreadable
                and (prepared.names is None or name in prepared.names)
                and _fits_without(framework, state, pod, nodes[name], victims)
            }


def _fits_without(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo, victims: NodeVictims) -> bool:
    """Return true if our filters pass on ``node`` without its victims. Victims that are not on it are ignored."""
    uids = {it.uid for it in victims.pods}
    dry_run = state.clone()
    framework.filters.remove_pods(dry_run, pod, [it for uid, it in node.pods.items() if uid in uids], node)
    return framework.filters.filter_node(dry_run, pod, node.without_pods(uids)).is_success
