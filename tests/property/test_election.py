"""Two replicas never bind at once, whatever is delayed, lost, repeated, stopped, deleted or edited by hand on the way.

And who takes over knows whose pods its predecessors let bind.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from app.replicas.lease import Election, post_seconds
from app.replicas.lease_record import LeaseRecord
from tests.fakes import ManualClock
from tests.strategies import examples

LEASE = 15.0
POST = post_seconds(LEASE)
END = 240.0
SCHEDULERS = ["s0", "s1", "s2"]


class Sim:
    """Participants that act when they are awake, and a Lease that what they send reaches late, or never."""

    def __init__(self, choose: Callable[[Sequence[Any]], Any], participants: int) -> None:
        self.choose = choose
        self.clock = ManualClock()
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.to_come: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.posts: list[tuple[str, float]] = []
        self.let_bind: dict[str, set[str]] = {}
        self.elections: dict[str, Election] = {}
        self.ended: dict[str, frozenset[str]] = {name: frozenset() for name in "abc"[:participants]}
        for name in self.ended:
            self.start(name)
        # Not both: a new process cannot know that a Lease was deleted.
        disturb = self.choose([None, self.meddle, self.crash])
        if disturb is not None:
            self.after(self.pause(), disturb)

    def start(self, name: str) -> None:
        """Start a process of a pod that knows that its predecessors have ended. What they sent can still arrive."""
        identity = f"{name}{len(self.ended[name])}"
        election = Election(
            identity, f"{name}:1", lease_duration=LEASE, renew_deadline=10.0, retry_period=2.0, clock=self.clock
        )
        election.succeed(self.ended[name])
        self.elections[name] = election
        self.after(0.0, partial(self.act, election))

    def crash(self) -> None:
        name = self.choose(sorted(self.elections))
        self.ended[name] |= {self.elections[name].identity}
        self.start(name)
        self.after(self.pause(), self.crash)

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.to_come, (self.clock.now + seconds, next(self.order), do))

    def delay(self) -> float:
        """Mostly short; sometimes as long as everything else here."""
        return float(self.choose([0.01, 0.01, 0.3, 2.0, 6.0, 11.0, 16.0, 40.0]))

    def run(self) -> None:
        while self.to_come and self.clock.now < END:
            self.clock.now, _, do = heapq.heappop(self.to_come)
            do()
            self.check()

    def act(self, election: Election) -> None:
        """One round of a participant; the next one comes when it is due, or after a pause."""
        if election not in self.elections.values():
            return
        if self.choose([True, False]):
            election.remember(self.choose(SCHEDULERS))
        step = election.next_step()
        if step.do == "read":
            self.read(election)
        elif step.do == "write":
            self.write(election.writing(), election)
        else:
            self.after(min(step.seconds, self.pause()), lambda: self.act(election))

    def pause(self) -> float:
        return float(self.choose([2.0, 0.5, 9.0, 30.0]))

    def meddle(self) -> None:
        """Delete the Lease, put back an empty one, or edit its duration, if every participant has seen one."""
        if self.lease is not None and all(it.record is not None for it in self.elections.values()):
            how = self.choose(["delete", "put back", None, 0, -7, 1, 2**31 - 1])
            lease = self.lease
            if how in ("delete", "put back"):
                self.store(None)
            if how == "put back":
                self.store({"metadata": {"name": "homeport"}})
            if how not in ("delete", "put back"):
                self.store({**lease, "spec": {**lease.get("spec", {}), "leaseDurationSeconds": how}})
        self.after(self.pause(), self.meddle)

    def store(self, lease: dict[str, Any] | None) -> LeaseRecord | None:
        """Replace the Lease. Every participant hears of it after a while, each by itself."""
        self.version += 1
        if lease is not None:
            uid = self.lease["metadata"]["uid"] if self.lease is not None else f"uid-{self.version}"
            lease = {**lease, "metadata": {**lease["metadata"], "uid": uid, "resourceVersion": str(self.version)}}
        self.lease = lease
        stored = self.seen()
        for other in self.elections.values():
            self.after(self.delay(), partial(other.observe, stored, lagging=True))
        return stored

    def read(self, election: Election) -> None:
        def answer() -> None:
            found = self.seen()
            self.after(self.delay(), lambda: self.go_on(election, lambda: election.observe(found)))

        self.after(self.delay(), answer)

    def go_on(self, election: Election, tell: Callable[[], None]) -> None:
        tell()
        self.act(election)

    def seen(self) -> LeaseRecord | None:
        return None if self.lease is None else LeaseRecord.of(msgspec.json.encode(self.lease))

    def write(self, body: dict[str, Any], election: Election) -> None:
        """It arrives after a while; its sender may have given it up by then, or never hear of it."""
        heard = self.choose([True, False])
        given_up = [False]

        def arrive() -> None:
            known = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
            if body["metadata"].get("resourceVersion") != known:
                if heard and not given_up[0]:
                    finish(election.conflicted)
                return
            written = self.store(body)
            assert written is not None
            if heard:
                self.after(self.delay(), lambda: None if given_up[0] else finish(lambda: election.written(written)))

        def finish(tell: Callable[[], None]) -> None:
            given_up[0] = True
            self.go_on(election, tell)

        def give_up() -> None:
            if not given_up[0]:
                finish(election.failed)

        self.after(self.delay(), arrive)
        self.after(self.choose([5.0, 20.0]), give_up)

    def check(self) -> None:
        able = [election for election in self.elections.values() if not election.may_post(POST)]
        assert len(able) <= 1, (self.clock.now, able)
        for election in able:
            name, term = election.identity, election.term
            self.posts.append((name, self.clock.now))
            assert term is not None
            if self.clock.now >= term.safe_at and not term.together:
                late = [it for it in self.posts if it[0] != name and it[1] + POST > self.clock.now]
                assert [] == late, "a binding of the former leader may still be under way"
            for other, schedulers in self.let_bind.items():
                unknown = [it for it in schedulers if it not in term.fence]
                assert other == name or not unknown, f"{name} does not know whose pods {other} let bind"
            self.let_bind.setdefault(name, set()).update(it for it in SCHEDULERS if it in election.recorded)


@settings(max_examples=examples(400))
@given(st.integers(0, 2**32), st.integers(2, 3))
def test_two_replicas_never_may_bind_at_once(seed: int, participants: int) -> None:
    sim = Sim(Random(seed).choice, participants)
    sim.run()

    assert END <= sim.clock.now, "it did not go on to the end"


def test_somebody_leads_when_all_is_well() -> None:
    """The simulation is one in which leaders can be had: with short delays there is nearly always one."""
    sim = Sim(lambda choices: choices[0], 3)
    sim.run()

    assert len({int(at) for _, at in sim.posts}) > END / 4
    assert {name: {SCHEDULERS[0]} for name in sim.let_bind} == sim.let_bind
    assert 1 == len({name for name, _ in sim.posts})
