"""A home that a person removed never comes back without a first bind that ends after, whatever else is under way.

Nor does one that a person wrote go, but by a bind that began while the home was that one, and passed it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.framework.cycle_state import CycleState
from app.framework.objects import WriteConflict
from app.kube.core_v1 import Pod
from plugins.sticky_node.annotations import Claim, home_pod, recorded_home
from plugins.sticky_node.owners import Owner
from tests.strategies import examples
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_AFTER,
    HOME_POD,
    HOME_REPLACES,
    MACHINE,
    NODES,
    Machines,
    launcher,
)

pytestmark = pytest.mark.timeout(600)  # seconds to pass, minutes to shrink a failure to a story one can read

NAMES = ("p1", "p2")
ASKING = launcher("asking", created="2026-11-21T11:00:00Z")

names = st.sampled_from(NAMES)
nodes = st.sampled_from(NODES)
whiches = st.integers(0, len(NAMES) - 1)


class Homes(RuleBasedStateMachine):
    """One machine and two pods that take turns in being its launcher, each bound in steps.

    ``expected``: homes that there may be: given by a person, or made by a bind that began without a home or passed one
    over · ``began``: which pod had been heard last when a bind began: once another is heard, it counts no more ·
    ``replaced``: the home that it passes over, by the pod's UID · ``tails``: binds that were taken, and whose PostBind
    has not come yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machines = Machines()
        self.machines.machine()
        self.boots = 0
        self.under_way: dict[str, tuple[Pod, str, CycleState]] = {}
        self.tails: list[tuple[Pod, str, CycleState, str]] = []
        self.began: dict[str, str] = {}
        self.carried: set[str] = set()
        self.replaced: dict[str, str] = {}
        self.expected: set[str] = set()

    @rule(name=names, node=nodes, carries=st.booleans())
    def reserve(self, name: str, node: str, carries: bool) -> None:
        """A pod that may go there is about to; one that fails comes again as another."""
        if name in self.under_way:
            return
        self.boots += 1
        pod = launcher(name, uid=f"{name}-{self.boots}", created=f"2026-11-21T10:{self.boots:02}:00Z")
        self.machines.cluster.delete_pod(pod.key)
        self.machines.cluster.upsert_pod(pod)
        allowed = self.machines.allowed(pod)
        going = node if node in allowed else allowed[0]
        assert self.machines.reserve(pod, going).is_success
        self.under_way[name] = (pod, going, CycleState())
        self.began[name] = self.heard
        if len(allowed) > 1:
            self.expected.add(going)
        if carries:
            self.pre_bind(name)

    @precondition(lambda self: self.recorded)
    @rule(name=names, node=nodes, carries=st.booleans())
    def pass_over(self, name: str, node: str, carries: bool) -> None:
        """A pod goes elsewhere by a policy that lets it, and makes its home there."""
        if name in self.under_way:
            return
        self.boots += 1
        pod = launcher(name, uid=f"{name}-{self.boots}", created=f"2026-11-21T10:{self.boots:02}:00Z")
        self.machines.cluster.delete_pod(pod.key)
        self.machines.cluster.upsert_pod(pod)
        owner = self.machines.plugin._owners.of(pod)
        assert isinstance(owner, Owner)
        home, heard = recorded_home(owner), home_pod(owner)
        self.machines.plugin._pending.begin(Claim(pod, node, owner, heard, True, home))
        self.under_way[name] = (pod, node, CycleState())
        self.began[name] = self.heard
        self.replaced[pod.uid] = home
        self.expected.add(node)
        if carries:
            self.pre_bind(name)

    @precondition(lambda self: self.under_way)
    @rule(which=whiches)
    def pre_bind_one(self, which: int) -> None:
        self.pre_bind(self.one(which))

    def pre_bind(self, name: str) -> None:
        if name not in self.carried:
            pod, node, state = self.under_way[name]
            run(self.machines.plugin.pre_bind(state, pod, node))
            self.carried.add(name)

    @precondition(lambda self: self.under_way)
    @rule(which=whiches, copies=st.sampled_from(["yes", "yes", "unheard", "forbidden", "conflicts"]))
    def land(self, which: int, copies: str) -> None:
        """The Binding is taken, if the last word still holds; what follows is done or not."""
        self.pre_bind(self.one(which))
        pod, node, state = self.end(self.one(which))
        if pod.uid not in self.replaced and node not in self.machines.allowed(pod):
            self.machines.plugin.unreserve(state, pod, node)
            return
        self.machines.writer.before = [WriteConflict("changed")] * (5 if copies == "conflicts" else 0)
        self.machines.writer.unwritable = {"db"} if copies == "forbidden" else set()
        run(self.machines.lands(state, pod, node, copies=copies != "unheard"))
        if copies == "unheard":
            self.tails.append((pod, node, state, self.began[pod.name]))
        self.machines.writer.before = []
        self.machines.writer.unwritable = set()

    @precondition(lambda self: self.tails)
    @rule()
    def hear(self) -> None:
        pod, node, state, _ = self.tails.pop(0)
        run(self.machines.plugin.post_bind(state, pod, node))

    @precondition(lambda self: self.under_way)
    @rule(which=whiches)
    def fail(self, which: int) -> None:
        pod, node, state = self.end(self.one(which))
        self.machines.plugin.unreserve(state, pod, node)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name not in self.under_way:
            self.machines.cluster.delete_pod(("default", name))

    @rule(node=nodes)
    def give(self, node: str) -> None:
        """A person moves the home, or gives one. To write the one that is there is to say nothing."""
        passed_over = {it for it in self.open if it[1] == node}
        self.machines.change(MACHINE, {**self.machines.annotations(), HOME: node})
        run(self.machines.repair())
        self.expected = {node} | {it[0] for it in passed_over}

    @precondition(lambda self: self.recorded)
    @rule()
    def release(self) -> None:
        """From here on only first binds count that have not ended yet."""
        self.machines.change(MACHINE, {key: it for key, it in self.machines.annotations().items() if key != HOME})
        self.expected = {node for node, replaces in self.open if not replaces}

    @rule()
    def repair(self) -> None:
        run(self.machines.repair())

    @rule()
    def crash(self) -> None:
        """What was under way did not arrive."""
        self.machines.restart()
        self.under_way.clear()
        self.tails.clear()
        self.carried.clear()

    @invariant()
    def no_home_returns(self) -> None:
        assert {self.home, self.recorded} - {""} <= self.expected

    @property
    def open(self) -> set[tuple[str, str]]:
        """Binds that may yet be heard: the node, and the home in whose place it would be."""
        under_way = [(pod, node, self.began[name]) for name, (pod, node, _) in self.under_way.items()]
        tails = [(pod, node, began) for pod, node, _, began in self.tails]
        found = {
            (node, self.replaced.get(pod.uid, "")) for pod, node, began in (*under_way, *tails) if began == self.heard
        }
        words = [it for it in self.machines.cluster.annotated_pods() if it.annotations.get(HOME_REPLACES)]
        on_pods = {
            (it.node_name, it.annotations[HOME_REPLACES])
            for it in words
            if it.annotations.get(HOME_AFTER, "") == self.heard
        }
        return found | on_pods

    def one(self, which: int) -> str:
        return list(self.under_way)[which % len(self.under_way)]

    def end(self, name: str) -> tuple[Pod, str, CycleState]:
        self.carried.discard(name)
        return self.under_way.pop(name)

    @property
    def home(self) -> str:
        """Where filter holds the machine's pods."""
        allowed = self.machines.allowed(ASKING)
        return allowed[0] if len(allowed) == 1 else ""

    @property
    def heard(self) -> str:
        return self.machines.annotations().get(HOME_POD, "")

    @property
    def recorded(self) -> str:
        return self.machines.annotations().get(HOME, "")


def run(work: Coroutine[Any, Any, Any]) -> None:
    asyncio.run(work)


TestHomes = Homes.TestCase
TestHomes.settings = settings(derandomize=True, max_examples=examples(250), stateful_step_count=25)
