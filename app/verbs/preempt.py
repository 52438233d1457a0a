"""The preempt verb: on which nodes an eviction would help under our filters too.

kube-scheduler has chosen the victims and evicts before it asks filter again. So a node stays only if our filters pass
once its victims are gone; the victims themselves, their order and their PDB counts are left as they are.
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
from app.verbs.context import VerbContext, read_again, require_snapshot
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.slices import in_slices
from app.wire.extender_answers import MetaVictims, encode_victims
from app.wire.extender_v1 import MalformedRequest, PreemptionArgs, decode_preemption

_A_STEP: Final = 16
"""Candidates tried at a time: a quarter of a millisecond, or some milliseconds for the most constraints."""


class PreemptVerb:
    """Answers in meta form whatever form was asked, never with ``null`` and never with a node without victims."""

    def __init__(self, context: VerbContext) -> None:
        self._context = context
        self._decode = partial(decode_preemption, core=context.cluster.core)

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a preempt request. Raises ``VerbFailure``."""
        try:
            args = self._decode(body)
        except MalformedRequest as refused:
            args = await read_again(self._decode, body, refused, "preempt")
        framework = self._context.asked_framework("preempt", args.pod)
        if framework is None or not args.victims:
            return Answer(encode_victims(args.victims), "nothing_to_do")
        require_snapshot(self._context.problem)
        await self._context.look_up_missing(framework, args.pod)
        kept: dict[str, MetaVictims] = {}
        await in_slices(self._steps(framework, args, kept))
        return Answer(encode_victims(kept), "candidates" if kept else "no_fit")

    def _steps(self, framework: Framework, args: PreemptionArgs, kept: dict[str, MetaVictims]) -> Iterator[None]:
        """A few candidates at each step, on the picture as it is then: filter asks once more after the eviction.

        Raises ``VerbFailure``.
        """
        candidates = iter(args.victims.items())
        some = list(islice(candidates, _A_STEP))
        while some:
            try:
                kept.update(self._helpful(framework, args.pod, some))
            except Unprepared as missing:
                yield from missing.steps
                continue
            except PluginError as fault:
                raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault
            some = list(islice(candidates, _A_STEP))
            yield

    def _helpful(
        self, framework: Framework, pod: Pod, candidates: Iterable[tuple[str, MetaVictims]]
    ) -> dict[str, MetaVictims]:
        """Raises ``PluginError`` or ``Unprepared``."""
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


def _fits_without(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo, victims: MetaVictims) -> bool:
    """Whether our filters pass on ``node`` once its victims are gone. Victims we do not know count for nothing."""
    uids = {it.uid for it in victims.pods}
    dry_run = state.clone()
    framework.filters.remove_pods(dry_run, pod, [it for uid, it in node.pods.items() if uid in uids], node)
    return framework.filters.filter_node(dry_run, pod, node.without_pods(uids)).is_success
