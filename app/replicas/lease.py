"""Rules of leader election: what this replica knows about the Lease, and its next step. No I/O.

A tenure is the time for which a holder can believe that it leads. Each replica measures it with its own clock. For
another holder, the tenure ends one lease duration after this replica saw a *change* of the Lease. For this replica, the
tenure ends one duration after it *sent* the last successful renewal. So a holder stops leading before any other replica
takes over, even with slow requests or wrong wall clocks.

For another holder, the duration in its Lease is used, but at least the configured one and at most ``LONGEST_LEASE``.
Deleting the Lease does not shorten the wait, because the holder might not notice. A replica that sees the deletion
waits for a whole duration from then on, unless it leads itself.

If the holder's process is known to have ended (``succeed``), the next leader does not wait. Late Bindings of that
process can still arrive. So the new leader binds no pod until it has fenced off all pods that such a Binding can reach
(``LeadershipTerm.together``).

    following ──(free: none, released, or not changed for its duration)──▶ write ──(taken)──▶ leading
        ▲                                                                                       │
        └── another holds it, it is gone, or no renewal was answered for ``renew_deadline`` ◀───┘

The Lease also records the schedulers whose pods were bound (``callers``). A scheduler's name is written before the
first Binding of its pods is sent. So the next leader knows which waiting pods a late Binding can reach. A holder never
removes a recorded name. A holder releases the Lease only once all its binds have ended, so that no Binding can arrive
late. The released Lease keeps the names, but the next leader raises no fences.
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
from app.writes.callers import ALL_CALLERS, NO_CALLERS, Callers

LONGEST_POST: Final = 10.0
"""Upper bound of the time limit of a Binding request, in seconds."""

_POST_PART: Final = 3
"""The time limit of a Binding request is the lease duration divided by this number, at most ``LONGEST_POST``."""

_TRANSITIONS: Final = 2**31
"""Number of valid values of ``leaseTransitions``, a non-negative int32. The largest value is followed by 0."""

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_POLL: Final = 1.5
"""A follower reads the Lease after this many retry periods without news of it. A holder renews once per period."""


def never_stopping() -> float:
    """Return the seconds of a monotonic clock. On Linux it also advances while the system is suspended."""
    return clock_gettime(_CLOCK)


def post_seconds(lease_duration: float) -> float:
    """Return the time limit in seconds of a Binding sent by the holder of a Lease with this duration."""
    return min(LONGEST_POST, lease_duration / _POST_PART)


class _Tenure(NamedTuple):
    """Tenure of another process, which ends at ``until``. By ``safe_at``, its last Binding has timed out."""

    until: float = -inf
    safe_at: float = -inf


_NO_TENURE: Final = _Tenure()


class Step(Struct, frozen=True):
    """Next step in the election. ``wait`` means: do nothing for ``seconds``, or until the state changes."""

    do: Literal["read", "write", "wait"]
    seconds: float = 0.0


class Election:
    """State of the leader election from the view of one replica. Times are seconds on ``clock``, which never goes back.

    ``record`` is the last seen version of the Lease; ``None`` before the first read and if no Lease exists. ``term`` is
    the term of this replica; ``None`` if it does not hold the Lease. The term is kept if the replica stops leading
    because renewals fail, so that a later renewal continues it.
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
        self._known = False  # False if the record can be outdated, so that the Lease must be read before a write.
        # True from the deletion of a known Lease until this replica begins a term with fences for all schedulers.
        self._deleted = False
        self._observed_at = -inf
        self._retry_at = -inf
        self._sent_at = -inf  # Send time of the last write, with or without an answer.
        self._renewed_at = -inf  # Send time of the last successful write.
        self._tenure = _NO_TENURE  # Tenure of another holder in the record.
        self._deleted_tenure = _NO_TENURE  # Latest tenure of the holders of deleted Leases.
        self._ended: frozenset[str] = frozenset()
        self._terms = 0
        self._next_term: LeadershipTerm | None = None
        self._callers = NO_CALLERS  # Schedulers in the next write; for the holder, never fewer than the Lease lists.
        self._sent_callers: Callers | None = None  # Schedulers in the last write; None before it, or if it failed.
        self._retired = self._resigned = False
        self.is_candidate = True
        """True if this replica may take the Lease: its snapshot is complete, and others can verify its certificate."""

    # state

    @property
    def leads(self) -> bool:
        """True if this replica holds the Lease, and sent a successful renewal less than ``renew_deadline`` ago."""
        return self.term is not None and self._clock() < self._renewed_at + self._renew_deadline

    def may_post(self, seconds: float) -> str:
        """Return why a write with this time limit (in seconds) must not be sent now.

        Empty if this replica leads, and its tenure does not end within the time limit."""
        if not self.leads:
            return "this replica does not lead"
        if self._renewed_at + self._lease_duration - self._clock() <= seconds:
            return "the lease of this replica may end before the binding is answered"
        return ""

    @property
    def recorded(self) -> Callers:
        """Schedulers whose pods this replica may bind, because the Lease lists them; empty if it is not the holder."""
        callers = self.record.callers if self.record is not None and self._is_ours() else None
        return NO_CALLERS if callers is None else callers

    def remember(self, scheduler_name: str) -> None:
        """Add a scheduler to the next write of the Lease; no effect if this replica does not hold the Lease."""
        if self._is_ours():
            self._callers = self._callers.with_(Callers(frozenset((scheduler_name,))))

    @property
    def leader(self) -> LeaseRecord | None:
        """The Lease, if another replica holds it and that replica's tenure has not ended; ``None`` otherwise."""
        record = self.record
        if record is None or record.holder in ("", self.identity) or self._clock() >= self._holder_tenure.until:
            return None
        return record

    def succeed(self, ended: frozenset[str]) -> None:
        """No longer wait for the tenures of these holders, because all processes with these identities have ended."""
        self._ended |= ended

    @property
    def vacant(self) -> bool:
        """True if the Lease was released or its holder's process has ended, so that a new leader is expected soon."""
        return self.released or self._has_ended_holder()

    @property
    def released(self) -> bool:
        """True if the Lease is released, and no deletion of an earlier Lease requires fences."""
        return self.record is not None and not self.record.holder and not self._deleted

    def retire(self) -> None:
        """Never take the Lease again. A Lease that is held is still renewed, until ``resignation``."""
        self._retired = True

    # next step

    def next_step(self) -> Step:
        now, at = self._clock(), self._next_request_at()
        if at > now:
            return Step("wait", at - now)
        if not self._known or not self._may_write(now):
            return Step("read")
        return Step("write")

    def _next_request_at(self) -> float:
        """Return the time from which the Lease must be read or written again."""
        if not self._known:
            return self._retry_at
        if self._is_ours():
            unrecorded = self._callers not in (self._sent_callers, self.recorded)
            return self._retry_at if unrecorded else max(self._sent_at + self._retry_period, self._retry_at)
        poll = self._observed_at + _POLL * self._retry_period
        if self._retired or not self.is_candidate:
            return max(poll, self._retry_at)
        return max(min(poll, self._free_at), self._retry_at)

    def _may_write(self, now: float) -> bool:
        if self._is_ours():
            return True
        return self.is_candidate and not self._retired and now >= self._free_at

    @property
    def _free_at(self) -> float:
        """Time from which no other process can believe that it leads, so that the Lease may be taken."""
        return max(self._holder_tenure.until, self._deleted_tenure.until)

    @property
    def _holder_tenure(self) -> _Tenure:
        return _NO_TENURE if self._has_ended_holder() else self._tenure

    def _has_ended_holder(self) -> bool:
        return self.record is not None and self.record.holder in self._ended

    def _is_ours(self) -> bool:
        """Return true if this replica is the holder in the Lease because of its own write, and has not resigned.

        A manual edit or a restored backup can also name this replica. Then false is returned, because the real holder
        might still believe that it leads.
        """
        by_us = self.term is not None or self._next_term is not None
        return by_us and self.record is not None and self.record.holder == self.identity and not self._resigned

    def writing(self) -> dict[str, Any]:
        """Return the Lease with this replica as holder. The caller must send it at once: its tenure begins now.

        Its ``resourceVersion`` is that of the last seen Lease; it has none if the Lease must be created.
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
            return LeadershipTerm(self._terms, safe_at=now, fence=NO_CALLERS, predecessor="")
        safe_at = max(now, self._holder_tenure.safe_at, self._deleted_tenure.safe_at)
        predecessor = record.holder_shown if record is not None else ""
        return LeadershipTerm(self._terms, safe_at, self._inherited(), predecessor, together=self._has_ended_holder())

    def _inherited(self) -> Callers:
        """Return the schedulers in the Lease; all schedulers if it was deleted, or is held and has no valid list.

        Without a Lease, or if a released one has ``*`` or no valid list, return none: names are then recorded again.
        """
        record = self.record
        if self._deleted:
            return ALL_CALLERS
        if record is None:
            return NO_CALLERS
        if not record.holder:
            return record.callers if record.callers is not None and not record.callers.is_all else NO_CALLERS
        return record.callers if record.callers is not None else ALL_CALLERS

    def resignation(self) -> dict[str, Any]:
        """Stop leading at once. Return the Lease without a holder, which the caller must send."""
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
        now = micro_time(datetime.now(UTC))  # wall clock, only for display: no decision depends on it
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
        """Update the state from a Lease; ``None`` if it does not exist. ``lagging`` means that it can be outdated."""
        known = self.record
        if lagging and known is not None and record is not None and precedes(record.version, known.version):
            return  # outdated; a Lease from a read never is, even if a restored backup of etcd has an older version
        now = self._clock()
        self._known, self._observed_at = True, now
        if known is not None and record is not None and (record.uid, record.version) == (known.uid, known.version):
            return
        if known is not None and (record is None or record.uid != known.uid):
            self._note_deletion(known)
        self.record = record
        if record is not None and self._is_ours():
            self._callers = self._callers.with_(self.recorded)
            if self.term is None and self._next_term is not None:
                self.term, self._next_term = self._next_term, None
                self._deleted = self._deleted and not self.term.fence.is_all
            return
        self._stop_leading()
        if record is not None:
            self._next_term = None  # a write in flight fails, because the version that it replaces has changed
        self._tenure = self._tenure_from_now(record) if record is not None and record.holder else _NO_TENURE

    def _note_deletion(self, deleted: LeaseRecord) -> None:
        """Stop leading, and store the tenure of the deleted Lease's holder, so that this replica waits for its end.

        If this replica led, it was the holder, and there is no tenure to store."""
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
        """Update the state from the answer to the last write, which succeeded."""
        self.observe(record, lagging=True)
        if self._is_ours():
            self._renewed_at = self._sent_at

    def conflicted(self) -> None:
        """Note that the last write was refused because the Lease has changed, so that it is read at once."""
        self._known, self._sent_callers = False, None
        self._retry_at = -inf

    def failed(self, patience: float = 1.0) -> None:
        """Note that the last request failed, so that the Lease is read after ``patience`` retry periods."""
        self._known, self._sent_callers = False, None
        self._retry_at = self._clock() + self._retry_period * patience
