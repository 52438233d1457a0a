"""A saved cluster serves decisions and explain with one snapshot, and decides as it did without explain."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

import pytest

from app.config.profile import ANY
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from plugins.sticky_node.plugin import StickyNode
from tests.api.service import NODES, SAMPLE, Api, serving
from tests.builders import container, encoded, pod_object

GREEDY: Final = pod_object("greedy", containers=[container(requests={"cpu": "1000"})])


async def filtered(api: Api) -> Any:
    return (await api.post("filter", {"Pod": GREEDY, "NodeNames": NODES})).answer


async def test_a_filter_that_only_the_scheduler_runs() -> None:
    async with serving(Settings(cluster=str(SAMPLE), explain="profile")) as api:
        narrow = await filtered(api)
    async with serving() as api:
        wide, explain = await filtered(api), api.service._explain
        status = await api.get("/api/v1/status")
        pod = explain.cluster.core.decode_pod(encoded(GREEDY))
        state, filters = CycleState(), explain.frameworks[ANY].filters
        assert filters.pre_filter(state, pod).status.is_success
        rejected = filters.filter(state, pod, Candidates.of(explain.cluster.nodes))

    assert (NODES, narrow) == (sorted(wide["NodeNames"]), wide)
    plugins = {name: it.plugin for name, it in rejected.items()}
    assert dict.fromkeys(NODES, "NodeResourcesFit") | {"node-a4": "NodeUnschedulable"} == plugins
    assert ("kube-scheduler", "Homeport") == (explain.by(ANY)["NodeResourcesFit"], explain.by(ANY)["StickyNode"])
    assert not [kind for kind in status["feeds"] if "CSINode" in kind]
    assert "NodeResourcesFit" not in status["profiles"][0]["points"]["filter"]


async def test_background_work_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the instance that decides."""
    ran: list[StickyNode] = []

    async def run(plugin: StickyNode) -> None:
        ran.append(plugin)

    monkeypatch.setattr(StickyNode, "run", run)
    async with serving() as api:
        while not ran:  # noqa: ASYNC110  # the plugin has no event for it
            await asyncio.sleep(0)
        deciding = api.service._frameworks[ANY].plugins["StickyNode"]

    assert [deciding] == ran
    assert deciding is not api.service._explain.frameworks[ANY].plugins["StickyNode"]


@pytest.mark.parametrize(("explain", "proved_by"), [("complete", "complete"), ("profile", "partial")])
async def test_a_remedy_says_whether_all_filters_accept_its_nodes(
    explain: Literal["complete", "profile"], proved_by: str
) -> None:
    async with serving(Settings(cluster=str(SAMPLE), explain=explain)) as api:
        found = await api.get("/api/v1/explain/shop/web-7d4b9c-new01")

    assert {proved_by} == {it["provedBy"] for it in found["remedies"]}
