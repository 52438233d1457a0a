"""Permit in the bind transaction: a pod waits as long as it may, holds nobody up, and is undone when it is rejected."""

from __future__ import annotations

from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.framework.cycle_state import CycleState
from app.framework.interface import Handle, PermitPlugin, PluginSpec, ReservePlugin
from app.framework.status import SUCCESS, Code, Status, error, unschedulable
from app.kube.core_v1 import Pod
from plugins import DEFAULT_WEIGHTS
from tests.api.virtual import now, settle, virtual_time
from tests.fakes import NoArgs
from tests.unit.app.verbs.bench import BOUND, Bench, Result, web, zones

WAIT: Final = Status(Code.WAIT)
HOUR: Final = 3600.0
MINUTES: Final = 60.0


class Permit(PermitPlugin, ReservePlugin):
    """Answers what a test says, and ``Success`` for other pods than ``web-1``."""

    answer: tuple[Status, float] = (SUCCESS, 0.0)

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.waiting = handle.waiting
        self.undone: list[str] = []

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return self.answer if pod.name == "web-1" else (SUCCESS, 0.0)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.undone.append(pod.name)


class AlsoPermit(Permit):
    """A second one."""


def bench(*answers: tuple[Status, float], limit: float = HOUR) -> tuple[Bench, list[Permit]]:
    """Three zones and two pods; one Permit plugin for each answer. ``limit``: how long the caller waits."""
    specs: list[PluginSpec[Any]] = [PluginSpec(it.__name__, NoArgs, it) for it in (Permit, AlsoPermit)][: len(answers)]
    defaults = {**DEFAULT_WEIGHTS, **{spec.name: 1 for spec in specs}}
    found = Bench(*zones(), web("web-1"), web("web-2"), specs=specs, defaults=defaults)
    found.verb._time_limit = limit
    permits = [found.framework.plugins[spec.name] for spec in specs]
    for permit, answer in zip(permits, answers, strict=True):
        permit.answer = answer
    return found, permits


def rejected(plugin: str, message: str) -> Result:
    return ("bind_conflict", f"homeport: {plugin}: {message}")


@virtual_time
async def test_a_pod_that_is_allowed_is_bound() -> None:
    found, (permit,) = bench((WAIT, HOUR))

    call = await found.start("web-1", "n1")
    assert ([], {"web-1": "n1"}, False) == (found.binder.under_way, found.assumed, call.done())
    (waiting,) = permit.waiting.all()
    waiting.allow("Permit")
    await settle()

    found.binder.answer("web-1")
    assert (BOUND, []) == (await call, permit.undone)


@virtual_time
async def test_all_plugins_that_made_it_wait_have_to_allow_it() -> None:
    found, (permit, _) = bench((WAIT, HOUR), (WAIT, HOUR))

    call = await found.start("web-1", "n1")
    (waiting,) = permit.waiting.all()
    waiting.allow("AlsoPermit")
    await settle()
    assert (("Permit",), []) == (waiting.pending_plugins(), found.binder.under_way)
    waiting.allow("Permit")
    await settle()

    found.binder.answer("web-1")
    assert BOUND == await call


@virtual_time
async def test_a_pod_that_is_rejected_is_undone() -> None:
    found, (permit,) = bench((WAIT, HOUR))

    call = await found.start("web-1", "n1")
    (waiting,) = permit.waiting.all()
    waiting.reject("Permit", "the budget is spent")

    assert rejected("Permit", "the budget is spent") == await call
    assert (["web-1"], {}, ()) == (permit.undone, found.assumed, permit.waiting.all())


@virtual_time
async def test_while_one_waits_others_are_bound() -> None:
    found, (permit,) = bench((WAIT, HOUR))

    first = await found.start("web-1", "n1")
    second = await found.start("web-2", "n2")
    found.binder.answer("web-2")
    await settle()
    (waiting,) = permit.waiting.all()
    waiting.allow("Permit")
    await settle()
    found.binder.answer("web-1")

    assert (BOUND, BOUND) == (await second, await first)


@pytest.mark.parametrize(
    ("answers", "limit", "seconds", "message"),
    [
        pytest.param(
            [(WAIT, 30.0)], HOUR, 30.0, "rejected due to timeout after waiting 30s at plugin Permit", id="its time"
        ),
        pytest.param(
            [(WAIT, 30.0), (SUCCESS, 1.0)],
            HOUR,
            30.0,
            "rejected due to timeout after waiting 30s at plugin Permit",
            id="the time of a plugin that does not make it wait is nothing",
        ),
        pytest.param(
            [(WAIT, 2 * HOUR)],
            HOUR,
            15 * MINUTES,
            "rejected due to timeout after waiting 900s at plugin Permit",
            id="15 minutes at most",
        ),
        pytest.param(
            [(WAIT, 0.0)], HOUR, 0.0, "rejected due to timeout after waiting 0s at plugin Permit", id="no time"
        ),
    ],
)
def test_out_of_time_it_is_rejected(
    answers: list[tuple[Status, float]], limit: float, seconds: float, message: str
) -> None:
    @virtual_time
    async def check() -> None:
        found, _ = bench(*answers, limit=limit)
        started = now()

        call = await found.start("web-1", "n1")

        assert rejected("Permit", message) == await call
        assert (seconds, {}) == (now() - started, found.assumed)

    check()


@virtual_time
async def test_the_shortest_time_counts() -> None:
    found, _ = bench((WAIT, 30.0), (WAIT, 20.0))

    call = await found.start("web-1", "n1")

    assert rejected("AlsoPermit", "rejected due to timeout after waiting 20s at plugin AlsoPermit") == await call


@virtual_time
async def test_a_wait_ends_before_the_callers_time_limit() -> None:
    """A twentieth before it hangs up, so that it is told why. The log tells that the plugin wanted more."""
    found, (permit,) = bench((WAIT, 30.0), limit=5.0)
    started = now()
    with capture_logs() as logged:
        answer = await (await found.start("web-1", "n1"))

    assert rejected("Permit", "rejected due to timeout after waiting 4.75s at plugin Permit") == answer
    assert (4.75, {}, ["web-1"], ()) == (now() - started, found.assumed, permit.undone, permit.waiting.all())
    assert [
        {
            "log_level": "warning",
            "event": "permit wait clipped to the caller's time limit",
            "plugin": "Permit",
            "asked": 30.0,
            "limit": 4.75,
        }
    ] == logged


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param([(unschedulable("no"), 0.0)], rejected("Permit", "no"), id="a rejection"),
        pytest.param(
            [(WAIT, HOUR), (unschedulable("no"), 0.0)],
            rejected("AlsoPermit", "no"),
            id="a rejection after a wait: nobody waits",
        ),
        pytest.param(
            [(error("a screw is loose"), 0.0)],
            ("fault", 'homeport: running Permit plugin "Permit": a screw is loose'),
            id="an error",
        ),
    ],
)
def test_a_plugin_that_says_no_ends_the_bind(answers: list[tuple[Status, float]], expected: Result) -> None:
    @virtual_time
    async def check() -> None:
        found, (permit, *_) = bench(*answers)

        assert expected == await (await found.start("web-1", "n1"))
        assert (["web-1"], {}, ()) == (permit.undone, found.assumed, permit.waiting.all())

    check()
