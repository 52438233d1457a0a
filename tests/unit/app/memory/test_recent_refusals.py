"""Refusals are counted by who refused and why, and remembered while their pods wait."""

from __future__ import annotations

from collections import Counter

from app.cache.cluster import Cluster
from app.framework.status import unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.memory.recent_refusals import (
    LONGEST_REASON,
    MOST_CAUSES,
    MOST_OF_ONE,
    NO_PLUGIN,
    REST,
    RecentRefusals,
    causes_of,
    merge_causes,
)
from tests.builders import make_node, make_pod
from tests.filtering import Tally

SPREAD = ("PodTopologySpread", "too many")
HOME = ("StickyNode", "not its home")


class Counted:
    """The counters that were asked for, by plugin and reason."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str], Tally] = {}

    def __call__(self, plugin: str, reason: str) -> Tally:
        return self.tallies.setdefault((plugin, reason), Tally())

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        return {cause: it.count for cause, it in self.tallies.items()}


def waiting(refused: RecentRefusals, *pods: Pod) -> dict[tuple[str, str], int]:
    """What is counted in a picture with these pods."""
    cluster = Cluster()
    cluster.upsert_node(make_node())
    for pod in pods:
        cluster.upsert_pod(pod)
    found: dict[tuple[str, str], int] = {}
    for _ in refused.count(cluster, found):
        pass
    return found


def test_pods_that_wait_are_counted_by_plugin_and_profile() -> None:
    counted = Counted()
    refused = RecentRefusals(counted)
    a, b = make_pod("a"), make_pod("b")
    refused.refused(b, "one", (HOME,))

    refused.refused(a, "one", (SPREAD, HOME, (SPREAD[0], "another reason")))
    refused.refused(b, "two", (SPREAD,))

    assert {(SPREAD[0], "one"): 1, (HOME[0], "one"): 1, (SPREAD[0], "two"): 1} == waiting(refused, a, b)
    assert {SPREAD: 2, HOME: 2, (SPREAD[0], "another reason"): 1} == counted.counts


def test_a_pod_that_fits_is_placed_gone_or_replaced_counts_no_more() -> None:
    refused = RecentRefusals(Counted())
    for name in ("fits", "placed", "gone", "replaced"):
        refused.refused(make_pod(name), "*", (SPREAD,))
    refused.fits(make_pod("fits"))

    assert {} == waiting(refused, make_pod("fits"), make_pod("placed", node="n1"), make_pod("replaced", uid="new"))
    assert {} == waiting(refused, make_pod("placed"))  # forgotten


def test_all_are_forgotten_also_while_they_are_counted() -> None:
    refused = RecentRefusals(Counted())
    pods = [make_pod(f"p-{number}") for number in range(1000)]
    for pod in pods:
        refused.refused(pod, "*", (SPREAD,))
    cluster = Cluster()
    for pod in pods:
        cluster.upsert_pod(pod)
    found: dict[tuple[str, str], int] = {}
    steps = refused.count(cluster, found)
    next(steps)

    refused.forget()

    for _ in steps:
        pass
    assert found[SPREAD[0], "*"] < len(pods)
    assert {} == waiting(refused, *pods)


def test_few_causes_are_told_apart() -> None:
    counted = Counted()
    refused = RecentRefusals(counted)
    for number in range(3 * MOST_CAUSES):
        refused.refused(make_pod(), "*", (("Chatty", f"node n{number:04}" + "x" * 1000),))

    assert MOST_CAUSES + 1 == len(counted.counts)
    assert 2 * MOST_CAUSES == counted.counts["Chatty", REST]
    assert LONGEST_REASON == max(len(reason) for _, reason in counted.counts)


def test_the_pods_refused_last_are_remembered() -> None:
    refused = RecentRefusals(Counted(), most=2)
    pods = [make_pod(name) for name in "abc"]
    for pod in pods:
        refused.refused(pod, "*", (SPREAD,))

    assert {(SPREAD[0], "*"): 2} == waiting(refused, *pods)


def test_causes_are_named_once_and_not_without_end() -> None:
    a = unschedulable("full", "again").by("A")

    assert (("A", "full, again"), (NO_PLUGIN, "unknown")) == causes_of([a, unresolvable("unknown"), a])
    assert MOST_OF_ONE == len(causes_of(unschedulable(str(number)) for number in range(100)))
    assert (SPREAD,) == merge_causes((SPREAD,), (SPREAD,))
    assert Counter([SPREAD, HOME]) == Counter(merge_causes((SPREAD,), (HOME, SPREAD)))


def test_the_pods_that_a_plugin_refused() -> None:
    refused = RecentRefusals(Counted())
    a, b, c = (make_pod(name) for name in "abc")
    for pod, causes in ((a, (SPREAD, HOME)), (b, (HOME,)), (c, (SPREAD,))):
        refused.refused(pod, "one", causes)
    refused.fits(c)
    keys: dict[str, tuple[str, str]] = {}

    for _ in refused.find("PodTopologySpread", keys):
        pass

    assert {a.uid: a.key} == keys
