"""Waiting pods for which a hard spread constraint is judged as soft.

Without this constraint, a node would have fit for long. This is the fallback of a profile. A background task of the
leader writes the table between evaluations, and PodTopologySpread reads it. So the relaxed constraints are an input of
each verdict, like the pod, and the signature of the verdict covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey

ANNOTATION: Final = "homeport.dev/fallback"
"""Annotation of a pod. With the value ``NEVER``, the pod opts out of the fallback."""

NEVER: Final = "never"
"""Only value of the annotation. With it, all hard constraints of the pod stay hard."""

_NONE: Final = frozenset[str]()
_ASSUMED: Final[ContextVar[frozenset[str] | None]] = ContextVar("assumed fallbacks", default=None)
"""Topology keys that ``assumed_relaxed`` sets for the current task; ``None`` to use the table."""


@contextmanager
def assumed_relaxed(keys: Collection[str] = ()) -> Iterator[None]:
    """Make only the constraints with these topology keys soft, for calls of plugins in the current task."""
    token = _ASSUMED.set(frozenset(keys))
    try:
        yield
    finally:
        _ASSUMED.reset(token)


class _BlockedPod(Struct):
    """Pod with one or more constraints, each of which is the only reason why some node does not fit.

    ``since``: time of the first judgement with this result, by topology key. ``relaxed``: topology keys of constraints
    that are soft while ``is_usable`` is true. ``is_usable``: false while the data for a judgement is missing.
    """

    key: ObjectKey
    since: dict[str, float]
    relaxed: frozenset[str] = _NONE
    is_usable: bool = True


class FallbackTable:
    """Pods of all profiles that wait because of single constraints: the constraints that block them or are relaxed."""

    def __init__(self) -> None:
        self._after: dict[str, float] = {}
        self._pods: dict[str, _BlockedPod] = {}

    def of(self, profile: str) -> ProfileFallbacks:
        """Return the view for the plugins of one profile."""
        return ProfileFallbacks(self, profile)

    def enable(self, profile: str, after: float) -> None:
        """Enable the fallback of a profile.

        ``after``: seconds for which a constraint must be the only reason why some node does not fit, before it is soft.
        """
        self._after[profile] = after

    @property
    def is_enabled(self) -> bool:
        return bool(self._after)

    def after(self, profile: str) -> float | None:
        """Return the seconds after which a constraint becomes soft; ``None`` if the profile has no fallback."""
        return self._after.get(profile)

    def relaxed(self, uid: str) -> frozenset[str]:
        """Return the topology keys of the pod's constraints that are soft now; within ``assumed_relaxed``, its keys."""
        assumed = _ASSUMED.get()
        if assumed is not None:
            return assumed
        known = self._pods.get(uid)
        return known.relaxed if known is not None and known.is_usable else _NONE

    def has_relaxed(self, uid: str) -> bool:
        """Return True if a constraint of the pod is relaxed, even if it is not soft now because data is missing."""
        known = self._pods.get(uid)
        return known is not None and bool(known.relaxed)

    def judged(self, pod: Pod, profile: str, alone: Collection[str], now: float) -> str:
        """Record the constraints that are each the only reason why a node does not fit. If none of them is
        relaxed, relax the one that has blocked the pod longest, if that is at least ``after`` seconds (see ``enable``).

        Return the topology key of the constraint that this call relaxes, or "" if it relaxes none. ``alone``: topology
        keys of the constraints to record. All others are forgotten. If one of them blocks the pod again, its time
        counts from then on.
        """
        after = self._after.get(profile)
        if after is None or not alone:
            self._pods.pop(pod.uid, None)
            return ""
        known = self._pods.setdefault(pod.uid, _BlockedPod(pod.key, {}))
        known.since = {key: known.since.get(key, now) for key in sorted(alone)}
        known.relaxed &= known.since.keys()
        long_enough = [key for key, since in known.since.items() if now - since >= after]
        if known.relaxed or not long_enough:
            return ""
        longest = min(long_enough, key=known.since.__getitem__)
        known.relaxed, known.is_usable = frozenset((longest,)), True
        return longest

    def next_end(self, pod: Pod, profile: str) -> float | None:
        """Return the time at which a constraint of the pod becomes soft if nothing changes; ``None`` if none does."""
        known, after = self._pods.get(pod.uid), self._after.get(profile)
        if known is None or after is None or known.relaxed:
            return None
        return min(known.since.values()) + after

    def refresh(self, usable: Callable[[ObjectKey, str], bool | None]) -> list[ObjectKey]:
        """Update ``is_usable`` of all pods. Return the pods with a relaxed constraint that is soft again.

        ``usable``: called with key and UID of a pod; returns true if the data for a judgement is present. If it returns
        ``None``, the pod no longer waits, and is forgotten.
        """
        again: list[ObjectKey] = []
        for uid, known in tuple(self._pods.items()):
            state = usable(known.key, uid)
            if state is None:
                del self._pods[uid]
                continue
            if state and not known.is_usable and known.relaxed:
                again.append(known.key)
            known.is_usable = state
        return again

    def has(self, uid: str) -> bool:
        """Return True if the table has the pod: at the last judgement, a node failed because of one constraint only."""
        return uid in self._pods

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def clear(self) -> None:
        """Forget all pods, because this replica no longer leads. The next leader measures all times anew."""
        self._pods.clear()


class ProfileFallbacks:
    """View of a ``FallbackTable`` for one profile. Implements ``framework.Fallbacks``."""

    def __init__(self, table: FallbackTable, profile: str) -> None:
        self._table = table
        self._profile = profile

    def enable(self, after: float) -> None:
        self._table.enable(self._profile, after)

    def relaxed(self, pod: Pod) -> Collection[str]:
        return self._table.relaxed(pod.uid)
