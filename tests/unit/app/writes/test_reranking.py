"""The task that closes holes in the ranks: small patches of bound pods, one a second, by the leader alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.kube.core_v1 import Pod
from app.kube.deletion_cost import DELETION_COST
from app.writes.reranking import BETWEEN_SECONDS, PAUSE_SECONDS, Reranking, Reranks, reranking_plugins
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import make_pod, pod_object

PATCH = "PATCH /api/v1/namespaces/default/pods/{}/status"


class Ranking:
    """A plugin that suggests costs by the names of pods."""

    def __init__(self, **costs: int) -> None:
        self.reranks = True
        self.costs = costs

    def misranked(self) -> Iterator[tuple[Pod, int] | None]:
        for name, cost in self.costs.items():
            yield make_pod(name.replace("_", "-")), cost
            yield None


class Case:
    """The task with its API server. ``slept``: how long it has slept, without waiting."""

    def __init__(self, server: ApiServer, plugin: Ranking) -> None:
        self.server = server
        self.plugin = plugin
        self.slept: list[float] = []
        self.searches = 0
        self.problem = ""

    def cost(self, name: str) -> str | None:
        found = self.server.get("Pod", name)
        annotations: dict[str, str] = {} if found is None else found["metadata"].get("annotations") or {}
        return annotations.get(DELETION_COST)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.slept.append(seconds)
        if self.slept.count(BETWEEN_SECONDS) > self.searches:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    async def search(self, reranking: Reranking, times: int) -> None:
        """Run so many searches."""
        self.searches = times
        with suppress(asyncio.CancelledError):
            await reranking.run()


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[tuple[Case, Reranking]]:
    server = ApiServer(pod_object("web-1"), pod_object("web-2"))
    async with client_of(server) as client:
        found = Case(server, Ranking(web_1=0, web_2=-1))
        yield found, Reranking(client, [found.plugin], lambda: found.problem, found.sleep)


async def test_a_hole_that_two_searches_find_is_closed(case: tuple[Case, Reranking]) -> None:
    found, reranking = case
    await found.search(reranking, 1)
    first = list(found.server.log)
    found.slept.clear()
    await found.search(reranking, 2)

    assert (first, found.server.log[:2]) == ([], [PATCH.format("web-1"), PATCH.format("web-2")])
    assert (found.cost("web-1"), found.cost("web-2")) == ("0", "-1")
    assert found.slept[:4] == [BETWEEN_SECONDS, BETWEEN_SECONDS, PAUSE_SECONDS, PAUSE_SECONDS]


async def test_a_hole_that_a_new_pod_takes_meanwhile_is_left(case: tuple[Case, Reranking]) -> None:
    found, reranking = case
    found.plugin.costs = {}
    await found.search(reranking, 3)

    assert found.server.log == []


async def test_nothing_is_written_while_this_process_must_not(case: tuple[Case, Reranking]) -> None:
    found, reranking = case
    found.problem = "this replica does not lead"
    await found.search(reranking, 3)

    assert found.server.log == []


@pytest.mark.parametrize("fault", [403, 409, 422, 500, "lost", "unreachable"])
async def test_a_failed_patch_ends_nothing(case: tuple[Case, Reranking], fault: Fault) -> None:
    found, reranking = case
    found.server.fail("PATCH", fault)
    await found.search(reranking, 3)

    assert (found.cost("web-1"), found.cost("web-2")) == ("0", "-1")


async def test_another_pod_of_the_same_name_keeps_its_cost(case: tuple[Case, Reranking]) -> None:
    found, reranking = case
    found.server.put(pod_object("web-1", uid="another"))
    await found.search(reranking, 3)

    assert (found.cost("web-1"), found.cost("web-2")) == (None, "-1")


def test_plugins_that_close_holes() -> None:
    off = Ranking()
    off.reranks = False
    on = Ranking()

    assert isinstance(on, Reranks)
    assert reranking_plugins([off, on, object()]) == [on]
