"""Rules of leader election: the Lease as it was seen, and the next step. No I/O.

Tenures are measured with this process' own clock. Another holder's tenure ends one lease duration after a *change* of
the record was seen here; our own ends one duration after the last successful renewal was *sent*. So a holder stops
leading before any other replica takes over, whatever the delays and the wall clocks.

The duration in another holder's Lease is bounded: at least ours, at most ``LONGEST_LEASE``, which the configuration
enforces too. Deleting the Lease does not shorten the wait, because its holder might not have noticed. A replica that
saw that Lease waits a whole duration from the deletion, unless it leads itself.

A holder that is known to have ended (``succeed``) is not waited for. Its last requests can still arrive; therefore
such a term raises all fences before any Binding (``Term.together``).

    following ──(free: none, released, or not changed for its duration)──▶ write ──(taken)──▶ leading
        ▲                                                                                       │
        └── another holds it, it is gone, or no renewal was answered for ``renew_deadline`` ◀───┘

The Lease also records the schedulers whose pods were bound (``callers``). A scheduler's name is written before its
first Binding is sent, so that the next leader knows which waiting pods a late Binding may reach. While one process
holds the Lease, each of its writes has all names of the version it replaces, so that a recorded name stays. A Lease
released by a holder that had settled all binds keeps the names, but needs no fence: no Binding can arrive late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil, inf
from time import clock_gettime
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from app.config.sections import LONGEST_LEASE
from app.kube.meta_v1 import micro_time, precedes
from app.replicas.lease_record import ADDRESS, LEASES, SCHEDULERS, LeadershipTerm, LeaseRecord
from app.writes.callers import EVERYBODY, NOBODY, Callers

LONGEST_POST: Final = 10.0
"""Maximum time limit of a Binding in seconds."""

_POST_PART: Final = 3
"""Divisor of the lease duration: a Binding may take this part of the duration, if that is less than the maximum."""

_TRANSITIONS: Final = 2**31
"""Number of values of ``leaseTransitions``, an int32 that must not be negative."""

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_POLL: Final = 1.5
"""Retry periods without a change after which the Lease is read: a holder renews once per period, and the watch reports
it.
"""


def never_stopping() -> float:
    """Return seconds on a monotonic clock that also advances during suspend, where the system has one."""
    return clock_gettime(_CLOCK)


def post_seconds(lease_duration: float) -> float:
    """Return the time limit of a Binding for a Lease of that duration; equal on all replicas."""
    return min(LONGEST_POST, lease_duration / _POST_PART)


class _Tenure(NamedTuple):
    """Time until which another process may believe that it leads, and time by which its last Binding has timed out."""

    until: float = -inf
    safe_at: float = -inf


_NO_TENURE: Final = _Tenure()


class Step(Struct, frozen=True):
    """Next step. ``wait``: nothing for ``seconds``, or until a change is reported."""

    do: Literal["read", "write", "wait"]
    seconds: float = 0.0


class Election:
    """The Lease and the election, as one replica knows them.

    Times are seconds on ``clock``, which must never stop or go back.

    ``record``: the Lease as last seen, ``None`` before the first read or without a Lease · ``term``: the term of this
    replica, kept through a lapse in which no other replica took the Lease.
    """

    def __init__(
        self,
        identity: str,
        address: str,
        *,
        lease_duration: float,
        renew_deadline: float,
        retry_period: float,
        clock: Callable[[], float],
    ) -> None:
        self.identity = identity
        self.address = address
        self.record: LeaseRecord | None = None
        self.term: LeadershipTerm | None = None
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        self._known = False  # The record is current, as far as we know.
        # A Lease that we saw was deleted, and no term of ours has fenced off all schedulers since.
        self._deleted = False
        self._heard_at = -inf
        self._retry_at = -inf
        self._sent_at = -inf  # Time of the last write, answered or not.
        self._renewed_at = -inf  # Send time of the last successful write.
        self._tenure = _NO_TENURE  # Tenure of the holder in the record, unless that is this process.
        self._deleted_tenure = _NO_TENURE  # Tenure of the holder of a deleted Lease.
        self._ended: frozenset[str] = frozenset()
        self._terms = 0
        self._next_term: LeadershipTerm | None = None
        self._callers = NOBODY  # For the next write; they include those of the record while the Lease is ours.
        self._sent_callers: Callers | None = None  # In the last write, unless it failed.
        self._retired = self._resigned = False
        self.is_candidate = True
        """True if this replica takes a free Lease; false until it is able to decide."""

    # state

    @property
    def leads(self) -> bool:
        """True if this replica holds the Lease and its last renewal is recent enough."""
        return self.term is not None and self._clock() < self._renewed_at + self._renew_deadline

    def may_post(self, seconds: float) -> str:
        """Return why a write that may take ``seconds`` must not be sent now; empty if our tenure outlasts it."""
        if not self.leads:
            return "this replica does not lead"
        if self._renewed_at + self._lease_duration - self._clock() <= seconds:
            return "the lease of this replica may end before the binding is answered"
        return ""

    @property
    def recorded(self) -> Callers:
        """Schedulers whose Bindings may be sent while we lead: those that the Lease names, in the last version seen."""
        callers = self.record.callers if self.record is not None and self._is_ours() else None
        return NOBODY if callers is None else callers

    def remember(self, scheduler_name: str) -> None:
        """Add a scheduler to the next write of the Lease, if it is ours."""
        if self._is_ours():
            self._callers = self._callers.with_(Callers(frozenset((scheduler_name,))))

    @property
    def leader(self) -> LeaseRecord | None:
        """The Lease, if another replica holds it now; ``None`` otherwise."""
        record = self.record
        if record is None or record.holder in ("", self.identity) or self._clock() >= self._holder_tenure.until:
            return None
        return record

    def succeed(self, ended: frozenset[str]) -> None:
        """Stop waiting for these holders: every process that used one of these identities has ended."""
        self._ended |= ended

    @property
    def vacant(self) -> bool:
        """True if a new leader is expected soon."""
        return self.released or self._has_ended_holder()

    @property
    def released(self) -> bool:
        """True if the last holder released the Lease, so that a new holder is expected soon."""
        return self.record is not None and not self.record.holder and not self._deleted

    def retire(self) -> None:
        """Do not take the Lease any more; if held, it is renewed until ``resignation``."""
        self._retired = True

    # next step

    def next_step(self) -> Step:
        now = self._clock()
        due = self._due(now)
        if due > now:
            return Step("wait", due - now)
        if not self._known or not self._may_write(now):
            return Step("read")
        return Step("write")

    def _due(self, now: float) -> float:
        if not self._known:
            return self._retry_at
        if self._is_ours():
            unrecorded = self._callers not in (self._sent_callers, self.recorded)
            return self._retry_at if unrecorded else max(self._sent_at + self._retry_period, self._retry_at)
        poll = self._heard_at + _POLL * self._retry_period
        if self._retired or not self.is_candidate:
            return max(poll, self._retry_at)
        return max(min(poll, self._free_at), self._retry_at)

    def _may_write(self, now: float) -> bool:
        if self._is_ours():
            return True
        return self.is_candidate and not self._retired and now >= self._free_at

    @property
    def _free_at(self) -> float:
        """Time at which no other process can believe any more that it leads."""
        return max(self._holder_tenure.until, self._deleted_tenure.until)

    @property
    def _holder_tenure(self) -> _Tenure:
        return _NO_TENURE if self._has_ended_holder() else self._tenure

    def _has_ended_holder(self) -> bool:
        return self.record is not None and self.record.holder in self._ended

    def _is_ours(self) -> bool:
        """Return true if the Lease names us because of our own write.

        A Lease that names us because of a manual edit or a restored backup counts as another's: its holder might not
        know yet.
        """
        by_us = self.term is not None or self._next_term is not None
        return by_us and self.record is not None and self.record.holder == self.identity and not self._resigned

    def writing(self) -> dict[str, Any]:
        """Build the Lease with us as holder, to be sent now.

        With a ``resourceVersion`` it replaces the one last seen.
        """
        self._sent_at = self._clock()
        if self._is_ours() and self.record is not None:
            self._sent_callers = self._callers
            return self._object(self.record.since, self.record.transitions)
        self._next_term = self._term()
        self._sent_callers = self._callers = self._inherited()
        transitions = self.record.transitions + 1 if self.record is not None else 0
        return self._object("", transitions)

    def _term(self) -> LeadershipTerm:
        record, now = self.record, self._clock()
        self._terms += 1
        if self.released:
            return LeadershipTerm(self._terms, safe_at=now, fence=NOBODY, predecessor="")
        safe_at = max(now, self._holder_tenure.safe_at, self._deleted_tenure.safe_at)
        predecessor = record.holder_shown if record is not None else ""
        return LeadershipTerm(self._terms, safe_at, self._inherited(), predecessor, together=self._has_ended_holder())

    def _inherited(self) -> Callers:
        """Return the schedulers that the predecessor let bind; all schedulers if its record is lost."""
        record = self.record
        if self._deleted:
            return EVERYBODY
        if record is None:
            return NOBODY
        if not record.holder:
            return record.callers if record.callers is not None and not record.callers.everybody else NOBODY
        return record.callers if record.callers is not None else EVERYBODY

    def resignation(self) -> dict[str, Any]:
        """Build the Lease without a holder. From now on we do not lead, even if the write fails."""
        self._retired = self._resigned = True
        self._stop_leading()
        record = self.record
        lease = self._object(record.since, record.transitions) if record is not None else self._object("", 0)
        lease["spec"]["holderIdentity"] = ""
        return lease

    def _object(self, since: str, transitions: int) -> dict[str, Any]:
        lease = dict(self.record.raw) if self.record is not None else {}
        metadata = dict(lease.get("metadata") or {})
        metadata.pop("managedFields", None)
        ours = {ADDRESS: self.address, SCHEDULERS: self._callers.written()}
        now = micro_time(datetime.now(UTC))  # for display: no decision depends on it
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **ours}
        spec = {
            **(lease.get("spec") or {}),
            "holderIdentity": self.identity,
            "leaseDurationSeconds": ceil(self._lease_duration),
            "acquireTime": since or now,
            "renewTime": now,
            "leaseTransitions": transitions % _TRANSITIONS,
        }
        return {**lease, "apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    # observations

    def observe(self, record: LeaseRecord | None, *, lagging: bool = False) -> None:
        """Process the Lease as it was read or, if ``lagging``, as a watch reported it; ``None``: there is no Lease."""
        known = self.record
        if lagging and known is not None and record is not None and precedes(record.version, known.version):
            return  # older than our own write; reads are never older, even if a restored backup lowered the version
        now = self._clock()
        self._known, self._heard_at = True, now
        if known is not None and record is not None and (record.uid, record.version) == (known.uid, known.version):
            return
        if known is not None and (record is None or record.uid != known.uid):
            self._note_deletion(known)
        self.record = record
        if record is not None and self._is_ours():
            self._callers = self._callers.with_(self.recorded)
            if self.term is None and self._next_term is not None:
                self.term, self._next_term = self._next_term, None
                self._deleted = self._deleted and not self.term.fence.everybody
            return
        self._stop_leading()
        if record is not None:
            self._next_term = None  # our pending write names a version that no longer exists
        self._tenure = self._tenure_from_now(record) if record is not None and record.holder else _NO_TENURE

    def _note_deletion(self, deleted: LeaseRecord) -> None:
        """Wait for the holder of the deleted Lease, which can differ from the last one seen.

        Not needed if we held it.
        """
        self._deleted = True
        if not self.leads:
            tenure = self._tenure_from_now(deleted)
            self._deleted_tenure = _Tenure(*map(max, tenure, self._deleted_tenure, self._tenure))
        self._stop_leading()

    def _tenure_from_now(self, record: LeaseRecord) -> _Tenure:
        duration = min(max(record.duration, self._lease_duration), LONGEST_LEASE)
        until = self._clock() + duration
        return _Tenure(until, until + post_seconds(duration))

    def _stop_leading(self) -> None:
        self.term = None
        self._renewed_at = -inf

    def written(self, record: LeaseRecord) -> None:
        """Process the result of our last write, which succeeded."""
        self.observe(record, lagging=True)
        if self._is_ours():
            self._renewed_at = self._sent_at

    def conflicted(self) -> None:
        """Process a conflict of our last write: the Lease has changed, so read it."""
        self._known, self._sent_callers = False, None
        self._retry_at = -inf

    def failed(self, patience: float = 1.0) -> None:
        """Process a request without an answer: the Lease is unknown.

        ``patience``: delay of the next attempt in retry periods.
        """
        self._known, self._sent_callers = False, None
        self._retry_at = self._clock() + self._retry_period * patience
