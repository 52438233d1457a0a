"""Endpoint ``POST /api/v1/cycle``, for schedulers other than kube-scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from fastapi import APIRouter, Request, Response

from app.analysis.verdict import status_as_json, victims_as_json
from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.server.admission import OUT_OF_TIME, Admission
from app.server.bodies import documented, invalid, parsed
from app.server.incoming import ARRIVED
from app.server.openapi import WEB
from app.server.timely import OutOfTime
from app.verbs.cycle import Cycle, CycleVerb
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise, yield_to_loop
from app.wire.cycle_v1 import (
    UNREADABLE,
    CycleRequest,
    CycleResponse,
    PendingPod,
    PodRequest,
    require_bounded_pod,
)

FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "The requested object does not exist, or the pod's schedulerName has no profile."},
    500: {"description": "A plugin failed; the message names it."},
    503: {
        "description": "The snapshot is incomplete or too old, too many requests are in flight, or the time is over."
    },
}
"""Error answers of endpoints under ``/api/v1``, for the OpenAPI document."""

POD_EXAMPLE: Final = {"pod": WEB}
_PODS_EXAMPLE: Final = {
    "pods": [
        {"namespace": "shop", "name": "web-7d4b9c-new01", "queuedAt": "2026-01-01T12:00:00Z"},
        {"pod": WEB, "queuedAt": "2026-01-01T12:00:05Z"},
    ]
}
NAME_EXAMPLE: Final = {"namespace": "shop", "name": "web-7d4b9c-new01"}


class PodSource(Protocol):
    """Provides the pod of a request: a pod of the snapshot, or a pod that the request contains."""

    def known_pod(self, namespace: str, name: str) -> Pod:
        """Return a pod of the snapshot. Raises ``VerbFailure`` if there is none, or if the snapshot cannot be used."""
        ...

    def decode_pod(self, raw: bytes) -> Pod:
        """Decode a pod from JSON, with the same parts as the pods of the snapshot. Raises ``msgspec.DecodeError``."""
        ...


def _cycle_response(pod: Pod, result: Cycle) -> Response:
    """Encode a ``CycleResponse`` without pydantic, because validating a model of 5,000 nodes would take too long."""
    formatted = _by_id(result.statuses.values())
    by_plugin, totals = result.scores.by_plugin, result.scores.totals
    return json_response(
        {
            "pod": str(pod),
            "profile": result.profile,
            "preset": result.preset,
            "preEnqueue": status_as_json(result.pre_enqueue),
            "preFilter": status_as_json(result.pre_filter),
            "filter": {name: formatted[id(status)] for name, status in result.statuses.items()},
            "scores": {name: {plugin: of[name] for plugin, of in by_plugin.items()} for name in totals},
            "totals": totals,
            "node": result.node or None,
            "postFilter": status_as_json(result.post_filter) if result.post_filter else None,
            "nominatedNode": result.nominated,
            "victims": None if result.victims is None else victims_as_json(result.victims),
        }
    )


def _by_id(statuses: Iterable[Status]) -> dict[int, dict[str, Any]]:
    """Format each distinct status once, because many nodes share one; return the results by ``id`` of the status."""
    return {key: status_as_json(status) for key, status in distinct(list(statuses)).items()}


def cycle_router(verb: CycleVerb, admission: Admission, *, max_body_bytes: int) -> APIRouter:
    """Create the router of ``/api/v1/cycle``.

    A cycle uses the verbs' snapshot and profiles. It shares the queue, and the limit of calls in flight, with filter,
    prioritize and preempt. A bind to the chosen node is then expected (``ExpectedBinds``).
    """
    router = APIRouter(prefix="/api/v1", tags=["scheduling"])
    lane = admission.deciding

    @router.post(
        "/cycle",
        response_model=CycleResponse,
        responses=FAILURES,
        summary="Run one whole scheduling cycle for a pod",
        openapi_extra=documented(CycleRequest, inline=POD_EXAMPLE, by_name=NAME_EXAMPLE, next=_PODS_EXAMPLE),
    )
    async def cycle(request: Request) -> Response:
        deadline = admission.deadline(request.scope.get(ARRIVED), admission.seconds)
        lane.enter()  # before the body is read, to limit memory
        try:
            cycle_request = await parsed(request, CycleRequest.parse, max_body_bytes)
            async with asyncio.timeout(admission.left(deadline)):
                await admission.wait_turn(lane, deadline)
                pod = (
                    await _next(verb, cycle_request.pods)
                    if cycle_request.pods is not None
                    else await requested_pod(verb, cycle_request)
                )
                result = await verb.run(pod, cycle_request.nodes)
                await yield_to_loop()
        except (OutOfTime, TimeoutError):
            raise VerbFailure("out_of_time", OUT_OF_TIME) from None
        finally:
            lane.leave()
        return _cycle_response(pod, result)

    return router


def json_response(answer: dict[str, Any]) -> Response:
    """Encode an answer without validating it."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def _next(verb: CycleVerb, pending: Sequence[PendingPod]) -> Pod:
    """Return the pod of ``pending`` that the profile's QueueSort puts first. Inline pods are decoded one by one, and
    other tasks can run in between.
    """
    pods: list[Pod] = []

    def decoding() -> Iterator[None]:
        for pending_pod in pending:
            pods.append(_decoded(verb, pending_pod))
            yield

    await run_stepwise(decoding())
    await yield_to_loop()
    return verb.next_of([(pod, it.seconds) for pod, it in zip(pods, pending, strict=True)])


async def requested_pod(source: PodSource, pod_request: PodRequest) -> Pod:
    """Return the requested pod. After an inline pod is decoded, other tasks can run."""
    pod = _decoded(source, pod_request)
    if pod_request.name is None:
        await yield_to_loop()
    return pod


def _decoded(source: PodSource, pod_request: PodRequest) -> Pod:
    if pod_request.name is not None:
        return source.known_pod(pod_request.namespace, pod_request.name)
    try:
        require_bounded_pod(pod_request.raw_pod)
        return source.decode_pod(pod_request.raw_pod)
    except UNREADABLE as error:
        raise invalid("body", "pod", str(error)) from None
