"""Dependencies and helpers of all verbs: snapshot, profiles, owner lookup and expected binds.

Also decodes requests that are nested too deeply for the usual decoder.
"""

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
from app.verbs.unserved import Unserved, printable
from app.wire.extender_v1 import MalformedRequest, TooDeepRequest

T = TypeVar("T")

Problem = Callable[[], str]
"""Function that returns why the snapshot cannot be used; an empty string if it can."""


def require_snapshot(problem: Problem, hosts: Sequence[str] = ()) -> None:
    """Raise ``VerbFailure`` (``not_ready``) if the snapshot cannot be used."""
    reason = problem()
    if reason:
        raise VerbFailure("not_ready", f"homeport: {reason}", hosts)


class Reader(Protocol):
    """Reads single objects from the API server before a watch delivers them, and stores them in the snapshot."""

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Read one object and store it. For some time, a failed read is not repeated.

        Raises ``Unreadable`` if the object cannot be decoded. For a node, it is also raised if the read fails with
        another status than 403 or 404, or gets no answer. After any other failure, the plugins decide without the
        object.
        """
        ...

    async def fetch_pod(self, namespace: str, name: str) -> None:
        """Read one pod and store it, if it exists. Raises ``OSError`` if it cannot be read or decoded."""
        ...


class VerbContext(Struct, frozen=True):
    """Dependencies of the verbs, created once per process.

    ``profiles``: frameworks by schedulerName. ``problem`` returns why no decision is possible, or an empty string.
    ``due``: binds that are expected after a filter or cycle. ``max_priority``: highest score of prioritize.
    ``unserved``: counts requests about pods without a profile.
    """

    cluster: Cluster
    profiles: Mapping[str, Framework]
    reader: Reader
    problem: Problem
    due: ExpectedBinds
    max_priority: int = 20
    unserved: Unserved = field(default_factory=Unserved)

    def framework_for(self, pod: Pod) -> Framework | None:
        """Return the profile of the pod's schedulerName, else the profile for all other names, else ``None``."""
        framework = self.profiles.get(pod.spec.scheduler_name)
        return framework if framework is not None else self.profiles.get(ANY)

    def require_framework(self, pod: Pod) -> Framework:
        """Like ``framework_for``, but raise ``VerbFailure`` if the pod has no profile."""
        framework = self.framework_for(pod)
        if framework is None:
            name = printable(pod.spec.scheduler_name)
            raise VerbFailure("nothing_to_do", f'no profile for schedulerName "{name}"')
        return framework

    def framework_for_request(self, verb: Verb, pod: Pod) -> Framework | None:
        """Like ``framework_for``, but if the pod has no profile, also count the request."""
        framework = self.framework_for(pod)
        if framework is None:
            self.unserved.record(verb, pod)
        return framework

    async def look_up_missing(
        self, framework: Framework, pod: Pod, hosts: Sequence[str] = (), *, at_bind: bool = False
    ) -> None:
        """Read the objects that the plugins require for this pod and that the watch has not delivered yet.

        Owners form a chain, for example pod, VirtualMachineInstance and VirtualMachine, so the plugins can require
        another object after each read. The lookup ends when they require no new object. Raises ``VerbFailure``
        (``fault``) if a plugin fails, or for the exceptions of ``Reader.fetch``.
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
    """Decode a request that ``decode`` refused, if its depth was the reason. Other tasks run between short steps.

    Raises ``VerbFailure`` (``bad_request``) if the request was refused for another reason, or is malformed.
    """
    try:
        return await decode_limited(decode, body, refused)
    except MalformedRequest as error:
        raise VerbFailure("bad_request", f"homeport: malformed {verb} request: {error}") from None


async def decode_limited(decode: Callable[[bytes], T], body: bytes | memoryview, refused: MalformedRequest) -> T:
    """Remove the deeply nested parts of a request, and decode the rest with ``decode``.

    Raises ``refused`` if ``decode`` had refused the request for another reason than its depth. Raises
    ``MalformedRequest`` if the rest is malformed.
    """
    if not isinstance(refused, TooDeepRequest):
        raise refused
    return decode(await without_deep_parts_in_steps(bytes(body)))


class PendingBindsConflict(Exception):
    """A node passes, but might lack room for the pod together with all pods whose bind is expected.

    ``uids``: those of these pods that can get such a node.
    """

    def __init__(self, uids: frozenset[str]) -> None:
        super().__init__()
        self.uids = uids


async def decide_beside_pending(
    binds: ExpectedBinds, pod: Pod, expected: ExpectedPods, decide: Callable[[ExpectedPods], T]
) -> T:
    """Call ``decide`` with the pods whose bind is expected (``expected``), and return its result.

    If ``decide`` raises ``PendingBindsConflict``, wait for the binds that it names, and call ``decide`` again with no
    expected pods. So the pod that was filtered first gets the last free resources of a node (ADR 41). No other task
    runs between the decision and the return.
    """
    try:
        return await decide_prepared(partial(decide, expected))
    except PendingBindsConflict as conflict:
        uids = conflict.uids
    await binds.wait(lambda _, other: other.uid in uids, pod)
    return await decide_prepared(partial(decide, ()))


def require_room(
    framework: Framework, state: CycleState, pod: Pod, passed: Sequence[str], expected: ExpectedPods
) -> None:
    """Check that nodes of ``passed`` have room for the pod together with all pods in ``expected``.

    Only nodes that at least one of these pods can get are checked. ``state``: state of the search that found the nodes.
    ``expected``: pods whose bind is expected, each with its possible nodes. Raises ``PendingBindsConflict`` if a node
    might lack room, ``PluginError`` or ``Unprepared``.
    """
    if expected and passed and (uids := framework.search.blocking_pods(state, pod, passed, expected)):
        raise PendingBindsConflict(uids)
