"""A filter call that shows a part of the nodes, over HTTP: where our refusals leave nothing, it is nominated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from tests.api.service import Api, serving
from tests.api.small import NEW, NODES, TOO_MANY, WEB, binding, by_name, by_object, saved
from tests.api.virtual import settle
from tests.builders import JsonObject, pod_object

ALSO_FULL = pod_object("web-3", labels=WEB, node="n3")
"""With it ``web-new`` may go to n2 only."""


def whole(name: str) -> JsonObject:
    return by_object(NEW, [node for node in NODES if node["metadata"]["name"] == name])


def named(name: str) -> JsonObject:
    return by_name(NEW, [name])


async def until_nominated(api: Api) -> None:
    while True:
        found = await api.samples("homeport_sampled_out_total")
        if found[""]:
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("shown", [pytest.param(named, id="names"), pytest.param(whole, id="whole nodes")])
async def test_refused_on_all_it_was_shown_a_pod_is_nominated_to_another_node(
    tmp_path: Path, shown: Callable[[str], JsonObject]
) -> None:
    """The scheduler tries the nominated node alone: a hit."""
    async with serving(Settings(cluster=saved(tmp_path, ALSO_FULL), smallest_sample=1)) as api:
        refused = await api.post("filter", shown("n1"))
        await until_nominated(api)
        probe = await api.post("filter", shown("n2"))
        bound = await api.post("bind", binding())
        results = await api.samples("homeport_nominations_total")

    assert ("no_fit", {"n1": TOO_MANY}) == (refused.outcome, refused.answer["FailedAndUnresolvableNodes"])
    assert ("feasible", "bound", {'{result="hit"}': 1.0}) == (probe.outcome, bound.outcome, results)


@pytest.mark.parametrize(
    ("settings", "names", "guarded"),
    [
        pytest.param({"smallest_sample": 1}, ["n1"], 1, id="a sample"),
        pytest.param({}, ["n1"], 0, id="too few names for a sample"),
        pytest.param({"smallest_sample": 1, "sampling_guard": False}, ["n1"], 0, id="switched off"),
        pytest.param({"smallest_sample": 1}, ["n1", "n2"], 0, id="one of those shown passed"),
    ],
)
async def test_who_is_guarded(tmp_path: Path, settings: Any, names: list[str], guarded: int) -> None:
    async with serving(Settings(cluster=saved(tmp_path, ALSO_FULL), **settings)) as api:
        await settle()  # what acts by itself has begun
        before = len(asyncio.all_tasks())
        await api.post("filter", by_name(NEW, names))
        after = len(asyncio.all_tasks())

    assert guarded == after - before
