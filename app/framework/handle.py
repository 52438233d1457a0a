"""The handle through which a plugin reaches the cluster and the engine, and the types of its fields."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NoReturn, Protocol

from msgspec import Struct

from app.framework.activation import Activate, activate_nothing
from app.framework.counts import NO_POD_TERMS, Counts, PodTerms
from app.framework.cycle_state import CycleState
from app.framework.events import NO_EVENTS, EventRecorder
from app.framework.listers import NodeLister
from app.framework.node_info import NodeInfo
from app.framework.objects import Binder, Objects, Writer
from app.framework.status import Status
from app.kube.core_v1 import Pod

DEFAULT_RELEASE: Final = "1.36"
"""Kubernetes release that a profile follows if it names none. It determines the in-tree plugins and their defaults."""


class WaitingPod(Protocol):
    """Pod that waits at Permit."""

    @property
    def pod(self) -> Pod: ...

    @property
    def node_name(self) -> str:
        """Name of the node to which the pod is bound once all plugins allow it."""
        ...

    def pending_plugins(self) -> Collection[str]:
        """Return the names of the plugins that returned Wait and have not allowed the pod yet."""
        ...

    def allow(self, plugin: str) -> None:
        """Allow the pod for this plugin. Once no plugin is pending, the pod proceeds to binding.

        No effect if the pod was rejected.
        """
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """Reject the pod, so that it is not bound. Return ``False``, without an effect, if it no longer waits."""
        ...


class WaitingPods(Protocol):
    """All pods that wait at Permit, of every profile."""

    def get(self, uid: str) -> WaitingPod | None:
        """Return the pod with this UID; ``None`` if it does not wait."""
        ...

    def all(self) -> Collection[WaitingPod]: ...


class Clock(Protocol):
    """Clock in seconds; monotonic unless documented otherwise."""

    def __call__(self) -> float: ...


class DryRun(Protocol):
    """Simulation that removes pods from a node, adds pods to it, and runs the profile's filters on the result.

    It works on copies of the node and of the evaluation's state, so nothing else sees its changes. It is valid within
    its evaluation, until the next ``await`` or yield.
    """

    @property
    def node(self) -> NodeInfo:
        """The simulated node."""
        ...

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod from the simulated node. Raises ``KeyError`` if the node does not have the pod.

        Raises another exception if a plugin fails; let it propagate.
        """
        ...

    def add_pod(self, pod: Pod) -> None:
        """Add a pod to the simulated node. Raises if a plugin fails; let that exception propagate."""
        ...

    def filter(self) -> Status:
        """Run the profile's filters on the simulated node, both with and without the pods nominated to it.

        Works like kube-scheduler's ``RunFilterPluginsWithNominatedPods``. Returns the status of the first filter that
        rejects the node, or Success. An exception of a filter becomes an Error status with the plugin's name, except
        ``Unprepared``, which is raised.
        """
        ...


Sleep = Callable[[float], Awaitable[None]]
"""Function that sleeps for a number of seconds on the handle's clock."""


class NodeVerdict(Struct, frozen=True):
    """Verdict of the in-tree filters on one pod and node, for messages only.

    ``reasons``: constant texts of the filters that reject the pod. ``unasked``: names of the filters that failed or
    could not run, for example because the node cannot be read. Filters that only the profile itself can run are not
    named; if both fields are empty, only these can still reject the pod there.
    """

    reasons: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


Why = Callable[[Pod, str], Awaitable[NodeVerdict]]
"""Function (pod, name of a node) that returns the in-tree filters' verdict. A call can take seconds and never raises.
"""

NOT_KNOWN: Final = NodeVerdict((), ("any in-tree filter",))
"""Verdict if no filter ran, for example in a handle without access to the in-tree filters."""


async def _unknown_verdict(_pod: Pod, _node_name: str) -> NodeVerdict:
    return NOT_KNOWN


def _any_scheduler(_scheduler_name: str) -> bool:
    return True


def _never() -> bool:
    return False


def _always_a_sample(_names: int) -> bool:
    return True


def _no_filters(_state: CycleState, _pod: Pod, _node: NodeInfo) -> NoReturn:
    raise LookupError("there is no profile whose filters could be run")


class Fallbacks(Protocol):
    """Hard spread constraints that are soft for single pods (the option ``fallback`` of PodTopologySpread).

    A constraint becomes soft for a pod once, in all evaluations over the time set by ``enable``, a node would have fit
    without this constraint. Only one constraint of a pod is soft at a time: the one that had blocked it longest.
    """

    def enable(self, after: float) -> None:
        """Begin to observe the profile's pods. ``after``: seconds for which a constraint must block a pod."""
        ...

    def relaxed(self, pod: Pod) -> Collection[str]:
        """Return the topology keys of the constraints that are soft for the pod now.

        The result changes only between two evaluations, never within one.
        """
        ...


class NoFallbacks:
    """``Fallbacks`` without soft constraints; the default in ``ProfileContext``."""

    def enable(self, after: float) -> None:
        pass

    def relaxed(self, pod: Pod) -> Collection[str]:
        return ()


class KnownDomains(Protocol):
    """Domains of topology keys that a profile knows, also while no node is in them. They never affect a verdict."""

    def declare(self, domains: Mapping[str, Collection[str]], remember: float | None) -> None:
        """Declare domains by topology key, which stay known. ``remember``: seconds for which other domains stay known
        after their last node is gone; ``None`` if they do not.
        """
        ...

    def missing(self, key: str, present: Collection[str]) -> Collection[str]:
        """Return the known domains of a topology key that are not in ``present``, sorted."""
        ...


class NoKnownDomains:
    """``KnownDomains`` that knows no domains."""

    def declare(self, domains: Mapping[str, Collection[str]], remember: float | None) -> None:
        pass

    def missing(self, key: str, present: Collection[str]) -> Collection[str]:
        return ()


class Timing(Struct, frozen=True):
    """Clocks and delays of a plugin, which tests can replace.

    ``clock``: monotonic seconds. ``wall_clock``: seconds since 1970, for times that must stay valid after a restart.
    This clock can go backward, and differs between replicas. ``sleep`` suspends an ``async def`` for a number of
    seconds. ``repair_interval``: seconds between two searches for writes that a crash left incomplete; it is the
    setting ``repairInterval``.
    """

    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    sleep: Sleep = asyncio.sleep
    repair_interval: float = 60.0


class ProfileContext(Struct, frozen=True):
    """Services of the profile that a plugin belongs to.

    ``serves`` returns True if the profile schedules pods of a schedulerName. ``release`` is the Kubernetes release, for
    example ``1.36``, whose in-tree plugins and defaults the profile follows. ``dry_run`` starts a dry run for a pod
    whose state PreFilter has prepared. ``why`` runs in-tree filters on one node, including filters that the profile
    does not have. Its verdict is for messages, never for decisions. ``is_sample`` takes the number of names in a filter
    request. It returns True if kube-scheduler might have left out nodes that pass its own filters, and the sampling
    guard is on. ``fallbacks``: hard spread constraints that are soft for single pods now. ``known_domains``: domains
    that the profile knows, also while no node is in them.
    """

    serves: Callable[[str], bool] = _any_scheduler
    release: str = DEFAULT_RELEASE
    dry_run: Callable[[CycleState, Pod, NodeInfo], DryRun] = _no_filters
    why: Why = _unknown_verdict
    is_sample: Callable[[int], bool] = _always_a_sample
    fallbacks: Fallbacks = NoFallbacks()
    known_domains: KnownDomains = NoKnownDomains()


class Handle(Struct, frozen=True):
    """Services through which a plugin reaches the cluster and the engine.

    ``waiting``: the pods that wait at Permit, of every profile. ``event_recorder`` records Events on an object, like
    kube-scheduler's ``Handle.EventRecorder``. ``activate`` makes the scheduler retry pending pods, like
    kube-scheduler's ``Handle.Activate``. ``is_asked`` returns True during a read-only request, for example ``explain``.
    During such a request, a plugin must not change its own state.
    """

    counts: Counts
    objects: Objects
    writer: Writer
    binder: Binder
    waiting: WaitingPods
    nodes: NodeLister
    terms: PodTerms = NO_POD_TERMS
    timing: Timing = Timing()
    profile: ProfileContext = ProfileContext()
    event_recorder: EventRecorder = NO_EVENTS
    activate: Activate = activate_nothing
    is_asked: Callable[[], bool] = _never
