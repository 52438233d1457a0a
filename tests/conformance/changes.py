"""The frame of a comparison under random changes: what is kept, against the same made afresh, with checks between."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from tests.builders import JsonObject


class Difference(AssertionError):
    """What is kept is not what is so."""


class Changing:
    """One cluster under random changes."""

    def __init__(self, seed: int, cluster: Cluster, node_names: tuple[str, ...]) -> None:
        self.random = Random(seed)
        self.cluster = cluster
        self.node_names = node_names
        self.changes = 0

    def happens(self, what: Mapping[Callable[[], None], int]) -> None:
        """One change, drawn by weight."""
        self.changes += 1
        self.random.choices(list(what), list(what.values()))[0]()

    def some_node(self) -> str:
        """The name of a node, which need not be there."""
        return self.random.choice(self.node_names)

    def node_goes(self) -> None:
        self.cluster.delete_node(self.some_node())

    def is_waiting(self, pod: Pod) -> bool:
        """Whether it is on no node yet, if it is known at all."""
        known = self.cluster.pod(*pod.key)
        return known is None or not known.node_name

    def assume(self, pod: Pod) -> None:
        """A bind begins, if the pod waits."""
        if self.is_waiting(pod):
            self.cluster.assume(pod, self.some_node())

    def settle(self) -> None:
        """A bind in flight succeeds or fails."""
        flying = self.cluster.assumed.in_flight()
        if flying:
            (self.cluster.accept if self.random.random() < 0.5 else self.cluster.forget)(self.random.choice(flying).uid)

    def compare(self, what: str, expected: object, found: object) -> None:
        """Raises ``Difference``."""
        if expected != found:
            raise Difference(f"after {self.changes} changes, {what}: {expected!r}, not {found!r}")


class Compared(Protocol):
    """A history that can be asked, and knows what it has met. Its methods raise ``Difference``."""

    changes: int

    def happen(self) -> None:
        """One change."""
        ...

    def ask(self) -> None:
        """What is kept, and the same afresh."""
        ...

    def check(self) -> None:
        """All that is kept, at once."""
        ...

    def met(self) -> JsonObject:
        """How much was compared, to be told at the end."""
        ...


def run(history: Compared, changes: int, *, asked_every: int, checked_every: int) -> JsonObject:
    """So many changes, with questions and checks between, and a check at the end. Raises ``Difference``."""
    began = time.monotonic()
    for number in range(changes):
        history.happen()
        if number % asked_every == 0:
            history.ask()
        if number % checked_every == 0:
            history.check()
    history.check()
    return {"changes": changes, **history.met(), "seconds": round(time.monotonic() - began, 1)}


def main(compared: Callable[[int, int], JsonObject]) -> int:
    """Print what is found of ``CHANGES`` changes with ``SEED``, 1,000,000 and 1 if unset; 1 if anything differs."""
    try:
        found = compared(int(os.environ.get("CHANGES") or 1_000_000), int(os.environ.get("SEED") or 1))
    except Difference as difference:
        sys.stdout.write(json.dumps({"difference": str(difference)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0
