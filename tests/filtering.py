"""The filter verb on a world, asked as kube-scheduler asks, with and without a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from app.feeds.saved import NullReader
from app.memory.expected_binds import ExpectedBinds
from app.memory.filter_results import FilterResultCache
from app.memory.picks import Picks
from app.memory.refusal_cache import RefusalCache
from app.verbs.context import VerbContext
from app.verbs.filter import FilterVerb
from tests.builders import JsonObject
from tests.harness import World


class Tally:
    """A counter."""

    def __init__(self) -> None:
        self.count = 0

    def inc(self) -> None:
        self.count += 1


class Filter:
    """``remembered`` and ``computed`` count refusals, ``picked`` and ``failed`` picks.

    The keywords limit what is remembered.
    """

    def __init__(self, world: World, *, due_wait: float = 0.0, lean: bool = False, **limits: Any) -> None:
        self.due = ExpectedBinds(world.clock, wait_seconds=due_wait, observe=lambda _: None)
        self.world = world
        self.problem = ""
        self.remembered, self.computed = Tally(), Tally()
        self.framework = framework = world.framework
        self.refusals = RefusalCache(world.cluster, remembered=self.remembered, computed=self.computed, **limits)
        context = VerbContext(
            world.cluster, {framework.scheduler_name: framework}, NullReader(), lambda: self.problem, self.due
        )
        self.picked, self.failed = Tally(), Tally()
        picks = Picks(made=self.picked, failed=self.failed)
        self.results = FilterResultCache()
        self.verb = FilterVerb(context, self.refusals, self.results, lambda *_: None, picks, lean=lean)

    def raw(self, pod: JsonObject, names: Sequence[str], spelled: Callable[[bytes], bytes] = bytes) -> bytes:
        """The answer to a request in names form, which takes no time and waits for nobody."""
        call = self.verb(spelled(request(pod, names)))
        try:
            call.send(None)
        except StopIteration as done:
            body: bytes = done.value.body
            return body
        call.close()
        raise AssertionError("the verb waits")

    def answer(self, pod: JsonObject, names: Sequence[str], spelled: Callable[[bytes], bytes] = bytes) -> Any:
        return json.loads(self.raw(pod, names, spelled))

    def refused(
        self, pod: JsonObject, names: Sequence[str], spelled: Callable[[bytes], bytes] = bytes
    ) -> dict[str, str]:
        """Why each of the names was refused."""
        found: dict[str, str] = self.answer(pod, names, spelled)["FailedAndUnresolvableNodes"]
        return found


def request(pod: JsonObject, names: Sequence[str]) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()
