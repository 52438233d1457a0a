"""An overlay: what it gives out as it is, what it changes, and that nothing moves because somebody looks."""

from __future__ import annotations

import pytest

from app.cache import counters
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.cache.overlay import Overlaid
from app.framework.counts import ALL_NODES, DomainCounts, Unprepared
from app.kube.core_v1 import Pod
from app.kube.selectors import of_labels
from tests.builders import ZONE, make_node, make_pod

WEB = of_labels({"app": "web"})
DB = of_labels({"app": "db"})


def web(name: str, node: str = "", **labels: str) -> Pod:
    return make_pod(name, node=node, labels={"app": "web", **labels})


@pytest.fixture
def cluster() -> Cluster:
    """Zones a and b with a node and 2 and 1 pods."""
    found = Cluster()
    for zone in "ab":
        found.upsert_node(make_node(f"n-{zone}", zone=zone))
    for pod in (web("1", "n-a"), web("2", "n-a"), web("3", "n-b")):
        found.upsert_pod(pod)
    return found


def by_zone(cluster: Cluster) -> DomainCounts:
    return cluster.counts.domains("default", WEB, ZONE, frozenset({ZONE}), ALL_NODES)


def counts(cluster: Cluster) -> dict[str, int]:
    found = by_zone(cluster)
    return {value: found.count(value) for value in found.nodes_by_domain()}


class TestWhatIsSeen:
    def test_a_pod_that_was_added_can_be_left_out_by_name(self, cluster: Cluster) -> None:
        added = web("4", "n-b")

        with cluster.overlay(with_=[added]), cluster.without(added.uid, added.key):
            assert {"a": 2, "b": 1} == counts(cluster)

    def test_a_changed_node_with_its_pods_and_with_others(self, cluster: Cluster) -> None:
        before, changed = cluster.nodes["n-a"], make_node("n-a", zone="a", unschedulable=True)
        gone = make_node("n-z")

        with cluster.overlay(nodes=[changed, gone]), cluster.overlay(without=[web("1")]):
            seen = cluster.nodes["n-a"]
            assert (changed, {"2"}) == (seen.node, {it.name for it in seen.pods.values()})
            assert cluster.nodes.keys() == {"n-a", "n-b"}
        with cluster.overlay(nodes=[changed]), cluster.without(web("2").uid, web("2").key):
            seen = cluster.nodes["n-a"]
            assert (changed, {"1"}) == (seen.node, {it.name for it in seen.pods.values()})
        assert cluster.nodes["n-a"] is before

    def test_a_fault_ends_it(self, cluster: Cluster) -> None:
        with pytest.raises(LookupError), cluster.overlay(without=[web("1")]):
            raise LookupError

        assert {"a": 2, "b": 1} == counts(cluster)


class TestWhatIsGivenOutAsItIs:
    def test_counts_that_it_does_not_change(self, cluster: Cluster) -> None:
        kept, of_none = by_zone(cluster), cluster.counts.pods_by_node("default", DB)

        with cluster.overlay(without=[web("1")], with_=[web("4", "n-a")]):
            assert kept is by_zone(cluster)
            assert of_none is cluster.counts.pods_by_node("default", DB)

    def test_nodes_that_it_does_not_touch(self, cluster: Cluster) -> None:
        infos = dict(cluster.nodes)

        with cluster.overlay(without=[web("1")]):
            assert [False, True] == [cluster.nodes[name] is info for name, info in infos.items()]
        with cluster.overlay(without=[make_pod("unknown")]):
            assert cluster.nodes is cluster._nodes

    def test_a_waiting_pod_changes_nothing(self, cluster: Cluster) -> None:
        cluster.upsert_pod(web("9"))

        with cluster.without("uid-default-9", ("default", "9")):
            assert cluster.nodes is cluster._nodes
            assert cluster.counts.overlay is None


class TestNothingMoves:
    def test_a_limit_that_only_an_overlay_asks_for_is_not_watched(self, cluster: Cluster) -> None:
        """Each limit more would push out one that others ask for."""
        kept = by_zone(cluster)
        watched = [kept.stamp(limit) for limit in range(4)]

        with cluster.overlay(with_=[web("4", "n-b")]):
            found = by_zone(cluster)
            assert found.stamp(7) == found.stamp(7)

        assert watched == [kept.stamp(limit) for limit in range(4)]

    def test_stamps_of_two_overlays_differ(self, cluster: Cluster) -> None:
        found = set()
        for _ in range(2):
            with cluster.without("uid-default-1", ("default", "1")):
                found.add(by_zone(cluster).stamp(1))

        assert 2 == len(found)


def test_what_is_not_counted_yet_is_counted_without_it(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    monkeypatch.setattr(counters, "_PIECE", 1)
    cluster.upsert_pod(web("4", "n-b", tier="front"))  # another label set: a second piece

    with pytest.raises(Unprepared) as missing, cluster.overlay(without=[web("1"), web("4")]):
        by_zone(cluster)
    for _ in missing.value.steps:
        pass

    assert {"a": 2, "b": 2} == run_prepared(lambda: counts(cluster))
    with cluster.overlay(without=[web("1"), web("4")]):
        assert {"a": 1, "b": 1} == counts(cluster)
    assert [] == cluster.check()


class TestOverlaid:
    """A table with some rows replaced is a table."""

    TABLE = {"a": 1, "b": 2}  # noqa: RUF012  # never changed

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [
            pytest.param({}, {"a": 1, "b": 2}, id="none"),
            pytest.param({"b": 5}, {"a": 1, "b": 5}, id="another row"),
            pytest.param({"b": None}, {"a": 1}, id="a row is gone"),
            pytest.param({"c": 3}, {"a": 1, "b": 2, "c": 3}, id="a row came"),
            pytest.param({"c": None}, {"a": 1, "b": 2}, id="a row that never was is gone"),
        ],
    )
    def test_it_reads_as_one(self, rows: dict[str, int | None], expected: dict[str, int]) -> None:
        found = Overlaid(self.TABLE, rows)

        assert expected == dict(found)
        assert (list(expected), len(expected)) == (list(found), len(found))
        assert expected.keys() == found.keys()
        assert [expected.get(key) for key in "abc"] == [found.get(key) for key in "abc"]
        assert [key in expected for key in "abc"] == [key in found for key in "abc"]
