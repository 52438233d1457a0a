"""Rules of the kept counts: what is counted by which domain, what an event moves, and what is given up when full.

That they stay equal to a recount under any interleaving of events is stated in ``tests/property``.
"""

from collections.abc import Collection, Mapping
from functools import partial

import pytest

from app.cache import counters, topologies
from app.cache.bounded import Bounded
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.cache.pins import PINS
from app.framework.counts import ALL_NODES, DomainCounts, Inclusion, Unprepared
from app.kube.core_v1 import Node, Pod
from app.kube.selectors import DOES_NOT_EXIST, EVERYTHING, Selector, of_labels, requirement, selector
from app.kube.taints import Toleration
from tests.builders import HOSTNAME, ZONE, make_node, make_pod

WEB = of_labels({"app": "web"})
RACK = "example.com/rack"


def cluster_of(*objects: Node | Pod) -> Cluster:
    cluster = Cluster()
    for found in objects:
        if isinstance(found, Node):
            cluster.upsert_node(found)
        else:
            cluster.upsert_pod(found)
    return cluster


def web(name: str, node: str, **labels: str) -> Pod:
    return make_pod(name, node=node, labels={"app": "web", **labels})


def three_zones() -> Cluster:
    """Zones a, b and c with 2, 1 and 0 pods."""
    nodes = (make_node(f"n-{zone}", zone=zone) for zone in "abc")
    return cluster_of(*nodes, web("1", "n-a"), web("2", "n-a"), web("3", "n-b"))


def by_zone(cluster: Cluster, inclusion: Inclusion = ALL_NODES, *required: str) -> DomainCounts:
    return cluster.counts.domains("default", WEB, ZONE, frozenset({ZONE, *required}), inclusion)


def counts_of(found: DomainCounts) -> dict[str, int]:
    """Every domain there is, with its count."""
    return {value: found.count(value) for value in found.nodes_by_domain()}


@pytest.mark.parametrize("few", [0, 64], ids=["domain by domain", "by the union of the others"])
@pytest.mark.parametrize(
    ("blocked", "left"),
    [
        (set(), ["n-c", "n-a", "n-b"]),
        ({"b"}, ["n-c", "n-a"]),
        (["a", "c"], ["n-b"]),
        ({"a", "b", "c"}, []),
        ({"elsewhere"}, ["n-c", "n-a", "n-b"]),
    ],
)
def test_the_nodes_outside_of_domains(
    monkeypatch: pytest.MonkeyPatch, few: int, blocked: Collection[str], left: list[str]
) -> None:
    monkeypatch.setattr(topologies, "_FEW_DOMAINS", few)
    monkeypatch.setattr(topologies, "_MAX_UNIONS", 1)
    cluster = three_zones()
    cluster.upsert_node(make_node("n-none", zone=None))
    names = ["no-node", "n-c", "n-a", "n-none", "n-b"]

    for _ in range(2):
        assert left == cluster.counts.outside(ZONE, blocked, names)
        assert ["n-c", "n-b"] == cluster.counts.outside(ZONE, ("a",), names)
    assert [] == cluster.check()
    cluster.upsert_node(make_node("n-c", zone="a"))
    assert ["n-b"] == cluster.counts.outside(ZONE, ("a",), names)
    assert [] == cluster.check()


def test_the_nodes_outside_of_hosts() -> None:
    cluster = three_zones()
    names = ["n-c", "n-a", "no-node", "n-b"]

    assert ["n-c", "n-b"] == cluster.counts.outside(HOSTNAME, ("n-a",), names)
    cluster.upsert_node(make_node("n-b", hostname="n-a"))
    assert ["n-c"] == cluster.counts.outside(HOSTNAME, {"n-a"}, names)
    assert cluster.counts.on_every_node(HOSTNAME)
    cluster.upsert_node(make_node("n-c", hostname=None))
    assert not cluster.counts.on_every_node(HOSTNAME)
    assert [] == cluster.counts.outside(HOSTNAME, {"n-a"}, names)
    assert [] == cluster.check()


def test_a_domain_without_pods_exists_and_counts_are_kept_whatever_moves() -> None:
    """What counts, and what each event changes: ``tests/property``."""
    cluster = three_zones()
    found = by_zone(cluster)
    seen = [(counts_of(found), found.size(), found.minimum(), found.count("unknown"))]

    cluster.upsert_pod(make_pod("4", node="n-c"))
    cluster.upsert_pod(web("4", "n-c"))
    cluster.upsert_pod(make_pod("1", node="n-a"))
    cluster.upsert_node(make_node("n-a", zone="d"))
    seen.append((counts_of(found), found.size(), found.minimum(), found.count("unknown")))

    assert [({"a": 2, "b": 1, "c": 0}, 3, 0, 0), ({"b": 1, "c": 1, "d": 1}, 3, 1, 0)] == seen
    assert found is by_zone(cluster)


class Sized(str):
    """Weighs what it is long."""

    def weight(self) -> int:
        return len(self)


class Weighing(str):
    """Counts how often it is weighed; ``times``: this one."""

    weighed = 0

    def __init__(self, _key: str) -> None:
        self.times = 0

    def weight(self) -> int:
        self.times += 1
        Weighing.weighed += 1
        return 1


class TestBounded:
    @pytest.mark.parametrize(
        ("limit", "asked", "gone", "left"),
        [
            pytest.param(2, "a b a c", ["b"], ["a", "c"], id="the entry used longest ago goes first"),
            pytest.param(4, "a b c ddd", ["a", "b"], ["c", "ddd"], id="a heavy entry takes the room of many"),
            pytest.param(4, "a bbbbb", ["a"], ["bbbbb"], id="one that is larger than all the room is kept alone"),
        ],
    )
    def test_what_goes(self, limit: int, asked: str, gone: list[str], left: list[str]) -> None:
        evicted: list[str] = []
        bounded = Bounded[str, Sized](lambda: limit, Sized, evicted.append)
        for key in asked.split():
            assert key == bounded.get(key)

        assert (gone, left, sum(map(len, left))) == (evicted, list(bounded), bounded.bytes)
        assert len(gone) + len(left) == bounded.misses == len(asked.split()) - bounded.hits

    def test_an_entry_is_forgotten_and_a_pinned_one_is_not_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``on_evict`` is called for neither."""
        evicted: list[str] = []
        bounded = Bounded[str, Sized](lambda: 3, Sized, evicted.append)
        for key in "abc":
            bounded.get(key)
        monkeypatch.setattr(PINS, "keys", {"a"})

        bounded.forget("b")
        bounded.forget("never seen")

        assert (False, False) == (bounded.evict("a"), bounded.evict("unknown"))
        assert ([], ["a", "c"], 2) == (evicted, list(bounded), bounded.bytes)

    def test_a_part_is_weighed_at_a_time_and_what_has_grown_goes(self) -> None:
        """Each entry in its turn, whatever came and went meanwhile."""
        room = [10**6]
        bounded = Bounded[str, Weighing](lambda: room[0], Weighing, lambda _: None)
        for number in range(200):
            bounded.get(str(number))
        Weighing.weighed = 0

        bounded.weigh(4)
        once = Weighing.weighed
        assert bounded.evict("7")
        for _ in range(3):
            bounded.weigh(4)
        assert (True, 2) == (once < 100, min(it.times for it in bounded))

        room[0] = 4
        bounded.weigh()
        assert 4 == bounded.bytes == len(bounded)


class TestEviction:
    """Counts that had to go are made anew, and those that stand on them go too."""

    @pytest.mark.parametrize("level", ["_MOST_SELECTION_BYTES", "_MOST_TOPOLOGY_BYTES", "_MOST_DOMAINS_BYTES"])
    def test_counts_are_right_after_they_were_given_up(self, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
        monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
        monkeypatch.setattr(counters, level, 1)
        cluster = three_zones()
        by_zone(cluster)

        cluster.counts.domains("default", EVERYTHING, HOSTNAME, frozenset({HOSTNAME}))
        cluster.upsert_pod(web("4", "n-c", never="seen"))
        cluster.upsert_node(make_node("n-b", zone="a"))

        assert {"a": 3, "c": 1} == counts_of(by_zone(cluster))
        assert [] == cluster.check()

    def test_a_level_that_goes_takes_its_domains_along(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
        monkeypatch.setattr(counters, "_MOST_SELECTION_BYTES", 1)
        cluster = three_zones()
        by_zone(cluster)

        cluster.counts.pods_by_node("default", EVERYTHING)

        found = cluster.counts.statistics()
        assert {"selection": 1, "topology": 1, "domains": 0} == {name: it["entries"] for name, it in found.items()}
        assert {"selection": 2, "topology": 1, "domains": 1} == {name: it["misses"] for name, it in found.items()}

    def test_label_sets_and_namespaces_that_are_gone_leave_nothing_behind(self) -> None:
        cluster = three_zones()
        for number in range(3):
            cluster.delete_pod(("default", str(number + 1)))

        assert {} == cluster.counts._groups


class TestFanOut:
    """How much an event changes is bounded by what may stand on one label set."""

    def test_of_selections_of_one_label_set_the_first_are_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_MOST_OF_A_GROUP", 3)
        cluster = three_zones()
        asked = [selector([requirement(f"k{it}", DOES_NOT_EXIST)]) for it in range(10)]
        for it in asked:
            cluster.counts.domains("default", it, ZONE, frozenset({ZONE}))

        (group,) = cluster.counts._groups["default"].values()
        assert asked[-3:] == [it.selector for it in group.selections]
        cluster.upsert_pod(web("4", "n-c"))
        assert all(
            {"a": 2, "b": 1, "c": 1} == counts_of(cluster.counts.domains("default", it, ZONE, frozenset({ZONE})))
            for it in asked
        )
        assert [] == cluster.check()

    def test_who_decides_keeps_more_than_that(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_MOST_OF_A_GROUP", 3)
        asked = [selector([requirement(f"k{it}", DOES_NOT_EXIST)]) for it in range(10)]
        monkeypatch.setattr(PINS, "keys", {("default", it) for it in asked})
        cluster = three_zones()
        for it in asked:
            cluster.counts.pods_by_node("default", it)

        assert 10 == cluster.counts.statistics()["selection"]["entries"]

    def test_of_domains_of_one_selection_the_first_are_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_MOST_OF_A_SELECTION", 3)
        cluster = three_zones()
        kinds = [Inclusion(None, (Toleration(key=f"k{it}"),)) for it in range(10)]
        for it in kinds:
            by_zone(cluster, it)

        (selection,) = cluster.counts._selections
        assert kinds[-3:] == [it.topology.eligibility.inclusion for it in selection.domains]
        cluster.upsert_pod(web("4", "n-c"))
        assert all({"a": 2, "b": 1, "c": 1} == counts_of(by_zone(cluster, it)) for it in kinds)
        assert [] == cluster.check()


class TestGroupsThatManyMaySelect:
    """A label set never seen is compared with selectors before the next answer where there are many."""

    @pytest.fixture
    def cluster(self, monkeypatch: pytest.MonkeyPatch) -> Cluster:
        monkeypatch.setattr(counters, "_AT_AN_EVENT", 8)
        monkeypatch.setattr(counters, "_PIECE", 4)
        found = three_zones()
        for number in range(20):
            unlike = selector([requirement(f"k{number}", DOES_NOT_EXIST)])
            run_prepared(partial(found.counts.domains, "default", unlike, ZONE, frozenset({ZONE})))
        run_prepared(lambda: by_zone(found))
        return found

    def test_the_event_compares_it_with_none(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        compared: list[object] = []
        matches = Selector.matches

        def counted(found: Selector, labels: Mapping[str, str]) -> bool:
            compared.append(found)
            return matches(found, labels)

        monkeypatch.setattr(Selector, "matches", counted)
        cluster.upsert_pod(web("4", "n-c", never="seen"))
        before = len(compared)
        run_prepared(lambda: by_zone(cluster))

        assert (0, 21) == (before, len(compared))

    def test_the_next_answer_has_it_counted(self, cluster: Cluster) -> None:
        """Also of pods that come, leave and are relabelled while it is compared."""
        cluster.upsert_pod(web("4", "n-c", never="seen"))
        with pytest.raises(Unprepared) as raised:
            by_zone(cluster)
        steps = iter(raised.value.steps)
        next(steps)
        cluster.upsert_pod(web("5", "n-c", never="seen"))
        cluster.upsert_pod(web("6", "n-b", never="seen"))
        cluster.delete_pod(("default", "4"))
        cluster.upsert_pod(web("3", "n-b", k1="later"))

        assert 5 < sum(1 for _ in steps)
        assert {"a": 2, "b": 2, "c": 1} == counts_of(by_zone(cluster))
        unlike = cluster.counts.domains(
            "default", selector([requirement("k1", DOES_NOT_EXIST)]), ZONE, frozenset({ZONE})
        )
        assert {"a": 2, "b": 1, "c": 1} == counts_of(unlike)
        assert [] == cluster.check()

    def test_one_that_is_gone_meanwhile_is_forgotten(self, cluster: Cluster) -> None:
        cluster.upsert_pod(web("4", "n-c", never="seen"))
        with pytest.raises(Unprepared) as raised:
            by_zone(cluster)
        next(iter(raised.value.steps))
        cluster.delete_pod(("default", "4"))

        assert {"a": 2, "b": 1, "c": 0} == counts_of(by_zone(cluster))
        assert [] == cluster.check()

    def test_selections_asked_for_meanwhile_count_it_once(self, cluster: Cluster) -> None:
        cluster.upsert_pod(web("4", "n-c", never="seen"))

        everybody = run_prepared(lambda: cluster.counts.pods_by_node("default", EVERYTHING))
        assert {"n-a": 2, "n-b": 1, "n-c": 1} == everybody
        assert [] == cluster.check()


def skews(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in cluster.counts.skews(found):
        pass
    return found


def test_the_skew_is_the_largest_of_all_that_is_counted_and_follows_events() -> None:
    """By topology key; a key that no node has is no topology."""
    cluster = three_zones()
    for labels, key in ((WEB, ZONE), (WEB, HOSTNAME), (of_labels({"app": "none"}), ZONE), (WEB, RACK)):
        cluster.counts.domains("default", labels, key, frozenset({key}))
    before = skews(cluster)
    cluster.upsert_pod(web("4", "n-c"))

    assert ({ZONE: 2, HOSTNAME: 2}, {ZONE: 1, HOSTNAME: 1}) == (before, skews(cluster))


def test_skews_are_looked_at_in_steps() -> None:
    cluster = three_zones()
    for number in range(200):
        cluster.counts.domains("default", of_labels({"app": str(number)}), ZONE, frozenset({ZONE}))

    assert 3 == len(list(cluster.counts.skews({})))
