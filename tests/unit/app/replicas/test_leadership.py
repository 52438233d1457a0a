"""A process alone leads, whoever asks and however."""

from __future__ import annotations

import asyncio

import pytest

from app.replicas.leadership import ALONE, Leadership
from app.replicas.replica import Replica


async def test_nothing_holds_a_process_alone_back() -> None:
    said = (
        ALONE.problem(),
        ALONE.may_write(),
        ALONE.may_bind("default"),
        await ALONE.admitted("default", 0.0),
        await ALONE.remember("default-scheduler", 0.0),
    )

    assert (True, ("",) * 5, True) == (ALONE.leads, said, ALONE.is_remembered("default-scheduler"))


async def test_it_has_no_part_in_an_election() -> None:
    assert ("", "", None) == (ALONE.identity, ALONE.role(), ALONE.record)


async def test_it_leads_at_once_and_for_good() -> None:
    await ALONE.leading()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ALONE.lost(), 0.01)


async def test_it_has_nobody_to_hand_over_to() -> None:
    async def settle() -> bool:
        raise AssertionError("binds under way are settled when the process ends")

    await ALONE.start()
    await ALONE.hand_over(settle)

    assert ALONE.leads
    await ALONE.stop()


def test_a_replica_answers_to_the_same() -> None:
    asked = {name for name in vars(Leadership) if not name.startswith("_")}

    assert asked == {name for name in asked if hasattr(Replica, name) and hasattr(ALONE, name)}
