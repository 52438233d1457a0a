"""What is kept of raw scores, by plugin and in rows. A million changes: `tests/conformance/kept.py`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.cache import changes
from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.spec import Reads
from app.kube.core_v1 import Pod
from app.runtime import cache_entries, score_cache
from app.runtime.score_cache import CachedScores, ScoreCache
from app.runtime.slots import PluginSlot
from tests.builders import make_node, make_pod
from tests.fakes import Rejects

POD: Pod = make_pod("new")
HEAVY = make_pod("new", labels={"app": "x" * 60_000})


class Desk:
    """Nodes n1, n2 and so on. The first plugin scores by the pods on a node, others by its taints.

    ``asked`` is what had to be scored.
    """

    def __init__(self, *plugins: str, nodes: int = 3, most_bytes: int = 1 << 20) -> None:
        self.cluster = Cluster()
        for number in range(nodes):
            self.cluster.upsert_node(make_node(f"n{number + 1}"))
        reads = [Reads.PODS_ON_NODE, Reads.NODE]
        names = plugins or ("A",)
        self.slots = [PluginSlot.of(it, Rejects(it), reads=reads[it != "A"]) for it in names]
        self.rows = ScoreCache(self.cluster, most_bytes)
        self.asked: list[str] = []

    def put(self, name: str, node: str) -> None:
        self.cluster.upsert_pod(make_pod(name, node=node))

    def taint(self, node: str, count: int) -> None:
        taints = [{"key": f"spot-{it}", "effect": "NoSchedule"} for it in range(count)]
        self.cluster.upsert_node(make_node(node, taints=taints))

    def score(self, kept: CachedScores, names: Sequence[str]) -> list[int]:
        self.asked += [f"{kept.slot.name} {name}" for name in names]
        nodes = self.cluster.nodes
        return [len(nodes[it].pods if kept.slot.name == "A" else nodes[it].node.taints) for it in names]

    def raw(self, *names: str, pod: Pod = POD) -> tuple[dict[str, list[int]], list[str]]:
        """The scores of each plugin, and what had to be scored for it."""
        self.asked.clear()
        found = self.rows.raw_scores(self.slots, pod, names or ("n1", "n2", "n3"), self.score)
        return {plugin: it.each() for plugin, it in found.items()}, self.asked[:]


def test_scores_are_kept_until_their_node_changes() -> None:
    desk = Desk()
    desk.put("bound", "n1")

    assert ({"A": [0, 1]}, ["A n2", "A n1"]) == desk.raw("n2", "n1")
    assert ({"A": [1, 0, 0]}, ["A n3"]) == desk.raw()
    desk.put("another", "n2")
    assert ({"A": [1, 1, 0]}, ["A n2"]) == desk.raw()


def test_a_plugin_scores_again_what_it_reads_alone() -> None:
    desk = Desk("A", "B")
    desk.raw()

    desk.put("bound", "n1")
    assert ({"A": [1, 0, 0], "B": [0, 0, 0]}, ["A n1"]) == desk.raw()
    desk.taint("n1", 2)
    assert ({"A": [1, 0, 0], "B": [2, 0, 0]}, ["A n1", "B n1"]) == desk.raw()


def test_nodes_that_all_plugins_score_alike_are_of_one_class() -> None:
    desk = Desk("A", "B", nodes=4)
    desk.put("bound", "n1")
    desk.taint("n3", 1)

    found = desk.rows.raw_scores(desk.slots, POD, ("n1", "n2", "n3", "n4"), desk.score)

    assert found["A"].of is found["B"].of
    assert 3 == len(found["A"].scores)
    assert {it: set(found["A"].of) for it in found} == {it: set(found[it].scores) for it in found}


def test_rows_of_which_no_node_is_any_more_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_cache, "_FEWEST_ROWS", 2)
    desk = Desk()
    for number in range(20):
        desk.put(f"bound-{number}", "n1")
        assert {"A": [number + 1, 0, 0]} == desk.raw()[0]

    (rows,) = desk.rows._rows.values()
    assert len(rows.rows) <= 2 * 3 + 2


def test_too_many_changes_to_know_them_make_all_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 2)
    desk = Desk()
    desk.raw()
    for number in range(9):
        desk.put(f"bound-{number}", f"n{number % 3 + 1}")

    assert {"A": [3, 3, 3]} == desk.raw()[0]


def test_scores_by_a_heavy_pod_are_given_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_entries, "_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(cache_entries, "_FEWEST_AT_ONCE", 1)
    desk = Desk()

    with pytest.raises(Unprepared) as raised:
        desk.raw(pod=HEAVY)
    steps = iter(raised.value.steps)
    next(steps)
    desk.put("bound", "n2")
    desk.cluster.delete_node("n3")
    assert 2 == len(list(steps))

    assert ["A n1", "A n2"] == desk.asked
    assert ({"A": [0, 1]}, []) == desk.raw("n1", "n2", pod=HEAVY)


def test_several_plugins_share_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_entries, "_MOST_AT_ONCE", 6)
    assert 6 == len(Desk("A", "B").raw()[1])
    desk = Desk("A", "B", "C")

    with pytest.raises(Unprepared) as raised:
        desk.raw()

    assert 2 == len(list(raised.value.steps))
    assert ({"A": [0, 0, 0], "B": [0, 0, 0], "C": [0, 0, 0]}, []) == desk.raw()


def test_memory_is_bounded() -> None:
    desk = Desk(most_bytes=4000)
    for number in range(10):
        desk.raw(pod=make_pod("new", labels={"app": f"app-{number}"}))

    assert 1 <= len(desk.rows._scores) < 10
    assert len(desk.rows._rows) < 10


def test_a_check_tells_what_differs() -> None:
    desk = Desk("A", "B")
    desk.raw()
    assert {""} == set(desk.rows.checking_scores(desk.score))

    (rows,) = desk.rows._rows.values()
    rows.rows[0] = (7, 7)
    assert ["cached rows of A, B differ"] == list(filter(None, desk.rows.checking_scores(desk.score)))

    desk.cluster.nodes["n1"].pods["x"] = POD
    assert "cached scores of A differ" in list(desk.rows.checking_scores(desk.score))
