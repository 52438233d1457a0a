"""What a plugin may use of the world: its handle, and the parts of the handle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NoReturn, Protocol

from msgspec import Struct

from app.framework.activation import Activate, activate_nobody
from app.framework.counts import NO_POD_TERMS, Counts, PodTerms
from app.framework.cycle_state import CycleState
from app.framework.events import NO_EVENTS, EventRecorder
from app.framework.listers import NodeLister
from app.framework.node_info import NodeInfo
from app.framework.objects import Binder, Objects, Writer
from app.framework.status import Status
from app.kube.core_v1 import Pod

DEFAULT_RELEASE: Final = "1.36"
"""The Kubernetes release whose in-tree plugins are meant, where nobody says which."""


class WaitingPod(Protocol):
    """A pod that Permit made wait."""

    @property
    def pod(self) -> Pod: ...
    @property
    def node_name(self) -> str: ...

    def pending_plugins(self) -> Collection[str]:
        """The plugins that have not allowed it yet."""
        ...

    def allow(self, plugin: str) -> None:
        """This plugin no longer makes it wait; when none is left, it goes on to be bound."""
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """It will not be bound. ``False`` if that was settled before."""
        ...


class WaitingPods(Protocol):
    """All pods that wait at Permit, of every profile."""

    def get(self, uid: str) -> WaitingPod | None: ...
    def all(self) -> Collection[WaitingPod]: ...


class Clock(Protocol):
    """Seconds on a clock that never goes back, where nothing else is said of it."""

    def __call__(self) -> float: ...


class DryRun(Protocol):
    """What if: one node, and a copy of the evaluation's state, from which pods are taken and to which they come back.

    Nothing else sees it. It holds for the evaluation in which it was begun: until the next ``await``, or step.
    """

    @property
    def node(self) -> NodeInfo:
        """The node as it would be."""
        ...

    def remove_pod(self, pod: Pod) -> None:
        """One that is on the node would be gone. A fault of a plugin comes out of here as it is; let it pass."""
        ...

    def add_pod(self, pod: Pod) -> None:
        """One would run there. The same holds for a fault."""
        ...

    def filter(self) -> Status:
        """What the profile's filters say by then, with pods that are nominated to the node and without.

        kube-scheduler's ``RunFilterPluginsWithNominatedPods``. A fault is an Error status with its plugin.
        """
        ...


Sleep = Callable[[float], Awaitable[None]]
"""Seconds on the handle's clock."""


class NodeVerdict(Struct, frozen=True):
    """What in-tree filters say of one node for one pod, for a person.

    ``reasons``: the constant texts of those that refuse the pod. ``unasked``: the names of those whose word is not
    known. Without reasons the node is not known to take the pod, unless nobody is unasked either.
    """

    reasons: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()


Why = Callable[[Pod, str], Awaitable[NodeVerdict]]
"""Why would in-tree filters refuse the pod on the node of this name? It may take seconds, and never raises."""

NOT_KNOWN: Final = NodeVerdict((), ("any in-tree filter",))


async def _nobody_knows(_pod: Pod, _node_name: str) -> NodeVerdict:
    return NOT_KNOWN


def _any_scheduler(_scheduler_name: str) -> bool:
    return True


def _never() -> bool:
    return False


def _always_a_sample(_names: int) -> bool:
    return True


def _no_filters(_state: CycleState, _pod: Pod, _node: NodeInfo) -> NoReturn:
    raise LookupError("there is no profile whose filters could be run")


class Timing(Struct, frozen=True):
    """Clocks and pauses.

    ``clock``: seconds, never set back. ``wall_clock``: seconds since 1970, for times that outlive a process; it may be
    set back, and replicas differ in it. ``sleep`` pauses for some seconds, in ``async def`` alone.
    ``repair_interval``: seconds between two looks for writes that a crash left half done (``repairInterval``).
    """

    clock: Clock = time.monotonic
    wall_clock: Clock = time.time
    sleep: Sleep = asyncio.sleep
    repair_interval: float = 60.0


class ProfileContext(Struct, frozen=True):
    """What a plugin may ask of the profile that it belongs to.

    ``serves`` tells whether the profile judges the pods of a schedulerName. ``release``: the Kubernetes release, as
    ``1.36``, whose in-tree plugins it stands for. ``dry_run`` begins one for a pod whose state PreFilter has prepared.
    ``why`` asks in-tree filters of one node, whether or not the profile runs them: to tell people, never to decide
    by. ``is_sample`` tells from the number of names in a filter request if kube-scheduler may have left out nodes that
    its own filters pass.
    """

    serves: Callable[[str], bool] = _any_scheduler
    release: str = DEFAULT_RELEASE
    dry_run: Callable[[CycleState, Pod, NodeInfo], DryRun] = _no_filters
    why: Why = _nobody_knows
    is_sample: Callable[[int], bool] = _always_a_sample


class Handle(Struct, frozen=True):
    """What a plugin may use of the world.

    ``event_recorder`` tells people what happened to an object, as kube-scheduler's ``Handle.EventRecorder`` does.
    ``activate`` has waiting pods tried again, as its ``Handle.Activate`` does. ``is_asked``: whether the plugin answers
    a question, as ``explain``: nothing that it keeps may change by that.
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
    activate: Activate = activate_nobody
    is_asked: Callable[[], bool] = _never
