"""The rules of the election, one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.config.sections import LONGEST_LEASE
from app.replicas.lease import Election, Step, post_seconds
from app.replicas.lease_record import ADDRESS, SCHEDULERS, LeaseRecord
from app.writes.callers import ALL_CALLERS, NO_CALLERS, Callers
from tests.fakes import ManualClock


def record(
    holder: str, version: int, *, seconds: int | None = 15, callers: str | None = "", uid: str = "u", **spec: Any
) -> LeaseRecord:
    annotations = {} if callers is None else {SCHEDULERS: callers}
    found = {
        "metadata": {"name": "homeport", "uid": uid, "resourceVersion": str(version), "annotations": annotations},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, **spec},
    }
    return LeaseRecord.of(msgspec.json.encode(found))


def callers(*names: str) -> Callers:
    return Callers(frozenset(names))


class World:
    """One participant and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.election = Election(
            "me", "me:1", lease_duration=15.0, renew_deadline=10.0, retry_period=2.0, clock=self.clock
        )

    def leading(self) -> World:
        """It took a Lease that nobody had."""
        self.election.observe(None)
        self.write(2)
        return self

    def write(self, version: int, *, answered_after: float = 0.0) -> dict[str, Any]:
        sent = self.election.writing()
        self.clock.now += answered_after
        self.election.written(record("me", version, callers=said(sent)))
        return sent


def said(written: dict[str, Any]) -> str:
    """What a write says of who was let bind."""
    found: str = written["metadata"]["annotations"][SCHEDULERS]
    return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_binding_may_take_a_third_of_the_lease_and_ten_seconds_at_most() -> None:
    assert [5.0, 10.0, 10.0] == [post_seconds(15.0), post_seconds(30.0), post_seconds(LONGEST_LEASE)]


def test_a_tenure_counts_from_before_the_renewal_was_sent(world: World) -> None:
    world.leading()
    world.clock.now += 2.0
    world.write(3, answered_after=6.0)

    world.clock.now += 3.9
    assert (True, "") == (world.election.leads, world.election.may_post(5.0))
    world.clock.now += 0.1
    assert (False, "this replica does not lead") == (world.election.leads, world.election.may_post(5.0))


def test_a_write_that_could_outlast_the_lease_must_not_be_sent(world: World) -> None:
    world.leading()
    world.clock.now += 4.0

    assert "" == world.election.may_post(10.9)
    assert "the lease of this replica may end before the binding is answered" == world.election.may_post(11.0)


def test_another_s_tenure_counts_from_when_it_was_seen_to_change(world: World) -> None:
    world.election.observe(record("other", 5))
    world.clock.now += 10.0
    world.election.observe(record("other", 5))
    world.clock.now += 4.9
    before = world.election.leader
    world.clock.now += 0.1

    assert (record("other", 5), None) == (before, world.election.leader)
    assert Step("write") == world.election.next_step()


def test_it_waits_the_duration_that_the_holder_promised(world: World) -> None:
    world.election.observe(record("other", 5, seconds=60))
    world.clock.now += 59.0
    world.election.observe(record("other", 5, seconds=60))

    assert Step("wait", 1.0) == world.election.next_step()


@pytest.mark.parametrize(
    ("seconds", "counted"), [(2**31 - 1, LONGEST_LEASE), (301, LONGEST_LEASE), *((it, 15.0) for it in (1, 0, -5, None))]
)
def test_the_duration_of_another_counts_between_ours_and_the_bound(
    world: World, seconds: int | None, counted: float
) -> None:
    world.election.observe(record("other", 5, seconds=seconds))
    world.clock.now += counted - 0.1
    early = (world.election.leader is not None, world.election.next_step().do)
    world.clock.now += 0.1
    world.write(6)

    assert (True, False) == (early[0], early[1] == "write")
    assert world.election.term is not None
    assert world.clock.now + post_seconds(counted) == world.election.term.safe_at


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([None], id="deleted"),
        pytest.param([None, record("", 7, uid="u2")], id="deleted, and an empty one put back"),
        pytest.param([record("", 7, uid="u2")], id="replaced by an empty one"),
        pytest.param([record("third", 7, uid="u2"), record("", 8, uid="u2")], id="replaced, held and released"),
    ],
)
def test_a_deletion_does_not_shorten_the_wait_and_then_everybody_is_fenced_off(
    world: World, seen: list[LeaseRecord | None]
) -> None:
    """The holder need not be the one that was seen last: a whole duration is waited for."""
    world.election.observe(record("other", 5, callers="s0"))
    world.clock.now += 14.0
    for found in seen:
        world.election.observe(found)
    assert not world.election.released
    world.clock.now += 14.9
    early = world.election.next_step().do
    world.clock.now += 0.1
    assert ("write", True) == (world.election.next_step().do, early != "write")
    sent = world.election.writing()
    world.election.written(record("me", 9, callers=said(sent), uid="u2"))

    assert world.election.term is not None
    assert (ALL_CALLERS, "*") == (world.election.term.fence, said(sent))
    assert world.clock.now + 5.0 == world.election.term.safe_at


def test_who_leads_makes_a_deleted_lease_again_at_once_and_a_lapsed_leader_waits(world: World) -> None:
    world.leading()
    world.election.observe(None)
    at_once = world.election.next_step()
    world.write(5)
    leads = world.election.leads
    world.clock.now += 10.0  # another may have taken it, and be the one that had it when it was deleted
    world.election.observe(None)

    assert (Step("write"), True) == (at_once, leads)
    assert "write" != world.election.next_step().do
    world.clock.now += 15.0
    assert Step("write") == world.election.next_step()


def test_everybody_is_fenced_off_once_after_a_deletion(world: World) -> None:
    world.leading()
    world.election.observe(None)
    world.write(5)
    world.election.observe(record("", 6))
    world.write(7)

    assert world.election.term is not None
    assert NO_CALLERS == world.election.term.fence


@pytest.mark.parametrize("led_before", [False, True])
def test_a_lease_that_somebody_else_gave_to_us_is_waited_for_and_taken(world: World, led_before: bool) -> None:
    """By hand, or from a backup: whoever held it before may not know yet."""
    if led_before:
        world.leading()
    world.election.observe(record("other", 5, callers="s0"))
    world.election.observe(record("me", 6, callers="s0"))
    world.clock.now += 14.9
    early = world.election.next_step().do
    world.clock.now += 0.1
    assert ("write", True) == (world.election.next_step().do, early != "write")
    world.write(7)

    assert world.election.leads
    assert world.election.term is not None
    assert (callers("s0"), "me") == (world.election.term.fence, world.election.term.predecessor)


def test_what_the_api_server_would_refuse_is_not_written_back(world: World) -> None:
    """Its types are int32 and MicroTime; a renewal that is refused for ever would be the end of scheduling."""
    world.election.observe(record("other", 5, leaseTransitions=2**31 - 1))
    world.clock.now += 15.0
    taken = world.write(6)["spec"]
    world.election.observe(record("me", 7, acquireTime=None))
    renewed = world.election.writing()["spec"]

    assert 0 == taken["leaseTransitions"]
    assert "" != renewed["acquireTime"] == renewed["renewTime"]


def test_what_a_late_watch_shows_is_not_believed(world: World) -> None:
    world.leading()
    world.election.observe(record("other", 1), lagging=True)

    assert world.election.leads


def test_an_answer_that_comes_when_another_has_taken_over_changes_nothing(world: World) -> None:
    world.leading()
    world.election.writing()
    world.clock.now += 60.0
    world.election.observe(record("other", 9))
    world.election.written(record("me", 3))

    assert (False, None) == (world.election.leads, world.election.term)


def test_a_renewal_keeps_what_others_wrote_and_who_took_it_when(world: World) -> None:
    world.leading()
    first = world.election.writing()
    metadata = {"uid": "u", "resourceVersion": "3", "labels": {"a": "b"}}
    world.election.written(LeaseRecord.of(msgspec.json.encode({**first, "metadata": metadata})))
    second = world.election.writing()

    assert {"a": "b"} == second["metadata"]["labels"]
    assert "3" == second["metadata"]["resourceVersion"]
    assert (first["spec"]["acquireTime"], 0) == (second["spec"]["acquireTime"], second["spec"]["leaseTransitions"])


def test_taking_over_counts_as_a_transition(world: World) -> None:
    world.election.observe(record("other", 5))
    world.clock.now += 15.0

    assert 1 == world.election.writing()["spec"]["leaseTransitions"]


def test_who_resigned_never_leads_again(world: World) -> None:
    world.leading()
    given_up = world.election.resignation()
    assert ("", False) == (given_up["spec"]["holderIdentity"], world.election.leads)
    world.election.failed()
    world.election.observe(record("me", 2))  # it did not arrive
    for _ in range(60):
        world.clock.now += 1.0
        assert "write" != world.election.next_step().do


def test_who_retires_renews_and_does_not_take(world: World) -> None:
    world.leading()
    world.election.retire()
    world.clock.now += 2.0
    assert Step("write") == world.election.next_step()

    world.election.observe(record("", 9))
    for _ in range(60):
        world.clock.now += 1.0
        assert "write" != world.election.next_step().do


def test_a_name_is_written_at_once_and_counts_once_that_was_seen(world: World) -> None:
    world.leading()
    world.clock.now += 0.1
    assert "wait" == world.election.next_step().do

    world.election.remember("s0")
    assert (Step("write"), False) == (world.election.next_step(), "s0" in world.election.recorded)
    sent = world.election.writing()
    assert ("s0", False) == (said(sent), "s0" in world.election.recorded)
    world.election.written(record("me", 3, callers="s0"))

    assert (callers("s0"), "wait") == (world.election.recorded, world.election.next_step().do)


def test_a_name_that_comes_while_another_is_written_is_written_next(world: World) -> None:
    world.leading()
    world.election.remember("s0")
    world.election.writing()
    world.election.remember("s1")
    world.election.written(record("me", 3, callers="s0"))

    assert (callers("s0"), Step("write")) == (world.election.recorded, world.election.next_step())
    assert "s0,s1" == said(world.election.writing())


@pytest.mark.parametrize("how", ["conflicted", "failed"])
def test_a_name_whose_write_failed_is_written_again_as_soon_as_the_lease_was_read(world: World, how: str) -> None:
    world.leading()
    world.election.remember("s0")
    world.election.writing()
    getattr(world.election, how)()
    world.clock.now += 2.0
    assert Step("read") == world.election.next_step()
    world.election.observe(record("me", 3))

    assert (NO_CALLERS, Step("write")) == (world.election.recorded, world.election.next_step())


def test_one_who_strips_the_annotation_is_not_answered_write_by_write(world: World) -> None:
    world.leading()
    world.election.remember("s0")
    world.election.writing()
    world.election.written(record("me", 3, callers=None))

    assert (NO_CALLERS, "wait") == (world.election.recorded, world.election.next_step().do)


def test_names_that_a_person_adds_stay(world: World) -> None:
    world.leading()
    world.election.observe(record("me", 3, callers="by-hand"))

    assert (callers("by-hand"), "by-hand") == (world.election.recorded, said(world.election.writing()))


@pytest.mark.parametrize(
    ("seen", "fence", "carried_on"),
    [
        pytest.param([None], NO_CALLERS, "", id="there never was one"),
        pytest.param([record("other", 5, callers="s0"), None], ALL_CALLERS, "*", id="it is gone"),
        pytest.param([record("other", 5, callers="s0,s1")], callers("s0", "s1"), "s0,s1", id="its holder is gone"),
        pytest.param([record("other", 5)], NO_CALLERS, "", id="its holder let nobody bind"),
        pytest.param([record("other", 5, callers="*")], ALL_CALLERS, "*", id="anybody may have been let bind"),
        pytest.param([record("other", 5, callers=None)], ALL_CALLERS, "*", id="the names are lost"),
        pytest.param([record("other", 5, callers="s0, s1")], ALL_CALLERS, "*", id="the names cannot be read"),
        pytest.param([record("", 5, callers="s0")], NO_CALLERS, "s0", id="released: names need not be written again"),
        pytest.param(
            [record("", 5, callers="*")], NO_CALLERS, "", id="released: who anybody was does not matter any more"
        ),
        pytest.param([record("", 5, callers=None)], NO_CALLERS, "", id="released by one that wrote no names"),
    ],
)
def test_whose_pods_a_take_over_fences_off_and_whom_it_remembers(
    world: World, seen: list[LeaseRecord | None], fence: Callers, carried_on: str
) -> None:
    for found in seen:
        world.election.observe(found)
    world.clock.now += 20.0
    sent = world.write(9)

    assert world.election.term is not None
    assert (fence, carried_on) == (world.election.term.fence, said(sent))


def test_a_holder_that_is_known_to_have_ended_is_not_waited_for(world: World) -> None:
    """What it sent last has not had its time, so that nothing is bound before everything is fenced off."""
    world.election.observe(record("ended", 5, callers="s0"))
    world.clock.now += 1.0
    waits = world.election.next_step().do
    world.election.succeed(frozenset({"ended", "older"}))
    assert (True, Step("write")) == (waits != "write", world.election.next_step())
    assert (None, True, False) == (world.election.leader, world.election.vacant, world.election.released)
    sent = world.write(6)

    term = world.election.term
    assert term is not None
    assert (101.0, callers("s0"), "ended", True, "s0") == (
        term.safe_at,
        term.fence,
        term.predecessor,
        term.together,
        said(sent),
    )


@pytest.mark.parametrize("holder", ["another", "me"])
def test_another_holder_is_waited_for_whoever_has_ended(world: World, holder: str) -> None:
    world.election.succeed(frozenset({"ended"}))
    world.election.observe(record(holder, 5))
    world.clock.now += 14.9
    early = world.election.next_step().do
    world.clock.now += 0.1
    world.write(6)

    assert "write" != early
    assert world.election.term is not None
    assert not world.election.term.together


def test_a_holder_that_has_ended_does_not_shorten_the_wait_for_a_deleted_lease(world: World) -> None:
    world.election.succeed(frozenset({"ended"}))
    world.election.observe(record("another", 5))
    world.election.observe(record("ended", 6, uid="u2"))
    world.clock.now += 14.9

    assert "write" != world.election.next_step().do


def test_who_does_not_hold_it_remembers_nobody(world: World) -> None:
    world.election.observe(record("other", 5, callers="s0"))
    world.election.remember("s1")

    assert (NO_CALLERS, ALL_CALLERS) == (
        world.election.recorded,
        record("other", 5, callers=None).callers or ALL_CALLERS,
    )
    world.clock.now += 15.0
    assert "s0" == said(world.election.writing())


class TestRecord:
    def test_what_people_are_shown_of_it_is_bounded_and_cannot_control_a_terminal(self) -> None:
        spec = {"acquireTime": "1" * 50_000, "holderIdentity": "\x1b[31m" + "x" * 50_000}
        found = {"metadata": {"annotations": {ADDRESS: "a" * 50_000}}, "spec": spec}
        lease = LeaseRecord.of(msgspec.json.encode(found))

        assert ("", "", True, True) == (
            lease.address,
            lease.since,
            lease.holder_shown.isprintable(),
            len(lease.holder_shown) < 200,
        )

    @pytest.mark.parametrize("levels", [1_200, 9_000])
    def test_however_deep(self, levels: int) -> None:
        """Anybody who may write it may say who manages its fields; that is not written back."""
        raw = b'{"metadata":{"resourceVersion":"1","managedFields":%s},"spec":{"holderIdentity":"me"}}'
        found = LeaseRecord.of(raw % (b"[" * levels + b"]" * levels))

        assert ("me", "1") == (found.holder, found.version)

    @pytest.mark.parametrize(
        "spec", [{"leaseDurationSeconds": "long"}, {"leaseTransitions": []}, {"holderIdentity": 5}, 5, []], ids=repr
    )
    def test_what_is_no_lease(self, spec: Any) -> None:
        with pytest.raises(msgspec.DecodeError):
            LeaseRecord.of(msgspec.json.encode({"metadata": {}, "spec": spec}))
