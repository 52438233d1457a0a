"""The service under watch: what stands still is told, what a busy machine takes is not, and good objects arrive."""

from __future__ import annotations

from pathlib import Path

from tests.apiserver import RESOURCES, event
from tests.fuzz.world import World

SECONDS = 60


async def test_a_world(tmp_path: Path) -> None:
    """One story, for a process takes seconds to start."""
    world = World(tmp_path)
    try:
        await world.start()
        assert ([], []) == (await world.troubles(), (await world.overtaken(SECONDS))[0])
        assert {str(it) for it in RESOURCES} == set(await world.ask(do="kinds"))

        await world.pauses()
        await world.ask(do="sleep", seconds=0.3)
        assert [] == [it for it in await world.pauses() if it.cpu_ms > 200]
        await world.ask(do="burn", seconds=0.3)
        assert 1 == len([it for it in await world.pauses() if it.cpu_ms > 200])

        before = await world.feed_counts()
        world.api.send("v1 Pod", event("ADDED", b"{}"))
        world.api.list_also("v1 Node", [b"[]"])
        world.api.forget("v1 Node")
        assert [] == (await world.overtaken(SECONDS))[0]
        counted = await world.feed_counts()
        assert (1, 1) == tuple(counted[kind].undecodable - before[kind].undecodable for kind in ("v1 Pod", "v1 Node"))
        lacking, _ = await world.until_there({"v1 Pod": [["nobody", "knows"]]}, 0.1)
        assert ["v1 Pod: 1 good objects did not appear, ['nobody', 'knows'] first"] == lacking
        assert [] == await world.troubles()

        await world.restart()
        assert ([], []) == (await world.troubles(), (await world.overtaken(SECONDS))[0])
    finally:
        world.close()
    assert not world.alive
