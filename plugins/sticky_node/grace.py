"""Start of grace periods, and the single attempt to nominate a pod to a soft home.

Kubernetes does not record when a node entered most of its states, so Homeport writes the time to the owner:

    on the owner   homeport.dev/home-since   <state> <time> <node>    (homeport.dev/home-since.3: ordinal 3)

The time (RFC 3339) does not change if one unusable state follows another. The node in the annotation shows which home
the time belongs to. If the annotation cannot be written, or is removed, the time in this process's memory is used.

If the home is usable but the pod is rejected there, the grace period starts when the pod's condition PodScheduled
becomes False, but not before the home becomes usable. For pods with scheduling gates, the condition is also False, and
its time does not change when the gates are removed. So the grace period of such a pod starts when Homeport last saw its
gates.

A soft home is preferred but not required: the policy is ``soft``, or the grace period is over. kube-scheduler offers
only a sample of the nodes, so a soft home can be missing. Homeport then makes one attempt: it rejects the pod on all
nodes, and the sampling guard nominates the pod to its home. If the next request offers the home, the attempt succeeds.
If it lacks the home although the pod is nominated, the attempt ends: an in-tree filter rejected the home, or preemption
freed another node. In any case, the attempt ends after ``LONGEST_ATTEMPT_SECONDS``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.framework.handle import Clock, Handle
from app.homes.protocol import LISTED_ONLY, State
from app.kube.core_v1 import Pod
from app.kube.memo import Newest
from app.kube.names import is_subdomain
from plugins.sticky_node.annotations import HOME_SINCE, rfc3339, seconds, slot_key
from plugins.sticky_node.home_state import HomeStates
from plugins.sticky_node.owners import Owner, Owners, Slot

MOST_SEEN: Final = 1 << 15
"""Maximum number of homes, and of pods with gates, whose times are kept in memory. The oldest are dropped first."""

_LONGEST: Final = 320
"""Maximum length of ``home-since`` in characters: a state, a time, and the longest node name."""

_CLOCK_SKEW_SECONDS: Final = 60.0
"""Tolerated clock skew between replicas."""

_STATES: Final[Mapping[str, State]] = {it.value.replace("_", "-"): it for it in State if it not in LISTED_ONLY}
_STATE_VALUES: Final[Mapping[State, str]] = {state: word for word, state in _STATES.items()}


class RecordedSince(Struct, frozen=True):
    """Parsed ``home-since`` annotation. ``time``: since when the home is unusable, in seconds since 1970."""

    state: State
    time: float


class _ObservedHome(Struct, frozen=True):
    """State of a home as this process observed it. ``since``: when it became unusable; ``None`` while it is usable.

    ``void``: value of an annotation that is no longer valid, because the unusable state that it describes has ended.
    """

    home: str
    since: float | None
    void: str = ""


class _LastRequest(Struct, frozen=True):
    """Last time that a pod needed the grace period of ``home``. If ``home`` is empty: when the need ended."""

    home: str
    time: float


class GraceClocks:
    """Determines since when a home is unusable: from its owner's annotation, or from memory."""

    def __init__(self, home_states: HomeStates, owners: Owners, handle: Handle) -> None:
        self._home_states = home_states
        self._owners = owners
        self._now = handle.timing.wall_clock
        self._is_asked = handle.is_asked
        self._seen = Newest[Slot, _ObservedHome](MOST_SEEN)
        self._begun: dict[Slot, Owner] = {}
        self._requested = Newest[Slot, _LastRequest](MOST_SEEN)
        self._gated = Newest[str, float](MOST_SEEN)

    def share(self, other: GraceClocks) -> None:
        """From now on, use the times that ``other`` remembers. This object must then only be queried."""
        self._seen, self._requested, self._gated = other._seen, other._requested, other._gated

    def begin(self) -> None:
        """Clear the memory when this process becomes the leader, because the memory can be outdated."""
        self._seen.clear()
        self._begun.clear()
        self._requested.clear()
        self._gated.clear()

    def since(self, owner: Owner, home: str) -> float | None:
        """Return since when the home is unusable, in seconds since 1970; ``None`` if its node is usable.

        If no start is known, the grace period starts now. A read-only query, such as explain, starts none: it gets the
        known time, or ``None``.
        """
        if self._home_states.of_node(home, owner).state is State.USABLE:
            return None
        if self._is_asked():
            return self.known(owner, home)
        self._requested.put(owner.key, _LastRequest(home, self._now()))
        return self.began(owner, home)

    def since_pod(self, owner: Owner, pod: Pod) -> float | None:
        """Return since when the pod waits for a usable home, in seconds since 1970; ``None`` if the scheduler has not
        found the pod unschedulable yet.

        The time is not before the home became usable again, nor before the last call of ``gated`` for the pod.
        """
        since = seconds(pod.unschedulable_since) if pod.unschedulable_since else None
        if since is None:
            return None
        requested = self._requested.get(owner.key)
        return max(since, self._gated.get(pod.uid, since), since if requested is None else requested.time)

    def gated(self, pod: Pod) -> None:
        """Record the current time for a pod with scheduling gates. ``since_pod`` returns no earlier time for it."""
        self._gated.put(pod.uid, self._now())

    def ungated(self, pods: Container[str]) -> None:
        """Forget the times recorded by ``gated``, except those of ``pods`` (UIDs)."""
        for uid in [it for it in self._gated if it not in pods]:
            del self._gated[uid]

    def known(self, owner: Owner, home: str) -> float | None:
        """Return the known start of the unusable state, in seconds since 1970; ``None`` if unknown.

        Call this only for an unusable home. It does not start a grace period.
        """
        written, seen = self._written(owner, home), self._of(owner, home)
        return written.time if written is not None else None if seen is None else seen.since

    def began(self, owner: Owner, home: str) -> float:
        """Return the start of the unusable state, in seconds since 1970. If no start is known, it is the current time.

        Call this only for an unusable home. The time is kept in memory, because the annotation can be removed.
        """
        seen, time = self._of(owner, home), self.known(owner, home)
        if time is None:
            time = self._now()
            self._begun[owner.key] = owner
        if seen is None or seen.since != time:
            self._note(owner, _ObservedHome(home, time) if seen is None else replace(seen, since=time))
        return time

    def ended(self, owner: Owner, home: str) -> None:
        """End the unusable state: the home is usable or removed, or its policy is off. An annotation left is void."""
        requested = self._requested.get(owner.key)
        if requested is not None and requested.home:
            self._requested[owner.key] = _LastRequest("", self._now())
        void = owner.obj.annotations.get(slot_key(HOME_SINCE, owner.slot), "")
        if void:
            self._note(owner, _ObservedHome(home, None, void))
        else:
            self._seen.pop(owner.key, None)
        self._begun.pop(owner.key, None)

    def text(self, owner: Owner, home: str, state: State) -> str:
        """Return the ``home-since`` value for an unusable home. If no start is known, the grace period starts now."""
        text = f"{_STATE_VALUES[state]} {rfc3339(self.began(owner, home))}"
        return f"{text} {home}" if is_subdomain(home) else text

    def is_requested(self, owner: Owner, home: str) -> bool:
        """Return true if a pod has needed this home's grace period since the home became unusable."""
        requested = self._requested.get(owner.key)
        return requested is not None and requested.home == home

    def take_begun(self) -> list[Owner]:
        """Return the owners for which ``began`` has started a grace period since the last call, and clear the list."""
        begun, self._begun = list(self._begun.values()), {}
        return begun

    def forget(self, slot: Slot) -> None:
        """Forget all times of a slot, for example because its owner was deleted."""
        self._requested.pop(slot, None)
        self._seen.pop(slot, None)
        self._begun.pop(slot, None)

    def _written(self, owner: Owner, home: str) -> RecordedSince | None:
        text = owner.obj.annotations.get(slot_key(HOME_SINCE, owner.slot), "")
        if not text:
            return None
        seen = self._of(owner, home)
        return None if seen is not None and seen.void == text else read_since(text, home, self._now())

    def _of(self, owner: Owner, home: str) -> _ObservedHome | None:
        seen = self._seen.get(owner.key)
        return seen if seen is not None and seen.home == home else None

    def _note(self, owner: Owner, seen: _ObservedHome) -> None:
        if (forgotten := self._seen.put(owner.key, seen)) is not None:
            self.forget(forgotten[0])


def read_since(text: str, home: str, now: float) -> RecordedSince | None:
    """Parse a ``home-since`` annotation for this home; ``None`` if it is invalid.

    Invalid are: overlong or unprintable text, an unknown state, another home, and a time without a zone, before 1970,
    or more than ``_CLOCK_SKEW_SECONDS`` after ``now``.
    """
    if len(text) > _LONGEST or not text.isprintable():
        return None
    word, _, rest = text.partition(" ")
    start, _, node = rest.partition(" ")
    state, time = _STATES.get(word), seconds(start)
    if state is None or time is None or not 0 <= time <= now + _CLOCK_SKEW_SECONDS or node not in ("", home):
        return None
    return RecordedSince(state, time)


LONGEST_ATTEMPT_SECONDS: Final = 1.0
"""Time limit of one attempt. Homeport wakes the pod up to one second later, so an attempt delays it by up to 2 s."""

_MOST_ATTEMPTS: Final = 4096
"""Maximum number of remembered pods. The oldest are dropped first; a dropped pod can get one more attempt."""


class _Attempt(Struct):
    """Attempt to nominate a pod to its soft home. ``ends_at``: its time limit on the monotonic clock."""

    home: str
    ends_at: float
    over: bool = False
    failed: bool = False


class HomeAttempts:
    """Latest attempt to nominate each pod to its soft home, by the pod's UID. If the home changes, a new attempt
    begins.

    ``clock``: monotonic, in seconds. ``wall_clock``: seconds since 1970.
    """

    def __init__(self, clock: Clock, wall_clock: Clock) -> None:
        self._now = clock
        self._wall_clock = wall_clock
        self._attempts = Newest[str, _Attempt](_MOST_ATTEMPTS)

    def share(self, other: HomeAttempts) -> None:
        """Use the attempts of ``other`` from now on. This object must then only be queried."""
        self._attempts = other._attempts

    def begin(self, uid: str, home: str) -> bool:
        """Begin the pod's attempt, if it has none for this home; return true while the attempt is running."""
        known = self._of(uid, home)
        if known is None:
            self._attempts.put(uid, _Attempt(home, self._now() + LONGEST_ATTEMPT_SECONDS))
            return True
        if self._now() >= known.ends_at:
            known.over = True
        return not known.over

    def end(self, uid: str, home: str) -> None:
        """End the attempt, even if it has not begun yet. Other nodes are then allowed."""
        self.begin(uid, home)
        self._attempts[uid].over = True

    def fail(self, uid: str, home: str) -> None:
        """End the attempt after a failed bind to the home: the pod may go to any node."""
        self.end(uid, home)
        self._attempts[uid].failed = True

    def _of(self, uid: str, home: str) -> _Attempt | None:
        known = self._attempts.get(uid)
        return known if known is not None and known.home == home else None

    def has_failed(self, uid: str, home: str) -> bool:
        """Return true if a bind of the pod to this home has failed."""
        known = self._of(uid, home)
        return known is not None and known.failed

    def is_over(self, uid: str, home: str) -> bool:
        """Return true if the pod's attempt for this home has ended; false if there was none."""
        known = self._of(uid, home)
        return known is not None and (known.over or self._now() >= known.ends_at)

    def ends_at(self, uid: str, home: str) -> float | None:
        """Return when the attempt reaches its time limit, in seconds since 1970; ``None`` if there is none, or it is
        marked as ``over``. The time can be past.
        """
        known = self._of(uid, home)
        if known is None or known.over:
            return None
        return self._wall_clock() + known.ends_at - self._now()
