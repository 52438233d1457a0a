"""What is kept of verdicts and scores, and when it no longer stands. A million changes: `tests/conformance/kept.py`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.cache import changes
from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.filter_result import FilterResult
from app.framework.spec import Reads
from app.framework.status import Status, unresolvable
from app.kube.core_v1 import Pod
from app.runtime import cache_entries, cached_verdicts
from app.runtime.cached_verdicts import CachedVerdicts
from app.runtime.slots import PluginSlot
from app.runtime.verdict_cache import VerdictCache
from tests.builders import make_node, make_pod
from tests.fakes import Rejects

NO = unresolvable("no")
POD: Pod = make_pod("new")
SPOT = [{"key": "spot", "effect": "NoSchedule"}]


class Desk:
    """Three nodes; those with a taint are rejected, by one plugin or by two. ``asked`` is what had to be judged."""

    def __init__(self, *plugins: str, reads: Reads = Reads.NODE, most_bytes: int = 1 << 20) -> None:
        self.cluster = Cluster()
        for name in ("n1", "n2", "n3"):
            self.cluster.upsert_node(make_node(name))
        self.slots = [PluginSlot.of(it, Rejects(it), reads=reads) for it in plugins or ("A",)]
        self.verdicts = VerdictCache(self.cluster, most_bytes)
        self.asked: list[str] = []
        self.fails = False

    def taint(self, name: str) -> None:
        self.cluster.upsert_node(make_node(name, taints=SPOT))

    def clear(self, name: str) -> None:
        self.cluster.upsert_node(make_node(name))

    def judge(self, kept: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        if self.fails:
            raise LookupError("broken")
        self.asked += [f"{kept.slot.name} {name}" for name in names]
        rejected: dict[str, Status] = {it: NO for it in names if self.cluster.nodes[it].node.taints}
        return FilterResult([it for it in names if it not in rejected], rejected)

    def passing(self, *names: str, pod: Pod = POD) -> tuple[list[str], list[str]]:
        """Who passes, and what had to be judged for it."""
        self.asked.clear()
        asked = names or ("n1", "n2", "n3")
        _, _, left = self.verdicts.passing(self.slots, pod, asked, self.judge)
        return [it for it in left if it in self.cluster.nodes], self.asked[:]

    def stands(self) -> object:
        return self.verdicts.rejection_stamp(self.slots[0], POD, self.judge)


def test_a_node_is_judged_when_it_is_first_asked_about_and_when_it_changed() -> None:
    desk = Desk()
    desk.taint("n2")

    assert (["n1"], ["A n1", "A n2"]) == desk.passing("n1", "n2")
    assert (["n1", "n3"], ["A n3"]) == desk.passing()
    desk.taint("n1")
    assert (["n3"], ["A n1"]) == desk.passing()
    desk.clear("n2")
    assert (["n2", "n3"], ["A n2"]) == desk.passing()


def test_the_first_that_rejects_ends_it() -> None:
    desk = Desk("A", "B")
    desk.taint("n2")

    assert (["n1", "n3"], ["A n1", "A n2", "A n3", "B n1", "B n3"]) == desk.passing()
    assert (["n1", "n3"], []) == desk.passing()


def test_names_of_no_node_do_not_pass_until_there_is_one() -> None:
    desk = Desk()

    assert (["n1"], ["A n1"]) == desk.passing("n1", "n9")
    desk.cluster.upsert_node(make_node("n9"))
    assert (["n1", "n9"], ["A n9"]) == desk.passing("n1", "n9")
    desk.cluster.delete_node("n9")
    assert (["n1"], []) == desk.passing("n1", "n9")


def test_a_rejection_stands_as_long_as_it_would_be_given_again() -> None:
    desk = Desk()
    desk.taint("n2")
    desk.passing()
    before = desk.stands()

    desk.clear("n1")
    desk.taint("n3")
    desk.cluster.upsert_node(make_node("n2", taints=SPOT, zone="a"))
    assert before == desk.stands(), "n2 is judged again, and rejected again"

    desk.cluster.delete_node("n2")
    assert before != desk.stands()


def test_pods_on_the_node_count_for_a_plugin_that_reads_them() -> None:
    for reads, judged in ((Reads.NODE, []), (Reads.PODS_ON_NODE, ["A n1"])):
        desk = Desk(reads=reads)
        desk.passing()
        desk.cluster.upsert_pod(make_pod("bound", node="n1"))
        assert judged == desk.passing()[1]


def test_a_fault_is_not_kept_and_nothing_stands_that_was_in_question() -> None:
    desk = Desk()
    desk.taint("n2")
    desk.passing()
    before = desk.stands()
    desk.clear("n2")
    desk.fails = True

    with pytest.raises(LookupError):
        desk.passing()
    desk.fails = False

    assert before != desk.stands()
    assert (["n1", "n2", "n3"], ["A n2"]) == desk.passing()


def test_what_changed_too_long_ago_is_judged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 1)
    desk = Desk()
    desk.taint("n2")
    desk.passing()
    before = desk.stands()
    desk.clear("n2")
    desk.clear("n1")
    desk.taint("n1")

    assert before != desk.stands()
    assert (["n2", "n3"], ["A n1", "A n2", "A n3"]) == desk.passing()


def test_where_many_rejected_nodes_changed_they_are_judged_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_verdicts, "_MOST_AGAIN", 1)
    desk = Desk()
    for name in ("n1", "n2", "n3"):
        desk.taint(name)
    desk.passing()
    for name in ("n1", "n2", "n3"):
        desk.clear(name)

    assert (["n1"], ["A n1"]) == desk.passing("n1")
    assert (["n1", "n2", "n3"], ["A n2", "A n3"]) == desk.passing()


def test_what_an_evaluation_used_is_held_until_the_next() -> None:
    """Else a rejection would be remembered by a number that nothing moves any more."""
    desk = Desk("A", "B", most_bytes=1)
    desk.taint("n2")
    desk.passing()
    before = desk.stands()

    assert before == desk.stands()
    desk.passing()
    assert before != desk.stands()


def test_many_nodes_are_judged_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_entries, "_MOST_AT_ONCE", 2)
    monkeypatch.setattr(cache_entries, "STEP", 1)
    desk = Desk("A", "B")
    desk.taint("n2")

    with pytest.raises(Unprepared) as raised:
        desk.passing()
    steps = iter(raised.value.steps)
    next(steps)
    desk.taint("n1")
    assert 2 == len(list(steps))

    assert (["n3"], ["A n1"]) == desk.passing()
    assert (["n3"], []) == desk.passing()


def test_what_the_first_rejects_the_others_never_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_entries, "_MOST_AT_ONCE", 1)
    desk = Desk("A", "B")
    for name in ("n1", "n2", "n3"):
        desk.taint(name)
    with pytest.raises(Unprepared) as raised:
        desk.passing()
    assert 3 == len(list(raised.value.steps))
    assert {"A"} == {it[0] for it in desk.asked}

    assert ([], []) == desk.passing()


HEAVY = make_pod("new", labels={"app": "x" * 60_000})


@pytest.mark.parametrize(
    ("bytes_at_once", "steps"), [pytest.param(260_000, 2, id="two at a time"), pytest.param(1, 3, id="one at least")]
)
def test_fewer_are_judged_at_once_the_heavier_the_pod_is(
    monkeypatch: pytest.MonkeyPatch, bytes_at_once: int, steps: int
) -> None:
    monkeypatch.setattr(cache_entries, "_BYTES_AT_ONCE", bytes_at_once)
    monkeypatch.setattr(cache_entries, "_FEWEST_AT_ONCE", 1)
    desk = Desk("A", "B")
    desk.taint("n2")
    assert (["n1", "n3"], ["A n1", "A n2", "A n3", "B n1", "B n3"]) == desk.passing()

    with pytest.raises(Unprepared) as raised:
        desk.passing(pod=HEAVY)
    assert steps == len(list(raised.value.steps))

    assert (["n1", "n3"], []) == desk.passing(pod=HEAVY)


def test_what_is_judged_again_is_judged_when_it_is_asked_for_if_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_entries, "_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(cache_entries, "_FEWEST_AT_ONCE", 1)
    desk = Desk()
    for name in ("n1", "n2"):
        desk.taint(name)
    for name in ("n1", "n2", "n3"):
        desk.passing(name, pod=HEAVY)
    for name in ("n1", "n2"):
        desk.clear(name)

    assert (["n1"], ["A n1"]) == desk.passing("n1", pod=HEAVY)


def test_a_plugin_that_fails_leaves_what_others_said_weighed() -> None:
    desk = Desk("A", "B", most_bytes=1 << 20)
    judge = desk.judge

    def fails(kept: CachedVerdicts, names: Sequence[str]) -> FilterResult:
        if kept.slot.name == "B":
            raise LookupError("broken")
        return judge(kept, names)

    with pytest.raises(LookupError):
        desk.verdicts.passing(desk.slots, POD, ("n1",), fails)

    kept = desk.verdicts.of(desk.slots[0], POD)
    assert kept.weight() == desk.verdicts._verdicts._weights[kept.key]


def test_what_a_tenant_writes_is_weighed() -> None:
    desk = Desk()
    light = desk.verdicts.of(desk.slots[0], POD).weight()
    heavy = desk.verdicts.of(desk.slots[0], make_pod("new", labels={"app": "x" * 60_000})).weight()

    assert heavy > light + 60_000


def test_memory_is_bounded() -> None:
    desk = Desk(most_bytes=4000)
    for number in range(10):
        desk.passing(pod=make_pod("new", labels={"app": f"app-{number}"}))

    assert 1 <= len(desk.verdicts._verdicts) < 10
    assert len(desk.verdicts._passes) < 10
    assert (["n1", "n2", "n3"], ["A n1", "A n2", "A n3"]) == desk.passing()


def test_a_check_tells_what_differs() -> None:
    desk = Desk()
    desk.taint("n2")
    desk.passing()
    assert {""} == {*desk.verdicts.checking_verdicts(desk.judge)}

    desk.verdicts.of(desk.slots[0], POD).rejected.clear()

    assert "cached verdicts of A differ" in list(desk.verdicts.checking_verdicts(desk.judge))
