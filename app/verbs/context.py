"""What all verbs share: the snapshot, the profiles, requests of any depth, owners to look up, pods that are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from app.cache.cluster import Cluster
from app.config.profile import ANY
from app.framework.cycle_state import CycleState
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.decoding import levelled_in_turns
from app.kube.kinds import Kind
from app.memory.expected_binds import ExpectedBinds, ExpectedPods
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.outcome import Verb, VerbFailure
from app.verbs.slices import prepared
from app.verbs.unserved import Unserved
from app.wire.extender_v1 import MalformedRequest, TooDeep

T = TypeVar("T")

Problem = Callable[[], str]
"""Returns a sentence why the snapshot cannot be used; empty if it can."""


def require_snapshot(problem: Problem, hosts: Sequence[str] = ()) -> None:
    """Raise ``VerbFailure`` (``not_ready``) where a decision would be a guess."""
    found = problem()
    if found:
        raise VerbFailure("not_ready", f"homeport: {found}", hosts)


class Reader(Protocol):
    """Reads past the watch what a decision needs at once, and puts it into the snapshot."""

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """No error if it is not there or nobody answers: the decision finds it missing.

        Raises ``Unreadable`` for what is there and makes no sense.
        """
        ...

    async def fetch_pod(self, namespace: str, name: str) -> None:
        """The same for a pod. Raises ``OSError`` if the API server cannot be asked."""
        ...


class VerbContext(Struct, frozen=True):
    """The means of a decision, made once by ``app.main``."""

    cluster: Cluster
    profiles: Mapping[str, Framework]
    reader: Reader
    problem: Problem
    due: ExpectedBinds
    max_priority: int = 20
    unserved: Unserved = field(default_factory=Unserved)

    def framework_for(self, pod: Pod) -> Framework | None:
        """The profile of the pod's schedulerName, else that of all others; ``None`` where it is none of ours."""
        found = self.profiles.get(pod.spec.scheduler_name)
        return found if found is not None else self.profiles.get(ANY)

    def asked_framework(self, verb: Verb, pod: Pod) -> Framework | None:
        """The same for a request; that there is none is noted."""
        found = self.framework_for(pod)
        if found is None:
            self.unserved.note(verb, pod)
        return found

    async def look_up_missing(
        self, framework: Framework, pod: Pod, hosts: Sequence[str] = (), *, at_bind: bool = False
    ) -> None:
        """Fetch what the plugins need of this pod's owners and the watch has not brought yet.

        Owners are chained (pod, machine instance, machine), so each answer may name the next; it ends when a round
        brings nothing new. Raises ``VerbFailure`` (``fault``), also for one that cannot be read.
        """
        read: set[tuple[Kind[Any], str, str]] = set()
        while missing := self._missing(framework, pod, hosts, at_bind):
            unread = [it for it in missing if it not in read]
            if not unread:
                return
            read.update(unread)
            for kind, namespace, name in unread:
                try:
                    await self.reader.fetch(kind, namespace, name)
                except Unreadable as cause:
                    raise VerbFailure("fault", f"homeport: {cause}", hosts) from None

    def _missing(
        self, framework: Framework, pod: Pod, hosts: Sequence[str], at_bind: bool
    ) -> list[tuple[Kind[Any], str, str]]:
        try:
            return framework.required_objects(pod, at_bind=at_bind)
        except PluginError as fault:
            raise VerbFailure("fault", f"homeport: {fault.status.message}", hosts) from fault


async def read_again(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest, verb: str) -> T:
    """What a request says that was refused for its depth; others get their turn meanwhile.

    Raises ``VerbFailure`` for one that is malformed.
    """
    try:
        return await without_depth(decode, body, refused)
    except MalformedRequest as error:
        raise VerbFailure("bad_request", f"homeport: malformed {verb} request: {error}") from None


async def without_depth(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest) -> T:
    """The same, but raises ``MalformedRequest``."""
    if not isinstance(refused, TooDeep):
        raise refused
    return decode(await levelled_in_turns(bytes(body)))


class Crowded(Exception):
    """The pods ``uids``, whose binds are due, may take the room on a node that passes."""

    def __init__(self, uids: frozenset[str]) -> None:
        super().__init__()
        self.uids = uids


async def decided(binds: ExpectedBinds, pod: Pod, due: ExpectedPods, decide: Callable[[ExpectedPods], T]) -> T:
    """Return what ``decide`` returns, given the pods that are due; if it raises ``Crowded``, once these are bound.

    So the pod that asked first gets the last place of a node (ADR 41). Nothing is awaited between the decision and the
    caller.
    """
    try:
        return await prepared(partial(decide, due))
    except Crowded as found:
        uids = found.uids
    await binds.wait(lambda _, other: other.uid in uids, pod)
    return await prepared(partial(decide, ()))


def require_room(framework: Framework, state: CycleState, pod: Pod, passed: Sequence[str], due: ExpectedPods) -> None:
    """Check that the pod fits beside the due pods on every node that it passes. ``state``: of that search.

    Raises ``Crowded``, ``PluginError`` or ``Unprepared``.
    """
    if due and passed and (uids := framework.search.blocking_pods(state, pod, passed, due)):
        raise Crowded(uids)
