"""Protocol of plugins that keep homes, and the homes that they list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ANNOTATION_DOMAIN

POLICY: Final = f"{ANNOTATION_DOMAIN}policy"
"""Annotation of an owner or a pod that sets the policy of its home."""

SHORTEST_GRACE: Final = 350.0
"""Shortest useful grace period, in seconds. A shorter one ends before the pods of a failed node are even evicted.

A node counts as unreachable 50 s after its last heartbeat (Kubernetes 1.32 and later). By default, its pods tolerate
this for another 300 s before they are evicted.
"""


class Policy(StrEnum):
    """Rule for a pod while its home accepts no pods."""

    OFF = "off"
    """Homes are neither created nor used."""

    SOFT = "soft"
    """The pod starts on another node at once."""

    HARD = "hard"
    """The pod waits for its home without end."""

    GRACE = "grace"
    """The pod waits for a grace period, then starts on another node."""


class State(StrEnum):
    """State of a home, for one pod. Up to ``USABLE``, the first state that applies is used, in this order.

    ``UNKNOWN`` and ``OWNER_GONE`` appear only in lists, and take precedence there.
    """

    NONE = "none"
    """No home, for example not created yet or released. Decisions use this state for the policy ``off``, too."""

    TARGET = "target"
    """The pod is the target of a migration or an evacuation."""

    VOLUME_ELSEWHERE = "volume_elsewhere"
    """A bound volume of the pod cannot be reached from the home."""

    OTHER_MACHINE = "other_machine"
    """A node with the name of the home exists, but is another host; only with ``identity: machine``."""

    GONE = "gone"
    """The node does not exist."""

    LEAVING = "leaving"
    """The node is being removed permanently."""

    AWAY = "away"
    """The node exists but accepts no pods now, or cannot be decoded."""

    USABLE = "usable"

    UNKNOWN = "unknown"
    """The state depends on something that cannot be read."""

    OWNER_GONE = "owner_gone"
    """The owner of the home no longer exists, and the home is remembered. The state of the node does not matter."""

    @property
    def words(self) -> str:
        """Return the state as text without underscores."""
        return self.value.replace("_", " ")


LISTED_ONLY: Final = frozenset({State.UNKNOWN, State.OWNER_GONE})
"""States that appear only in lists. No decision depends on them."""


class Whereabouts(StrEnum):
    """Location of the pod of a home."""

    AT_HOME = "at_home"
    """The pod runs on its home."""

    ELSEWHERE = "elsewhere"
    """The pod runs on a node that is not its home, also if it has no home."""

    WAITING = "waiting"
    """The pod has no node yet."""

    IDLE = "idle"
    """There is no pod."""


class Keeper(Struct, frozen=True):
    """Kind of object that keeps homes of pods.

    ``per_slot``: true if each pod of an object has its own home, by ordinal.
    """

    api_version: str
    kind: str
    per_slot: bool = False


Place = tuple[str, str, str, int, str, str]
"""Sort key of homes: namespace, kind, name, length of the slot, slot, apiVersion. See ``HomeOwner.place``."""


class HomeOwner(Struct, frozen=True, gc=False):
    """Object that keeps a home.

    ``slot``: ordinal of the pod if each pod of the object has its own home; else empty.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    slot: str = ""

    @property
    def place(self) -> Place:
        """Sort key, unique for each owner and slot. Short slots come first, so ordinals sort as numbers."""
        return (self.namespace, self.kind, self.name, len(self.slot), self.slot, self.api_version)


class Home(Struct, frozen=True, gc=False):
    """Home and its state, for display.

    ``node``: name of the home node, quoted and shortened if it is not a valid name; empty if a pod runs or waits
    without a home. ``mark``: cause of the node's state, such as ``cordoned``. ``is_away``: the node exists but accepts
    no pods now. ``is_orphaned``: the node does not exist or is another host, or the owner is gone. ``machine``:
    location of the home's pod. ``policy``: ``None`` if it cannot be read. ``policy_source``: object or setting that
    sets the policy. ``since``: start of the state, in RFC 3339; empty if unknown. ``pod``, ``pod_node``: names of the
    pod in the most advanced phase, and of its node; empty without one. ``contradiction``: fact that contradicts the
    home, as a sentence, for example that its pod runs on another node; else empty. ``is_judged``: false if the profile
    of this list does not schedule the pod. Another profile can list the same home. ``holds``: true if the pod waits
    while its home accepts no pods. It waits without end or, with the policy ``grace``, for the grace period.
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
    """Plugin that keeps homes and lists them. Requests of kube-scheduler never call these methods."""

    @abstractmethod
    def homes(self) -> Iterator[Home | None]:
        """Yield every home once, and ``None`` after each step, so that other tasks can run.

        For an owner with a pod but without a home, yield a ``Home`` with an empty ``node``. A step should take at most
        some tenths of a millisecond.
        """
        ...

    @abstractmethod
    def home_of(self, pod: Pod) -> Home | None:
        """Return the home of the pod. Its ``node`` is empty if the pod's owner keeps homes, but the pod has none.

        ``None`` if no owner of the pod keeps homes. ``Home.pod`` is this pod, even if several pods share the home.
        """
        ...

    @abstractmethod
    def keepers(self) -> Iterable[Keeper]:
        """Return the kinds whose objects keep homes."""
        ...

    def share_memory(self, deciding: HomesPlugin) -> None:
        """Use the state that ``deciding`` keeps between calls, so that both instances return the same verdicts.

        ``deciding``: instance of the same plugin that makes the decisions. This instance only answers queries, on its
        own snapshot. The default implementation does nothing, for plugins without such state.
        """
        return
