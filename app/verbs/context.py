"""Dependencies and helpers of all verbs: snapshot, profiles, deep requests, owner lookup, and pending binds."""

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
from app.kube.decoding import without_deep_parts_in_steps
from app.kube.kinds import Kind
from app.memory.expected_binds import ExpectedBinds, ExpectedPods
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.verbs.outcome import Verb, VerbFailure
from app.verbs.stepwise import decide_prepared
from app.verbs.unserved import Unserved
from app.wire.extender_v1 import MalformedRequest, TooDeepRequest

T = TypeVar("T")

Problem = Callable[[], str]
"""Returns why the snapshot cannot be used; empty if it can."""


def require_snapshot(problem: Problem, hosts: Sequence[str] = ()) -> None:
    """Raise ``VerbFailure`` (``not_ready``) if the snapshot cannot be used."""
    reason = problem()
    if reason:
        raise VerbFailure("not_ready", f"homeport: {reason}", hosts)


class Reader(Protocol):
    """Reads objects that the watch has not delivered yet from the API server, and stores them in the snapshot."""

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Read one object. A missing object, or an unreachable API server, is not an error: the decision handles the
        absence.

        Raises ``Unreadable`` if the object cannot be decoded.
        """
        ...

    async def fetch_pod(self, namespace: str, name: str) -> None:
        """Read one pod. Raises ``OSError`` if the API server cannot be reached."""
        ...


class VerbContext(Struct, frozen=True):
    """Dependencies of the verbs, created once per process.

    ``problem`` returns why no decision is possible. ``due``: binds expected after filter. ``max_priority``: highest
    score of prioritize. ``unserved``: counts requests of pods without a profile.
    """

    cluster: Cluster
    profiles: Mapping[str, Framework]
    reader: Reader
    problem: Problem
    due: ExpectedBinds
    max_priority: int = 20
    unserved: Unserved = field(default_factory=Unserved)

    def framework_for(self, pod: Pod) -> Framework | None:
        """Return the profile of the pod's schedulerName, else the profile for all other names; ``None`` without
        either.
        """
        framework = self.profiles.get(pod.spec.scheduler_name)
        return framework if framework is not None else self.profiles.get(ANY)

    def framework_for_request(self, verb: Verb, pod: Pod) -> Framework | None:
        """Like ``framework_for``, and count requests of pods without a profile."""
        framework = self.framework_for(pod)
        if framework is None:
            self.unserved.record(verb, pod)
        return framework

    async def look_up_missing(
        self, framework: Framework, pod: Pod, hosts: Sequence[str] = (), *, at_bind: bool = False
    ) -> None:
        """Read objects that the plugins need for this pod and the watch has not delivered yet.

        Owners are chained (pod, machine instance, machine), so each answer can name the next one. The lookup ends when
        a round names no new object. Raises ``VerbFailure`` (``fault``), also for an object that cannot be decoded.
        """
        fetched: set[tuple[Kind[Any], str, str]] = set()
        while missing := self._missing(framework, pod, hosts, at_bind):
            new = [it for it in missing if it not in fetched]
            if not new:
                return
            fetched.update(new)
            for kind, namespace, name in new:
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


async def decode_deep(
    decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest, verb: str
) -> T:
    """Decode a request that ``decode`` refused for its nesting depth, in steps of the event loop.

    Raises ``VerbFailure`` (``bad_request``) if it is malformed.
    """
    try:
        return await decode_limited(decode, body, refused)
    except MalformedRequest as error:
        raise VerbFailure("bad_request", f"homeport: malformed {verb} request: {error}") from None


async def decode_limited(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest) -> T:
    """Decode a request after cutting out deeply nested parts; raise ``refused`` if depth was not the reason.

    Raises ``MalformedRequest``.
    """
    if not isinstance(refused, TooDeepRequest):
        raise refused
    return decode(await without_deep_parts_in_steps(bytes(body)))


class PendingBindsConflict(Exception):
    """Pods with a pending bind (``uids``) may take the resources of a node that passes."""

    def __init__(self, uids: frozenset[str]) -> None:
        super().__init__()
        self.uids = uids


async def decide_beside_pending(
    binds: ExpectedBinds, pod: Pod, due: ExpectedPods, decide: Callable[[ExpectedPods], T]
) -> T:
    """Return the result of ``decide`` for the pending pods ``due``.

    If ``decide`` raises ``PendingBindsConflict``, wait for these binds and decide again. So the pod that was filtered
    first gets the last place of a node (ADR 41). The decision and the caller run without an ``await`` between them.
    """
    try:
        return await decide_prepared(partial(decide, due))
    except PendingBindsConflict as conflict:
        uids = conflict.uids
    await binds.wait(lambda _, other: other.uid in uids, pod)
    return await decide_prepared(partial(decide, ()))


def require_room(framework: Framework, state: CycleState, pod: Pod, passed: Sequence[str], due: ExpectedPods) -> None:
    """Check that the pod fits beside the pending pods on every node that it passes. ``state``: state of that search.

    Raises ``PendingBindsConflict``, ``PluginError`` or ``Unprepared``.
    """
    if due and passed and (uids := framework.search.blocking_pods(state, pod, passed, due)):
        raise PendingBindsConflict(uids)
