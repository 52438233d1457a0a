"""A process alone leads at once and for good, whoever asks and however."""

from __future__ import annotations

import asyncio

import pytest

from app.replicas.leadership import ALONE


async def test_nothing_holds_a_process_alone_back() -> None:
    async def settle() -> bool:
        raise AssertionError("binds in flight are settled when the process ends")

    await ALONE.start()
    await ALONE.leading()
    await ALONE.hand_over(settle)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ALONE.lost(), 0.01)
    said = (ALONE.problem(), ALONE.may_write(), ALONE.may_bind("default"), ALONE.identity, ALONE.role())
    waited = (await ALONE.admitted("default", 0.0), await ALONE.remember("default-scheduler", 0.0))

    assert (True, ("",) * 5, ("", ""), True) == (ALONE.leads, said, waited, ALONE.is_remembered("default-scheduler"))
    assert ALONE.record is None
    await ALONE.stop()
