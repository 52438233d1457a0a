"""What a span says of a verb: which pod, of which scheduler, among how many nodes, and what came of it.

Read anew from the body and the answer, and only of calls that are traced: the others know nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.server.errors import OK
from app.server.incoming import Incoming
from app.telemetry.tracing import Span, Tracing
from app.verbs.outcome import Verb
from app.wire.extender_answers import LongBody

Told = tuple[int, bytes | LongBody, str]
"""Status, body, outcome."""

_FAULTS: Final = frozenset(
    {"fault", "out_of_time", "not_ready", "no_leader", "overloaded", "bad_request", "bind_failed"}
)
_MOST_READ: Final = 4 << 20
"""Longer bodies and answers are not read a second time."""


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(Struct, rename="camel", frozen=True):
    scheduler_name: str = ""


class _Pod(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Nodes(Struct):
    items: list[Raw] | None = None


class _Asked(Struct, rename="pascal"):
    """Of all verbs together; what a verb does not have is ``None``."""

    pod: _Pod | None = None
    node_names: list[Raw] | None = None
    nodes: _Nodes | None = None
    node_name_to_victims: dict[str, Raw] | None = None
    node_name_to_meta_victims: dict[str, Raw] | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    uid: str | None = msgspec.field(name="PodUID", default=None)
    node: str | None = None


class _Filtered(Struct, rename="pascal"):
    node_names: list[Raw] | None = None
    nodes: _Nodes | None = None
    error: str = ""


class _Left(Struct, rename="pascal"):
    node_name_to_meta_victims: dict[str, Raw] | None = None


_ASKED: Final = Decoder[_Asked](_Asked)
_FILTERED: Final = Decoder[_Filtered](_Filtered)
_LIST: Final = Decoder[list[Raw]](list[Raw])
_LEFT: Final = Decoder[_Left](_Left)

Facts = Mapping[str, str | int]


class _Kept:
    """A request whose body is kept for a second look. Implements ``Incoming``."""

    __slots__ = ("_request", "arrived", "read")

    def __init__(self, request: Incoming) -> None:
        self._request = request
        self.arrived = request.arrived
        self.read: bytes | memoryview = b""

    def header(self, name: str) -> str | None:
        return self._request.header(name)

    async def body(self, limit: int) -> bytes | memoryview:
        self.read = await self._request.body(limit)
        return self.read


class VerbSpans:
    """Spans of one verb."""

    def __init__(self, tracing: Tracing, verb: Verb) -> None:
        self._tracing = tracing
        self._verb = verb

    async def around(self, request: Incoming, answer: Callable[[Incoming], Awaitable[Any]]) -> Any:
        """What ``answer`` says, with a span around it if the request is traced."""
        span = self._tracing.incoming(self._verb, request.header)
        if span is None:
            return await answer(request)
        with span:
            kept = _Kept(request)
            told: Told = await answer(kept)
            self._describe(span, kept.read, told)
            return told

    def _describe(self, span: Span, body: bytes | memoryview, told: Told) -> None:
        status, answered, outcome = told
        span.tell(
            {
                "homeport.verb": self._verb,
                "homeport.outcome": outcome,
                "http.response.status_code": status,
                **asked(body),
                **(answer_of(self._verb, answered) if status == OK and isinstance(answered, bytes) else {}),
            }
        )
        if outcome in _FAULTS:
            span.failed(outcome)


def asked(body: bytes | memoryview) -> Facts:
    """The pod and the count of nodes of a request, as far as it can be read."""
    if len(body) > _MOST_READ:
        return {}
    try:
        found = _ASKED.at_once(body)
        return {**_pod(found), **_count(found)}
    except msgspec.DecodeError:
        return {}


def _pod(found: _Asked) -> Facts:
    if found.pod is None:
        named = (found.pod_name, found.pod_namespace, found.uid, "", found.node)
    else:
        meta = found.pod.metadata
        named = (meta.name, meta.namespace, meta.uid, found.pod.spec.scheduler_name, "")
    keys = ("k8s.pod.name", "k8s.namespace.name", "k8s.pod.uid", "k8s.pod.scheduler_name", "k8s.node.name")
    return {key: value for key, value in zip(keys, named, strict=True) if value}


def _count(found: _Asked) -> Facts:
    listed: Any = found.node_names
    if listed is None and found.nodes is not None:
        listed = found.nodes.items
    if listed is None:
        listed = found.node_name_to_meta_victims or found.node_name_to_victims
    return {} if listed is None else {"homeport.nodes.asked": len(listed)}


def answer_of(verb: Verb, body: bytes) -> Facts:
    """How many nodes an answer names."""
    if len(body) > _MOST_READ:
        return {}
    try:
        if verb == "filter":
            found = _FILTERED.at_once(body)
            listed: Any = found.node_names if found.node_names is not None else found.nodes and found.nodes.items
        elif verb == "prioritize":
            listed = _LIST.at_once(body)
        elif verb == "preempt":
            listed = _LEFT.at_once(body).node_name_to_meta_victims
        else:
            return {}
    except msgspec.DecodeError:
        return {}
    return {"homeport.nodes.answered": len(listed or ())}
