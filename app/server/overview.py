"""Pages below ``/api/v1`` for the page in the browser: overview, map of nodes, one node, and one workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response
from msgspec import Struct

from app.analysis.explain_snapshot import ExplainSnapshot
from app.analysis.node_map import ZONE, NodeCell, add_cells, cell_of, resources_of
from app.analysis.pending import PendingPods
from app.analysis.removal import removal_order
from app.analysis.skew import Skews, WorkloadSkew
from app.analysis.workloads import WorkloadExplainer, workload_of
from app.feeds.feed import Feed
from app.framework.handle import Clock
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.kube.quantity import shown_amount
from app.server.cycle import FAILURES, json_response
from app.server.pending import pending_item
from app.server.queries import KnownQuery
from app.server.shared import SharedAnswer
from app.server.skew import skew_item
from app.verbs.context import Problem, require_snapshot
from app.verbs.outcome import VerbFailure
from app.verbs.similar import similar
from app.verbs.stepwise import run_stepwise
from app.verbs.unserved import printable
from app.wire.explain_v1 import API_VERSION
from app.wire.overview_v1 import (
    NODE_DETAIL,
    NODE_MAP,
    OVERVIEW,
    WORKLOAD,
    NodeDetail,
    NodeMap,
    Overview,
    WorkloadDetail,
)

MOST_LISTED: Final = 100
"""Maximum number of pending pods, of skews and of homes in the overview."""

MOST_PODS: Final = 500
"""Maximum number of listed pods of one node or workload. Further pods of a workload are not sorted by scale-down."""


UnusableHomes: TypeAlias = Callable[[int], Awaitable[tuple[int, list[dict[str, Any]]]]]
"""Function (n) that returns the number of homes that are away or orphaned, and at most n of these homes as JSON.

Raises ``VerbFailure``.
"""


class OverviewSources(Struct, frozen=True):
    """Sources of the pages. ``snapshot``: the snapshot of explain. ``homes``: lists unusable homes. ``problem`` returns
    why no decision is possible; empty if decisions are possible.
    """

    pending: PendingPods
    skews: Skews
    workloads: WorkloadExplainer
    snapshot: ExplainSnapshot
    homes: UnusableHomes
    feed: Feed
    problem: Problem
    clock: Clock


def overview_router(sources: OverviewSources) -> APIRouter:
    """Create the router. All readers share one computed overview and one computed map (``SharedAnswer``)."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])
    pages = _Pages(sources)
    nodes = SharedAnswer(pages.nodes, sources.clock)
    overview = SharedAnswer(partial(pages.overview, nodes), sources.clock)

    @router.get(
        "/overview", response_model=Overview, responses=FAILURES, summary="Waiting pods, large skews and unusable homes"
    )
    async def show_overview(
        _: Annotated[KnownQuery, Query()], if_none_match: Annotated[str, Header(include_in_schema=False)] = ""
    ) -> Response:
        return await overview.response(if_none_match, pages.freshness())

    @router.get(
        "/nodes", response_model=NodeMap, responses=FAILURES, summary="All nodes by zone, with requests in percent"
    )
    async def show_nodes(
        _: Annotated[KnownQuery, Query()], if_none_match: Annotated[str, Header(include_in_schema=False)] = ""
    ) -> Response:
        return await nodes.response(if_none_match)

    @router.get("/nodes/{name}", response_model=NodeDetail, responses=FAILURES, summary="One node and its pods")
    async def show_node(name: str, _: Annotated[KnownQuery, Query()]) -> Response:
        return json_response(pages.node(name))

    @router.get(
        "/workloads/{namespace}/{kind}/{name}",
        response_model=WorkloadDetail,
        responses=FAILURES,
        summary="One workload: its spread, its pods by node, and the order of a scale-down",
    )
    async def show_workload(namespace: str, kind: str, name: str, _: Annotated[KnownQuery, Query()]) -> Response:
        return json_response(await pages.workload(namespace, kind, name))

    return router


class _Pages:
    """Computes the JSON of the pages."""

    def __init__(self, sources: OverviewSources) -> None:
        self._sources = sources

    def freshness(self) -> Mapping[str, str]:
        """Return a header with the age of the snapshot in seconds: the highest age of all feeds that watch now. Without
        such a feed, for example for a saved cluster, the header is left out. If no decision is possible, another header
        says why.
        """
        feed = self._sources.feed
        ages = [it.age for it in feed.states().values() if it.state == "watching"]
        problem = self._sources.problem()
        shown = {"Homeport-Problem": quote(problem)} if problem else {}
        return {"Homeport-Snapshot-Age": f"{max(ages):.1f}", **shown} if ages else shown

    async def overview(self, nodes: SharedAnswer) -> Mapping[str, Any]:
        """Return an ``Overview``. It has the ETag of ``nodes``, the shared ``NodeMap``. Raises ``VerbFailure``."""
        pending = await self._sources.pending.page()
        skews = distinct((await self._sources.skews.page("", "", "", 0, above=True)).items)
        total, homes = await self._sources.homes(MOST_LISTED)
        return {
            "apiVersion": API_VERSION,
            "kind": OVERVIEW,
            "nodes": await nodes.etag(),
            "homes": {"total": total, "items": homes},
            "pending": {"total": pending.total, "items": [pending_item(it) for it in pending.items[:MOST_LISTED]]},
            "skews": {"total": len(skews), "items": [skew_item(it) for it in skews[:MOST_LISTED]]},
        }

    async def nodes(self) -> Mapping[str, Any]:
        """Return a ``NodeMap``. Raises ``VerbFailure``."""
        require_snapshot(self._sources.snapshot.problem)
        zones: dict[str, list[NodeCell]] = {}
        await run_stepwise(add_cells(self._sources.snapshot.cluster, zones))
        return {
            "apiVersion": API_VERSION,
            "kind": NODE_MAP,
            "zoneKey": ZONE,
            "total": sum(map(len, zones.values())),
            "zones": [{"name": name, "nodes": zones[name]} for name in sorted(zones)],
        }

    def node(self, name: str) -> dict[str, Any]:
        """Return a ``NodeDetail``. Raises ``VerbFailure``, also if there is no such node."""
        require_snapshot(self._sources.snapshot.problem)
        nodes = self._sources.snapshot.cluster.nodes
        info = nodes.get(name)
        if info is None:
            raise VerbFailure("nothing_to_do", f'node "{printable(name)}" not found{similar(printable(name), nodes)}')
        cell = cell_of(info)
        pods = sorted(info.pods.values(), key=lambda it: it.key)
        return {
            "apiVersion": API_VERSION,
            "kind": NODE_DETAIL,
            "name": info.name,
            "zone": info.node.labels.get(ZONE, ""),
            "condition": cell.condition,
            "taints": [it.text for it in info.node.taints],
            "labels": dict(info.node.labels),
            "resources": _resources(info),
            "pods": [_on_node(it) for it in pods[:MOST_PODS]],
            "podCount": len(pods),
        }

    async def workload(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        """Return a ``WorkloadDetail``. Raises ``VerbFailure``, also if the workload has no pods."""
        sources = self._sources
        selection = await sources.workloads.pods_of(namespace, kind, name, MOST_PODS)
        skews = await sources.skews.page(namespace, kind, name, 0, above=False)
        ordered = removal_order(kind, selection.pods, datetime.now(UTC))
        return {
            "apiVersion": API_VERSION,
            "kind": WORKLOAD,
            "namespace": namespace,
            "workloadKind": kind,
            "name": name,
            "skews": [skew_item(it) for it in distinct(skews.items)],
            "pods": [{"name": it.name, "node": it.node_name, "created": it.created} for it in ordered],
            "podCount": selection.total,
            "nodes": _by_node(ordered),
        }


def distinct(skews: Sequence[WorkloadSkew]) -> list[WorkloadSkew]:
    """Return the skews without repetitions. Pods of a workload can have different spread constraints, for example
    during a rollout, that lead to equal skews.
    """
    shown = {
        (it.namespace, it.kind, it.name, it.key, it.is_hard, it.max_skew, *it.domains): it for it in reversed(skews)
    }
    return [*shown.values()][::-1]


def _by_node(pods: Sequence[Pod]) -> Mapping[str, int]:
    return Counter(it.node_name for it in pods if it.node_name)


def _on_node(pod: Pod) -> dict[str, Any]:
    kind, name = workload_of(pod)
    return {"namespace": pod.namespace, "name": pod.name, "workloadKind": kind, "workload": name}


def _resources(info: NodeInfo) -> list[dict[str, str]]:
    return [
        {"name": name, "requested": shown_amount(name, requested), "allocatable": shown_amount(name, allocatable)}
        for name, (requested, allocatable) in resources_of(info).items()
    ]
