"""What the OpenAPI document says of the four verbs.

They are raw routes, because FastAPI's own cost a call more than its decision does, so the document is told by hand. The
examples are about the sample cluster, and a test runs them there.
"""

from __future__ import annotations

from typing import Any, Final

from app.server.routes import LEAN

Document = dict[str, Any]

_ZONE: Final = "topology.kubernetes.io/zone"
_TOO_MANY: Final = "node(s) didn't match pod topology spread constraints"


def _pod(name: str, uid: str, app: str, when: str) -> Document:
    """As much of a pod of the sample cluster as the answer depends on."""
    labels = {"app": app}
    spread = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": labels},
    }
    metadata = {"name": name, "namespace": "shop", "uid": uid, "labels": labels}
    spec = {"schedulerName": "default-scheduler", "topologySpreadConstraints": [spread]}
    return {"metadata": metadata, "spec": spec}


_WEB: Final = _pod("web-7d4b9c-new01", "acae97e9-acfd-5561-bf25-7964533af308", "web", "DoNotSchedule")
_URGENT: Final = _pod("web-urgent", "1e47a9db-9c95-58fe-8655-2b8cf18731a7", "web", "DoNotSchedule")
_CART: Final = _pod("cart-5f6d8b-new01", "d24ec2e8-4896-5789-8374-5e6c860cbf81", "cart", "ScheduleAnyway")
_NAMES: Final = ["node-a1", "node-b1", "node-c2"]


def _victims(uid: str) -> Document:
    return {"Pods": [{"UID": uid}], "NumPDBViolations": 0}


def _binding(pod: Document, node: str) -> Document:
    metadata = pod["metadata"]
    return {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": node,
    }


def _nullable(schema: Document) -> Document:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(**properties: Document) -> Document:
    return {"type": "object", "properties": properties}


def _map(values: Document) -> Document:
    return {"type": "object", "additionalProperties": values}


def _list(items: Document) -> Document:
    return {"type": "array", "items": items}


def _ref(name: str) -> Document:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: Final[Document] = {"type": "string"}
_WHOLE: Final[Document] = {"type": "integer"}
_KUBERNETES: Final[Document] = {"type": "object", "description": "As the Kubernetes API has it."}
_NODE_LIST: Final = _nullable(_object(items=_list(_KUBERNETES)))

_SCHEMAS: Final[Document] = {
    "ExtenderArgs": {
        **_object(Pod=_KUBERNETES, Nodes=_NODE_LIST, NodeNames=_nullable(_list(_TEXT))),
        "description": "A pod, and the nodes that are asked about: their names, or all of each.",
        "required": ["Pod"],
    },
    "ExtenderFilterResult": {
        **_object(
            Nodes=_NODE_LIST,
            NodeNames=_nullable(_list(_TEXT)),
            FailedNodes=_map(_TEXT),
            FailedAndUnresolvableNodes=_map(_TEXT),
            Error=_TEXT,
        ),
        "description": "The nodes that pass, in the form that was asked, and why each other one does not.",
    },
    "HostPriorityList": _list(_object(Host=_TEXT, Score=_WHOLE)),
    "MetaVictims": _object(Pods=_list(_object(UID=_TEXT)), NumPDBViolations=_WHOLE),
    "ExtenderPreemptionArgs": {
        **_object(
            Pod=_KUBERNETES,
            NodeNameToVictims=_nullable(_map(_object(Pods=_list(_KUBERNETES), NumPDBViolations=_WHOLE))),
            NodeNameToMetaVictims=_nullable(_map(_ref("MetaVictims"))),
        ),
        "required": ["Pod"],
    },
    "ExtenderPreemptionResult": _object(NodeNameToMetaVictims=_map(_ref("MetaVictims"))),
    "ExtenderBindingArgs": {
        **_object(PodName=_TEXT, PodNamespace=_TEXT, PodUID=_TEXT, Node=_TEXT),
        "required": ["PodName", "PodNamespace", "PodUID", "Node"],
    },
    "ExtenderBindingResult": {
        **_object(Error=_TEXT),
        "description": "Empty: the pod was seen bound to that node.",
    },
}


def _verb(
    summary: str, request: str, response: str, examples: dict[str, tuple[Document, Any]], *, fails: str = ""
) -> Document:
    """One verb; ``examples`` are request and answer by name."""
    body = {name: {"value": asked} for name, (asked, _) in examples.items()}
    answers = {name: {"value": answer} for name, (_, answer) in examples.items()}
    responses = {
        "200": {
            "description": "The answer. docs/wire.md has those to a fault.",
            "content": {"application/json": {"schema": _ref(response), "examples": answers}},
        },
        **({"500": {"description": f"{fails} No body."}} if fails else {}),
    }
    content = {"application/json": {"schema": _ref(request), "examples": body}}
    return {
        "post": {
            "tags": ["extender"],
            "summary": summary,
            "requestBody": {"required": True, "content": content},
            "responses": responses,
        }
    }


_CROWDED: Final = f"homeport: no longer possible: {_TOO_MANY}"

_PATHS: Final[Document] = {
    "/filter": _verb(
        "On which of these nodes may the pod run?",
        "ExtenderArgs",
        "ExtenderFilterResult",
        {
            "names": (
                {"Pod": _WEB, "NodeNames": _NAMES},
                {
                    "Nodes": None,
                    "NodeNames": ["node-c2"],
                    "FailedNodes": {},
                    "FailedAndUnresolvableNodes": {"node-a1": _TOO_MANY, "node-b1": _TOO_MANY},
                    "Error": "",
                },
            )
        },
    ),
    "/prioritize": _verb(
        "How good is each of these nodes for the pod?",
        "ExtenderArgs",
        "HostPriorityList",
        {
            "names": (
                {"Pod": _CART, "NodeNames": _NAMES},
                [
                    {"Host": "node-a1", "Score": 7},
                    {"Host": "node-b1", "Score": 7},
                    {"Host": "node-c2", "Score": 10},
                ],
            )
        },
        fails="The hosts could not be read from the request.",
    ),
    "/preempt": _verb(
        "On which of these nodes would the pod pass once the victims are gone?",
        "ExtenderPreemptionArgs",
        "ExtenderPreemptionResult",
        {
            "meta": (
                {
                    "Pod": _URGENT,
                    "NodeNameToMetaVictims": {
                        "node-a1": _victims("e628e4b5-8e50-509b-bf97-14d55a254d42"),
                        "node-c1": _victims("7e4e8a56-406a-55d2-930f-5f9ce43afaa7"),
                    },
                },
                {"NodeNameToMetaVictims": {"node-c1": _victims("7e4e8a56-406a-55d2-930f-5f9ce43afaa7")}},
            )
        },
        fails="No answer: it has no field for an error.",
    ),
    "/bind": _verb(
        "Bind the pod to the node, if its hard constraints still hold",
        "ExtenderBindingArgs",
        "ExtenderBindingResult",
        {
            "bound": (_binding(_WEB, "node-c2"), {"Error": ""}),
            "refused": (_binding(_URGENT, "node-a2"), {"Error": _CROWDED}),
        },
    ),
}


def _lean(verb: Document) -> Document:
    """The same below the prefix; what its answers leave out is told in docs/wire.md."""
    post = verb["post"]
    ok = post["responses"]["200"]
    content = {kind: {"schema": it["schema"]} for kind, it in ok["content"].items()}
    responses = {**post["responses"], "200": {**ok, "content": content}}
    return {"post": {**post, "summary": f"{post['summary']} (lean)", "responses": responses}}


def with_verbs(document: Document) -> Document:
    """The document with the verbs in it."""
    components = document.get("components", {})
    schemas = {**_SCHEMAS, **components.get("schemas", {})}
    return {
        **document,
        "paths": {**_PATHS, **{f"{LEAN}{path}": _lean(verb) for path, verb in _PATHS.items()}, **document["paths"]},
        "components": {**components, "schemas": schemas},
    }
