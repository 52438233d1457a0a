"""POST /api/v1/cycle and /api/v1/explain: for other schedulers, and for people who ask why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Self

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Response
from msgspec import Raw
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic.alias_generators import to_camel

from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.decoding import Decoder
from app.server.admission import Lane
from app.server.bodies import body_of, documented
from app.verbs.cycle import Cycle, CycleVerb, Explained
from app.verbs.outcome import VerbFailure
from app.verbs.verdict import shown

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_STATUS_OF = {"not_ready": 503, "overloaded": 503, "nothing_to_do": 404, "fault": 500}

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "No such pod, or no profile for its schedulerName."},
    500: {"description": "A plugin failed; detail names it."},
    503: {"description": "The picture of the cluster is incomplete or too old, or too many calls are under way."},
}

_POD_EXAMPLE = {
    "pod": {
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        },
    }
}
_NAME_EXAMPLE = {"namespace": "shop", "name": "web-7d4b9c-new01"}


_PARTS: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])


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
            return cls.model_validate_json(body)  # which says what is wrong
        pod = bytes(parts.get("pod", b""))
        if not pod.startswith(b"{"):
            return cls.model_validate_json(body)
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


class CycleRequest(PodRequest):
    """Which pod, and among which nodes."""

    nodes: list[str] | None = Field(default=None, description="Names to choose among; all nodes if absent.")


class PluginStatus(_Model):
    """A status in kube-scheduler's words."""

    code: str = Field(description="Success, Unschedulable, UnschedulableAndUnresolvable, …")
    plugin: str = Field(description="Who rejected; empty for Success.")
    reasons: list[str]


class CycleResponse(_Model):
    """One whole cycle."""

    pre_filter: PluginStatus
    filter: dict[str, PluginStatus] = Field(description="By node.")
    scores: dict[str, dict[str, int]] = Field(description="By feasible node and plugin, 0..100, before weights.")
    totals: dict[str, int] = Field(description="Weighted sum by feasible node.")
    node: str | None = Field(description="The chosen node: bind the pod there with POST /bind.")


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


class _Told:
    """Statuses as ``PluginStatus`` has them, each made once: many nodes share one."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Status, dict[str, Any]]] = {}

    def of(self, status: Status) -> dict[str, Any]:
        found = self._made.get(id(status))
        if found is None:
            found = self._made[id(status)] = (status, shown(status))
        return found[1]


def _cycle_body(found: Cycle) -> bytes:
    """A ``CycleResponse``: 5,000 nodes are too many to be made as models and checked."""
    told = _Told()
    by_plugin, totals = found.scores.by_plugin, found.scores.totals
    return msgspec.json.encode(
        {
            "preFilter": told.of(found.pre_filter),
            "filter": {name: told.of(status) for name, status in found.statuses.items()},
            "scores": {name: {plugin: of[name] for plugin, of in by_plugin.items()} for name in totals},
            "totals": totals,
            "node": found.node or None,
        }
    )


def _explain_body(pod: Pod, found: Explained) -> bytes:
    """An ``ExplainResponse``."""
    told = _Told()
    nodes = {
        name: [told.of(status) for status in statuses.values() if not status.is_success]
        for name, statuses in found.nodes.items()
    }
    return msgspec.json.encode(
        {
            "pod": str(pod),
            "preFilter": told.of(found.pre_filter),
            "feasible": found.feasible,
            "nodes": nodes,
            "plugins": found.plugins,
        }
    )


def cycle_router(verb: CycleVerb, lane: Lane, *, max_body_bytes: int) -> APIRouter:
    """It runs on the same picture and profiles as the verbs, in turns with them, and its picks are waited for."""
    router = APIRouter(prefix="/api/v1", tags=["scheduling"])

    async def entered() -> AsyncIterator[None]:
        """Before the body is read: each is memory."""
        try:
            lane.enter()
        except VerbFailure as failure:
            raise _http(failure) from failure
        try:
            yield
        finally:
            lane.leave()

    cycle_body = Depends(body_of(CycleRequest, max_body_bytes, CycleRequest.parse))

    @router.post(
        "/cycle",
        response_model=CycleResponse,
        responses=_FAILURES,
        summary="Run one whole scheduling cycle for a pod",
        openapi_extra=documented(CycleRequest, inline=_POD_EXAMPLE, by_name=_NAME_EXAMPLE),
        dependencies=[Depends(entered)],
    )
    async def cycle(asked: CycleRequest = cycle_body) -> Response:
        await lane.turn()
        try:
            return _json(_cycle_body(await verb.run(_pod(verb, asked), asked.nodes)))
        except VerbFailure as failure:
            raise _http(failure) from failure

    return router


def explain_router(verb: CycleVerb, *, max_body_bytes: int) -> APIRouter:
    """The same picture and profiles; it changes nothing."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])
    pod_body = Depends(body_of(PodRequest, max_body_bytes, PodRequest.parse))

    @router.post(
        "/explain",
        response_model=ExplainResponse,
        responses=_FAILURES,
        summary="Why may a pod go where, and what would unblock it?",
        openapi_extra=documented(PodRequest, by_name=_NAME_EXAMPLE, inline=_POD_EXAMPLE),
    )
    async def explain(asked: PodRequest = pod_body) -> Response:
        try:
            pod = _pod(verb, asked)
            return _json(_explain_body(pod, await verb.explain(pod)))
        except VerbFailure as failure:
            raise _http(failure) from failure

    return router


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _pod(verb: CycleVerb, asked: PodRequest) -> Pod:
    if asked.name is not None:
        return verb.known_pod(asked.namespace, asked.name)
    try:
        return verb.decode_pod(asked.raw_pod)
    except _UNREADABLE as error:
        raise HTTPException(422, f"pod: {error}") from None


def _http(failure: VerbFailure) -> HTTPException:
    return HTTPException(_STATUS_OF.get(failure.outcome, 500), failure.message)
