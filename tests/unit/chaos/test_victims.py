"""The judge of preemptions is fed evictions that miss a target, and evictions that only look it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import Event, Json, judge_order
from tests.chaos.victims import NEVER_EVICT, PREEMPTING, Sent, VictimJudgement, judge_victims, let_in, not_of_owners
from tests.controlplane import objects
from tests.unit.chaos.history import History

WEB = {"app": "web"}
LOW, HIGH, HIGHEST = 10, 1000, 2000


class Story(History):
    """Writes a history of nodes ``a1`` and ``a2`` in zone ``a``, and ``b1`` in the closed zone ``b``."""

    def __init__(self) -> None:
        super().__init__()
        self._pods: dict[str, Json] = {}
        self.sent: list[Sent] = []
        self.kills: list[float] = []
        for name in ("a1", "a2"):
            self.tell("Node", "ADDED", objects.node(name, zone="a"))
        self.tell("Node", "ADDED", objects.node("b1", zone="b", taints=[objects.taint("closed")]))

    @property
    def now(self) -> float:
        return self.events[-1].received

    def waits(self, name: str, priority: int, **fields: Any) -> None:
        spread = [objects.spread(WEB)]
        pod = objects.pod(name, labels=WEB, spread_constraints=spread, priority=priority, **fields)
        self._pods[name] = self.tell("Pod", "ADDED", {**pod, "status": {"phase": "Pending"}})

    def binds(self, name: str, node: str) -> None:
        pod = self._pods[name]
        running = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}
        self._pods[name] = self.tell("Pod", "MODIFIED", running)

    def runs(self, name: str, node: str, priority: int = LOW, **fields: Any) -> None:
        self.waits(name, priority, **fields)
        self.binds(name, node)

    def is_nominated(self, name: str, node: str) -> None:
        self._pods[name] = self.tell("Pod", "MODIFIED", self._pods[name], annotations={PREEMPTING: node})

    def ends(self, name: str) -> None:
        self._pods[name] = self.tell("Pod", "MODIFIED", self._pods[name], deletionTimestamp="2026-01-01T00:00:00Z")

    def is_evicted(self, name: str, status: int = 201) -> None:
        if status == 201:
            self.ends(name)
        self.sent.append(Sent(name, status, self.now))

    def is_guarded(self, least: int) -> None:
        self.tell("PodDisruptionBudget", "ADDED", objects.pod_disruption_budget("web", WEB, min_available=least))

    def present(self) -> list[Event]:
        """Return the objects as they are now."""
        return [*{it.uid: it for it in self.events}.values()]

    def judged(self) -> VictimJudgement:
        return judge_victims(self.events, self.sent, self.kills)


@pytest.fixture
def story() -> Story:
    """A low pod on each node of zone ``a``; the high pod is nominated to ``a1``."""
    story = Story()
    story.runs("low-1", "a1")
    story.runs("low-2", "a2")
    story.waits("high", HIGH)
    story.is_nominated("high", "a1")
    return story


def test_a_plan_that_succeeds_misses_nothing(story: Story) -> None:
    story.is_evicted("low-1")
    story.binds("high", "a1")
    found = story.judged()

    assert (1, 1, 1) == (found.evicted, found.preemptors, len(found.seconds))
    assert [] == [*found.second, *found.alone, *found.overrun, *found.protected, *found.without_preemptor]


def test_a_pod_that_a_user_deletes_is_no_victim(story: Story) -> None:
    story.ends("low-1")

    assert 0 == story.judged().evicted


def test_a_pod_that_ends_long_after_a_failed_eviction_is_no_victim(story: Story) -> None:
    story.sent.append(Sent("low-1", 504, story.now - 60))
    story.ends("low-1")

    assert 0 == story.judged().evicted


@pytest.mark.parametrize(("before", "expected"), [(0.5, 1), (60.0, 0)])
def test_a_violation_by_a_pod_that_an_owner_creates_on_a_node(before: float, expected: int) -> None:
    story = Story()
    story.waits("high", HIGH)
    pod = objects.pod("low", labels=WEB, node_name="a1", priority=LOW)
    story.tell("Pod", "ADDED", {**pod, "status": {"phase": "Running"}})
    story.events[-1] = replace(story.events[-1], received=story.now + 1 - before)
    story.binds("high", "a2")
    violations = judge_order(story.events).violations

    assert (1, expected) == (len(violations), len(not_of_owners(story.events, violations)[1]))


def test_a_budget_is_overrun_by_the_eviction_that_leaves_too_few(story: Story) -> None:
    story.is_guarded(1)
    story.is_evicted("low-1")
    kept = story.judged().overrun
    story.is_nominated("high", "a2")
    story.is_evicted("low-2")

    assert ([], ["low-2: 0 healthy pods left for web"]) == (kept, story.judged().overrun)


def test_second_plans_and_lost_victims(story: Story) -> None:
    story.is_evicted("low-1")
    story.is_nominated("high", "a2")
    story.is_evicted("low-2")
    found = story.judged()

    assert ["high on a1: low-1; then high on a2: low-2"] == found.second
    assert ["low-1 for high on a1", "low-2 for high on a2"] == found.alone


def test_a_plan_whose_place_went_to_a_pod_that_an_owner_put_on_a_node_is_counted_apart(story: Story) -> None:
    story.is_evicted("low-1")
    pod = objects.pod("low-3", labels=WEB, node_name="a2", priority=LOW)
    story.tell("Pod", "ADDED", {**pod, "status": {"phase": "Running"}})
    story.is_nominated("high", "a2")
    story.is_evicted("low-2")
    story.binds("high", "a2")
    found = story.judged()

    assert ([], ["a pod that was created on its node took the place"]) == (found.second, [*found.second_by])


def test_an_eviction_after_the_bind_is_a_second_plan(story: Story) -> None:
    story.binds("high", "a1")
    story.is_evicted("low-1")

    assert ["high: low-1 after the bind to a1"] == story.judged().second


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("killed", "Homeport was killed"),
        ("overtaken", "a higher pod took the place"),
        ("refused", "a later eviction was refused"),
        ("deleted", "the preemptor was deleted"),
        ("bound", "its pod was bound to another node of the domain"),
        ("equal", ""),
    ],
)
def test_reasons_that_count_apart(story: Story, what: str, reason: str) -> None:
    story.is_evicted("low-1")
    if what == "killed":
        story.kills.append(story.now)
    elif what == "refused":
        story.runs("low-3", "a1")
        story.is_evicted("low-3", 429)
    elif what == "deleted":
        story.ends("high")
    elif what == "bound":
        story.binds("high", "a2")
    else:
        story.runs("other", "a2", HIGHEST if what == "overtaken" else HIGH)
    found = story.judged()

    assert {reason} - {""} == found.alone_by.keys()
    assert bool(reason) != bool(found.alone)


def test_equal_pods_and_pods_that_are_never_evicted_are_protected() -> None:
    story = Story()
    story.runs("equal", "a1", HIGH)
    story.runs("kept", "a1", annotations={NEVER_EVICT: "true"})
    story.waits("high", HIGH)
    story.is_nominated("high", "a1")
    story.is_evicted("equal")
    story.is_evicted("kept")

    assert ["equal for high", "kept for high"] == story.judged().protected


@pytest.mark.parametrize(("least", "stuck"), [(0, ["high fits on a1 after evictions"]), (1, [])])
def test_a_pod_is_stuck_if_all_rules_allow_an_eviction(least: int, stuck: list[str]) -> None:
    story = Story()
    story.runs("low-1", "a1")
    story.is_guarded(least)
    story.waits("high", HIGH)

    assert stuck == let_in(story.present())


def test_a_pod_that_fits_is_stuck() -> None:
    story = Story()
    story.waits("high", HIGH)

    assert ["high fits on a1"] == let_in(story.events)
