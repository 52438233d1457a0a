"""OpenAPI description of the four verbs, whose requests and answers are not parsed by pydantic models.

Parsing with pydantic would take longer than the decision itself. So these models only describe requests and answers in
the OpenAPI document; ``app.wire`` decodes and encodes them. The examples refer to the sample cluster, and a test
executes them there.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Struct
from pydantic import BaseModel, Field

from app.server.bodies import request_body
from app.server.failures import FailureStatus, is_in_api

Json = dict[str, Any]
_KubernetesObject = Annotated[Json, Field(description="Object of the Kubernetes API.")]


_FAILURE: Final = f"#/components/schemas/{FailureStatus.__name__}"


class NodeList(BaseModel):
    """List of whole nodes."""

    items: list[_KubernetesObject]


class ExtenderArgs(BaseModel):
    """Pod, and the nodes to check or score, as names or as whole nodes."""

    Pod: _KubernetesObject
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None


class ExtenderFilterResult(BaseModel):
    """Passing nodes, as names or whole nodes like in the request, and the reason for each other node."""

    Nodes: NodeList | None
    NodeNames: list[str] | None
    FailedNodes: dict[str, str]
    FailedAndUnresolvableNodes: dict[str, str]
    Error: str


class HostPriority(BaseModel):
    """Score of a node."""

    Host: str
    Score: int


class MetaPod(BaseModel):
    """Victim, identified by its UID."""

    UID: str


class MetaVictims(BaseModel):
    """Victims on a node."""

    Pods: list[MetaPod]
    NumPDBViolations: int


class ExtenderPreemptionArgs(BaseModel):
    """Pod, and the victims on each node, as UIDs or as whole pods."""

    Pod: _KubernetesObject
    NodeNameToVictims: dict[str, Json] | None = Field(default=None, description="Victims as whole pods.")
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(BaseModel):
    """Nodes on which the pod would fit without the victims, and the victims there."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class ExtenderBindingArgs(BaseModel):
    """Pod, and the node to which it is to be bound."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class ExtenderBindingResult(BaseModel):
    """Result of bind. The error is empty if the pod is bound to that node."""

    Error: str


class _VerbDescription(Struct, frozen=True):
    """Description of a verb. ``examples``: pairs of request and answer, by name. ``fails``: when the answer is a 500;
    empty if it never is.
    """

    summary: str
    request: type[BaseModel]
    response: type[Any]
    examples: dict[str, tuple[Json, Any]]
    fails: str = ""


def operation(path: str) -> Json:
    """Return the parameters of ``add_api_route`` that describe the verb at ``path``."""
    prefix, _, verb = path.rpartition("/")
    described = _VERBS[verb]
    responses = {200: {"description": "The answer. docs/wire.md describes the answers to a fault."}}
    if described.fails:
        responses[500] = {"description": f"{described.fails} No body."}
    return {
        "summary": f"{described.summary} ({prefix[1:]})" if prefix else described.summary,
        "response_model": described.response,
        "responses": responses,
        "openapi_extra": request_body(
            described.request, **{name: body for name, (body, _) in described.examples.items()}
        ),
    }


def with_answers(document: Json) -> Json:
    """Add the example answers and the schema of errors to the document and return the document. FastAPI would leave out
    the examples' null values.

    Paths with a prefix get no example answers, because their answers leave out nodes (docs/wire.md).
    """
    for verb, described in _VERBS.items():
        if path_item := document["paths"].get(f"/{verb}"):
            answers = {name: {"value": answer} for name, (_, answer) in described.examples.items()}
            path_item["post"]["responses"]["200"]["content"]["application/json"]["examples"] = answers
    return _with_errors(document)


def _with_errors(document: Json) -> Json:
    """Set the schema of error answers below ``/api/v1``; FastAPI describes its own form of errors."""
    schema = FailureStatus.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= {**schema.pop("$defs"), FailureStatus.__name__: schema}
    for path, path_item in document["paths"].items():
        for operation in path_item.values() if is_in_api(path) else ():
            for code, answer in operation["responses"].items():
                if not code.startswith("2"):
                    answer["content"] = {"application/json": {"schema": {"$ref": _FAILURE}}}
    return document


def _pod(name: str, uid: str, app: str, when: str) -> Json:
    """Return a pod for the sample cluster, with only those fields on which the answers depend."""
    labels = {"app": app}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": labels},
    }
    metadata = {"name": name, "namespace": "shop", "uid": uid, "labels": labels}
    spec = {"schedulerName": "default-scheduler", "topologySpreadConstraints": [spread]}
    return {"metadata": metadata, "spec": spec}


def _victims(uid: str) -> Json:
    return {"Pods": [{"UID": uid}], "NumPDBViolations": 0}


def _binding(pod: Json, node: str) -> Json:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}


WEB: Final = _pod("web-7d4b9c-new01", "acae97e9-acfd-5561-bf25-7964533af308", "web", "DoNotSchedule")
"""Example of a pod that is not bound."""

_URGENT: Final = _pod("web-urgent", "1e47a9db-9c95-58fe-8655-2b8cf18731a7", "web", "DoNotSchedule")
_CART: Final = _pod("cart-5f6d8b-new01", "d24ec2e8-4896-5789-8374-5e6c860cbf81", "cart", "ScheduleAnyway")
_NAMES: Final = ["node-a1", "node-b1", "node-c2"]
_SPREAD_REASON: Final = "node(s) didn't match pod topology spread constraints"
"""Reason with which PodTopologySpread rejects a node."""

_USELESS_VICTIM: Final = _victims("e628e4b5-8e50-509b-bf97-14d55a254d42")
"""Victim on node-a1, where ``_URGENT`` would still not fit after the eviction."""

_USEFUL_VICTIM: Final = _victims("7e4e8a56-406a-55d2-930f-5f9ce43afaa7")
"""Victim on node-c1, where ``_URGENT`` would fit after the eviction."""

_FILTERED: Final = {
    "Nodes": None,
    "NodeNames": ["node-c2"],
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {"node-a1": _SPREAD_REASON, "node-b1": _SPREAD_REASON},
    "Error": "",
}
_SCORED: Final = [{"Host": host, "Score": score} for host, score in zip(_NAMES, (13, 13, 20), strict=True)]

_VERBS: Final = {
    "filter": _VerbDescription(
        "On which of these nodes may the pod run?",
        ExtenderArgs,
        ExtenderFilterResult,
        {"names": ({"Pod": WEB, "NodeNames": _NAMES}, _FILTERED)},
    ),
    "prioritize": _VerbDescription(
        "How good is each of these nodes for the pod?",
        ExtenderArgs,
        list[HostPriority],
        {"names": ({"Pod": _CART, "NodeNames": _NAMES}, _SCORED)},
        fails="The hosts could not be read from the request.",
    ),
    "preempt": _VerbDescription(
        "On which of these nodes would the pod pass once the victims are gone?",
        ExtenderPreemptionArgs,
        ExtenderPreemptionResult,
        {
            "meta": (
                {"Pod": _URGENT, "NodeNameToMetaVictims": {"node-a1": _USELESS_VICTIM, "node-c1": _USEFUL_VICTIM}},
                {"NodeNameToMetaVictims": {"node-c1": _USEFUL_VICTIM}},
            )
        },
        fails="No answer: it has no field for an error.",
    ),
    "bind": _VerbDescription(
        "Bind the pod to the node, if its hard constraints still hold",
        ExtenderBindingArgs,
        ExtenderBindingResult,
        {
            "bound": (_binding(WEB, "node-c2"), {"Error": ""}),
            "refused": (_binding(_URGENT, "node-a2"), {"Error": f"homeport: no longer possible: {_SPREAD_REASON}"}),
        },
    ),
}
