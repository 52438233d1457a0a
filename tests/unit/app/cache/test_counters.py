"""Rules of the kept counts: what is counted by which domain, what an event moves, and what is given up when full.

That they stay equal to a recount under any interleaving of events is stated in ``tests/property``.
"""

from collections.abc import Collection, Mapping
from functools import partial

import pytest

from app.cache import counters, topologies
from app.cache.bounded import Bounded
from app.cache.cluster import Cluster
from app.cache.counters import at_once
from app.cache.pins import PINS
from app.framework.counts import ALL_NODES, DomainCounts, Inclusion, Unprepared
from app.kube.core_v1 import Node, Pod
from app.kube.selectors import DOES_NOT_EXIST, EVERYTHING, Selector, of_labels, requirement, selector
from app.kube.taints import Toleration
from tests.builders import HOSTNAME, ZONE, make_node, make_pod, taint

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


class TestWhatCounts:
    def test_a_domain_without_pods_exists(self) -> None:
        found = by_zone(three_zones())

        assert ({"a": 2, "b": 1, "c": 0}, 3, 0) == (counts_of(found), found.size(), found.minimum())

    def test_a_domain_nobody_is_in_does_not_exist_and_counts_none(self) -> None:
        found = by_zone(three_zones())

        assert (0, None) == (found.count("unknown"), found.domain_of("unknown"))

    def test_only_pods_of_the_namespace_that_the_selector_matches_count(self) -> None:
        cluster = cluster_of(
            make_node("n1", zone="a"),
            web("1", "n1"),
            make_pod("2", node="n1", labels={"app": "db"}),
            make_pod("3", node="n1", namespace="shop", labels={"app": "web"}),
        )

        assert {"a": 1} == counts_of(by_zone(cluster))
        assert {"n1": 1} == cluster.counts.pods_by_node("default", WEB)
        assert {"n1": 2} == cluster.counts.pods_by_node("default", EVERYTHING)
        assert {} == cluster.counts.pods_by_node("unknown", WEB)

    def test_a_node_without_a_required_key_does_not_count(self) -> None:
        cluster = cluster_of(
            make_node("n1", zone="a", labels={RACK: "1"}), make_node("n2", zone="b"), web("1", "n1"), web("2", "n2")
        )

        assert {"a": 1} == counts_of(by_zone(cluster, ALL_NODES, RACK))

    def test_a_node_that_is_not_admitted_does_not_count(self) -> None:
        cluster = cluster_of(
            make_node("n1", zone="a"), make_node("n2", zone="b", taints=[taint("x")]), web("1", "n1"), web("2", "n2")
        )

        assert {"a": 1} == counts_of(by_zone(cluster, Inclusion(tolerations=())))

    def test_without_the_key_where_it_is_not_required_a_node_is_in_the_empty_domain(self) -> None:
        cluster = cluster_of(make_node("n1", zone="a"), make_node("n2"), web("1", "n2"))

        found = cluster.counts.domains("default", WEB, ZONE, frozenset())

        assert ({"a": 0, "": 1}, "") == (counts_of(found), found.domain_of("n2"))

    def test_pods_on_an_unknown_node_are_in_no_domain(self) -> None:
        assert {"a": 0} == counts_of(by_zone(cluster_of(make_node("n1", zone="a"), web("1", "n9"))))

    def test_values_of_a_key_and_what_is_outside_of_some(self) -> None:
        cluster = three_zones()
        cluster.upsert_node(make_node("n-0"))
        cluster.upsert_node(make_node("n-a2", zone="a"))

        assert {"n-a": "a", "n-b": "b", "n-c": "c", "n-a2": "a"} == cluster.counts.values(ZONE)
        names = ["n-c", "n-a2", "n-0", "n-b", "n-a"]
        assert ["n-a2", "n-a"] == cluster.counts.outside(ZONE, ["b", "c"], names)
        assert ["n-c", "n-a2", "n-b", "n-a"] == cluster.counts.outside(ZONE, ["unknown"], names)

        cluster.upsert_node(make_node("n-a2", zone="b"))
        cluster.delete_node("n-b")

        assert [["n-c", "n-a2"], ["n-c", "n-a"]] == [cluster.counts.outside(ZONE, [zone], names) for zone in "ab"]


class TestEvents:
    """Counts asked for once are right after any event; each case asks before and after."""

    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            pytest.param(web("4", "n-c"), {"a": 2, "b": 1, "c": 1}, id="a pod comes"),
            pytest.param(make_pod("1", node="n-a"), {"a": 1, "b": 1, "c": 0}, id="a pod loses its label"),
            pytest.param(web("1", "n-c"), {"a": 1, "b": 1, "c": 1}, id="a pod moves"),
            pytest.param(web("1", "n-a", v="2"), {"a": 2, "b": 1, "c": 0}, id="a label nobody asks for"),
            pytest.param(make_node("n-a", zone="b"), {"b": 3, "c": 0}, id="a node moves, the last of its zone"),
            pytest.param(make_node("n-a", zone="d"), {"b": 1, "c": 0, "d": 2}, id="a node makes a new zone"),
            pytest.param(make_node("n-a"), {"b": 1, "c": 0}, id="a node loses its zone"),
            pytest.param(make_node("n-d", zone="a"), {"a": 2, "b": 1, "c": 0}, id="a node more in a zone"),
        ],
    )
    def test_an_event_moves_what_it_changes(self, event: Node | Pod, expected: dict[str, int]) -> None:
        cluster = three_zones()
        found = by_zone(cluster)

        if isinstance(event, Node):
            cluster.upsert_node(event)
        else:
            cluster.upsert_pod(event)

        assert expected == counts_of(found)
        assert [] == cluster.check()
        assert found is by_zone(cluster)

    def test_a_node_goes_and_comes_back_with_its_pods(self) -> None:
        cluster = three_zones()
        found = by_zone(cluster)

        cluster.delete_node("n-a")
        assert {"b": 1, "c": 0} == counts_of(found)

        cluster.upsert_node(make_node("n-a", zone="a"))
        assert {"a": 2, "b": 1, "c": 0} == counts_of(found)

    def test_a_taint_matters_to_those_who_honour_taints(self) -> None:
        cluster = three_zones()
        honoured, ignored = by_zone(cluster, Inclusion(tolerations=())), by_zone(cluster)

        cluster.upsert_node(make_node("n-a", zone="a", taints=[taint("x")]))

        assert [{"b": 1, "c": 0}, {"a": 2, "b": 1, "c": 0}] == [counts_of(honoured), counts_of(ignored)]

    def test_a_label_matters_to_those_whose_affinity_reads_it(self) -> None:
        cluster = three_zones()
        affinity = make_pod(node_selector={"disk": "ssd"}).spec.affinity
        found = by_zone(cluster, Inclusion(affinity=affinity))
        assert {} == counts_of(found)

        cluster.upsert_node(make_node("n-a", zone="a", labels={"disk": "ssd"}))

        assert {"a": 2} == counts_of(found)


class TestMinimum:
    @pytest.mark.parametrize(
        ("deltas", "expected"),
        [
            pytest.param(None, 0, id="nothing changes"),
            pytest.param({}, 0, id="nothing changes, said in another way"),
            pytest.param({"c": 1}, 1, id="the emptiest is filled up to the next"),
            pytest.param({"c": 5}, 1, id="the next is the emptiest then"),
            pytest.param({"b": 5, "c": 5}, 2, id="all but one are filled"),
            pytest.param({"a": -2}, 0, id="another is emptied"),
            pytest.param({"c": -1}, -1, id="a pod that never counted is taken away"),
            pytest.param({"a": 1, "b": 1, "c": 1}, 1, id="every domain changes"),
            pytest.param({"b": 1}, 0, id="the emptiest is left alone"),
            pytest.param({"unknown": -3}, -3, id="a domain that does not exist is created"),
            pytest.param({"unknown": 3}, 0, id="and need not be the emptiest"),
        ],
    )
    def test_with_changes(self, deltas: dict[str, int] | None, expected: int) -> None:
        assert expected == by_zone(three_zones()).minimum(deltas)

    def test_of_no_domains_is_0(self) -> None:
        assert 0 == by_zone(cluster_of(make_node("n1"))).minimum()

    def test_where_every_domain_has_pods(self) -> None:
        cluster = three_zones()
        cluster.upsert_pod(web("4", "n-c"))
        found = by_zone(cluster)

        assert [1, 1, 2] == [found.minimum(), found.minimum({"b": 1}), found.minimum({"b": 1, "c": 9})]


@pytest.mark.parametrize(
    ("limit", "expected"), [(0, {"a", "b"}), (1, {"a"}), (2, set())], ids=["above none", "above one", "above two"]
)
def test_the_domains_above_a_limit(limit: int, expected: set[str]) -> None:
    assert expected == set(by_zone(three_zones()).above(limit))


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
    def test_the_entry_used_longest_ago_goes_first(self) -> None:
        gone: list[str] = []
        bounded = Bounded[str, Sized](lambda: 2, Sized, gone.append)

        assert ["a", "b", "a", "c"] == [bounded.get(key) for key in "abac"]
        assert (["b"], ["a", "c"], 2) == (gone, list(bounded), len(bounded))
        assert (1, 3) == (bounded.hits, bounded.misses)

    def test_entries_can_be_forgotten(self) -> None:
        """Whoever forgets one knows why; one that is not there is forgotten already."""
        gone: list[str] = []
        bounded = Bounded[str, Sized](lambda: 3, Sized, gone.append)
        for key in "abc":
            bounded.get(key)

        bounded.forget("b")
        bounded.forget("never seen")

        assert ([], ["a", "c"], 2) == (gone, list(bounded), bounded.bytes)

    def test_a_heavy_entry_takes_the_room_of_many(self) -> None:
        gone: list[str] = []
        bounded = Bounded[str, Sized](lambda: 4, Sized, gone.append)
        for key in ("a", "b", "c", "ddd"):
            bounded.get(key)

        assert (["a", "b"], ["c", "ddd"], 4) == (gone, list(bounded), bounded.bytes)

    def test_one_that_is_larger_than_all_the_room_is_kept_alone(self) -> None:
        """Whoever asked for it holds it anyway."""
        gone: list[str] = []
        bounded = Bounded[str, Sized](lambda: 4, Sized, gone.append)

        bounded.get("a")
        bounded.get("bbbbb")

        assert (["a"], ["bbbbb"]) == (gone, list(bounded))

    def test_what_has_grown_goes_when_it_is_weighed_again(self) -> None:
        gone: list[object] = []
        room = [100]
        bounded = Bounded[str, Sized](lambda: room[0], Sized, gone.append)
        for key in ("aa", "bb", "cc"):
            bounded.get(key)

        room[0] = 4
        bounded.weigh()

        assert (["aa"], 4) == (gone, bounded.bytes)


class TestEviction:
    """Counts that had to go are made anew, and those that stand on them go too."""

    @pytest.mark.parametrize("level", ["_MOST_SELECTION_BYTES", "_MOST_TOPOLOGY_BYTES", "_MOST_DOMAINS_BYTES"])
    def test_counts_are_right_after_they_were_given_up(self, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
        monkeypatch.setattr(counters, "_LARGEST_SHAPE", 0)
        monkeypatch.setattr(counters, level, 1)
        cluster = three_zones()
        by_zone(cluster)

        cluster.counts.domains("default", EVERYTHING, HOSTNAME, frozenset({HOSTNAME}))
        cluster.upsert_pod(web("4", "n-c", never="seen"))
        cluster.upsert_node(make_node("n-b", zone="a"))

        assert {"a": 3, "c": 1} == counts_of(by_zone(cluster))
        assert [] == cluster.check()

    def test_a_level_that_goes_takes_its_domains_along(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_LARGEST_SHAPE", 0)
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

    def test_a_part_is_weighed_at_a_time(self) -> None:
        """Each entry in its turn, whatever came and went meanwhile."""
        bounded = Bounded[str, Weighing](lambda: 10**6, Weighing, lambda _: None)
        for number in range(200):
            bounded.get(str(number))
        Weighing.weighed = 0

        bounded.weigh(4)
        once = Weighing.weighed
        assert bounded.give_up("7")
        for _ in range(3):
            bounded.weigh(4)

        assert once < 100
        assert 2 == min(it.times for it in bounded)

    def test_what_is_pinned_is_not_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bounded = Bounded[str, Sized](lambda: 100, Sized, lambda _: None)
        bounded.get("aa")
        monkeypatch.setattr(PINS, "keys", {"aa"})

        assert (False, False) == (bounded.give_up("aa"), bounded.give_up("unknown"))
        assert ["aa"] == list(bounded)


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
            at_once(partial(found.counts.domains, "default", unlike, ZONE, frozenset({ZONE})))
        at_once(lambda: by_zone(found))
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
        at_once(lambda: by_zone(cluster))

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

        everybody = at_once(lambda: cluster.counts.pods_by_node("default", EVERYTHING))
        assert {"n-a": 2, "n-b": 1, "n-c": 1} == everybody
        assert [] == cluster.check()

    def test_a_check_compares_it_first(self, cluster: Cluster) -> None:
        cluster.upsert_pod(web("4", "n-c", never="seen"))

        assert [] == cluster.check()


def skews(cluster: Cluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in cluster.counts.skews(found):
        pass
    return found


class TestSkews:
    def test_it_is_by_how_much_the_fullest_domain_is_ahead_of_the_emptiest(self) -> None:
        cluster = three_zones()
        by_zone(cluster)
        cluster.counts.domains("default", WEB, HOSTNAME, frozenset({HOSTNAME}))

        assert {ZONE: 2, HOSTNAME: 2} == skews(cluster)

    def test_it_is_the_largest_of_all_that_is_counted(self) -> None:
        cluster = three_zones()
        by_zone(cluster)
        cluster.counts.domains("default", of_labels({"app": "none"}), ZONE, frozenset({ZONE}))

        assert {ZONE: 2} == skews(cluster)

    def test_it_follows_events(self) -> None:
        cluster = three_zones()
        by_zone(cluster)
        cluster.upsert_pod(web("4", "n-c"))

        assert {ZONE: 1} == skews(cluster)

    def test_what_no_node_has_is_no_topology(self) -> None:
        cluster = three_zones()
        cluster.counts.domains("default", WEB, RACK, frozenset({RACK}))

        assert {} == skews(cluster)

    def test_others_get_their_turn(self) -> None:
        cluster = three_zones()
        for number in range(200):
            cluster.counts.domains("default", of_labels({"app": str(number)}), ZONE, frozenset({ZONE}))

        assert 3 == len(list(cluster.counts.skews({})))
