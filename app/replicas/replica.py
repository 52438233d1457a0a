"""One of several processes that serve the same pods: which of them decides, and when its Bindings may leave.

    take-over   wait until the predecessor's last Binding has had its time  (skipped if it released the Lease)
                make sure that the picture has all that was written before
                lead; fence off the pods that waited and that a late Binding may reach: those of the schedulers that
                the Lease names; the namespaces that are asked for come first  (skipped too)
                not waited for: a predecessor in the same pod that has ended; then all fences come before any Binding
    hand-over   no new binds, settle those under way, release the Lease, stay until somebody else leads

Not here: HTTP. ``app.server.forward`` sends on what this replica does not decide.
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
from app.replicas.lease import LeaseRecord, Term
from app.telemetry.background import Background
from app.writes.fences import Fences

_LOG: Final = structlog.get_logger(__name__)

SUCCESSOR_SECONDS: Final = 2.0
"""How long a process that is told to end waits for another one to lead, and sends on to it what still comes in."""

NO_LEADER: Final = "no replica leads"
NOT_REMEMBERED: Final = "the lease could not be made to name this pod's scheduler in time"
_LOOK_SECONDS: Final = 0.25
"""Between looks for what nobody tells: that renewals have stayed away for too long."""


class CatchesUp(Protocol):
    """The picture, as far as a take-over needs it."""

    async def complete(self) -> None:
        """Wait until the picture is complete for the first time."""
        ...

    async def catch_up(self) -> None:
        """Return once all that was written before this call is in the picture."""
        ...

    def problem(self) -> str: ...


class Route(Struct, frozen=True):
    """Where a verb is decided. ``soon``: nowhere yet, but a change is to be expected."""

    where: Literal["here", "there", "soon", "nowhere"]
    address: str = ""
    leader: str = ""


_HERE: Final = Route("here")
_SOON: Final = Route("soon")
_NOWHERE: Final = Route("nowhere")


async def _at_once() -> None:
    """Nothing has to come first."""


class Replica:
    """Implements ``leadership.Leadership``. ``post_seconds``: how long a Binding may take. ``clock`` is the election's.

    ``on_change(leads)`` is called when this replica begins or ceases to lead, ``on_leader`` for each new holder seen.
    ``known_to_others`` returns once other replicas can speak to this one, ``ended`` the identities of processes that
    are known to have ended.
    """

    def __init__(
        self,
        elector: Elector,
        feed: CatchesUp,
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
        self._ready: Term | None = None
        self._fenced: Term | None = None
        self._doing = ""
        self._led = False
        self._seen = ""
        self._retiring = self._settled = False
        self._known_to_others = known_to_others
        # Begun again after a fault, each finds all it needs in the election; too late, somebody else takes over.
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {
            "candidacy": self._stand,
            "election": elector.run,
            "take-over": self._follow_terms,
        }
        if ended is not None:
            self._parts["succession"] = partial(self._succeed, ended)
        self._background = Background()

    # what is asked of it

    @property
    def leads(self) -> bool:
        """Whether decisions are taken here."""
        return self._election.leads

    def may_post(self, deadline_seconds: float) -> str:
        """Why a write must not be sent that may take so many seconds; empty if it may. To be asked when it is sent."""
        if self._settled:
            return "this replica has handed over"
        found = self._election.may_post(deadline_seconds)
        if not found and self._ready is not self._election.term:
            return f"taking over: {self._doing}"
        return found

    def may_bind(self, namespace: str) -> str:
        """The same for the Binding of a pod of a namespace."""
        found = self.may_post(self._post_seconds)
        if not found and self._fences.pending_in(namespace):
            return "taking over: the pods that waited are not fenced off yet"
        return found

    def is_remembered(self, scheduler_name: str) -> bool:
        """Whether the Lease is known to name a scheduler, so that who takes over from here fences off its pods."""
        return scheduler_name in self._election.recorded

    async def remember(self, scheduler_name: str, seconds: float) -> str:
        """Have the Lease name it, and wait at most so many seconds until it does; returns why it does not."""
        self._election.remember(scheduler_name)
        self._elector.tell()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.leads and not self.is_remembered(scheduler_name):
                    await self._elector.changed()
        return "" if self.is_remembered(scheduler_name) else self.may_write() or NOT_REMEMBERED

    def may_write(self) -> str:
        """The same for any other write."""
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
        """Wait at most so many seconds until a bind in a namespace makes sense; returns why it does not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.leads and self._ready is not self._election.term:
                    await self._elector.changed()
                await self._fences.cleared(namespace)
        return self.may_bind(namespace)

    def route(self, *, binds: bool) -> Route:
        """Where to decide now. Who is about to hand over begins no bind."""
        if self.leads:
            return _SOON if self._retiring and binds else _HERE
        leader = self._election.leader
        if leader is not None:
            return Route("there", leader.address, leader.holder_shown)
        return _SOON if self._election.vacant else _NOWHERE

    async def changed(self, seconds: float) -> bool:
        """Wait until who leads may have changed; ``False``: not in so many seconds."""
        return await self._elector.changed(seconds)

    def problem(self) -> str:
        """Why no verb can be answered, here or elsewhere; empty if all is well."""
        if not self.leads:
            return "" if self._election.leader is not None else NO_LEADER
        return f"taking over: {self._doing}" if self._ready is not self._election.term else ""

    def role(self) -> str:
        """For a person, where ``problem`` is empty."""
        if self.leads:
            return "leader"
        leader = self._election.leader
        return f"follower of {leader.holder_shown} at {shortened(leader.address)}" if leader is not None else NO_LEADER

    @property
    def identity(self) -> str:
        return self._election.identity

    @property
    def record(self) -> LeaseRecord | None:
        """The Lease as last seen."""
        return self._election.record

    # what it does

    async def start(self) -> None:
        self._election.stands = False
        for name, part in self._parts.items():
            self._background.begin(name, part)

    def stalled(self) -> str:
        """Return which of its tasks cannot be restarted; empty if all run."""
        return self._background.problem()

    async def stop(self) -> None:
        await self._background.stop()

    async def _stand(self) -> None:
        """Who takes the Lease without a picture, or a name among replicas, would keep it from those that have them."""
        await self._feed.complete()
        await self._known_to_others()
        self._election.stands = True
        self._elector.tell()

    async def _succeed(self, ended: Callable[[], Awaitable[frozenset[str]]]) -> None:
        """Do not wait for the Lease of a process that is known to have ended."""
        self._election.succeed(await ended())
        self._elector.tell()

    async def hand_over(self, settle: Callable[[], Awaitable[bool]]) -> None:
        """Let another replica lead. ``settle`` ends what is under way and tells whether all of it has ended.

        What has not ended, or a take-over of our own that has not, leaves the Lease to expire: the next leader then
        waits and fences, as after a crash.
        """
        self._retiring = True
        self._election.retire()
        resigned = self.leads
        if resigned:
            await self._resign(settle)
        until = self._clock() + SUCCESSOR_SECONDS
        while self._election.leader is None and (left := until - self._clock()) > 0:
            await self._elector.changed(left)
            if self.leads and not resigned:  # it was taken while we were told to end
                resigned = True
                await self._resign(settle)

    async def _resign(self, settle: Callable[[], Awaitable[bool]]) -> None:
        _LOG.info("handing over", identity=self.identity)
        self._settled = await settle()
        if self._settled and self._owes_nothing() and await self._elector.release():
            _LOG.info("lease released", identity=self.identity)

    def _owes_nothing(self) -> bool:
        """Whether nothing of a predecessor can be on its way: all is fenced off, or nothing had to be."""
        term = self._election.term
        return term is not None and (self._fenced is term or (not term.fence and term.safe_at <= self._clock()))

    async def _follow_terms(self) -> None:
        """One take-over at a time, given up when its term ends."""
        term: Term | None = None
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
                await self._elector.changed(self._patience())
        finally:
            await _cancelled(taking_over)

    def _patience(self) -> float | None:
        """To notice in time that renewals stay away."""
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

    async def _take_over(self, term: Term) -> None:
        self._doing = "waiting until the last bindings of the former leader have had their time"
        while (left := term.safe_at - self._clock()) > 0:  # noqa: ASYNC110  # its clock may run ahead of the loop's
            await asyncio.sleep(left)
        self._doing = "the picture of the cluster is not complete"
        await self._feed.complete()
        self._doing = "the picture of the cluster is not known to be current"
        await self._feed.catch_up()
        waiting = self._fences.note(term.fence, together=term.together) if term.fence else 0
        self._ready = term
        self._elector.tell()
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
