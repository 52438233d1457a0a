"""Several runs at once end together."""

from __future__ import annotations

import asyncio

import pytest

from app.framework.background import run_together


class Run:
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.begun = self.cancelled = False

    async def __call__(self) -> None:
        self.begun = True
        try:
            await asyncio.sleep(0)
            if self.fault is not None:
                raise self.fault
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def ends() -> None:
    await asyncio.sleep(0)


async def test_it_ends_when_all_have() -> None:
    ended: list[str] = []

    async def slowly() -> None:
        await asyncio.sleep(0.002)
        ended.append("slowly")

    await run_together(ends, slowly)
    assert ["slowly"] == ended


async def test_where_one_fails_the_others_are_cancelled() -> None:
    fails, goes_on = Run(LookupError("broken")), Run()

    with pytest.raises(LookupError, match="broken"):
        await run_together(fails, goes_on)

    assert goes_on.cancelled


async def test_all_are_cancelled_with_it() -> None:
    runs = Run(), Run()
    task = asyncio.create_task(run_together(*runs))
    await asyncio.sleep(0.001)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [(True, True), (True, True)] == [(it.begun, it.cancelled) for it in runs]
