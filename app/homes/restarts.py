"""Homes on a node, and the condition under which their pods can start again once the node accepts no pods."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from app.homes.protocol import Home, Place, Policy, State


class Restart(Enum):
    """Condition under which a pod can start again once a certain node accepts no pods, for example in a drain."""

    FREE = "at once, anywhere"
    HOME = "at once, at its home, which is another node; after its grace anywhere"
    HELD_HOME = "at its home, which is another node, and nowhere else"
    GRACE = "after its grace, anywhere"
    HELD = "at its home, which takes no pods then"


ENDING: frozenset[Restart] = frozenset((Restart.HOME, Restart.GRACE))
"""Conditions that end with the grace period: after it, the pod can start anywhere."""


def restart_condition(home: Home, node: str) -> Restart:
    """Return the condition under which a pod with that home can start again, once ``node`` accepts no pods."""
    if not home.node or not home.holds:
        return Restart.FREE
    has_grace = home.policy is Policy.GRACE
    if _is_elsewhere(home, node):
        return Restart.HOME if has_grace else Restart.HELD_HOME
    return Restart.GRACE if has_grace else Restart.HELD


def _is_elsewhere(home: Home, node: str) -> bool:
    """Return True if the home is not ``node``, but a node that exists, accepts pods, and can use the pod's volumes."""
    is_usable = not (home.is_away or home.is_orphaned or home.state is State.VOLUME_ELSEWHERE)
    return is_usable and home.node not in ("", node)


def homes_of_node(homes: Iterable[Home | None], node: str) -> list[Home]:
    """Return the homes on the node, and the homes whose pod runs there.

    If several profiles list a home, the profile that schedules its pod takes precedence.
    """
    by_place: dict[Place, Home] = {}
    for home in homes:
        if home is not None and node in (home.node, home.pod_node):
            known = by_place.get(home.owner.place)
            if known is None or (home.is_judged and not known.is_judged):
                by_place[home.owner.place] = home
    return list(by_place.values())


def without_pod_there(home: Home, node: str) -> str:
    """Describe, as a phrase, what a drain of ``node`` means for a home whose pod does not run on this node."""
    if home.state is State.OWNER_GONE:
        return "its owner is gone"
    if home.pod and home.pod_node:
        return f"stays on {home.pod_node}"
    match restart_condition(home, node):
        case Restart.HOME | Restart.HELD_HOME:
            return f"goes home to {home.node}"
        case Restart.GRACE:
            return f"waits for {home.node}; elsewhere after its grace"
        case Restart.HELD:
            return f"waits for {home.node}"
    return "starts elsewhere"
