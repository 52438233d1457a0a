"""Keeps a pod out of the active queue while it has scheduling gates."""

from __future__ import annotations

from typing import Final, final

from app.framework.handle import Handle
from app.framework.parts import Part
from app.framework.points import PreEnqueuePlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.scheduling_gates import SCHEDULING_GATES

NAME: Final = "SchedulingGates"

REASON_LONG_GATES: Final = "waiting for scheduling gates: more than 64 KiB of them"

_GATED: Final = "waiting for scheduling gates: [{}]"
_UNREAD: Final = unresolvable(REASON_LONG_GATES).by(NAME)


class SchedulingGatesArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class SchedulingGates(PreEnqueuePlugin):
    """Rejects a pod at PreEnqueue while ``spec.schedulingGates`` is not empty.

    Source of the rule: ``framework/plugins/schedulinggates`` of Kubernetes 1.36; 1.35 has the same rule.
    """

    def __init__(self, args: SchedulingGatesArgs, handle: Handle) -> None:
        pass

    def pre_enqueue(self, pod: Pod) -> Status:
        if SCHEDULING_GATES in pod.spec.oversized:
            return _UNREAD
        gates = pod.spec.scheduling_gates
        return unresolvable(_GATED.format(" ".join(gates))) if gates else SUCCESS


SPEC: Final = PluginSpec(NAME, SchedulingGatesArgs, SchedulingGates, reads=Reads.NODE, parts=(Part.SCHEDULING_GATES,))
