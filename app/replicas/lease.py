"""Who leads, decided by rules alone: a Lease as it was seen, and what to do about it. No I/O.

A Lease is judged by this process' own clock. Another's tenure ends its duration after a *change* of the record was
seen here; our own ends its duration after the renewal that succeeded was *sent*. So whoever holds it believes that it
ends before anybody else does, whatever the delays and the wall clocks.

The duration of another holder counts within bounds, whatever the Lease says: at least as long as ours, at most
``LONGEST_LEASE``, which the configuration enforces too. Deleting the Lease does not shorten the wait: its holder may
not know yet. Whoever saw that Lease waits a whole duration from when it saw the deletion, unless it leads itself.

A holder that is known to have ended (``succeed``) is not waited for. What it sent last can still arrive, so that such a
term begins with every fence, see ``Term.together``.

    following ──(free: none, released, or not changed for its duration)──▶ write ──(taken)──▶ leading
        ▲                                                                                       │
        └── another holds it, it is gone, or no renewal was answered for ``renew_deadline`` ◀───┘

It also remembers whose pods were bound (``callers``): a name is in a Lease that was written before its first Binding
leaves, so that the next leader knows which waiting pods a late Binding may reach. While one process holds the Lease,
each write of its has all names of the form it replaces, so that a name that was seen there stays. A Lease that was
released by a holder that had everything settled lets the names be: nothing is late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import ceil, inf
from time import clock_gettime
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from app.config.sections import LONGEST_LEASE
from app.kube.api_requests import Resource
from app.kube.decoding import Decoder
from app.kube.meta_v1 import ANNOTATION_DOMAIN, precedes
from app.kube.quoting import shortened
from app.writes.callers import EVERYBODY, NOBODY, Callers

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
ADDRESS: Final = f"{ANNOTATION_DOMAIN}address"
"""Annotation of the Lease: ``host:port`` at which its holder answers the verbs."""

SCHEDULERS: Final = f"{ANNOTATION_DOMAIN}schedulers"
"""Annotation of the Lease: the scheduler names whose pods were bound, see ``app.writes.callers``."""

LONGEST_POST: Final = 10.0
_POST_PART: Final = 3
_TRANSITIONS: Final = 2**31
"""Number of values of ``leaseTransitions``, an int32 that must not be negative."""

_LONGEST_ADDRESS: Final = 253 + len(":65535")
_LONGEST_TIME: Final = 64
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_POLL: Final = 1.5
"""Retry periods without a word after which a Lease is read: a holder renews once each, and a watch tells of it."""


def never_stopping() -> float:
    """Seconds on a clock that is never set, and that goes on while the machine sleeps where the system has such."""
    return clock_gettime(_CLOCK)


def post_seconds(lease_duration: float) -> float:
    """How long a Binding may take to be answered, for a Lease of that duration. All replicas count alike."""
    return min(LONGEST_POST, lease_duration / _POST_PART)


class _LeaseMeta(Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None
    annotations: dict[str, str | None] | None = None


class _LeaseSpec(Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: float | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _LeaseObject(Struct):
    metadata: _LeaseMeta | None = None
    spec: _LeaseSpec | None = None


_WHOLE: Final[Decoder[dict[str, Any]]] = Decoder(dict[str, Any])
_LEASE: Final = Decoder[_LeaseObject](_LeaseObject)


class LeaseRecord(Struct, frozen=True):
    """A Lease as it was seen. ``holder`` is empty where it was released. ``duration`` is in seconds, as written.

    ``address``: ``host:port`` of the holder, empty if it is too long · ``since``: when its holder took it, on the
    holder's wall clock, for people · ``callers``: whose pods were bound, ``None`` where that is lost or cannot be
    read · ``found``: the whole object.
    """

    holder: str
    duration: float
    address: str
    since: str
    transitions: int
    uid: str
    version: str
    callers: Callers | None
    found: Mapping[str, Any]

    @classmethod
    def of(cls, raw: bytes | msgspec.Raw) -> LeaseRecord:
        """Raises ``msgspec.DecodeError`` for what is no Lease."""
        lease = _LEASE.decode(raw)
        metadata, spec = lease.metadata or _LeaseMeta(), lease.spec or _LeaseSpec()
        annotations = metadata.annotations or {}
        return cls(
            holder=spec.holder_identity or "",
            duration=spec.lease_duration_seconds or 0.0,
            address=_up_to(_LONGEST_ADDRESS, annotations.get(ADDRESS)),
            since=_up_to(_LONGEST_TIME, spec.acquire_time),
            transitions=spec.lease_transitions or 0,
            uid=metadata.uid or "",
            version=metadata.resource_version or "",
            callers=Callers.read(annotations.get(SCHEDULERS)),
            found=_WHOLE.decode(raw),
        )

    @property
    def holder_shown(self) -> str:
        """The holder for logs and pages: anything may stand in a Lease."""
        return shortened(self.holder)


def _up_to(most: int, text: str | None) -> str:
    return text if text is not None and len(text) <= most else ""


class Term(Struct, frozen=True):
    """One leadership term. ``safe_at``: when the last Binding that the predecessor could send has had its time.

    ``fence``: whose waiting pods a Binding of the predecessor may still reach; nobody's where it said that all its
    binds are settled, and where there was none. ``together``: the last Bindings have not had their time, so that no
    Binding leaves in any namespace before all these pods are fenced off.
    """

    number: int
    safe_at: float
    fence: Callers
    predecessor: str
    together: bool = False


class _Tenure(NamedTuple):
    """Until when somebody else may believe that it leads, and when its last Binding has had its time."""

    until: float = -inf
    safe_at: float = -inf


_NO_TENURE: Final = _Tenure()


class Step(Struct, frozen=True):
    """What to do next; ``wait``: nothing for so many seconds, or until something is heard."""

    do: Literal["read", "write", "wait"]
    seconds: float = 0.0


class Election:
    """What one replica knows of the Lease. Times are seconds on ``clock``, which must never stand still or go back.

    ``record``: the Lease as last seen, ``None`` before it was and where there is none · ``term``: that of this replica,
    kept through a lapse in which nobody else took the Lease.
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
        self.term: Term | None = None
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock
        self._known = False  # what the API server has, as far as anybody told
        self._deleted = False  # a Lease that we saw, and no term of ours has fenced everybody since
        self._heard_at = -inf
        self._retry_at = -inf
        self._sent_at = -inf  # the last write, answered or not
        self._renewed_at = -inf  # when the last write that succeeded was sent
        self._tenure = _NO_TENURE  # of the holder in the record, unless that is this process
        self._deleted_tenure = _NO_TENURE  # of the holder of a Lease that was deleted
        self._ended: frozenset[str] = frozenset()
        self._terms = 0
        self._next_term: Term | None = None
        self._callers = NOBODY  # what the next write says of them; of the record, or more, while it is ours
        self._sent_callers: Callers | None = None  # what the last write said of them, unless it is known to have failed
        self._retired = self._resigned = False
        self.stands = True
        """Whether it would take a free Lease: not before it could decide anything."""

    # what is asked of it

    @property
    def leads(self) -> bool:
        """Whether the Lease is ours, by a renewal that is not too long ago."""
        return self.term is not None and self._clock() < self._renewed_at + self._renew_deadline

    def may_post(self, seconds: float) -> str:
        """Why a write that may take ``seconds`` must not be sent now; empty if our tenure outlasts it."""
        if not self.leads:
            return "this replica does not lead"
        if self._renewed_at + self._lease_duration - self._clock() <= seconds:
            return "the lease of this replica may end before the binding is answered"
        return ""

    @property
    def recorded(self) -> Callers:
        """Whose Bindings may leave while we lead: those that the Lease names, as far as we have seen it written."""
        found = self.record.callers if self.record is not None and self._is_ours() else None
        return NOBODY if found is None else found

    def remember(self, scheduler_name: str) -> None:
        """Let the Lease name a scheduler too, as long as it is ours."""
        if self._is_ours():
            self._callers = self._callers.with_(Callers(frozenset((scheduler_name,))))

    @property
    def leader(self) -> LeaseRecord | None:
        """Whoever else holds the Lease now; ``None`` if nobody does, or we do."""
        record = self.record
        if record is None or record.holder in ("", self.identity) or self._clock() >= self._holder_tenure.until:
            return None
        return record

    def succeed(self, ended: frozenset[str]) -> None:
        """Do not wait for these identities any more: every process that used one of them has ended."""
        self._ended |= ended

    @property
    def vacant(self) -> bool:
        """Return true if a next leader is to be expected soon."""
        return self.released or self._has_ended_holder()

    @property
    def released(self) -> bool:
        """Whether the last holder gave it up in good order: the next one comes soon."""
        return self.record is not None and not self.record.holder and not self._deleted

    def retire(self) -> None:
        """From now on do not take the Lease any more; one that is held is renewed until ``resignation``."""
        self._retired = True

    # what to do

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
            untold = self._callers not in (self._sent_callers, self.recorded)
            return self._retry_at if untold else max(self._sent_at + self._retry_period, self._retry_at)
        poll = self._heard_at + _POLL * self._retry_period
        if self._retired or not self.stands:
            return max(poll, self._retry_at)
        return max(min(poll, self._free_at), self._retry_at)

    def _may_write(self, now: float) -> bool:
        if self._is_ours():
            return True
        return self.stands and not self._retired and now >= self._free_at

    @property
    def _free_at(self) -> float:
        """When nobody else can believe any more that it leads."""
        return max(self._holder_tenure.until, self._deleted_tenure.until)

    @property
    def _holder_tenure(self) -> _Tenure:
        return _NO_TENURE if self._has_ended_holder() else self._tenure

    def _has_ended_holder(self) -> bool:
        return self.record is not None and self.record.holder in self._ended

    def _is_ours(self) -> bool:
        """Return true if the Lease names us by a write of ours.

        One that names us by the hand of somebody else, or from a backup, is another's: its holder may not know yet.
        """
        by_us = self.term is not None or self._next_term is not None
        return by_us and self.record is not None and self.record.holder == self.identity and not self._resigned

    def writing(self) -> dict[str, Any]:
        """The Lease with us as its holder, to be sent now. With a ``resourceVersion`` it replaces the one last seen."""
        self._sent_at = self._clock()
        if self._is_ours() and self.record is not None:
            self._sent_callers = self._callers
            return self._object(self.record.since, self.record.transitions)
        self._next_term = self._term()
        self._sent_callers = self._callers = self._inherited()
        transitions = self.record.transitions + 1 if self.record is not None else 0
        return self._object("", transitions)

    def _term(self) -> Term:
        record, now = self.record, self._clock()
        self._terms += 1
        if self.released:
            return Term(self._terms, safe_at=now, fence=NOBODY, predecessor="")
        safe_at = max(now, self._holder_tenure.safe_at, self._deleted_tenure.safe_at)
        predecessor = record.holder_shown if record is not None else ""
        return Term(self._terms, safe_at, self._inherited(), predecessor, together=self._has_ended_holder())

    def _inherited(self) -> Callers:
        """Whom the one before us let bind. Where the record of that is lost, it may be everybody."""
        record = self.record
        if self._deleted:
            return EVERYBODY
        if record is None:
            return NOBODY
        if not record.holder:
            return record.callers if record.callers is not None and not record.callers.everybody else NOBODY
        return record.callers if record.callers is not None else EVERYBODY

    def resignation(self) -> dict[str, Any]:
        """The Lease without a holder. From now on we do not lead, whatever becomes of the write."""
        self._retired = self._resigned = True
        self._stop_leading()
        record = self.record
        found = self._object(record.since, record.transitions) if record is not None else self._object("", 0)
        found["spec"]["holderIdentity"] = ""
        return found

    def _object(self, since: str, transitions: int) -> dict[str, Any]:
        found = dict(self.record.found) if self.record is not None else {}
        metadata = dict(found.get("metadata") or {})
        metadata.pop("managedFields", None)
        ours = {ADDRESS: self.address, SCHEDULERS: self._callers.written()}
        now = _wall_clock()
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **ours}
        spec = {
            **(found.get("spec") or {}),
            "holderIdentity": self.identity,
            "leaseDurationSeconds": ceil(self._lease_duration),
            "acquireTime": since or now,
            "renewTime": now,
            "leaseTransitions": transitions % _TRANSITIONS,
        }
        return {**found, "apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    # what was heard

    def observe(self, record: LeaseRecord | None, *, lagging: bool = False) -> None:
        """Take in the Lease as it was read, or (``lagging``) as a watch showed it; ``None``: there is none."""
        known = self.record
        if lagging and known is not None and record is not None and precedes(record.version, known.version):
            return  # behind our own write; a read is not, also where versions went back with a restored backup
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
            self._next_term = None  # what was sent replaces a version that is not there any more
        self._tenure = self._tenure_from_now(record) if record is not None and record.holder else _NO_TENURE

    def _note_deletion(self, deleted: LeaseRecord) -> None:
        """Wait for whoever held the deleted Lease, which need not be the holder that we saw last, unless we did."""
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
        """Our last write succeeded, and this is its result."""
        self.observe(record, lagging=True)
        if self._is_ours():
            self._renewed_at = self._sent_at

    def conflicted(self) -> None:
        """Our last write was refused: the Lease is not what we thought."""
        self._known, self._sent_callers = False, None
        self._retry_at = -inf

    def failed(self, patience: float = 1.0) -> None:
        """No answer: what the Lease is now is not known. ``patience``: of a retry period until the next attempt."""
        self._known, self._sent_callers = False, None
        self._retry_at = self._clock() + self._retry_period * patience


def _wall_clock() -> str:
    """As the API writes a MicroTime. For people: no decision rests on it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
