"""Since when a home is not usable. Kubernetes does not say for most states of a node, so it is written down.

    on the owner   homeport.dev/home-since   <state> <time> <node>    (homeport.dev/home-since.3: of ordinal 3)

The time (RFC 3339) stays while one state in which the home is not usable follows another. With the node it is told
from that of an earlier home. Where nothing can be written, or somebody removes it, what this process has seen counts.

Where the home is usable and in-tree filters refuse it, the clock is the pod's own: since when its condition
PodScheduled is False. That says so also of a pod with scheduling gates, and the time stays when they go.

Soft homes that a pod is refused for once, because they were not among the nodes asked about.

kube-scheduler shows a sample. Whether the home was left out by lot, or an in-tree filter refused it, tells what becomes
of a nomination to it: the pod is refused everywhere, the sampling guard nominates it to its home, and either the home
is asked about next, or others are while the pod is nominated there. Where nothing comes of it, time ends the try.
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
"""Homes whose times are kept in memory; the oldest are forgotten first."""

_LONGEST: Final = 320
"""Characters of what we write: a state, a time, the longest name of a node."""

_CLOCK_SKEW_SECONDS: Final = 60.0
"""Tolerated clock skew between replicas."""

_STATES: Final[Mapping[str, State]] = {it.value.replace("_", "-"): it for it in State if it not in LISTED_ONLY}
_STATE_VALUES: Final[Mapping[State, str]] = {state: word for word, state in _STATES.items()}


class RecordedSince(Struct, frozen=True):
    """What is written of a home: its state then, and since when it is not usable, in seconds since 1970."""

    state: State
    time: float


class _ObservedHome(Struct, frozen=True):
    """What this process knows of a home. ``since``: ``None`` while it is usable.

    ``void``: what is written and no longer holds, for the home was usable since.
    """

    home: str
    since: float | None
    void: str = ""


class _LastRequest(Struct, frozen=True):
    """When a pod asked last since when its home is not usable. ``home``: that one, empty once it was usable again."""

    home: str
    time: float


class GraceClocks:
    """Reads since when a home is not usable from its owner, or from memory where nothing could be written."""

    def __init__(self, home_states: HomeStates, owners: Owners, handle: Handle) -> None:
        self._home_states = home_states
        self._owners = owners
        self._now = handle.timing.wall_clock
        self._is_asked = handle.is_asked
        self._seen = Newest[Slot, _ObservedHome](MOST_SEEN)
        self._begun: dict[Slot, Owner] = {}
        self._requested = Newest[Slot, _LastRequest](MOST_SEEN)
        self._gated = Newest[str, float](MOST_SEEN)

    def begin(self) -> None:
        """This process decides from now on: what it has seen earlier may have ended and begun again meanwhile."""
        self._seen.clear()
        self._begun.clear()
        self._requested.clear()
        self._gated.clear()

    def since(self, owner: Owner, home: str) -> float | None:
        """Since when the home is not usable, in seconds since 1970; ``None`` if it is, by its node alone.

        To a question it says what is known, and begins nothing.
        """
        if self._home_states.of_node(home, owner).state is State.USABLE:
            return None
        if self._is_asked():
            return self.known(owner, home)
        self._requested.put(owner.key, _LastRequest(home, self._now()))
        return self.began(owner, home)

    def since_pod(self, owner: Owner, pod: Pod) -> float | None:
        """Since when the pod waits for a home that is usable, as far as it has been told that no node was found.

        One that is back is waited for anew, whatever its pod has waited before; with gates a pod waits for nothing.
        """
        since = seconds(pod.unschedulable_since) if pod.unschedulable_since else None
        if since is None:
            return None
        requested = self._requested.get(owner.key)
        return max(since, self._gated.get(pod.uid, since), since if requested is None else requested.time)

    def gated(self, pod: Pod) -> None:
        """The pod has scheduling gates: once they are gone, it waits from when they were seen last."""
        self._gated.put(pod.uid, self._now())

    def ungated(self, pods: Container[str]) -> None:
        """Forget when pods had gates, but these. By UID."""
        for uid in [it for it in self._gated if it not in pods]:
            del self._gated[uid]

    def known(self, owner: Owner, home: str) -> float | None:
        """The same of a home that is known not to be usable, as far as it is told: to ask begins nothing."""
        written, seen = self._written(owner, home), self._of(owner, home)
        return written.time if written is not None else None if seen is None else seen.since

    def began(self, owner: Owner, home: str) -> float:
        """The same of a home that is known not to be usable. What is written is remembered: somebody may remove it."""
        seen, time = self._of(owner, home), self.known(owner, home)
        if time is None:
            time = self._now()
            self._begun[owner.key] = owner
        if seen is None or seen.since != time:
            self._note(owner, _ObservedHome(home, time) if seen is None else replace(seen, since=time))
        return time

    def ended(self, owner: Owner, home: str) -> None:
        """The home is usable: what is still written counts no more."""
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
        """What is to stand on the owner of a home that is not usable."""
        said = f"{_STATE_VALUES[state]} {rfc3339(self.began(owner, home))}"
        return f"{said} {home}" if is_subdomain(home) else said

    def is_asked(self, owner: Owner, home: str) -> bool:
        """Return whether a pod has asked since when this home is not usable, and it was not usable since."""
        requested = self._requested.get(owner.key)
        return requested is not None and requested.home == home

    def take_begun(self) -> list[Owner]:
        """The owners of homes whose time was noted in memory since this was last called."""
        begun, self._begun = list(self._begun.values()), {}
        return begun

    def forget(self, slot: Slot) -> None:
        """The owner is gone."""
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
    """What the annotation says of this home. Anybody may have written it: ``None`` for what we would not have.

    That is something overlong or unprintable, a state that there is not, a time without a zone, before 1970 or in the
    future, another home.
    """
    if len(text) > _LONGEST or not text.isprintable():
        return None
    word, _, rest = text.partition(" ")
    said, _, node = rest.partition(" ")
    state, time = _STATES.get(word), seconds(said)
    if state is None or time is None or not 0 <= time <= now + _CLOCK_SKEW_SECONDS or node not in ("", home):
        return None
    return RecordedSince(state, time)


LONGEST_ATTEMPT_SECONDS: Final = 1.0
"""And at most one more until the pod is woken: a pod waits for its soft home no longer than 2 s."""

_MOST_ATTEMPTS: Final = 4096
"""Pods that are remembered; the oldest are forgotten, and may then be tried once more."""


class _Attempt(Struct):
    """``ends_at``: on the clock that is never set."""

    home: str
    ends_at: float
    over: bool = False
    failed: bool = False


class HomeAttempts:
    """By the pod's UID. ``clock``: one that is never set, in seconds; ``wall_clock``: seconds since 1970."""

    def __init__(self, clock: Clock, wall_clock: Clock) -> None:
        self._now = clock
        self._wall_clock = wall_clock
        self._attempts = Newest[str, _Attempt](_MOST_ATTEMPTS)

    def begin(self, uid: str, home: str) -> bool:
        """Return whether the pod is to be refused: its first try of that home is not over."""
        known = self._of(uid, home)
        if known is None:
            self._attempts.put(uid, _Attempt(home, self._now() + LONGEST_ATTEMPT_SECONDS))
            return True
        if self._now() >= known.ends_at:
            known.over = True
        return not known.over

    def end(self, uid: str, home: str) -> None:
        """The home did not take the pod: the rest may."""
        self.begin(uid, home)
        self._attempts[uid].over = True

    def fail(self, uid: str, home: str) -> None:
        """The pod was to be bound there, and was not: it may go anywhere now."""
        self.end(uid, home)
        self._attempts[uid].failed = True

    def _of(self, uid: str, home: str) -> _Attempt | None:
        known = self._attempts.get(uid)
        return known if known is not None and known.home == home else None

    def has_failed(self, uid: str, home: str) -> bool:
        known = self._of(uid, home)
        return known is not None and known.failed

    def is_over(self, uid: str, home: str) -> bool:
        known = self._of(uid, home)
        return known is not None and (known.over or self._now() >= known.ends_at)

    def ends_at(self, uid: str, home: str) -> float | None:
        """Until when the pod is refused, in seconds since 1970; ``None`` if it is not."""
        known = self._of(uid, home)
        if known is None or known.over:
            return None
        return self._wall_clock() + known.ends_at - self._now()
