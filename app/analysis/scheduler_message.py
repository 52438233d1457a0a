"""Parses the message of kube-scheduler on why a pod waits, and compares it with a judgement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from app.analysis.judging import Judgement
from app.kube.conditions import LONGEST_MESSAGE
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
    """Message of kube-scheduler on a pod. ``since``: RFC 3339 time from which the pod is unschedulable.

    ``nodes``: N in ``0/N nodes are available``; 0 if the message has another form. ``differences``: sentences on the
    differences from the present judgement.
    """

    since: str
    message: str
    nodes: int
    reasons: Sequence[SchedulerReason]
    differences: Sequence[str]


def compared(pod: Pod, judgement: Judgement, not_judged: int) -> SchedulerMessage | None:
    """Return the message on the pod, compared with a judgement; ``None`` if kube-scheduler has written none.

    ``not_judged``: number of filters without a verdict in the judgement. The message has only the reasons of the first
    plugin that rejects a node, and can be older than the judgement.
    """
    message = pod.waiting.message
    if not message:
        return None
    nodes, reasons = split(message)
    return SchedulerMessage(
        pod.unschedulable_since,
        message,
        nodes,
        reasons,
        tuple(_differences(nodes, reasons, judgement, not_judged, is_cut=len(message) >= LONGEST_MESSAGE)),
    )


def _counts(judgement: Judgement) -> Mapping[str, int]:
    """Return the number of rejected nodes by reason."""
    counts = Counter[str]()
    for statuses, names in judgement.by_reasons().items():
        for reason in {reason for status in statuses for reason in status.reasons}:
            counts[reason] += len(names)
    return counts


def split(message: str) -> tuple[int, list[SchedulerReason]]:
    """Return N of ``0/N nodes are available``, and the reasons, without the messages of PostFilter plugins.

    A reason without a number is from PreFilter, and applies to all nodes. For a message of another form, return 0 and
    no reasons. The last reason of a truncated message can be incomplete.
    """
    available = _AVAILABLE.match(message)
    if available is None:
        return 0, []
    nodes, text = int(available[2]), message[available.end() :].partition(_END)[0].removesuffix(".")
    if not text[:1].isdigit():
        return nodes, [SchedulerReason(nodes, text)] if text else []
    return nodes, [SchedulerReason(int(count), reason) for count, reason in _REASON.findall(text)]


def _differences(
    nodes: int, reasons: Sequence[SchedulerReason], judgement: Judgement, not_judged: int, *, is_cut: bool
) -> Sequence[str]:
    """Return sentences on the differences between the message and the judgement.

    Reasons are compared only if ``not_judged`` is 0. ``is_cut``: the last reason is truncated, and is not compared.
    """
    differences = []
    if nodes and judgement.feasible:
        rest = ", as far as judged here" if not_judged else ""
        differences.append(f"kube-scheduler found no node; {len(judgement.feasible)} nodes fit now{rest}")
    if nodes and nodes != judgement.total:
        differences.append(f"kube-scheduler counted {nodes} nodes; there are {judgement.total} now")
    if not not_judged:
        counts = _counts(judgement)
        for reason in reasons[:-1] if is_cut else reasons:
            known = counts.get(reason.reason, 0)
            if not known:
                differences.append(f"only kube-scheduler says: {reason.reason}")
            elif reason.count > known:
                differences.append(f"kube-scheduler counts {reason.count} nodes, Homeport {known}: {reason.reason}")
    return differences
