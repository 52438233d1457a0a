"""What acts by itself runs where it may, for as long as it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.controllers.supervisor import Supervisor
from app.replicas.leadership import ALONE
from app.telemetry.background import AGAIN_SECONDS
from tests.api.virtual import settle, virtual_time


class Term:
    """Leads when the test says so; ``may_write`` some time after that."""

    def __init__(self) -> None:
        self.leads = False
        self._changed = asyncio.Condition()
        self._may_write = False

    async def leading(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._may_write)

    async def lost(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self.leads)

    async def change(self, *, leads: bool, may_write: bool) -> None:
        async with self._changed:
            self.leads, self._may_write = leads, may_write
            self._changed.notify_all()
        await settle()


class Acting:
    """A controller that notes when it begins and ends."""

    def __init__(self, does: Callable[[], Awaitable[object]] = lambda: asyncio.Event().wait()) -> None:
        self._does = does
        self.seen: list[str] = []

    async def run(self) -> None:
        self.seen.append("begun")
        try:
            await self._does()
        finally:
            self.seen.append("ended")


@virtual_time
async def test_a_controller_of_the_leader_runs_while_it_leads_and_may_write() -> None:
    term, acting = Term(), Acting()
    supervisor = Supervisor(term)
    supervisor.while_leading("acting", acting.run)
    supervisor.start()
    await settle()
    seen = [list(acting.seen)]
    for leads, may_write in ((True, False), (True, True), (False, False), (True, True)):
        await term.change(leads=leads, may_write=may_write)
        seen.append(list(acting.seen))
    await supervisor.stop()
    seen.append(acting.seen)

    assert [[], [], ["begun"], ["begun", "ended"], ["begun", "ended", "begun"], ["begun", "ended"] * 2] == seen


@virtual_time
async def test_not_to_be_allowed_to_write_for_a_moment_ends_nothing() -> None:
    """A renewal may be late; what is written meanwhile is held back where it is written."""
    term, acting = Term(), Acting()
    supervisor = Supervisor(term)
    supervisor.while_leading("acting", acting.run)
    supervisor.start()
    await term.change(leads=True, may_write=True)
    await term.change(leads=True, may_write=False)
    assert ["begun"] == acting.seen
    await supervisor.stop()


@virtual_time
async def test_others_run_everywhere() -> None:
    term, acting = Term(), Acting()
    supervisor = Supervisor(term)
    supervisor.everywhere("acting", acting.run)
    supervisor.start()
    await settle()
    assert ["begun"] == acting.seen
    await term.change(leads=True, may_write=True)
    await term.change(leads=False, may_write=False)
    assert ["begun"] == acting.seen
    await supervisor.stop()

    assert ["begun", "ended"] == acting.seen


@pytest.mark.parametrize("leader_only", [True, False])
@virtual_time
async def test_a_fault_is_told_and_the_controller_begun_again(
    capsys: pytest.CaptureFixture[str], leader_only: bool
) -> None:
    async def fails() -> None:
        raise ZeroDivisionError("too bad")

    acting = Acting(fails)
    supervisor = Supervisor(ALONE)
    (supervisor.while_leading if leader_only else supervisor.everywhere)("acting", acting.run)
    supervisor.start()
    await asyncio.sleep(1.5 * AGAIN_SECONDS)
    await supervisor.stop()

    assert ["begun", "ended"] * 2 == acting.seen
    told = capsys.readouterr().out
    assert ["background task ended", "acting", "too bad"] == [
        it for it in ("background task ended", "acting", "too bad") if it in told
    ]


@virtual_time
async def test_one_that_returns_is_done() -> None:
    term, acting = Term(), Acting(lambda: asyncio.sleep(0))
    supervisor = Supervisor(term)
    supervisor.while_leading("acting", acting.run)
    supervisor.start()
    await term.change(leads=True, may_write=True)
    await term.change(leads=False, may_write=False)
    await term.change(leads=True, may_write=True)
    await supervisor.stop()

    assert ["begun", "ended"] == acting.seen


@virtual_time
async def test_a_replica_that_does_not_lead_leaves_pods_alone() -> None:
    term = Term()
    supervisor = Supervisor(term)
    follower = supervisor.problem()
    await term.change(leads=True, may_write=False)

    assert ("another replica decides", "") == (follower, supervisor.problem())
