"""The preempt verb: on which nodes an eviction would help under our filters too.

kube-scheduler has chosen the victims and evicts before it asks filter again. So a node stays only if our filters pass
once its victims are gone; the victims themselves, their order and their PDB counts are left as they are.
"""

from __future__ import annotations

from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.candidates import unreadable_nodes
from app.verbs.outcome import Answer, VerbFailure
from app.verbs.readiness import require_picture
from app.verbs.reading import read_again
from app.verbs.service import Deciding
from app.wire.extender_v1 import MalformedRequest, MetaVictims, PreemptionArgs, decode_preemption, encode_victims


class PreemptVerb:
    """Answers in meta form whatever form was asked, never with ``null`` and never with a node without victims."""

    def __init__(self, deciding: Deciding) -> None:
        self._deciding = deciding

    async def __call__(self, body: bytes | memoryview) -> Answer:
        """Answer a preempt request. Raises ``VerbFailure``."""
        try:
            args = decode_preemption(body)
        except MalformedRequest as refused:
            args = await read_again(decode_preemption, body, refused, "preempt")
        framework = self._deciding.asked_framework("preempt", args.pod)
        if framework is None or not args.victims:
            return Answer(encode_victims(args.victims), "nothing_to_do")
        require_picture(self._deciding.problem)
        await self._deciding.look_up_missing(framework, args.pod)
        kept = self._kept(framework, args)
        return Answer(encode_victims(kept), "candidates" if kept else "no_fit")

    def _kept(self, framework: Framework, args: PreemptionArgs) -> dict[str, MetaVictims]:
        try:
            with self._deciding.cluster.without(args.pod.uid, args.pod.key):
                return self._helpful(framework, args)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}") from fault

    def _helpful(self, framework: Framework, args: PreemptionArgs) -> dict[str, MetaVictims]:
        state = CycleState()
        prepared = framework.pre_filter(state, args.pod)
        if not prepared.status.is_success:
            return {}
        nodes, unreadable = self._deciding.cluster.nodes, unreadable_nodes(self._deciding.cluster)
        return {
            name: victims
            for name, victims in args.victims.items()
            if name in nodes
            and name not in unreadable
            and (prepared.names is None or name in prepared.names)
            and _fits_without(framework, state, args.pod, nodes[name], victims)
        }


def _fits_without(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo, victims: MetaVictims) -> bool:
    """Whether our filters pass on ``node`` once its victims are gone. Victims we do not know count for nothing."""
    uids = {it.uid for it in victims.pods}
    dry_run = state.clone()
    framework.remove_pods(dry_run, pod, [it for uid, it in node.pods.items() if uid in uids], node)
    return framework.filter_node(dry_run, pod, node.without_pods(uids)).is_success
