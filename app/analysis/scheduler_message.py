"""Splits the message in which kube-scheduler says why a pod waits, and compares it with a judgement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from app.analysis.judging import Judgement
from app.kube.core_v1 import Pod

_AVAILABLE: Final = re.compile(r"(\d+)/(\d+) nodes are available: ")
_END: Final = ". "
"""Separates the reasons from the messages of PostFilter plugins, such as preemption."""

_REASON: Final = re.compile(r"(\d+) (.+?)(?=, \d+ |$)", re.DOTALL)


class SchedulerReason(Struct, frozen=True):
    """Reason in the message of kube-scheduler, and the number of nodes for which the message gives it."""

    count: int
    reason: str


class SchedulerMessage(Struct, frozen=True):
    """Message of kube-scheduler on a pod. ``since``: RFC 3339; since when the pod is unschedulable.

    ``nodes``: number of nodes in the message; 0 if the message has another form. ``differences``: sentences on what
    differs from the present judgement.
    """

    since: str
    message: str
    nodes: int
    reasons: Sequence[SchedulerReason]
    differences: Sequence[str]


def compared(pod: Pod, judgement: Judgement, not_judged: int) -> SchedulerMessage | None:
    """Return the message on the pod, compared with a judgement; ``None`` if kube-scheduler has written none.

    ``not_judged``: number of filters without a verdict in the judgement. The message has only the first reason
    of each node, and can be older than the judgement.
    """
    message = pod.waiting.message
    if not message:
        return None
    nodes, reasons = split(message)
    return SchedulerMessage(
        pod.unschedulable_since, message, nodes, reasons, tuple(_differences(nodes, reasons, judgement, not_judged))
    )


def split(message: str) -> tuple[int, list[SchedulerReason]]:
    """Return the number of nodes in the message, and its reasons, without the messages of PostFilter plugins.

    A reason without a number is one of PreFilter, and is true for all nodes. A message of another form has no reasons.
    The last reason of a truncated message can be incomplete.
    """
    available = _AVAILABLE.match(message)
    if available is None:
        return 0, []
    nodes, text = int(available[2]), message[available.end() :].partition(_END)[0].removesuffix(".")
    if not text[:1].isdigit():
        return nodes, [SchedulerReason(nodes, text)] if text else []
    return nodes, [SchedulerReason(int(count), reason) for count, reason in _REASON.findall(text)]


def _differences(
    nodes: int, reasons: Sequence[SchedulerReason], judgement: Judgement, not_judged: int
) -> Sequence[str]:
    ours = {reason for statuses in judgement.by_reasons() for status in statuses for reason in status.reasons}
    differences = []
    if nodes and judgement.feasible:
        rest = ", as far as judged here" if not_judged else ""
        differences.append(f"kube-scheduler found no node; {len(judgement.feasible)} nodes fit now{rest}")
    if nodes and nodes != judgement.total:
        differences.append(f"kube-scheduler counted {nodes} nodes; there are {judgement.total} now")
    if not not_judged:
        differences += [f"only kube-scheduler says: {it.reason}" for it in reasons if it.reason not in ours]
    return differences
