"""Batch after batch of cases; after each the service must be as well as before it.

What is wrong with an answer belongs to its case. What is wrong with the service after a batch (a standstill, a line in
its log, a feed that stopped) may be the work of any: then halves of the batch are sent again, and halves of those.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tests.fuzz import amounts, answering, client, objects, requests
from tests.fuzz.client import Listener, NotHttp
from tests.fuzz.families import EVENTS_AT_ONCE
from tests.fuzz.findings import Finding, Findings, What, halves
from tests.fuzz.world import FeedCounts, Pause, World

AT_ONCE: Final = 8
MOST_FINDINGS: Final = 60
"""Then it is enough."""

_FEED_SECONDS: Final = 60.0
"""For a marker to come through, on however busy a machine."""

_BETWEEN_SECONDS: Final = 0.001

_ALONE_SECONDS: Final = 5.0
"""The same where a batch is known to have stopped the feed, and only the case is looked for."""

_REPLAYED: Final = 400
_SHRINKS: Final = 120
_MOST_CULPRITS: Final = 6


class Limits(Struct, frozen=True):
    """What a run is held against. ``step_ms``: of processor time in one step of the loop. ``growth``: in megabytes."""

    step_ms: float = 50.0
    growth: float = 300.0


class Tally(Struct):
    """What a run did. ``not_again``: standstills that the same cases, sent again, did not bring about."""

    sent: Counter[str]
    kinds: Counter[str]
    asks: int = 0
    longest_step_ms: float = 0.0
    longest_step_in: list[str] = []
    not_again: int = 0
    slowest_marker: float = 0.0
    memory: list[float] = []
    peak: float = 0.0
    batches: int = 0


class AnyCase(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def family(self) -> str: ...


C = TypeVar("C", bound=AnyCase)


class Campaign(ABC, Generic[C]):
    """What both parts have in common. ``carry_out`` sends a batch and says what is wrong, and with which case."""

    def __init__(self, world: World, findings: Findings, limits: Limits) -> None:
        self.world = world
        self.findings = findings
        self.limits = limits
        self.tally = Tally(Counter(), Counter())

    @abstractmethod
    async def carry_out(self, cases: Sequence[C], *, alone: bool = False) -> list[Finding]: ...

    @abstractmethod
    def bytes_of(self, case: C) -> tuple[bytes, ...]: ...

    async def run(self, cases: Callable[[int], C], numbers: Sequence[int], batch: int) -> None:
        self.tally.memory.append(self.world.memory()[0])
        for start in range(0, len(numbers), batch):
            await self._batch([cases(number) for number in numbers[start : start + batch]])
            if len(self.findings.all) >= MOST_FINDINGS:
                progress(f"{len(self.findings.all)} findings, that is enough")
                return
            done = min(start + batch, len(numbers))
            progress(f"{done:,} of {len(numbers):,}, {len(self.findings.all)} findings, {self.tally.memory[-1]:.0f} MB")

    async def _batch(self, cases: Sequence[C]) -> None:
        self.tally.batches += 1
        for case in cases:
            self.tally.sent[case.family] += 1
        own, common = await self._outcome(cases)
        for finding in own:
            self.findings.add(await self._shrunk(finding))
        if common:
            await self._look_for(cases, common)
        if _stops(common) or await self.world.troubles():
            await self.world.restart()
        else:
            now, peak = self.world.memory()
            self.tally.memory.append(now)
            self.tally.peak = max(self.tally.peak, peak)

    async def _outcome(self, cases: Sequence[C], *, alone: bool = False) -> tuple[list[Finding], list[Finding]]:
        """Findings of cases that are known, and of the batch as a whole."""
        try:
            found = await self.carry_out(cases, alone=alone)
        except (OSError, NotHttp) as error:
            found = [self._of_batch("crash", cases, f"it cannot be reached: {error}")]
        found += [self._of_batch("crash", cases, it) for it in await self.world.troubles()]
        found += [self._of_batch("standstill", cases, _told(it)) for it in await self._standstills()]
        return [it for it in found if len(it.numbers) == 1], [it for it in found if len(it.numbers) != 1]

    def _of_batch(self, what: What, cases: Sequence[C], told: str) -> Finding:
        if len(cases) == 1:
            (case,) = cases
            return Finding(what, case.family, (case.number,), told, self.bytes_of(case))
        return Finding(what, "?", tuple(case.number for case in cases), told)

    async def _standstills(self) -> list[Pause]:
        try:
            found = await self.world.pauses()
        except (OSError, TimeoutError):
            return []
        for it in found:
            if it.cpu_ms > self.tally.longest_step_ms:
                self.tally.longest_step_ms, self.tally.longest_step_in = it.cpu_ms, it.frames
        return [it for it in found if it.cpu_ms > self.limits.step_ms]

    async def _look_for(self, cases: Sequence[C], common: Sequence[Finding]) -> None:
        """Which of them did it? Each try has a service that is well: what stops a feed stops it for the next, too."""
        progress(f"looking for {', '.join(sorted({it.what for it in common}))} in {len(cases)}: {common[0].told[:200]}")
        culprits: list[Finding] = []
        if _stops(common):
            await self.world.restart()
        again = await self._divide(list(cases), culprits, [_REPLAYED])
        for finding in culprits:
            self.findings.add(finding)
        unseen = {it.what for it in common} - {it.what for it in culprits}
        for finding in common:
            if finding.what == "standstill" and not again:
                self.tally.not_again += 1
            elif finding.what in unseen:
                self.findings.add(finding)

    async def _divide(self, cases: Sequence[C], culprits: list[Finding], left: list[int]) -> bool:
        """Adds to ``culprits``; whether anything was wrong with these cases again."""
        if not cases or left[0] <= 0 or len(culprits) >= _MOST_CULPRITS:
            return False
        left[0] -= 1
        own, common = await self._outcome(cases, alone=True)
        if not own and not common:
            return False
        if _stops((*own, *common)):
            await self.world.restart()
        if len(cases) == 1:
            culprits += own
        else:
            for part in halves(cases):
                await self._divide(part, culprits, left)
        return True

    async def _shrunk(self, finding: Finding) -> Finding:
        """By default as it was."""
        return finding

    async def _several_at_once(
        self, cases: Sequence[C], breaches: Callable[[C], Awaitable[list[str]]]
    ) -> list[Finding]:
        """Return a finding for each case with a breach."""
        left, found = list(reversed(cases)), list[Finding]()

        async def work() -> None:
            while left:
                case = left.pop()
                if told := await breaches(case):
                    text = "\n".join(told)
                    found.append(Finding("breach", case.family, (case.number,), text, self.bytes_of(case)))

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return found

    def _listener(self, case: requests.Case) -> Listener:
        return self.world.operator if case.to == "operator" else self.world.verbs


class Requests(Campaign[requests.Case]):
    """Requests on connections of their own, some at once."""

    _cases: Mapping[int, requests.Case] = {}

    def bytes_of(self, case: requests.Case) -> tuple[bytes, ...]:
        return case.pieces

    async def carry_out(self, cases: Sequence[requests.Case], *, alone: bool = False) -> list[Finding]:
        return await self._several_at_once(cases, self._breaches)

    async def _breaches(self, case: requests.Case) -> list[str]:
        self.tally.asks += max(1, len(case.asks))
        return await answering.sent(case, self._listener(case))

    async def _batch(self, cases: Sequence[requests.Case]) -> None:
        self._cases = {case.number: case for case in cases}
        await super()._batch(cases)

    async def _shrunk(self, finding: Finding) -> Finding:
        """The body without what is not needed for an answer as wrong, where the case is one request."""
        case = self._cases[finding.numbers[0]]
        if finding.what != "breach" or len(case.asks) != 1 or case.due != "answer":
            return finding
        (asked,) = case.asks

        def alone(body: bytes) -> requests.Case:
            ask = replace(asked, body=body)
            return requests.Case(case.number, case.family, case.to, (requests.whole(ask),), (ask,))

        async def still(body: bytes) -> bool:
            return bool(await answering.sent(alone(body), self._listener(case)))

        if not await still(asked.body):
            return finding
        return replace(finding, sent=alone(await shrunk(asked.body, still)).pieces)


class Objects(Campaign[objects.Case]):
    """Objects by watch, then by list: each must leave everybody else's feed as it was."""

    def bytes_of(self, case: objects.Case) -> tuple[bytes, ...]:
        return (case.line,)

    async def carry_out(self, cases: Sequence[objects.Case], *, alone: bool = False) -> list[Finding]:
        seconds = _ALONE_SECONDS if alone else _FEED_SECONDS
        for case in cases:
            self.tally.kinds[case.kind] += 1
        before = await self.world.feed_counts()
        await self._send(cases)
        told = await self._markers(seconds)
        told += self._uncounted(cases, before, await self.world.feed_counts())
        if not told:
            told = await self._lists(cases, seconds)
        return [self._of_batch("breach", cases, it) for it in told]

    async def _send(self, cases: Sequence[objects.Case]) -> None:
        for place, case in enumerate(cases):
            if place % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(_BETWEEN_SECONDS)
            self.world.api.send(case.kind, self.world.versioned(case.line), once=case.once)

    async def _markers(self, seconds: float) -> list[str]:
        told, took = await self.world.overtaken(seconds)
        self.tally.slowest_marker = max(self.tally.slowest_marker, took)
        return told

    @staticmethod
    def _uncounted(
        cases: Collection[objects.Case], before: Mapping[str, FeedCounts], after: Mapping[str, FeedCounts]
    ) -> Iterator[str]:
        """Where a list was taken anew it went past the events, and nobody can say how many there were to count."""
        for kind, least in Counter(case.kind for case in cases if case.hopeless).items():
            counted = after[kind].undecodable - before[kind].undecodable
            if counted < least and after[kind].relists == before[kind].relists:
                yield f"{kind}: {least} objects cannot be read, {counted} were counted"

    async def _lists(self, cases: Sequence[objects.Case], seconds: float) -> list[str]:
        """The same objects in the pages of a list, then a list without them: nobody good is missing in either."""
        items: dict[str, list[bytes]] = {kind: [] for kind in objects.KINDS}
        for case in cases:
            if case.item is not None:
                items[case.kind].append(self.world.versioned(case.item))
        told: list[str] = []
        for listed in (items, {}):
            for kind in items:
                self.world.api.list_also(kind, listed.get(kind, []))
                self.world.api.forget(kind, in_words=self.tally.batches % 2 == 0)
            told += await self._markers(seconds)
            good = {kind: [[*key] for key in self.world.api.keys(kind)] for kind in items}
            told += (await self.world.until_there(good, seconds))[0]
            if told:
                break
        return told


class Amounts(Campaign[amounts.Case]):
    """Objects by watch, some at once, each followed by a question about a pod. No amount may be a plugin's fault."""

    def bytes_of(self, case: amounts.Case) -> tuple[bytes, ...]:
        return (case.line, *case.asked.pieces)

    async def carry_out(self, cases: Sequence[amounts.Case], *, alone: bool = False) -> list[Finding]:
        found = await self._several_at_once(cases, self._breaches)
        seconds = _ALONE_SECONDS if alone else _FEED_SECONDS
        told, took = await self.world.overtaken(seconds)
        self.tally.slowest_marker = max(self.tally.slowest_marker, took)
        answer = await client.post(self.world.verbs, "/api/v1/cycle", amounts.PLAIN)
        if answer.status != HTTPStatus.OK:
            told = [*told, f"a pod without any amount: {answer.status} {answer.body[:1000].decode()}"]
        return [*found, *(self._of_batch("breach", cases, it) for it in told)]

    async def _breaches(self, case: amounts.Case) -> list[str]:
        self.tally.asks += 1
        self.tally.kinds[case.kind] += 1
        self.world.api.send(case.kind, self.world.versioned(case.line))
        return await answering.sent(case.asked, self._listener(case.asked))


async def shrunk(body: bytes, still: Callable[[bytes], Awaitable[bool]]) -> bytes:
    """A smaller body that is still wrong: parts are left out as long as that holds, ever smaller ones."""
    size, left = max(1, len(body) // 2), _SHRINKS
    while size >= 1 and left > 0:
        at = 0
        while at < len(body) and left > 0:
            left -= 1
            smaller = body[:at] + body[at + size :]
            if smaller and await still(smaller):
                body = smaller
            else:
                at += size
        size //= 2
    return body


def _stops(found: Sequence[Finding]) -> bool:
    """Whether the service may not be well any more."""
    return any(it.what != "standstill" for it in found)


def _told(pause: Pause) -> str:
    where = "\n  ".join(pause.frames[-8:])
    took = f"{pause.cpu_ms} ms of processor time in a step ({pause.wall_ms} by the clock, {pause.gc_ms} collecting)"
    return f"{took}, in\n  {where}"


def progress(told: str) -> None:
    """A word to whoever waits."""
    print(f"  {told}", file=sys.stderr, flush=True)
