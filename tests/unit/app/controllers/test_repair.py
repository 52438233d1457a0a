"""What a crash left half done is put right as soon as that can be seen, and looked for again and again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from app.controllers.repair import Repair
from app.framework.interface import RepairPlugin
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.telemetry.metrics import Metrics
from tests.api.virtual import now, settle, virtual_time

INTERVAL = 60.0


class Mender(RepairPlugin):
    def __init__(self, fault: Exception | None = None) -> None:
        self.began = now()
        self.at: list[float] = []
        self._fault = fault

    async def repair(self) -> None:
        self.at.append(now() - self.began)
        if self._fault is not None:
            raise self._fault


def profile(**plugins: object) -> Framework:
    """As much of one as repair looks at."""
    return cast(Framework, SimpleNamespace(plugins=plugins))


async def _at_once() -> None:
    """The picture is complete."""


@virtual_time
async def test_it_waits_for_the_picture_and_for_the_interval() -> None:
    mender, complete = Mender(), asyncio.Event()

    async def wait() -> Any:
        await complete.wait()

    running = asyncio.ensure_future(Repair([profile(Mender=mender)], Guard(Metrics()), wait, INTERVAL).run())
    await asyncio.sleep(5.0)
    assert [] == mender.at
    complete.set()
    await asyncio.sleep(2.5 * INTERVAL)
    running.cancel()
    await settle()

    assert [5.0, 5.0 + INTERVAL, 5.0 + 2 * INTERVAL] == mender.at


@virtual_time
async def test_one_that_fails_keeps_no_other_from_it_and_is_asked_again() -> None:
    broken, sound, other = Mender(OSError("not now")), Mender(), Mender()
    profiles = [profile(Broken=broken, Deaf=object(), Sound=sound), profile(Other=other)]
    metrics = Metrics()
    running = asyncio.ensure_future(Repair(profiles, Guard(metrics), _at_once, INTERVAL).run())
    await asyncio.sleep(1.5 * INTERVAL)
    running.cancel()
    await settle()

    assert [[0.0, INTERVAL]] * 3 == [broken.at, sound.at, other.at]
    (found,) = metrics.plugin_faults.collect()
    assert [("Broken", 2.0)] == [
        (it.labels["plugin"], it.value) for it in found.samples if it.name.endswith("_total") and it.value
    ]
