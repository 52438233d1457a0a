"""``scaleDown: Spread`` in any history of scale-ups, scale-downs and deaths: ranks, and the skew after scale-downs.

Pods are bound and removed as by the scheduler and the ReplicaSet controller: a new pod goes to a zone where the hard
constraint holds, and a scale-down removes pods in the controller's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.analysis.removal import removal_order
from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from app.kube.deletion_cost import DELETION_COST, DeletionCost, cost_of
from tests.builders import JsonObject, constraint, make_node
from tests.harness import SPREAD, World, only

NOW: Final = datetime(2026, 11, 27, tzinfo=UTC)
OWNER: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
ZONES: Final = "abc"
NODES: Final = [f"{zone}{number}" for zone in ZONES for number in (1, 2, 3)]
MOST: Final = 18
"""Replicas in a history."""


class History:
    """A ReplicaSet on three zones with three nodes each. ``skews``: after each scale-down."""

    def __init__(self, beyond: JsonObject, random: Random) -> None:
        self._random = random
        self._made = 0
        self.skews: list[int] = []
        self.world = World(profile=only(SPREAD, **{SPREAD: {"beyond": beyond}}))
        for name in NODES:
            self.world.add(make_node(name, zone=name[0]))

    @property
    def pods(self) -> list[Pod]:
        return list(self.world.cluster.pods())

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(it.node_name[0] for it in self.pods)
        return {zone: counted[zone] for zone in ZONES}

    @property
    def skew(self) -> int:
        return max(self.counts.values()) - min(self.counts.values())

    def scale(self, replicas: int) -> None:
        while len(self.pods) < replicas:
            self.bind()
        if len(self.pods) > replicas:
            self.remove(removal_order("ReplicaSet", self.pods, NOW)[: len(self.pods) - replicas])
            self.skews.append(self.skew)

    def die(self) -> None:
        """A pod dies, and the controller creates another one, which can be bound elsewhere."""
        if self.pods:
            self.remove([self._random.choice(self.pods)])
            self.bind()

    def bind(self, *, ranks: bool = True) -> None:
        """Bind a new pod as the hard constraint allows, to any such zone. Without ``ranks``, Homeport does not bind."""
        self._made += 1
        spread = [constraint(app="web")]
        uid = f"{self._random.random()}-{self._made}"
        pod = self.world.pod(f"p{self._made}", uid=uid, labels={"app": "web"}, spread=spread, owner=OWNER)
        allowed = [node for node, status in self.world.filter(pod).items() if status == "Success"]
        node, state = self._random.choice(allowed), CycleState()
        if ranks:
            assert self.world.framework.binding.reserve(state, pod, node).is_success
        cost = state.annotations.get(DELETION_COST)
        if cost is not None:
            pod = pod.with_deletion_cost(cost_of(cost))
        self.world.add(replace(pod, node_name=node))

    def remove(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.world.cluster.delete_pod(pod.key, pod.uid)


SPREAD_DOWN: Final[JsonObject] = {"scaleDown": "Spread"}
replicas = st.integers(0, MOST)


def ranks_of(history: History, zone: str) -> list[int]:
    return sorted(-(it.deletion_cost.value or 0) for it in history.pods if it.node_name[0] == zone)


@given(st.randoms(use_true_random=False), st.lists(replicas, max_size=8))
def test_without_deaths_each_scale_down_keeps_the_constraint(random: Random, targets: list[int]) -> None:
    history = History(SPREAD_DOWN, random)
    for target in targets:
        history.scale(target)
        assert history.skew <= 1
        assert all(ranks_of(history, zone) == [*range(history.counts[zone])] for zone in ZONES)


@given(st.randoms(use_true_random=False), st.integers(0, 9), st.lists(replicas, max_size=6))
def test_pods_from_before_the_option_are_the_base(random: Random, before: int, targets: list[int]) -> None:
    """While no more are removed than were added since, the ranks level the zones as if all pods had ranks."""
    history = History(SPREAD_DOWN, random)
    for _ in range(before):
        history.bind(ranks=False)
    for target in targets:
        history.scale(max(before, target))
        assert history.skew <= 1


@given(st.randoms(use_true_random=False), st.lists(replicas | st.none(), max_size=12))
def test_no_two_pods_of_a_zone_have_one_rank(random: Random, steps: list[int | None]) -> None:
    """``None`` is a death."""
    history = History(SPREAD_DOWN, random)
    for step in steps:
        history.die() if step is None else history.scale(step)
        for zone in ZONES:
            ranks = ranks_of(history, zone)
            assert len(set(ranks)) == len(ranks)


def share_above(beyond: JsonObject, histories: int, steps: int = 20) -> float:
    """The share of scale-downs that leave a skew above 1, where every fifth step is a death."""
    skews: list[int] = []
    for seed in range(histories):
        random = Random(seed)
        history = History(beyond, random)
        for _ in range(steps):
            if random.random() < 0.2:
                history.die()
            else:
                history.scale(random.randint(1, MOST))
        skews += history.skews
    return sum(it > 1 for it in skews) / len(skews)


def test_with_deaths_few_scale_downs_leave_more() -> None:
    assert share_above(SPREAD_DOWN, 40) <= 0.03
    assert share_above({}, 20) > 0.1


@given(st.randoms(use_true_random=False), st.integers(0, 9), st.lists(replicas | st.none(), max_size=12))
def test_reranking_closes_every_hole(random: Random, before: int, steps: list[int | None]) -> None:
    """Then each zone has the ranks from 0 on, and any scale-down of a balanced ReplicaSet leaves it balanced."""
    history = History(SPREAD_DOWN | {"rerank": True}, random)
    for _ in range(before):
        history.bind(ranks=False)
    for step in steps:
        history.die() if step is None else history.scale(step)
    plugin: Any = history.world.framework.plugins[SPREAD]
    for _ in range(MOST):
        for pod, cost in [it for it in plugin.misranked() if it is not None]:
            history.world.add(pod.with_deletion_cost(DeletionCost(cost)))

    assert [] == [it for it in plugin.misranked() if it is not None]
    assert all(ranks_of(history, zone) == [*range(history.counts[zone])] for zone in ZONES)
    was_balanced = history.skew <= 1
    history.scale(len(history.pods) // 2)
    assert history.skew <= 1 or not was_balanced
