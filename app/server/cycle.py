"""POST /api/v1/cycle and /api/v1/explain: for other schedulers, and for people who ask why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import msgspec
from fastapi import APIRouter, HTTPException, Request, Response
from msgspec.structs import replace

from app.analysis.verdict import evicted, shown
from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.server.admission import OUT_OF_TIME, Admission
from app.server.bodies import documented, parsed
from app.server.incoming import ARRIVED
from app.server.openapi import WEB
from app.server.timely import OutOfTime
from app.verbs.cycle import Cycle, CycleVerb, Explained
from app.verbs.outcome import VerbFailure
from app.verbs.slices import in_slices, turn
from app.wire.cycle_v1 import (
    UNREADABLE,
    CycleRequest,
    CycleResponse,
    ExplainRequest,
    ExplainResponse,
    PendingPod,
    PodRequest,
    require_bounded_pod,
)

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


def _cycle_response(pod: Pod, found: Cycle) -> Response:
    """A ``CycleResponse``: 5,000 nodes are too many to be made as models and checked."""
    told = _told(found.statuses.values())
    by_plugin, totals = found.scores.by_plugin, found.scores.totals
    return _json(
        {
            "pod": str(pod),
            "profile": found.profile,
            "preset": found.preset,
            "preEnqueue": shown(found.pre_enqueue),
            "preFilter": shown(found.pre_filter),
            "filter": {name: told[id(status)] for name, status in found.statuses.items()},
            "scores": {name: {plugin: of[name] for plugin, of in by_plugin.items()} for name in totals},
            "totals": totals,
            "node": found.node or None,
            "postFilter": shown(found.post_filter) if found.post_filter else None,
            "nominatedNode": found.nominated,
            "victims": None if found.victims is None else evicted(found.victims),
        }
    )


def _explain_response(pod: Pod, node: str, found: Explained) -> Response:
    """Encode an ``ExplainResponse``. ``node`` is the one that the pod is bound to."""
    rejections = {name: [it for it in by.values() if not it.is_success] for name, by in found.nodes.items()}
    told = _told(chain.from_iterable(rejections.values()))
    return _json(
        {
            "pod": str(pod),
            "schedulerName": pod.spec.scheduler_name,
            "nodeName": node,
            "profile": found.profile,
            "preset": found.preset,
            "notJudged": found.not_judged,
            "preFilter": shown(found.pre_filter),
            "feasible": found.feasible,
            "nodes": {name: [told[id(status)] for status in statuses] for name, statuses in rejections.items()},
            "plugins": {name: {"tables": it.tables, "unblock": it.unblock} for name, it in found.plugins.items()},
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
        deadline = admission.deadline(request.scope.get(ARRIVED), admission.seconds)
        lane.enter()  # before the body is read: each is memory
        try:
            asked = await parsed(request, CycleRequest.parse, max_body_bytes)
            async with asyncio.timeout(admission.left(deadline)):
                await admission.turn(lane, deadline)
                pod = await _next(verb, asked.pods) if asked.pods is not None else await _pod(verb, asked)
                found = await verb.run(pod, asked.nodes)
                await turn()
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
        openapi_extra=documented(ExplainRequest, by_name=_NAME_EXAMPLE, inline=_POD_EXAMPLE),
    )
    async def explain(request: Request) -> Response:
        asked = await parsed(request, ExplainRequest.parse, max_body_bytes)
        known = await _pod(verb, asked)
        pod = _as_asked(known, asked)
        return _explain_response(pod, known.node_name, await verb.explain(pod))

    return router


def _as_asked(pod: Pod, asked: ExplainRequest) -> Pod:
    if asked.pending:
        pod = replace(pod, node_name="")
    if asked.scheduler_name is not None:
        pod = replace(pod, spec=replace(pod.spec, scheduler_name=asked.scheduler_name))
    return pod


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def _next(verb: CycleVerb, pending: Sequence[PendingPod]) -> Pod:
    pods: list[Pod] = []

    def decoding() -> Iterator[None]:
        for it in pending:
            pods.append(_decoded(verb, it))
            yield

    await in_slices(decoding())
    await turn()
    return verb.next_of([(pod, it.seconds) for pod, it in zip(pods, pending, strict=True)])


async def _pod(verb: CycleVerb, asked: PodRequest) -> Pod:
    """Decode an inline pod in a step of its own."""
    pod = _decoded(verb, asked)
    if asked.name is None:
        await turn()
    return pod


def _decoded(verb: CycleVerb, asked: PodRequest) -> Pod:
    if asked.name is not None:
        return verb.known_pod(asked.namespace, asked.name)
    try:
        require_bounded_pod(asked.raw_pod)
        return verb.decode_pod(asked.raw_pod)
    except UNREADABLE as error:
        raise HTTPException(422, f"pod: {error}") from None
