"""Since when a home is not usable: by what is written, if we would have written it, else by what was seen.

A soft home that was not among the nodes asked about is waited for once, for a second by a clock that nobody sets.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.homes.protocol import State
from app.kube.core_v1 import Node, Pod
from plugins.sticky_node import grace as module
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.grace import LONGEST_ATTEMPT_SECONDS, GraceClocks, HomeAttempts, read_since
from plugins.sticky_node.home_state import HomeStates
from plugins.sticky_node.owners import Owner
from tests.fakes import ManualClock
from tests.unit.plugins.sticky_node.machines import HOME, MACHINE, Machines, launcher, make_node
from tests.unit.plugins.sticky_node.watched import NOON, SINCE, after

NOW = NOON + 600


class World(Machines):
    """n1 is cordoned; it is ten past twelve."""

    def __init__(self) -> None:
        super().__init__()
        self.put(make_node("n2"))
        self.cordon()
        self.clock = ManualClock(NOW)
        self.is_asked = False
        timing = replace(self.handle.timing, wall_clock=self.clock)
        handle = replace(self.handle, timing=timing, is_asked=lambda: self.is_asked)
        self.clocks = GraceClocks(HomeStates(StickyNodeArgs(), handle), self.plugin._owners, handle)

    def cordon(self) -> None:
        self.put(make_node("n1", unschedulable=True))

    def put(self, node: Node) -> None:
        self.cluster.upsert_node(node)

    def owner(self, annotations: Mapping[str, str], slot: str = "", name: str = "db") -> Owner:
        self.change(MACHINE, annotations, name)
        found = self.cluster.get(MACHINE, "default", name)
        assert found is not None
        return Owner(MACHINE, found, slot, found)

    def since(self, annotations: Mapping[str, str], home: str = "n1", slot: str = "") -> float | None:
        return self.clocks.since(self.owner(annotations, slot), home)


@pytest.fixture
def world() -> World:
    return World()


def test_a_usable_home_has_no_clock(world: World) -> None:
    assert world.since({SINCE: f"away {after(0)} n2"}, home="n2") is None


def test_what_is_written_counts(world: World) -> None:
    assert world.since({SINCE: f"away {after(0)} n1"}) == NOON


def test_of_an_ordinal_its_own_counts(world: World) -> None:
    written = {SINCE: f"away {after(0)} n1", f"{SINCE}.3": f"gone {after(60)} n1"}

    assert world.since(written, slot="3") == NOON + 60


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("away", id="no time"),
        pytest.param(f"away  {after(0)} n1", id="two spaces"),
        pytest.param(f"{after(0)} n1", id="no state"),
        pytest.param(f"happy {after(0)} n1", id="a state that there is not"),
        pytest.param("away yesterday n1", id="a time that is none"),
        pytest.param("away 2026-11-22T12:00:00 n1", id="a time of no zone"),
        pytest.param("away 2026-11-22 n1", id="a day"),
        pytest.param("away 2026-11-22T12:12:00Z n1", id="in the future"),
        pytest.param("away 9999-12-31T23:59:59-23:59 n1", id="at the end of time"),
        pytest.param("away 0001-01-01T00:00:00+23:59 n1", id="before the beginning of time"),
        pytest.param("away 1969-12-31T23:59:59Z n1", id="before 1970"),
        pytest.param(f"away {after(0)} n2", id="of another home"),
        pytest.param(f"away {after(0)} n1 {'x' * 10_000}", id="10 KB"),
        pytest.param(f"away {after(0)} n1 {'x' * 400}", id="more than we would write"),
        pytest.param(f"away {after(0)}\x00 n1", id="control characters"),
        pytest.param(f"away {after(0)}\n n1", id="lines"),
        pytest.param(f"away {after(0)} n1 n1", id="more words"),
    ],
)
def test_what_we_would_not_have_written_is_as_if_it_were_not_there(world: World, text: str) -> None:
    assert world.since({SINCE: text}) == NOW
    world.clock.now += 30
    assert world.since({SINCE: text}) == NOW


@pytest.mark.parametrize(
    ("text", "time"),
    [
        pytest.param(f"away {after(0)}", NOON, id="without the node"),
        pytest.param("away 2026-11-22T13:00:00+01:00 n1", NOON, id="of another zone"),
        pytest.param("other-machine 2026-11-22T12:00:00.25Z n1", NOON + 0.25, id="with fractions"),
        pytest.param("leaving 2026-11-22T12:10:30Z n1", NOW + 30, id="by a clock that is a little ahead"),
        pytest.param("gone 1970-01-01T00:00:00Z n1", 0.0, id="to end a grace by hand"),
    ],
)
def test_a_person_may_write_it_as_well(world: World, text: str, time: float) -> None:
    assert world.since({SINCE: text}) == time


@pytest.mark.parametrize("state", [State.AWAY, State.LEAVING, State.GONE, State.OTHER_MACHINE])
def test_what_is_written_can_be_read(world: World, state: State) -> None:
    text = world.clocks.text(world.owner({}), "n1", state)

    found = read_since(text, "n1", NOW)
    assert found is not None
    assert (found.state, found.time) == (state, NOW)


def test_a_home_that_is_no_name_is_not_repeated(world: World) -> None:
    home = "n 1\x00" * 500

    text = world.clocks.text(world.owner({}), home, State.GONE)

    assert f"gone {after(600)}" == text
    assert read_since(text, home, NOW) is not None


def test_what_was_seen_counts_until_it_is_written(world: World) -> None:
    assert world.since({}) == NOW
    world.clock.now += 60
    assert world.since({}) == NOW
    assert world.since({SINCE: f"away {after(0)} n1"}) == NOON


def test_what_is_still_written_of_a_home_that_was_usable_since_does_not_count(world: World) -> None:
    """It could not be removed: somebody took the right away."""
    written = {HOME: "n1", SINCE: f"away {after(0)} n1"}
    world.clocks.ended(world.owner(written), "n1")
    world.clock.now += 60

    assert world.since(written) == NOW + 60
    assert f"away {after(660)} n1" == world.clocks.text(world.owner(written), "n1", State.AWAY)
    assert world.since({SINCE: f"away {after(90)} n1"}) == NOON + 90


def test_a_question_begins_nothing(world: World) -> None:
    world.is_asked = True
    assert world.since({}) is None
    assert [] == world.clocks.take_begun()
    assert world.since({SINCE: f"away {after(0)} n1"}) == NOON

    world.is_asked = False
    world.clock.now += 60
    assert world.since({}) == NOW + 60


class TestOfAPod:
    """Its home is usable, and in-tree filters refuse it."""

    def since(self, world: World, pod: Pod) -> float | None:
        return world.clocks.since_pod(world.owner({}), pod)

    def test_it_is_since_when_no_node_was_found(self, world: World) -> None:
        assert self.since(world, waiting()) == NOON

    def test_as_long_as_nobody_has_said_so_none_runs(self, world: World) -> None:
        assert self.since(world, launcher()) is None

    def test_a_home_that_is_back_is_waited_for_anew(self, world: World) -> None:
        world.since({})

        assert self.since(world, waiting()) == NOW

    def test_it_does_not_run_while_the_pod_has_gates(self, world: World) -> None:
        world.clocks.gated(waiting(gated=True))
        world.clock.now += 60
        world.clocks.gated(waiting(gated=True))
        world.clock.now += 60

        assert self.since(world, waiting()) == NOW + 60

    def test_pods_that_are_bound_or_gone_are_forgotten(self, world: World) -> None:
        world.clocks.gated(waiting(gated=True))
        world.clocks.gated(launcher(uid="other", gated=True))
        world.clocks.ungated({"other"})

        assert ["other"] == [*world.clocks._gated]

    def test_no_more_are_remembered_than_homes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MOST_SEEN", 3)
        world = World()
        for number in range(5):
            world.clocks.gated(launcher(uid=f"uid-{number}", gated=True))

        assert ["uid-2", "uid-3", "uid-4"] == [*world.clocks._gated]


def waiting(*, gated: bool = False) -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": after(0)}
    return launcher(gated=gated, status={"conditions": [condition]})


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SEEN", 10)
    world = World()
    owners = [world.owner({}, name=f"vm-{number}") for number in range(20)]
    for owner in owners:
        world.clocks.since(owner, "n1")
    world.clock.now += 60

    assert [NOW + 60] == [world.clocks.since(owners[0], "n1")]
    assert [NOW] == [world.clocks.since(owners[-1], "n1")]
    assert len(world.clocks._seen) == 10


def test_who_began_to_count_is_told_once(world: World) -> None:
    owner = world.owner({})
    world.clocks.since(owner, "n1")

    assert [owner] == world.clocks.take_begun()
    world.clocks.since(owner, "n1")
    assert [] == world.clocks.take_begun()


@given(
    st.text(max_size=400) | st.builds("{} {} {}".format, st.sampled_from(["away", "gone"]), st.datetimes(), st.text())
)
def test_whatever_is_written_is_a_time_in_the_past_or_none(text: str) -> None:
    found = read_since(text, "n1", NOW)

    assert found is None or 0 <= found.time <= NOW + 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(50.0)


@pytest.fixture
def wall_clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def tries(clock: ManualClock, wall_clock: ManualClock) -> HomeAttempts:
    return HomeAttempts(clock, wall_clock)


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 3600.0])
def test_a_clock_that_is_set_makes_no_try_longer_or_shorter(
    tries: HomeAttempts, clock: ManualClock, wall_clock: ManualClock, jump: float
) -> None:
    assert tries.begin("pod", "n1")
    wall_clock.now += jump
    clock.now += LONGEST_ATTEMPT_SECONDS - 0.25

    assert (True, False) == (tries.begin("pod", "n1"), tries.is_over("pod", "n1"))
    assert NOON + jump + 0.25 == tries.ends_at("pod", "n1")
    clock.now += 0.25
    assert (False, True) == (tries.begin("pod", "n1"), tries.is_over("pod", "n1"))
    assert tries.ends_at("pod", "n1") is None


def test_of_another_home_there_is_another_try(tries: HomeAttempts) -> None:
    tries.end("pod", "n1")

    assert not tries.begin("pod", "n1")
    assert tries.begin("pod", "n2")
    assert not tries.is_over("pod", "n1")
    assert tries.ends_at("pod", "n1") is None


def test_the_oldest_are_forgotten(clock: ManualClock, wall_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ATTEMPTS", 3)
    tries = HomeAttempts(clock, wall_clock)
    for number in range(4):
        tries.end(f"pod-{number}", "n1")

    assert [False, True, True, True] == [tries.is_over(f"pod-{number}", "n1") for number in range(4)]
