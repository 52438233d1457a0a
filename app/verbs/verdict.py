"""What the plugins of a profile say about a pod and every node, in the words of ``docs/evaluate.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import Status, distinct, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import PluginError

NO_NODES: Final = unresolvable("no nodes available to schedule pods")

Verdict: TypeAlias = dict[str, Any]
"""A JSON object."""


def judged(framework: Framework, pod: Pod, nodes: Candidates) -> Verdict:
    """The verdict on ``pod``, without a name. Raises ``PluginError`` where scoring fails."""
    if not len(nodes):
        return _assembled(NO_NODES)
    state = CycleState()
    try:
        prepared = framework.pre_filter(state, pod)
    except PluginError as fault:
        return _assembled(fault.status)
    if not prepared.status.is_success:
        return _assembled(prepared.status)
    outside = prepared.outside(nodes)
    rejected = {**outside, **_filtered(framework, state, pod, nodes.without(outside))}
    verdict = _assembled(prepared.status, {name: shown(rejected.get(name)) for name in nodes.names})
    feasible = nodes.without(rejected)
    if len(feasible) and all(status.is_rejected for status in distinct(rejected.values()).values()):
        scores = framework.score(CycleState(), pod, feasible)
        by_plugin = scores.by_plugin
        verdict["score"] = {
            name: {plugin: of_plugin[name] for plugin, of_plugin in by_plugin.items()} for name in feasible.names
        }
        verdict["total"] = scores.totals
    return verdict


def _filtered(framework: Framework, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
    """The rejected nodes. Where a plugin fails, each node is asked by itself: the fault may be that of one node."""
    try:
        return framework.filter(state, pod, nodes)
    except PluginError:
        found = {it.name: status_on(framework, state, pod, it) for it in nodes}
        return {name: status for name, status in found.items() if not status.is_success}


def status_on(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
    """What Filter says about one node; an Error where a plugin fails."""
    try:
        return framework.filter_node(state, pod, node)
    except PluginError as fault:
        return fault.status


def _assembled(pre_filter: Status, filtered: Mapping[str, Any] | None = None) -> Verdict:
    return {"preFilter": shown(pre_filter), "filter": filtered or {}, "score": {}, "total": {}}


def shown(status: Status | None) -> dict[str, Any]:
    """A status in the words of the format; ``None`` is Success."""
    if status is None or status.is_success:
        return {"code": "Success", "plugin": "", "reasons": []}
    return {"code": status.code.word, "plugin": status.plugin, "reasons": list(status.reasons)}
