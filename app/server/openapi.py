"""What the OpenAPI document says of the four verbs: no model is made of what they are sent, nor of what they answer.

That costs a call more than its decision does. So these models serve the document alone; ``app.wire`` reads and writes.
The examples are about the sample cluster, and a test runs them there.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Struct
from pydantic import BaseModel, Field

from app.server.bodies import request_body

Json = dict[str, Any]
_KubernetesObject = Annotated[Json, Field(description="As the Kubernetes API has it.")]


class NodeList(BaseModel):
    """Whole nodes."""

    items: list[_KubernetesObject]


class ExtenderArgs(BaseModel):
    """A pod, and the nodes that are asked about: their names, or all of each."""

    Pod: _KubernetesObject
    Nodes: NodeList | None = None
    NodeNames: list[str] | None = None


class ExtenderFilterResult(BaseModel):
    """The nodes that pass, in the form that was asked, and why each other one does not."""

    Nodes: NodeList | None
    NodeNames: list[str] | None
    FailedNodes: dict[str, str]
    FailedAndUnresolvableNodes: dict[str, str]
    Error: str


class HostPriority(BaseModel):
    """The score of a node."""

    Host: str
    Score: int


class MetaPod(BaseModel):
    """A victim by its UID."""

    UID: str


class MetaVictims(BaseModel):
    """The victims on a node."""

    Pods: list[MetaPod]
    NumPDBViolations: int


class ExtenderPreemptionArgs(BaseModel):
    """A pod, and the victims on each node: by UID, or whole."""

    Pod: _KubernetesObject
    NodeNameToVictims: dict[str, Json] | None = Field(default=None, description="The same with whole pods.")
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(BaseModel):
    """The nodes on which the pod would pass, and the victims there."""

    NodeNameToMetaVictims: dict[str, MetaVictims]


class ExtenderBindingArgs(BaseModel):
    """A pod and its node."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class ExtenderBindingResult(BaseModel):
    """Empty: the pod was seen bound to that node."""

    Error: str


class _Described(Struct, frozen=True):
    """``examples`` are requests and answers by name. ``fails``: when there is a 500."""

    summary: str
    request: type[BaseModel]
    response: type[Any]
    examples: dict[str, tuple[Json, Any]]
    fails: str = ""


def operation(path: str) -> Json:
    """What a route tells of the verb at ``path``."""
    prefix, _, verb = path.rpartition("/")
    told = _VERBS[verb]
    responses = {200: {"description": "The answer. docs/wire.md has those to a fault."}}
    if told.fails:
        responses[500] = {"description": f"{told.fails} No body."}
    return {
        "summary": f"{told.summary} ({prefix[1:]})" if prefix else told.summary,
        "response_model": told.response,
        "responses": responses,
        "openapi_extra": request_body(told.request, **{name: asked for name, (asked, _) in told.examples.items()}),
    }


def with_answers(document: Json) -> Json:
    """The document with the answers of the examples: FastAPI would leave out what is null in them.

    Not below a prefix: what answers leave out there is told in docs/wire.md.
    """
    for verb, told in _VERBS.items():
        if found := document["paths"].get(f"/{verb}"):
            answers = {name: {"value": answer} for name, (_, answer) in told.examples.items()}
            found["post"]["responses"]["200"]["content"]["application/json"]["examples"] = answers
    return document


def _pod(name: str, uid: str, app: str, when: str) -> Json:
    """As much of a pod of the sample cluster as the answer depends on."""
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
"""A pod that has no node yet."""

_URGENT: Final = _pod("web-urgent", "1e47a9db-9c95-58fe-8655-2b8cf18731a7", "web", "DoNotSchedule")
_CART: Final = _pod("cart-5f6d8b-new01", "d24ec2e8-4896-5789-8374-5e6c860cbf81", "cart", "ScheduleAnyway")
_NAMES: Final = ["node-a1", "node-b1", "node-c2"]
_TOO_MANY: Final = "node(s) didn't match pod topology spread constraints"
_STAYS: Final = _victims("e628e4b5-8e50-509b-bf97-14d55a254d42")
_LEAVES: Final = _victims("7e4e8a56-406a-55d2-930f-5f9ce43afaa7")

_FILTERED: Final = {
    "Nodes": None,
    "NodeNames": ["node-c2"],
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {"node-a1": _TOO_MANY, "node-b1": _TOO_MANY},
    "Error": "",
}
_SCORED: Final = [{"Host": host, "Score": score} for host, score in zip(_NAMES, (13, 13, 20), strict=True)]

_VERBS: Final = {
    "filter": _Described(
        "On which of these nodes may the pod run?",
        ExtenderArgs,
        ExtenderFilterResult,
        {"names": ({"Pod": WEB, "NodeNames": _NAMES}, _FILTERED)},
    ),
    "prioritize": _Described(
        "How good is each of these nodes for the pod?",
        ExtenderArgs,
        list[HostPriority],
        {"names": ({"Pod": _CART, "NodeNames": _NAMES}, _SCORED)},
        fails="The hosts could not be read from the request.",
    ),
    "preempt": _Described(
        "On which of these nodes would the pod pass once the victims are gone?",
        ExtenderPreemptionArgs,
        ExtenderPreemptionResult,
        {
            "meta": (
                {"Pod": _URGENT, "NodeNameToMetaVictims": {"node-a1": _STAYS, "node-c1": _LEAVES}},
                {"NodeNameToMetaVictims": {"node-c1": _LEAVES}},
            )
        },
        fails="No answer: it has no field for an error.",
    ),
    "bind": _Described(
        "Bind the pod to the node, if its hard constraints still hold",
        ExtenderBindingArgs,
        ExtenderBindingResult,
        {
            "bound": (_binding(WEB, "node-c2"), {"Error": ""}),
            "refused": (_binding(_URGENT, "node-a2"), {"Error": f"homeport: no longer possible: {_TOO_MANY}"}),
        },
    ),
}
