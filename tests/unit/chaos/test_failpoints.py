"""Every await has its failpoint, and nothing but the actions changes what the code does."""

import ast
import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.api.virtual import virtual_time
from tests.chaos import failpoints
from tests.chaos.failpoints import CONTROL, MODULES, KillPlan, Passed, Rule, aim_among, noted, points_of, rewritten

ROOT = Path(__file__).parents[3]
SOURCE = '''
"""A module."""

from __future__ import annotations

TOLD = []

async def answer(value):
    TOLD.append(value)
    return value

class Context:
    async def __aenter__(self):
        return await answer("entered")

    async def __aexit__(self, *_):
        await answer("left")

async def numbers():
    yield 1
    yield 2

async def everything():
    first = await answer(await answer("inner"))
    async with Context() as told:
        second = [it async for it in numbers()]
    async for it in numbers():
        last = it
    return first, told, second, last
'''
NAMES = [
    "made:Context.__aenter__:1",
    "made:Context.__aexit__:1",
    "made:everything:1",
    "made:everything:2",
    "made:everything:3",
    "made:everything:4",
    "made:everything:5",
]

Everything = Callable[[], Awaitable[Any]]


@pytest.fixture
def everything() -> Everything:
    code, points = rewritten(SOURCE, "made", "made.py")
    names: dict[str, Any] = {}
    exec(code, names)
    CONTROL.add(points)
    CONTROL.set([])
    return names["everything"]  # type: ignore[no-any-return]


def awaits(module: str) -> int:
    """Counted apart from the rewriter."""
    tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())
    nodes = list(ast.walk(tree))
    statements = sum(isinstance(it, ast.Await | ast.AsyncFor | ast.AsyncWith) for it in nodes)
    comprehensions = {id(it) for it in nodes for part in getattr(it, "generators", ()) if part.is_async}
    return statements + len(comprehensions)


@pytest.mark.parametrize("module", MODULES)
def test_every_await_has_a_point(module: str) -> None:
    points = points_of([module])

    assert len(points) == awaits(module) > 0
    assert len({it.name for it in points}) == len(points)


async def test_the_code_does_what_it_did(everything: Everything) -> None:
    assert await everything() == ("inner", "entered", [1, 2], 2)


async def test_points_are_passed_before_and_after_in_order(everything: Everything, tmp_path: Path) -> None:
    log = tmp_path / "log"
    CONTROL.set([Rule("*", "delay", side) for side in failpoints.SIDES], log=log)
    await everything()

    assert list(noted(log)["delay"]) == [
        "made:everything:1:before",
        "made:everything:2:before",
        "made:everything:2:after",
        "made:everything:1:after",
        "made:everything:3:before",
        "made:Context.__aenter__:1:before",
        "made:Context.__aenter__:1:after",
        "made:everything:3:after",
        "made:everything:4:before",
        "made:everything:4:after",
        "made:Context.__aexit__:1:before",
        "made:Context.__aexit__:1:after",
        "made:everything:5:before",
        "made:everything:5:after",
    ]
    assert list(CONTROL.points) == NAMES


@pytest.mark.parametrize(
    ("side", "told"),
    [pytest.param("before", [], id="nothing was done"), pytest.param("after", ["inner"], id="it was done")],
)
async def test_an_error_is_raised_before_or_after(
    everything: Everything, side: failpoints.Side, told: list[str]
) -> None:
    CONTROL.set([Rule("made:everything:*", "error", side, expression="answer('inner')", error="builtins:EOFError")])

    with pytest.raises(EOFError, match=f"injected at made:everything:2:{side}"):
        await everything()
    assert everything.__globals__["TOLD"] == told


async def test_a_probability_is_the_same_again_for_a_seed(everything: Everything) -> None:
    async def failures(seed: int) -> list[int]:
        CONTROL.set([Rule("made:everything:1", "error", probability=0.3)], seed=seed)
        found = await asyncio.gather(*(everything() for _ in range(50)), return_exceptions=True)
        return [number for number, it in enumerate(found) if isinstance(it, OSError)]

    first = await failures(1)
    assert first == await failures(1)
    assert first != await failures(2)
    assert 5 < len(first) < 25


@virtual_time
async def test_a_delay_lets_others_go_first(everything: Everything) -> None:
    CONTROL.set([Rule("made:everything:1", "delay", seconds=0.001)])
    order: list[str] = []

    async def run(name: str) -> None:
        await everything()
        order.append(name)

    delayed = asyncio.ensure_future(run("delayed"))
    await asyncio.sleep(0)
    CONTROL.set([])
    await run("other")
    await delayed
    assert order == ["other", "delayed"]


def test_kills_go_where_few_were_until_the_budget_is_spent() -> None:
    plan, chance = KillPlan(budget=40), Random(1)
    while plan.made.total() < 40:
        for at in ("often", "often", "often", "often", "often", "rare"):
            if plan.strikes(at, chance):
                plan.made[at] += 1

    assert not plan.strikes("new", chance)
    assert 10 < plan.made["rare"] < 20


BIND = "app.verbs.bind:BindVerb._run:1:before"


@pytest.mark.parametrize(
    ("plan", "strikes"),
    [
        pytest.param(KillPlan(budget=1), [True, True, True], id="anywhere"),
        pytest.param(KillPlan(budget=1, spared=("app.verbs.bind:*",)), [False, False, False], id="it is spared"),
        pytest.param(KillPlan(budget=1, quiet=2), [False, False, True], id="only once some work is done"),
        pytest.param(KillPlan(budget=1, over=Path(__file__)), [False, False, False], id="the killing is over"),
    ],
)
def test_nobody_is_killed_against_the_plan(plan: KillPlan, strikes: list[bool]) -> None:
    assert strikes == [plan.strikes(BIND, Random(1)) for _ in strikes]


def test_a_process_waits_for_its_aim_before_it_is_killed_anywhere() -> None:
    seconds, chance = [0.0], Random(1)
    plan = KillPlan(budget=1, aim="rare", begins="ready", patience=2.0, clock=lambda: seconds[0])

    seconds[0] = 100.0
    assert not any(plan.strikes("often", chance) for _ in range(100))
    assert not plan.strikes("ready", chance)
    assert not any(plan.strikes("often", chance) for _ in range(100))
    assert any(plan.strikes("rare", chance) for _ in range(100))
    seconds[0] = 101.0
    assert not plan.strikes("ready", chance)
    seconds[0] = 102.0
    assert 1 < next(number for number in count(1) if plan.strikes("often", chance)) < 200


def test_aims_are_taken_by_turns(tmp_path: Path) -> None:
    log, aims = tmp_path / "log", list[str]()
    for _ in range(4):
        aims.append(aim_among(("one", "two"), noted(log)))
        CONTROL.set([], plan=KillPlan(budget=1, aim=aims[-1], patience=1.0), log=log)
    CONTROL.set([])

    assert ["one", "two", "one", "two"] == aims
    assert "" == aim_among((), {})


async def test_what_was_passed_is_counted_by_all_who_share_the_file(everything: Everything, tmp_path: Path) -> None:
    file, names = tmp_path / "passed", [f"{it}:before" for it in NAMES]
    for _ in range(2):
        CONTROL.set([], passed=Passed(file, names))
        await everything()
    CONTROL.set([])

    assert dict.fromkeys(names, 2) == Passed(file, names).counts()


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.chaos import failpoints
failpoints.install(["plugins.in_tree.default_binder"])
import plugins.in_tree.default_binder as module
at = "plugins.in_tree.default_binder:DefaultBinder.bind:1:{side}"
spared = ("*:before",) if at.endswith("after") else ()
failpoints.CONTROL.set([], plan=failpoints.KillPlan(budget=1, spared=spared), log=Path({log!r}))

class Binder:
    async def bind(self, *_):
        print("bound", flush=True)

class Handle:
    binder = Binder()

class State:
    annotations = {{}}

asyncio.run(module.DefaultBinder(None, Handle()).bind(State(), None, "node"))
"""


@pytest.mark.parametrize(
    ("side", "output"), [pytest.param("before", b"", id="before"), pytest.param("after", b"bound\n", id="after")]
)
def test_a_kill_strikes_a_real_module_before_or_after(tmp_path: Path, side: str, output: bytes) -> None:
    log = tmp_path / "log"
    code = KILLED.format(side=side, log=str(log))
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)

    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, output), ended.stderr
    assert noted(log)["kill"] == {f"plugins.in_tree.default_binder:DefaultBinder.bind:1:{side}": 1}
