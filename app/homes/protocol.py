"""Protocol of a plugin that keeps homes, its words, and the homes that it lists."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from app.kube.core_v1 import Pod


class Policy(StrEnum):
    """How strict a home is."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"
    GRACE = "grace"


class State(StrEnum):
    """State of a home, for one pod. In order: the first that applies counts."""

    NONE = "none"
    """There is none yet, it was released, or the policy is ``off``."""

    TARGET = "target"
    """The pod is the target of a migration or an evacuation."""

    VOLUME_ELSEWHERE = "volume_elsewhere"
    """A bound volume of the pod cannot be reached from the home."""

    OTHER_MACHINE = "other_machine"
    """A node of that name is there, and is not the machine it was; only with ``identity: machine``."""

    GONE = "gone"
    """There is no such node."""

    LEAVING = "leaving"
    """Its node is being taken away for good."""

    AWAY = "away"
    """Its node is there and takes no pods now."""

    USABLE = "usable"

    UNKNOWN = "unknown"
    """It rests on something that cannot be read."""

    OWNER_GONE = "owner_gone"
    """It is remembered of an owner that does not exist any more, whatever its node is like."""

    @property
    def words(self) -> str:
        """Return the state as people write it, without underscores."""
        return self.value.replace("_", " ")


LISTED_ONLY: Final = frozenset({State.UNKNOWN, State.OWNER_GONE})
"""States that no decision rests on."""


class Whereabouts(StrEnum):
    """Where the pod of a home is."""

    AT_HOME = "at_home"
    """It runs on its home."""

    ELSEWHERE = "elsewhere"
    """It runs on another node."""

    WAITING = "waiting"
    """It has no node yet."""

    IDLE = "idle"
    """There is no pod."""


class Keeper(Struct, frozen=True):
    """A kind of object that keeps homes of pods. ``per_slot``: each of its pods has one of its own, by its ordinal."""

    api_version: str
    kind: str
    per_slot: bool = False


class HomeOwner(Struct, frozen=True, gc=False):
    """The object that keeps a home. ``slot``: the ordinal of the pod whose it is; empty where there is one home."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    slot: str = ""


class Home(Struct, frozen=True, gc=False):
    """A home and its state, for a person.

    ``node``: as it is written, which anybody may have done; empty where a pod runs or waits without a home. ``mark``:
    what puts the node in this state, as ``cordoned``. ``is_away``: the node is there and takes no pods now;
    ``is_orphaned``: there is no such node, it is another machine, or the home is remembered of an owner that is gone.
    ``machine``: where its pod is. ``policy``: ``None`` if it cannot be read, and who set it (``policy_source``).
    ``since``: when the state began, in RFC 3339; empty if unknown. ``pod``: the one that got furthest, and its node.
    ``contradiction``: what cannot both be, in a sentence. ``is_judged``: whether the pod is one of the profile's, where
    several list the same home. ``holds``: whether its pod waits while the node takes none, for good or, with the policy
    ``grace``, for a time that is not over.
    """

    owner: HomeOwner
    node: str
    state: State
    machine: Whereabouts
    policy: Policy | None = None
    policy_source: str = ""
    since: str = ""
    mark: str = ""
    pod: str = ""
    pod_node: str = ""
    contradiction: str = ""
    is_away: bool = False
    is_orphaned: bool = False
    is_judged: bool = True
    holds: bool = True


class HomesPlugin(Protocol):
    """A plugin that keeps homes, and lists them for people. No verb calls it."""

    @abstractmethod
    def homes(self) -> Iterator[Home | None]:
        """Yield every home once, and ``None`` after each step of some tenths of a millisecond: others run there."""
        ...

    @abstractmethod
    def home_of(self, pod: Pod) -> Home | None:
        """Return the home that the pod is kept to, with this pod: several may share one. ``None`` without a home."""
        ...

    @abstractmethod
    def keepers(self) -> Iterable[Keeper]:
        """Return the kinds whose objects keep homes."""
        ...
