"""The filter verb on a world, asked as kube-scheduler asks, with and without a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from app.cluster.saved import NothingToRead
from app.verbs.due import DueBinds
from app.verbs.filter import FilterVerb
from app.verbs.handed import HandedBack
from app.verbs.service import Deciding
from app.verbs.standing import StandingRefusals
from tests.builders import JsonObject
from tests.harness import World


class Tally:
    """A counter."""

    def __init__(self) -> None:
        self.count = 0

    def inc(self) -> None:
        self.count += 1


class Filter:
    """``remembered`` and ``computed`` count refusals. The keywords limit what is remembered."""

    def __init__(self, world: World, *, due_wait: float = 0.0, **limits: Any) -> None:
        self.due = DueBinds(world.clock, wait_seconds=due_wait, observe=lambda _: None)
        self.problem = ""
        self.remembered, self.computed = Tally(), Tally()
        framework = world.framework
        self.standing = StandingRefusals(world.cluster, remembered=self.remembered, computed=self.computed, **limits)
        deciding = Deciding(
            world.cluster, {framework.scheduler_name: framework}, NothingToRead(), lambda: self.problem, self.due
        )
        self.verb = FilterVerb(deciding, self.standing, HandedBack(), lambda *_: None)

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
