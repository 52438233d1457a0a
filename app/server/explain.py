"""Endpoints below ``/api/v1/explain``: which nodes a pod can use, why not the others, and which changes would help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query, Request, Response
from msgspec.structs import asdict, replace
from pydantic import Field

from app.analysis.bound import BoundNode
from app.analysis.explaining import Explained, Explainer, NodeAnswer
from app.analysis.verdict import status_as_json
from app.analysis.workloads import MOST_PODS, ExplainedWorkload, WorkloadExplainer
from app.framework.handle import WaitingPod, WaitingPods
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.names import LONGEST, is_subdomain, shown
from app.kube.quantity import shown_amount
from app.kube.selectors import Selector
from app.server.bodies import documented, invalid, parsed, selector_in
from app.server.cycle import FAILURES, NAME_EXAMPLE, POD_EXAMPLE, json_response, requested_pod
from app.server.queries import KnownQuery
from app.wire.explain_v1 import (
    API_VERSION,
    EXPLANATION,
    EXPLANATION_LIST,
    ExplainRequest,
    ExplainResponse,
    ExplanationList,
)

_OF_A_WORKLOAD: Final = f"Explain the pods of a workload or of a label selector, at most {MOST_PODS}; equal pods once"
_OF_ALL_NAMESPACES: Final = f"Explain the pods of all namespaces that a label selector matches, at most {MOST_PODS}"
_SUMMARY: Final = "Which nodes can the pod use, why not the others, and which changes would help?"
_PODS: Final = ("pod", "pods", "po")
"""Names of the kind Pod, which is not a workload."""


class NodeQuery(KnownQuery):
    """Query about one pod."""

    node: str = Field(default="", description="Name of a node: also give the verdict and score of each plugin there.")


class PodsQuery(KnownQuery):
    """Query for the pods of a workload, or for those that a selector matches."""

    kind: str = Field(default="", max_length=LONGEST, description="Kind of the workload, for example Deployment.")
    name: str = Field(default="", max_length=LONGEST, description="Name of the workload.")
    label_selector: str | None = Field(default=None, description="Instead of kind and name; in kubectl's notation.")

    def selector(self) -> Selector | None:
        """Return the selector; ``None`` if the query names a workload. Raises an exception answered with 422."""
        if self.kind.lower() in _PODS:
            raise invalid("query", "kind", "a single pod has the path /api/v1/explain/{namespace}/{pod}")
        if not (self.kind and self.name) if self.label_selector is None else (self.kind or self.name):
            raise HTTPException(422, "give either kind and name, or labelSelector")
        return None if self.label_selector is None else selector_in(self.label_selector)


class LabelsQuery(KnownQuery):
    """Query for the pods of all namespaces that a selector matches."""

    label_selector: str = Field(min_length=1, description="In kubectl's notation.")


def explain_router(
    explainer: Explainer, workloads: WorkloadExplainer, waiting: WaitingPods, *, max_body_bytes: int
) -> APIRouter:
    """Create the router. An explanation uses the snapshot and filters of explain, and changes no state."""
    router = APIRouter(prefix="/api/v1/explain", tags=["operator"])

    async def answer(pod: Pod, node: str) -> Response:
        """Explain the pod, and encode an ``ExplainResponse``."""
        explained = await explainer.explain(pod, node)
        return json_response(_explanation(pod, explained, waiting.get(pod.uid)))

    @router.get("/{namespace}/{pod}", response_model=ExplainResponse, responses=FAILURES, summary=_SUMMARY)
    async def explain_known(namespace: str, pod: str, query: Annotated[NodeQuery, Query()]) -> Response:
        return await answer(explainer.known_pod(namespace, pod), query.node)

    @router.get("", response_model=ExplanationList, responses=FAILURES, summary=_OF_ALL_NAMESPACES)
    async def explain_everywhere(query: Annotated[LabelsQuery, Query()]) -> Response:
        return _list_response(await workloads.selected("", selector_in(query.label_selector)), waiting.get)

    @router.get("/{namespace}", response_model=ExplanationList, responses=FAILURES, summary=_OF_A_WORKLOAD)
    async def explain_workload(namespace: str, query: Annotated[PodsQuery, Query()]) -> Response:
        selector = query.selector()
        if selector is None:
            return _list_response(await workloads.owned(namespace, query.kind, query.name), waiting.get)
        return _list_response(await workloads.selected(namespace, selector), waiting.get)

    @router.post(
        "",
        response_model=ExplainResponse,
        responses=FAILURES,
        summary=f"{_SUMMARY} Also for a pod that does not exist",
        openapi_extra=documented(ExplainRequest, by_name=NAME_EXAMPLE, inline=POD_EXAMPLE),
    )
    async def explain(request: Request, _: Annotated[KnownQuery, Query()]) -> Response:
        explain_request = await parsed(request, ExplainRequest.parse, max_body_bytes)
        pod = await requested_pod(explainer, explain_request)
        if explain_request.scheduler_name is not None:
            pod = replace(pod, spec=replace(pod.spec, scheduler_name=explain_request.scheduler_name))
        return await answer(pod, explain_request.node)

    return router


def _list_response(workload: ExplainedWorkload, held: Callable[[str], WaitingPod | None]) -> Response:
    """Encode an ``ExplanationList``."""
    items = [
        {
            "pods": [pod.name for pod in it.pods],
            "explanation": _explanation(it.pods[0], it.explained, held(it.pods[0].uid)),
        }
        for it in workload.items
    ]
    total, omitted = workload.total, workload.omitted
    head = {"apiVersion": API_VERSION, "kind": EXPLANATION_LIST}
    return json_response({**head, "items": items, "total": total, "omitted": omitted})


def _explanation(pod: Pod, explained: Explained, held: WaitingPod | None) -> dict[str, Any]:
    """Return an ``ExplainResponse`` as a mapping for JSON. ``held``: the pod if it waits at Permit."""
    verdict = "HeldAtPermit" if held is not None else _verdict(pod, explained)
    proved_by = "partial" if explained.not_judged else "complete"
    return {
        "apiVersion": API_VERSION,
        "kind": EXPLANATION,
        "pod": str(pod),
        "schedulerName": pod.spec.scheduler_name,
        "nodeName": pod.node_name,
        "profile": explained.profile,
        "preset": explained.preset,
        "judgedAt": explained.judged_at,
        "verdict": verdict,
        "summary": _sentence(verdict, pod, explained) if held is None else _sentence_on_held(held),
        "heldAtPermit": None if held is None else {"node": held.node_name, "plugins": [*held.pending_plugins()]},
        "gate": [] if explained.gate.is_success else [status_as_json(explained.gate)],
        "total": explained.total,
        "feasible": explained.feasible,
        "groups": [
            {
                "count": len(it.nodes),
                "nodes": it.nodes,
                "reasons": [status_as_json(status) for status in it.reasons],
            }
            for it in explained.groups
        ],
        "judges": explained.by,
        "notJudged": [{"plugin": plugin, "why": why} for plugin, why in explained.not_judged.items()],
        "plugins": {name: {"tables": it.tables, "unblock": it.unblock} for name, it in explained.plugins.items()},
        "resources": [
            {
                "name": it.name,
                "requested": shown_amount(it.name, it.requested),
                "free": shown_amount(it.name, it.free),
                "mostFree": shown_amount(it.name, it.most_free),
                "node": it.node,
            }
            for it in explained.needs
        ],
        "remedies": [] if held is not None else [asdict(it) | {"provedBy": proved_by} for it in explained.remedies],
        "impossible": explained.impossible,
        "incomplete": explained.incomplete,
        "scheduler": explained.scheduler,
        "node": None if explained.node is None else _of_node(explained.node),
        "bound": None if explained.bound is None or held is not None else _of_bound(explained.bound),
        "home": explained.home,
        "homeTaints": explained.home_taints,
    }


def _verdict(pod: Pod, explained: Explained) -> str:
    if pod.node_name:
        return "Bound"
    if pod.terminating:
        return "Terminating"
    if not explained.gate.is_success:
        return "Gated"
    return "Fits" if explained.feasible else "NoNodeFits"


def _sentence(verdict: str, pod: Pod, explained: Explained) -> str:
    """Return the verdict as a sentence."""
    fit = f"{len(explained.feasible)} of {explained.total} nodes fit"
    if explained.not_judged:
        fit += ", as far as judged here"
    if explained.bound is not None:
        verdict_there = _verdict_on_own_node(explained.bound)
        return f"bound to {_shown(pod.node_name)}; {verdict_there}; if it were scheduled now, {fit}"
    if pod.terminating:
        return f"is being deleted, so no scheduler places it; otherwise {fit}"
    if verdict == "Gated":
        return f"not scheduled: {explained.gate.message}; without the gate, {fit}"
    return fit


def _verdict_on_own_node(bound: BoundNode) -> str:
    """Return a part of a sentence: which filters would reject a bound pod on its own node now, that none would, or
    that the node was not judged.
    """
    if not bound.verdicts:
        return "its node was not judged"
    if bound.violated:
        return f"{', '.join(bound.violated)} would reject it there now"
    return "no filter would reject it there now"


def _shown(name: str) -> str:
    return name if is_subdomain(name) else shown(name)


def _of_bound(bound: BoundNode) -> Mapping[str, Any]:
    return {
        "name": bound.name,
        "fits": bool(bound.verdicts) and not bound.violated,
        "verdicts": [_of_plugin(plugin, status) for plugin, status in bound.verdicts.items()],
        "note": bound.note,
    }


def _sentence_on_held(held: WaitingPod) -> str:
    """Return a sentence that names the plugins for which a pod waits at Permit, and its node."""
    return f"held at Permit by {', '.join(held.pending_plugins())}: it is bound to {held.node_name} once they allow it"


def _of_node(node: NodeAnswer) -> Mapping[str, Any]:
    fits = all(it.is_success for it in node.verdicts.values())
    return {
        "name": node.name,
        "fits": fits,
        "verdicts": [_of_plugin(plugin, status) for plugin, status in node.verdicts.items()],
        "scores": node.scores,
        "total": node.total,
    }


def _of_plugin(plugin: str, status: Status) -> Mapping[str, Any]:
    return {**status_as_json(status), "plugin": plugin}
