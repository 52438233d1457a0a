"""Attributes of a verb's span: pod, scheduler, number of nodes, and outcome.

To compute them, the body of a traced request is parsed a second time, and its encoded answer is parsed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.server.errors import OK
from app.server.incoming import VerbRequest
from app.telemetry.tracing import Span, Tracing
from app.verbs.outcome import Verb
from app.wire.extender_answers import LongBody

VerbAnswer = tuple[int, bytes | LongBody, str]
"""HTTP status, body and outcome of a verb's answer."""

_FAULTS: Final = frozenset(
    {"fault", "out_of_time", "not_ready", "no_leader", "overloaded", "bad_request", "bind_failed"}
)
"""Outcomes for which the span gets the status Error."""

_MOST_READ: Final = 4 << 20
"""Maximum bytes of a body or answer that is parsed for a span."""


class _SpanPodMetadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _SpanPodSpec(Struct, rename="camel", frozen=True):
    scheduler_name: str = ""


class _SpanPod(Struct, frozen=True):
    metadata: _SpanPodMetadata = _SpanPodMetadata()
    spec: _SpanPodSpec = _SpanPodSpec()


class _Nodes(Struct):
    items: list[Raw] | None = None


class _RequestFields(Struct, rename="pascal"):
    """Fields of all verbs' requests. A field that the request lacks is ``None``."""

    pod: _SpanPod | None = None
    node_names: list[Raw] | None = None
    nodes: _Nodes | None = None
    node_name_to_victims: dict[str, Raw] | None = None
    node_name_to_meta_victims: dict[str, Raw] | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    uid: str | None = msgspec.field(name="PodUID", default=None)
    node: str | None = None


class _FilterAnswer(Struct, rename="pascal"):
    node_names: list[Raw] | None = None
    nodes: _Nodes | None = None
    error: str = ""


class _PreemptAnswer(Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, Raw] | None = None


_REQUEST_FIELDS: Final = Decoder[_RequestFields](_RequestFields)
_FILTER_ANSWER: Final = Decoder[_FilterAnswer](_FilterAnswer)
_LIST: Final = Decoder[list[Raw]](list[Raw])
_PREEMPT_ANSWER: Final = Decoder[_PreemptAnswer](_PreemptAnswer)

Facts = Mapping[str, str | int]
"""Attributes of a span."""


class _RecordedRequest:
    """Request that stores its body for the span when the body is read. Implements ``VerbRequest``."""

    __slots__ = ("_request", "arrived", "read")

    def __init__(self, request: VerbRequest) -> None:
        self._request = request
        self.arrived = request.arrived
        self.read: bytes | memoryview = b""

    def header(self, name: str) -> str | None:
        return self._request.header(name)

    async def body(self, limit: int) -> bytes | memoryview:
        self.read = await self._request.body(limit)
        return self.read


class VerbSpans:
    """Creates the spans of one verb, and sets their attributes."""

    def __init__(self, tracing: Tracing, verb: Verb) -> None:
        self._tracing = tracing
        self._verb = verb

    async def around(self, request: VerbRequest, answer: Callable[[VerbRequest], Awaitable[Any]]) -> Any:
        """Call ``answer`` and return its result. If the request is traced, the call runs within a span."""
        span = self._tracing.incoming(self._verb, request.header)
        if span is None:
            return await answer(request)
        with span:
            recorded = _RecordedRequest(request)
            answered: VerbAnswer = await answer(recorded)
            self._describe(span, recorded.read, answered)
            return answered

    def _describe(self, span: Span, body: bytes | memoryview, answered: VerbAnswer) -> None:
        status, content, outcome = answered
        span.tell(
            {
                "homeport.verb": self._verb,
                "homeport.outcome": outcome,
                "http.response.status_code": status,
                **request_facts(body),
                **(answer_facts(self._verb, content) if status == OK and isinstance(content, bytes) else {}),
            }
        )
        if outcome in _FAULTS:
            span.failed(outcome)


def request_facts(body: bytes | memoryview) -> Facts:
    """Return the pod and the number of nodes of a request as span attributes.

    The result is empty for a request that is too long or cannot be parsed.
    """
    if len(body) > _MOST_READ:
        return {}
    try:
        request = _REQUEST_FIELDS.at_once(body)
        return {**_pod(request), **_count(request)}
    except msgspec.DecodeError:
        return {}


def _pod(request: _RequestFields) -> Facts:
    if request.pod is None:
        named = (request.pod_name, request.pod_namespace, request.uid, "", request.node)
    else:
        meta = request.pod.metadata
        named = (meta.name, meta.namespace, meta.uid, request.pod.spec.scheduler_name, "")
    keys = ("k8s.pod.name", "k8s.namespace.name", "k8s.pod.uid", "k8s.pod.scheduler_name", "k8s.node.name")
    return {key: value for key, value in zip(keys, named, strict=True) if value}


def _count(request: _RequestFields) -> Facts:
    listed: Any = request.node_names
    if listed is None and request.nodes is not None:
        listed = request.nodes.items
    if listed is None:
        listed = request.node_name_to_meta_victims or request.node_name_to_victims
    return {} if listed is None else {"homeport.nodes.asked": len(listed)}


def answer_facts(verb: Verb, body: bytes) -> Facts:
    """Return, as a span attribute, how many nodes an answer lists; for filter, rejected nodes do not count.

    The result is empty for bind, and for an answer that is too long or cannot be parsed.
    """
    if len(body) > _MOST_READ:
        return {}
    try:
        if verb == "filter":
            filtered = _FILTER_ANSWER.at_once(body)
            listed: Any = (
                filtered.node_names if filtered.node_names is not None else filtered.nodes and filtered.nodes.items
            )
        elif verb == "prioritize":
            listed = _LIST.at_once(body)
        elif verb == "preempt":
            listed = _PREEMPT_ANSWER.at_once(body).node_name_to_meta_victims
        else:
            return {}
    except msgspec.DecodeError:
        return {}
    return {"homeport.nodes.answered": len(listed or ())}
