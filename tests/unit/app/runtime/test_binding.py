"""Rules of Reserve, Permit, PreBind, Bind and PostBind."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from app.framework.cycle_state import CycleState
from app.framework.status import SKIP, SUCCESS, Status, error, unschedulable
from app.runtime.guard import PluginError
from tests.fakes import (
    NO,
    Acts,
    Permits,
    Reserves,
    ReservesBadly,
)
from tests.unit.app.runtime.engine import NEVER, POD, WAIT, framework


class TestPermit:
    """Semantics §3.7."""

    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            ([SUCCESS, SUCCESS], SUCCESS, "AB"),
            ([SUCCESS, NO, SUCCESS], NO.by("B"), "AB"),
            ([WAIT, NEVER], NEVER.by("B"), "AB"),
        ],
    )
    async def test_the_last_word(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Permits(name, it, 60, calls) for name, it in zip("ABC", statuses, strict=False)))

        assert expected == await engine.binding.permit(CycleState(), POD, "n1", limit=60)
        assert [f"{name}: permit n1" for name in asked] == calls

    @pytest.mark.parametrize("status", [error("broken"), SKIP])
    async def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            await framework(Permits("A", status)).binding.permit(CycleState(), POD, "n1", limit=60)

        assert error(f'running Permit plugin "A": {status.message}', "A") == raised.value.status

    async def test_who_waits_in_vain_is_rejected(self) -> None:
        """The caller's limit ends a wait that a plugin would have granted, and that is said aloud."""
        with capture_logs() as logs:
            status = await framework(Permits("A", WAIT, 60)).binding.permit(CycleState(), POD, "n1", limit=0)

        assert unschedulable("rejected due to timeout after waiting 0s at plugin A").by("A") == status
        assert [("warning", "A", 60, 0)] == [(it["log_level"], it["plugin"], it["asked"], it["limit"]) for it in logs]


class TestReserve:
    def test_the_first_failure_stops(self) -> None:
        calls: list[str] = []
        engine = framework(Reserves("A", calls=calls), Reserves("B", NO, calls), Reserves("C", calls=calls))

        assert NO.by("B") == engine.binding.reserve(CycleState(), POD, "n1")
        assert ["A: reserve n1", "B: reserve n1"] == calls

    def test_all_are_undone_in_reverse_whatever_they_raise(self) -> None:
        """Also those that never reserved: undoing is idempotent."""
        calls: list[str] = []
        engine = framework(Reserves("A", calls=calls), ReservesBadly("B", calls=calls), Reserves("C", calls=calls))

        engine.binding.unreserve(CycleState(), POD, "n1")

        assert ["C: unreserve n1", "B: unreserve n1", "A: unreserve n1"] == calls


class TestBinding:
    async def test_the_first_pre_bind_failure_stops(self) -> None:
        calls: list[str] = []
        engine = framework(Acts("A", calls=calls), Acts("B", NO, calls), Acts("C", calls=calls))

        assert NO.by("B") == await engine.binding.pre_bind(CycleState(), POD, "n1")
        assert ["A: pre_bind n1", "B: pre_bind n1"] == calls

    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            pytest.param([SKIP, SUCCESS, NO], SUCCESS.by("B"), "AB", id="the first that does not skip binds"),
            pytest.param([NO, SUCCESS], NO.by("A"), "A", id="a failure is an answer too"),
            pytest.param([SKIP, SKIP], error("every bind plugin skipped the pod"), "AB", id="all skip"),
        ],
    )
    async def test_who_binds(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Acts(name, status, calls) for name, status in zip("ABC", statuses, strict=False)))

        assert expected == await engine.binding.bind(CycleState(), POD, "n1")
        assert [f"{name}: bind n1" for name in asked] == calls

    async def test_post_bind_tells_all_whatever_they_raise(self) -> None:
        calls: list[str] = []

        await framework(Acts("A", NO, calls), Acts("B", calls=calls)).binding.post_bind(CycleState(), POD, "n1")

        assert ["A: post_bind n1", "B: post_bind n1"] == calls
