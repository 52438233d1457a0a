"""Verdicts of a profile's plugins on a pod and every node, in the format of ``docs/evaluate.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import MAX_NODE_SCORE, MIN_NODE_SCORE, Victims
from app.framework.status import Code, Status, distinct, error, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import PluginError

_INVALID_SCORE: Final = (
    'applying score defaultWeights on Score plugins: plugin "{}" returns an invalid score {}, '
    "it should in the range of [{}, {}] after normalizing"
)
"""Error text of kube-scheduler, copied with its grammatical mistake."""

_CODES: Final = {code.word: code for code in Code}
NO_NODES: Final = unresolvable("no nodes available to schedule pods")

Verdict: TypeAlias = dict[str, Any]
"""JSON object in the format of ``docs/evaluate.md``."""


def evaluate_pod(framework: Framework, pod: Pod, nodes: Candidates, state: CycleState | None = None) -> Verdict:
    """Return the verdict on ``pod``, without the name of the case.

    Raises ``Unprepared``, and ``PluginError`` if scoring fails or a score is out of range. If PreFilter or Filter
    fails, the verdict contains the error. ``state``: a new state, in which PreFilter stores its data for
    ``evaluate_preemption``.
    """
    if not len(nodes):
        return _verdict_of(NO_NODES)
    state = CycleState() if state is None else state
    try:
        prepared = framework.filters.pre_filter(state, pod)
    except PluginError as fault:
        return _verdict_of(fault.status)
    if not prepared.status.is_success:
        return _verdict_of(prepared.status)
    outside = prepared.outside(nodes)
    rejected = {**outside, **_filtered(framework, state, pod, nodes.without(outside))}
    if framework.filters.has_last_filters and _are_rejections(rejected):
        rejected |= _filtered_last(framework, state, pod, nodes, nodes.without(rejected).names)
    verdict = _verdict_of(prepared.status, {name: status_as_json(rejected.get(name)) for name in nodes.names})
    feasible = nodes.without(rejected)
    if len(feasible) and _are_rejections(rejected):
        scores = framework.scoring.score(CycleState(), pod, feasible)
        for plugin, score in scores.out_of_range.items():
            # kube-scheduler fails too; only the extender replaces the score by 0 and continues
            raise PluginError(error(_INVALID_SCORE.format(plugin, score, MIN_NODE_SCORE, MAX_NODE_SCORE), plugin))
        by_plugin = scores.by_plugin
        verdict["score"] = {
            name: {plugin: of_plugin[name] for plugin, of_plugin in by_plugin.items()} for name in feasible.names
        }
        verdict["total"] = scores.totals
    return verdict


def evaluate_preemption(
    framework: Framework, pod: Pod, nodes: Candidates, requested: Sequence[str], state: CycleState, verdict: Verdict
) -> Verdict:
    """Return the victims on each ``requested`` node or why there are none, and the nodes that preemption could choose.

    ``verdict``: result of ``evaluate_pod`` for this pod. ``state``: the state that ``evaluate_pod`` filled. Raises
    ``PluginError``, ``NoPreemption`` or ``Unprepared``.
    """
    pre_filter = _CODES[verdict["preFilter"]["code"]]
    codes = {name: _CODES[status["code"]] for name, status in verdict["filter"].items()}
    absent = Code.UNSCHEDULABLE if pre_filter is Code.UNSCHEDULABLE else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    why = framework.post_filters.not_eligible(pod, Status(codes.get(pod.nominated_node_name, absent)))
    if why:
        return {"victims": {}, "noVictims": {}, "pick": [], "notEligible": why}
    victims_by_node: dict[str, Victims] = {}
    without: dict[str, Status] = {}
    for name in requested if pre_filter in (Code.SUCCESS, Code.UNSCHEDULABLE) else ():
        victims, status = _victims_on(framework, state, pod, nodes.info(name))
        if victims.pods:
            victims_by_node[name] = victims
        else:
            without[name] = error(f'expected at least one victim pod on node "{name}"') if status.is_success else status
    helpful = {name: it for name, it in victims_by_node.items() if codes.get(name, absent) is Code.UNSCHEDULABLE}
    return {
        "victims": {name: victims_as_json(it) for name, it in victims_by_node.items()},
        "noVictims": {name: status_as_json(status) for name, status in without.items()},
        "pick": sorted(framework.post_filters.pick(helpful)),
    }


def _victims_on(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
    """Return the victims on a node, and Success or why there are none. If a plugin fails, the status is its Error."""
    try:
        return framework.post_filters.victims_on(state, pod, node)
    except PluginError as fault:
        return Victims(()), fault.status


def victims_as_json(victims: Victims) -> dict[str, Any]:
    """Return victims as a JSON object in the format of ``docs/evaluate.md``."""
    return {"pods": [str(it) for it in victims.pods], "numPDBViolations": victims.pdb_violations}


def _filtered(framework: Framework, state: CycleState, pod: Pod, nodes: Candidates) -> dict[str, Status]:
    """Return the status of each node that does not pass Filter.

    If a plugin fails, evaluate each node alone, because the plugin might fail on one node only.
    """
    try:
        return framework.filters.filter(state, pod, nodes)
    except PluginError:
        statuses = {it.name: status_on(framework, state, pod, it) for it in nodes}
        return {name: status for name, status in statuses.items() if not status.is_success}


def _filtered_last(
    framework: Framework, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]
) -> dict[str, Status]:
    """Return the status of each node that a last filter rejects.

    Last filters run after all other filters. ``passed``: nodes that passed the other filters. If a last filter fails,
    return its Error for each of these nodes.
    """
    try:
        return framework.filters.filter_last(state, pod, nodes, passed)
    except PluginError as fault:
        return dict.fromkeys(passed, fault.status)


def _are_rejections(statuses: Mapping[str, Status]) -> bool:
    """Return True if every status is a rejection; False if a status is an Error."""
    return all(status.is_rejected for status in distinct(statuses.values()).values())


def status_on(framework: Framework, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
    """Return the status of Filter for one node. If a plugin fails, return its Error."""
    try:
        return framework.filters.filter_node(state, pod, node)
    except PluginError as fault:
        return fault.status


def _verdict_of(pre_filter: Status, filtered: Mapping[str, Any] | None = None) -> Verdict:
    return {"preFilter": status_as_json(pre_filter), "filter": filtered or {}, "score": {}, "total": {}}


def status_as_json(status: Status | None) -> dict[str, Any]:
    """Return a status as a JSON object; ``None`` means Success."""
    if status is None or status.is_success:
        return {"code": "Success", "plugin": "", "reasons": []}
    return {"code": status.code.word, "plugin": status.plugin, "reasons": list(status.reasons)}
