"""POST /api/v1/cycle and /api/v1/explain: for other schedulers, and for people who ask why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Annotated, Any, Final, Self

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response
from msgspec import Raw
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.server.admission import OUT_OF_TIME, Admission
from app.server.bodies import documented, parsed
from app.server.incoming import ARRIVED
from app.server.openapi import WEB
from app.server.timely import OutOfTime
from app.verbs.cycle import Cycle, CycleVerb, Explained
from app.verbs.outcome import VerbFailure
from app.verbs.verdict import shown

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "No such pod, or no profile for its schedulerName."},
    500: {"description": "A plugin failed; detail names it."},
    503: {"description": "The picture is incomplete or too old, too many calls are under way, or it took too long."},
}

_POD_EXAMPLE: Final = {"pod": WEB}
_PODS_EXAMPLE: Final = {
    "pods": [
        {"namespace": "shop", "name": "web-7d4b9c-new01", "queuedAt": "2026-01-01T12:00:00Z"},
        {"pod": WEB, "queuedAt": "2026-01-01T12:00:05Z"},
    ]
}
_NAME_EXAMPLE: Final = {"namespace": "shop", "name": "web-7d4b9c-new01"}

_PARTS: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])
_EACH: Final[Decoder[list[dict[str, Raw]]]] = Decoder(list[dict[str, Raw]])

MOST_PENDING: Final = 1000
"""Pods to choose the next one from: who has more sends those that came first."""


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class PodRequest(_Model):
    """A pod of the cluster by name, or one in the body."""

    pod: dict[str, Any] | None = Field(default=None, description="A Pod as the Kubernetes API has it.")
    namespace: str = "default"
    name: str | None = Field(default=None, description="Name of a pod that Homeport knows, instead of pod.")

    _raw: bytes = PrivateAttr(b"")

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """The pod stays as it came: as a dict it would take as long to make as everything else together."""
        try:
            parts = _PARTS.decode(body)
        except _UNREADABLE:
            parts = {}
        pod = bytes(parts.get("pod", b""))
        if not pod.startswith(b"{"):
            return cls.model_validate_json(body)  # a name, or it says what is wrong
        asked = cls.model_validate_json(msgspec.json.encode({**parts, "pod": {}}))
        asked._raw = pod  # noqa: SLF001  # its own
        return asked

    @property
    def raw_pod(self) -> bytes:
        return self._raw

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod is None) == (self.name is None):
            raise ValueError("give either pod or name")
        return self


class PendingPod(PodRequest):
    """A pod that waits for its turn."""

    queued_at: AwareDatetime | FiniteFloat = Field(
        description="Since when: RFC 3339, or seconds on any clock that is the same for all."
    )

    @property
    def seconds(self) -> float:
        return self.queued_at.timestamp() if isinstance(self.queued_at, datetime) else self.queued_at


class CycleRequest(PodRequest):
    """Which pod, and among which nodes."""

    nodes: list[str] | None = Field(default=None, description="Names to choose among; all nodes if absent.")
    pods: Annotated[
        list[PendingPod] | None,
        Field(min_length=1, max_length=MOST_PENDING),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_PENDING,
                "items": PendingPod.model_json_schema(),
                "description": "Pods that wait, instead of pod or name: the cycle is run for the one that the "
                "profile's queueSort puts first.",
            }
        ),
    ] = None

    @classmethod
    def parse(cls, body: bytes) -> Self:
        try:
            parts: dict[str, Any] = {**_PARTS.decode(body)}
            each = _EACH.decode(bytes(parts.get("pods", b"")))
        except _UNREADABLE:
            return super().parse(body)
        raw = [bytes(it.get("pod", b"")) for it in each]
        parts["pods"] = [{**it, "pod": {}} if pod.startswith(b"{") else it for it, pod in zip(each, raw, strict=True)]
        asked = cls.model_validate_json(msgspec.json.encode(parts))
        for it, pod in zip(asked.pods or (), raw, strict=True):
            it._raw = pod  # noqa: SLF001  # its own
        return asked

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pod, self.name, self.pods).count(None) != len(("pod", "name", "pods")) - 1:
            raise ValueError("give either pod, name or pods")
        return self


class PluginStatus(_Model):
    """A status in kube-scheduler's words."""

    code: str = Field(description="Success, Unschedulable, UnschedulableAndUnresolvable, …")
    plugin: str = Field(description="Who rejected; empty for Success.")
    reasons: list[str]


class CycleResponse(_Model):
    """One whole cycle."""

    pod: str = Field(description="namespace/name of the pod that it was run for.")
    pre_enqueue: PluginStatus = Field(
        description="Anything but Success: the pod is kept out, and nothing else was asked."
    )
    pre_filter: PluginStatus
    filter: dict[str, PluginStatus] = Field(description="By node.")
    scores: dict[str, dict[str, int]] = Field(description="By feasible node and plugin, 0..100, before weights.")
    totals: dict[str, int] = Field(description="Weighted sum by feasible node.")
    node: str | None = Field(description="The chosen node: bind the pod there with POST /bind.")
    post_filter: PluginStatus | None = Field(description="Where no node is feasible: what a plugin could do.")
    nominated_node: str | None = Field(
        description="What postFilter wants of status.nominatedNodeName; empty: nothing there."
    )


class ExplanationTable(_Model):
    """Facts in rows."""

    title: str
    columns: list[str]
    rows: list[list[str | int | bool]]


class PluginExplanation(_Model):
    """What one plugin's answer rests on."""

    tables: list[ExplanationTable]
    unblock: list[str] = Field(description="Each one change that would let the pod in somewhere.")


class ExplainResponse(_Model):
    """Why a pod may or may not go where."""

    pod: str
    pre_filter: PluginStatus
    feasible: list[str] = Field(description="The nodes that every filter passes.")
    nodes: dict[str, list[PluginStatus]] = Field(description="By node, the plugins that reject it.")
    plugins: dict[str, PluginExplanation]


def _cycle_response(pod: Pod, found: Cycle) -> Response:
    """A ``CycleResponse``: 5,000 nodes are too many to be made as models and checked."""
    told = _told(found.statuses.values())
    by_plugin, totals = found.scores.by_plugin, found.scores.totals
    return _json(
        {
            "pod": str(pod),
            "preEnqueue": shown(found.pre_enqueue),
            "preFilter": shown(found.pre_filter),
            "filter": {name: told[id(status)] for name, status in found.statuses.items()},
            "scores": {name: {plugin: of[name] for plugin, of in by_plugin.items()} for name in totals},
            "totals": totals,
            "node": found.node or None,
            "postFilter": shown(found.post_filter) if found.post_filter else None,
            "nominatedNode": found.nominated,
        }
    )


def _explain_response(pod: Pod, found: Explained) -> Response:
    """An ``ExplainResponse``."""
    rejections = {name: [it for it in by.values() if not it.is_success] for name, by in found.nodes.items()}
    told = _told(chain.from_iterable(rejections.values()))
    return _json(
        {
            "pod": str(pod),
            "preFilter": shown(found.pre_filter),
            "feasible": found.feasible,
            "nodes": {name: [told[id(status)] for status in statuses] for name, statuses in rejections.items()},
            "plugins": found.plugins,
        }
    )


def _told(statuses: Iterable[Status]) -> dict[int, dict[str, Any]]:
    """Each status by its ``id``, as ``PluginStatus`` has it: many nodes share one."""
    return {key: shown(status) for key, status in distinct(list(statuses)).items()}


def cycle_router(verb: CycleVerb, admission: Admission, *, max_body_bytes: int) -> APIRouter:
    """It runs on the same picture and profiles as the verbs, in turns with them, and its picks are waited for."""
    router = APIRouter(prefix="/api/v1", tags=["scheduling"])
    lane = admission.deciding

    @router.post(
        "/cycle",
        response_model=CycleResponse,
        responses=_FAILURES,
        summary="Run one whole scheduling cycle for a pod",
        openapi_extra=documented(CycleRequest, inline=_POD_EXAMPLE, by_name=_NAME_EXAMPLE, next=_PODS_EXAMPLE),
    )
    async def cycle(request: Request) -> Response:
        deadline = admission.deadline(request.scope.get(ARRIVED))
        lane.enter()  # before the body is read: each is memory
        try:
            asked = await parsed(request, CycleRequest.parse, max_body_bytes)
            async with asyncio.timeout(admission.left(deadline)):
                await admission.turn(lane, deadline)
                pod = _next(verb, asked.pods) if asked.pods is not None else _pod(verb, asked)
                found = await verb.run(pod, asked.nodes)
        except (OutOfTime, TimeoutError):
            raise VerbFailure("out_of_time", OUT_OF_TIME) from None
        finally:
            lane.leave()
        return _cycle_response(pod, found)

    return router


def explain_router(verb: CycleVerb, *, max_body_bytes: int) -> APIRouter:
    """The same picture and profiles; it changes nothing."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.post(
        "/explain",
        response_model=ExplainResponse,
        responses=_FAILURES,
        summary="Why may a pod go where, and what would unblock it?",
        openapi_extra=documented(PodRequest, by_name=_NAME_EXAMPLE, inline=_POD_EXAMPLE),
    )
    async def explain(request: Request) -> Response:
        pod = _pod(verb, await parsed(request, PodRequest.parse, max_body_bytes))
        return _explain_response(pod, await verb.explain(pod))

    return router


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _next(verb: CycleVerb, pending: Sequence[PendingPod]) -> Pod:
    return verb.next_of([(_pod(verb, it), it.seconds) for it in pending])


def _pod(verb: CycleVerb, asked: PodRequest) -> Pod:
    if asked.name is not None:
        return verb.known_pod(asked.namespace, asked.name)
    try:
        return verb.decode_pod(asked.raw_pod)
    except _UNREADABLE as error:
        raise HTTPException(422, f"pod: {error}") from None
