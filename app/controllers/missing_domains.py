"""Writes the Event ``DomainsWithoutNodes`` for workloads with a hard constraint that ignores domains without nodes.

A hard constraint does not count a domain without nodes. After the loss of a zone, for example, all pods go to the other
zones, and stay there. ``minDomains`` prevents this: pods then wait, and cluster autoscalers can add a node in the lost
zone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from app.analysis.skew_estimate import Key
from app.framework.counts import Counts, Unprepared
from app.framework.events import EventRecorder, Reference
from app.kube.core_v1 import Pod
from app.memory.known_domains import DomainTable
from app.verbs.outcome import VerbFailure
from app.verbs.stepwise import run_stepwise

REASON: Final = "DomainsWithoutNodes"
ACTION: Final = "Watching"
HOSTNAME: Final = "kubernetes.io/hostname"

CHECK_SECONDS: Final = 60.0
"""Seconds between two checks of all workloads."""

AGAIN_SECONDS: Final = 5.0
"""Seconds until the next check if the snapshot could not be used."""

MOST_EVENTS: Final = 100
"""Maximum number of Events per check. The next checks write the others."""

_MOST_NAMED: Final = 10
"""Maximum number of domains that an Event names."""

_STEP: Final = 256
"""Number of workloads that are checked before other tasks can run."""

_Finding = tuple[str, str, str, str, tuple[str, ...], int]
"""Finding: (namespace, kind and name of the workload, topology key, missing domains, wanted ``minDomains``)."""


class MissingDomains:
    """Background task for the leader. ``workloads``: returns the pods of each workload with constraints, by ``Key``.

    ``profile_of``: returns the name of the pod's profile, or "".
    """

    def __init__(
        self,
        table: DomainTable,
        counts: Counts,
        workloads: Callable[[], Awaitable[Mapping[Key, Sequence[Pod]]]],
        profile_of: Callable[[Pod], str],
        events: EventRecorder,
    ) -> None:
        self._table = table
        self._counts = counts
        self._workloads = workloads
        self._profile_of = profile_of
        self._events = events
        self._reported: set[_Finding] = set()

    async def run(self) -> None:
        """Check all workloads each minute until cancelled. A finding of several checks in a row gets only one Event."""
        self._reported = set()
        while True:
            try:
                await run_stepwise(self._check(await self._workloads()))
            except VerbFailure:  # the snapshot cannot be used, for example because it is not complete yet
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                await asyncio.sleep(CHECK_SECONDS)

    def _check(self, workloads: Mapping[Key, Sequence[Pod]]) -> Iterator[None]:
        """Find the workloads whose ``minDomains`` is too low for the missing domains, in short steps.

        Each new finding is written as an Event on the newest pod of the workload, at most ``MOST_EVENTS``.
        """
        present: dict[str, frozenset[str]] = {}
        current: set[_Finding] = set()
        written = 0
        for number, (key, pods) in enumerate(workloads.items()):
            if number % _STEP == _STEP - 1:
                yield
            newest = max(pods, key=lambda it: it.created)
            profile = self._profile_of(newest)
            hard = {it.topology_key: it for it in key[3] if it.is_hard and it.topology_key != HOSTNAME}
            for topology_key in self._table.keys(profile, hard):
                if topology_key not in present:
                    yield from self._see(topology_key, present)
                missing = self._table.missing(profile, topology_key, present[topology_key])
                wanted = len(missing) + len(present[topology_key])
                if not missing or (hard[topology_key].min_domains or 1) >= wanted:
                    continue
                finding = (*key[:3], topology_key, tuple(missing), wanted)
                if finding not in self._reported and written == MOST_EVENTS:
                    continue
                current.add(finding)
                if finding not in self._reported:
                    written += 1
                    self._write(newest, topology_key, missing, wanted)
        self._reported = current

    def _see(self, key: str, present: dict[str, frozenset[str]]) -> Iterator[None]:
        """Add the domains of the topology key that have nodes now to ``present``, and remember them in the table."""
        while key not in present:
            try:
                present[key] = frozenset(self._counts.values(key).values())
            except Unprepared as unprepared:
                yield from unprepared.steps
        self._table.see(key, present[key])
        yield

    def _write(self, pod: Pod, key: str, missing: Sequence[str], wanted: int) -> None:
        named = ", ".join(missing[:_MOST_NAMED])
        if len(missing) > _MOST_NAMED:
            named += f" and {len(missing) - _MOST_NAMED} more"
        verb, those = ("has", "it") if len(missing) == 1 else ("have", "them")
        cause = f"{key}: {named} {verb} no node, so the constraint does not count {those}"
        note = f"{cause}. Set minDomains: {wanted} if pods should wait for a node there"
        self._events.event(Reference.to_pod(pod), None, "Normal", REASON, ACTION, note)
