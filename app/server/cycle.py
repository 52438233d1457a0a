"""POST /api/v1/cycle and /api/v1/explain: for other schedulers, and for people who ask why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec
from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from app.framework.interface import Explanation
from app.framework.status import Status
from app.kube.core_v1 import Pod, decode_pod
from app.server.bodies import body_of, documented
from app.verbs.cycle import Cycle, CycleVerb, Explained
from app.verbs.outcome import VerbFailure

_STATUS_OF = {"not_ready": 503, "nothing_to_do": 404, "fault": 500}

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "No such pod, or no profile for its schedulerName."},
    500: {"description": "A plugin failed; detail names it."},
    503: {"description": "The picture of the cluster is incomplete or too old."},
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


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class PodRequest(_Model):
    """A pod of the cluster by name, or one in the body."""

    pod: dict[str, Any] | None = Field(default=None, description="A Pod as the Kubernetes API has it.")
    namespace: str = "default"
    name: str | None = Field(default=None, description="Name of a pod that Homeport knows, instead of pod.")

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

    @classmethod
    def of(cls, status: Status) -> Self:
        if status.is_success:
            return cls(code="Success", plugin="", reasons=[])
        return cls(code=status.code.word, plugin=status.plugin, reasons=list(status.reasons))


class CycleResponse(_Model):
    """One whole cycle."""

    pre_filter: PluginStatus
    filter: dict[str, PluginStatus] = Field(description="By node.")
    scores: dict[str, dict[str, int]] = Field(description="By feasible node and plugin, 0..100, before weights.")
    totals: dict[str, int] = Field(description="Weighted sum by feasible node.")
    node: str | None = Field(description="The chosen node: bind the pod there with POST /bind.")

    @classmethod
    def of(cls, found: Cycle) -> Self:
        by_plugin, totals = found.scores.by_plugin, found.scores.totals
        return cls(
            pre_filter=PluginStatus.of(found.pre_filter),
            filter={name: PluginStatus.of(status) for name, status in found.statuses.items()},
            scores={name: {plugin: of[name] for plugin, of in by_plugin.items()} for name in totals},
            totals=totals,
            node=found.node or None,
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

    @classmethod
    def of(cls, found: Explanation) -> Self:
        tables = [
            ExplanationTable(title=it.title, columns=list(it.columns), rows=[list(row) for row in it.rows])
            for it in found.tables
        ]
        return cls(tables=tables, unblock=list(found.unblock))


class ExplainResponse(_Model):
    """Why a pod may or may not go where."""

    pod: str
    pre_filter: PluginStatus
    feasible: list[str] = Field(description="The nodes that every filter passes.")
    nodes: dict[str, list[PluginStatus]] = Field(description="By node, the plugins that reject it.")
    plugins: dict[str, PluginExplanation]

    @classmethod
    def of(cls, pod: Pod, found: Explained) -> Self:
        return cls(
            pod=str(pod),
            pre_filter=PluginStatus.of(found.pre_filter),
            feasible=list(found.feasible),
            nodes={name: _rejections(statuses) for name, statuses in found.nodes.items()},
            plugins={name: PluginExplanation.of(it) for name, it in found.plugins.items()},
        )


def _rejections(statuses: Mapping[str, Status]) -> list[PluginStatus]:
    return [PluginStatus.of(status) for status in statuses.values() if not status.is_success]


def cycle_router(verb: CycleVerb, *, max_body_bytes: int) -> APIRouter:
    """It runs on the same picture and profiles as the verbs, and its picks are waited for."""
    router = APIRouter(prefix="/api/v1", tags=["scheduling"])
    cycle_body = Depends(body_of(CycleRequest, max_body_bytes))

    @router.post(
        "/cycle",
        responses=_FAILURES,
        summary="Run one whole scheduling cycle for a pod",
        openapi_extra=documented(CycleRequest, inline=_POD_EXAMPLE, by_name=_NAME_EXAMPLE),
    )
    async def cycle(asked: CycleRequest = cycle_body) -> CycleResponse:
        try:
            return CycleResponse.of(await verb.run(_pod(verb, asked), asked.nodes))
        except VerbFailure as failure:
            raise _http(failure) from failure

    return router


def explain_router(verb: CycleVerb, *, max_body_bytes: int) -> APIRouter:
    """The same picture and profiles; it changes nothing."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])
    pod_body = Depends(body_of(PodRequest, max_body_bytes))

    @router.post(
        "/explain",
        responses=_FAILURES,
        summary="Why may a pod go where, and what would unblock it?",
        openapi_extra=documented(PodRequest, by_name=_NAME_EXAMPLE, inline=_POD_EXAMPLE),
    )
    async def explain(asked: PodRequest = pod_body) -> ExplainResponse:
        try:
            pod = _pod(verb, asked)
            return ExplainResponse.of(pod, await verb.explain(pod))
        except VerbFailure as failure:
            raise _http(failure) from failure

    return router


def _pod(verb: CycleVerb, asked: PodRequest) -> Pod:
    if asked.name is not None:
        return verb.known_pod(asked.namespace, asked.name)
    try:
        return decode_pod(msgspec.json.encode(asked.pod))
    except msgspec.DecodeError as error:
        raise HTTPException(422, f"pod: {error}") from None


def _http(failure: VerbFailure) -> HTTPException:
    return HTTPException(_STATUS_OF.get(failure.outcome, 500), failure.message)
