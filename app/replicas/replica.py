"""Leadership of one of several replicas: which replica decides, and when this replica may send Bindings.

    take-over   1. wait until the previous leader's last Binding is answered or timed out
                2. wait until the snapshot has everything that was written before
                3. lead, and fence off the waiting pods that a late Binding can reach: those of the schedulers that
                   the Lease lists, first in namespaces in which a bind waits
    hand-over   begin no new binds, settle binds in flight, release the Lease, wait briefly for another leader

If the previous leader released the Lease, step 1 and the fences are skipped. If the previous leader was a process of
the same pod that has ended, only step 1 is skipped. Then all pods of step 3 are fenced off before any Binding.

Not here: HTTP. ``app.server.forward`` forwards verbs to the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Literal, Protocol

import structlog
from msgspec import Struct

from app.kube.quoting import shortened
from app.replicas.leader import Elector
from app.replicas.lease_record import LeadershipTerm, LeaseRecord
from app.telemetry.background import Background
from app.writes.fences import Fences

_LOG: Final = structlog.get_logger(__name__)

SUCCESSOR_SECONDS: Final = 2.0
"""Maximum seconds for which a terminating process waits for another leader, to forward requests to it."""

NO_LEADER: Final = "no replica leads"
NOT_REMEMBERED: Final = "this pod's scheduler could not be recorded in the lease in time"
_LOOK_SECONDS: Final = 0.25
"""Seconds between checks whether this replica still leads. An expired renewal deadline causes no event to wait for."""


class SnapshotFeed(Protocol):
    """Methods of the snapshot's feed that a take-over uses."""

    async def complete(self) -> None:
        """Wait until the snapshot is complete for the first time."""
        ...

    async def catch_up(self) -> None:
        """Wait until the snapshot has everything that was written to the cluster before this call."""
        ...


class Route(Struct, frozen=True):
    """Process that decides a verb: this one (``here``), or the replica ``leader`` at ``address`` (``there``).

    ``soon`` means that a new leader is expected, so that the caller waits. ``nowhere`` means that no replica leads.
    """

    where: Literal["here", "there", "soon", "nowhere"]
    address: str = ""
    leader: str = ""


_HERE: Final = Route("here")
_SOON: Final = Route("soon")
_NOWHERE: Final = Route("nowhere")


async def _at_once() -> None:
    """Default for ``known_to_others``: others can verify the certificate of this replica from the beginning."""


class Replica:
    """Implementation of ``leadership.Leadership`` for one of several replicas.

    ``post_seconds`` is the time limit of a Binding. ``clock`` is the clock of the election. ``on_change(leads)`` is
    called when this replica begins or stops to lead, and ``on_leader`` for each new holder. ``known_to_others`` waits
    until others can verify the certificate of this one. ``ended`` returns the identities of processes that have ended.
    """

    def __init__(
        self,
        elector: Elector,
        feed: SnapshotFeed,
        fences: Fences,
        *,
        post_seconds: float,
        clock: Callable[[], float],
        on_change: Callable[[bool], None] = lambda _: None,
        on_leader: Callable[[], None] = lambda: None,
        known_to_others: Callable[[], Awaitable[None]] = _at_once,
        ended: Callable[[], Awaitable[frozenset[str]]] | None = None,
    ) -> None:
        self._elector = elector
        self._election = elector.election
        self._feed = feed
        self._fences = fences
        self._post_seconds = post_seconds
        self._clock = clock
        self._on_change = on_change
        self._on_leader = on_leader
        self._ready: LeadershipTerm | None = None
        self._fenced: LeadershipTerm | None = None
        self._doing = ""
        self._led = False
        self._seen = ""
        self._retiring = self._settled = False
        self._known_to_others = known_to_others
        # The tasks can be restarted after a fault, because their state is in the election.
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {
            "candidacy": self._become_candidate,
            "election": elector.run,
            "take-over": self._follow_terms,
        }
        if ended is not None:
            self._parts["succession"] = partial(self._succeed, ended)
        self._background = Background()

    # state

    @property
    def leads(self) -> bool:
        """True if this replica is the leader, which takes all decisions. Already true during its take-over."""
        return self._election.leads

    def may_post(self, deadline_seconds: float) -> str:
        """Return why a write with this time limit (in seconds) must not be sent now; empty if it can be sent.

        Must be called immediately before the write is sent.
        """
        if self._settled:
            return "this replica has handed over"
        reason = self._election.may_post(deadline_seconds)
        if not reason and self._ready is not self._election.term:
            return f"taking over: {self._doing}"
        return reason

    def may_bind(self, namespace: str) -> str:
        """Return why pods of the namespace must not be bound now, or an empty string if binding is allowed."""
        reason = self.may_post(self._post_seconds)
        if not reason and self._fences.pending_in(namespace):
            return "taking over: waiting pods are not fenced off yet"
        return reason

    def is_remembered(self, scheduler_name: str) -> bool:
        """Return true if the Lease is known to list the scheduler, so that the next leader fences off its pods."""
        return scheduler_name in self._election.recorded

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Add the scheduler to the Lease within ``seconds``; return why that failed, or an empty string."""
        self._election.remember(scheduler_name)
        self._elector.notify()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.leads and not self.is_remembered(scheduler_name):
                    await self._elector.changed()
        return "" if self.is_remembered(scheduler_name) else self.may_write() or NOT_REMEMBERED

    def may_write(self) -> str:
        """Return why writes other than Bindings are not allowed now, or an empty string if they are allowed."""
        return self.may_post(self._post_seconds)

    async def leading(self) -> None:
        """Wait until this replica leads and may write."""
        while self.may_write():
            await self._elector.changed(_LOOK_SECONDS if self.leads else None)

    async def lost(self) -> None:
        """Wait until this replica does not lead."""
        while self.leads:
            await self._elector.changed(_LOOK_SECONDS)

    async def admitted(self, namespace: str, seconds: float) -> str:
        """Wait at most ``seconds`` until binding is allowed in the namespace; return the result of ``may_bind``.

        If this replica does not lead, it does not wait for a take-over, only for fences that are still being raised.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.leads and self._ready is not self._election.term:
                    await self._elector.changed()
                await self._fences.cleared(namespace)
        return self.may_bind(namespace)

    def route(self, *, binds: bool) -> Route:
        """Return the process that decides a verb now. ``binds`` is true for the bind verb.

        A replica that is handing over begins no binds, and returns ``soon`` for them.
        """
        if self.leads:
            return _SOON if self._retiring and binds else _HERE
        leader = self._election.leader
        if leader is not None:
            return Route("there", leader.address, leader.holder_shown)
        return _SOON if self._election.vacant else _NOWHERE

    async def changed(self, seconds: float) -> bool:
        """Wait until the leader might have changed; return false after ``seconds`` without a change."""
        return await self._elector.changed(seconds)

    def problem(self) -> str:
        """Return why verbs cannot be answered; empty if this process can answer them, or another replica leads."""
        if not self.leads:
            return "" if self._election.leader is not None else NO_LEADER
        return f"taking over: {self._doing}" if self._ready is not self._election.term else ""

    def role(self) -> str:
        """Return text for the readiness page: "leader", the leader that this replica follows, or that none leads."""
        if self.leads:
            return "leader"
        leader = self._election.leader
        return f"follower of {leader.holder_shown} at {shortened(leader.address)}" if leader is not None else NO_LEADER

    @property
    def identity(self) -> str:
        return self._election.identity

    @property
    def record(self) -> LeaseRecord | None:
        """Content of the Lease when it was last seen; ``None`` before the first read and if no Lease exists."""
        return self._election.record

    # actions

    async def start(self) -> None:
        self._election.is_candidate = False
        for name, part in self._parts.items():
            self._background.begin(name, part)

    def stalled(self) -> str:
        """Return a message about a background task that fails after every restart; empty if none does."""
        return self._background.problem()

    async def stop(self) -> None:
        await self._background.stop()

    async def _become_candidate(self) -> None:
        """Become a candidate once the snapshot is complete and other replicas can verify the certificate of this one.

        A replica that takes the Lease earlier cannot decide, and keeps the Lease from replicas that can.
        """
        await self._feed.complete()
        await self._known_to_others()
        self._election.is_candidate = True
        self._elector.notify()

    async def _succeed(self, ended: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Wait for ``ended``; the election then ignores the tenures of the processes that ``ended`` returns."""
        self._election.succeed(await ended())
        self._elector.notify()

    async def hand_over(self, settle: Callable[[], Awaitable[bool]]) -> None:
        """Let another replica lead, and wait at most ``SUCCESSOR_SECONDS`` for it.

        ``settle`` waits for binds in flight and returns true if all outcomes are known. The Lease is released only if
        ``settle`` returns true and no Binding of the previous leader can still take effect. Otherwise the next
        leader takes over like after a crash.
        """
        self._retiring = True
        self._election.retire()
        resigned = self.leads
        if resigned:
            await self._resign(settle)
        until = self._clock() + SUCCESSOR_SECONDS
        while self._election.leader is None and (left := until - self._clock()) > 0:
            await self._elector.changed(left)
            if self.leads and not resigned:  # this replica took the Lease with a write that was already in flight
                resigned = True
                await self._resign(settle)

    async def _resign(self, settle: Callable[[], Awaitable[bool]]) -> None:
        _LOG.info("handing over", identity=self.identity)
        self._settled = await settle()
        if self._settled and self._nothing_in_flight() and await self._elector.release():
            _LOG.info("lease released", identity=self.identity)

    def _nothing_in_flight(self) -> bool:
        """Return true if no Binding of the previous leader can take effect any more.

        True once all pods that such a Binding can reach are fenced off. If there are no such pods, true once the
        previous leader's last Binding has timed out.
        """
        term = self._election.term
        return term is not None and (self._fenced is term or (not term.fence and term.safe_at <= self._clock()))

    async def _follow_terms(self) -> None:
        """Start a take-over for each new term, and cancel the take-over of the previous term. Runs until cancelled."""
        term: LeadershipTerm | None = None
        taking_over: asyncio.Task[None] | None = None
        try:
            while True:
                self._note_leader()
                if self._election.term is not term:
                    await _cancelled(taking_over)
                    term = self._election.term
                    self._ready = self._fenced = None
                    taking_over = asyncio.create_task(self._take_over(term)) if term is not None else None
                if taking_over is not None and taking_over.done() and not taking_over.cancelled():
                    taking_over.result()
                self._note_change()
                await self._elector.changed(self._poll_seconds())
        finally:
            await _cancelled(taking_over)

    def _poll_seconds(self) -> float | None:
        """Return the seconds until the next check whether this replica still leads; ``None`` if it has no term."""
        return _LOOK_SECONDS if self._led or self._election.term is not None else None

    def _note_change(self) -> None:
        leads = self.leads
        if leads != self._led:
            self._led = leads
            self._on_change(leads)
            _LOG.info("leading" if leads else "no longer leading", identity=self.identity)

    def _note_leader(self) -> None:
        record = self._election.record
        if record is not None and record.holder and record.holder != self._seen:
            self._seen = record.holder
            self._on_leader()
            _LOG.info("new leader", leader=record.holder_shown, address=record.address, transitions=record.transitions)

    async def _take_over(self, term: LeadershipTerm) -> None:
        """Take over in the steps that the docstring of this module lists."""
        self._doing = "waiting until the last bindings of the former leader are answered or timed out"
        while (left := term.safe_at - self._clock()) > 0:  # noqa: ASYNC110  # this clock can differ from the loop's clock
            await asyncio.sleep(left)
        self._doing = "the snapshot of the cluster is not complete"
        await self._feed.complete()
        self._doing = "the snapshot of the cluster is not known to be current"
        await self._feed.catch_up()
        waiting = self._fences.note(term.fence, together=term.together) if term.fence else 0
        self._ready = term
        self._elector.notify()
        _LOG.info("taken over", identity=self.identity, predecessor=term.predecessor, to_fence_off=waiting)
        if waiting:
            await self._fences.raise_all()
            _LOG.info("waiting pods fenced off", identity=self.identity, pods=waiting)
        self._fenced = term


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
