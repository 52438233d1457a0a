"""Rules of what pods ask of one another: what is kept, what a incoming is told, and that hostile terms are borne."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from app.cache import terms
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.cache.terms import Terms
from app.framework.counts import DomainCounts, Unprepared
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra, NotDecoded
from app.kube.labels import NO_LABELS, label_set
from app.kube.pod_affinity import Newcomer, Peers
from app.kube.selectors import EVERYTHING, of_labels
from tests.builders import HOSTNAME, ZONE, JsonObject, encoded, make_node, pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = of_labels({"app": "web"})


def term(key: str = ZONE, app: str = "web", **more: Any) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def keeps_off(*found: JsonObject) -> JsonObject:
    return {"podAntiAffinity": {REQUIRED: list(found)}}


def likes(weight: int, key: str = ZONE) -> JsonObject:
    return {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term(key)}]}}


def dislikes(weight: int, key: str = ZONE) -> JsonObject:
    return {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term(key)}]}}


def incoming(app: str = "web", namespace: str = "default") -> Newcomer:
    return Newcomer(namespace, NO_LABELS, label_set({"app": app}))


def pod(name: str, node: str = "n-a", **fields: Any) -> Pod:
    fields = {"labels": {"app": "web"}, **fields}
    return core_v1([Extra.POD_AFFINITY]).decode_pod(encoded(pod_object(name, node=node, **fields)))


@pytest.fixture
def cluster() -> Cluster:
    """Zones a and b with a node each; no pods."""
    found = Cluster(core_v1([Extra.POD_AFFINITY]))
    for zone in "ab":
        found.upsert_node(make_node(f"n-{zone}", zone=zone))
    return found


def shown(found: DomainCounts) -> dict[str, int]:
    return {value: found.count(value) for value in sorted(found.above(0))}


def refusing(cluster: Cluster, asked: Newcomer) -> dict[str, dict[str, int]]:
    found = run_prepared(lambda: cluster.terms.refusing(asked))
    return {key: shown(it) for key, it in found.items() if not it.is_empty()}


def weights(cluster: Cluster, asked: Newcomer, hard_weight: int = 1) -> dict[str, Mapping[str, int]]:
    return {key: dict(it) for key, it in run_prepared(lambda: cluster.terms.weights(asked, hard_weight)).items()}


class TestPeers:
    def test_terminating_pods_count_and_finished_ones_do_not(self, cluster: Cluster) -> None:
        for it in (pod("1"), pod("2", terminating=True), pod("3", phase="Succeeded"), pod("4", "n-b", namespace="b")):
            cluster.upsert_pod(it)

        assert {"a": 2} == shown(cluster.terms.peers(Peers(WEB, frozenset({"default"})), ZONE))
        assert {"a": 2, "b": 1} == shown(cluster.terms.peers(Peers(WEB), ZONE))
        assert {"a": 2, "b": 1} == shown(cluster.terms.peers(Peers(EVERYTHING, frozenset({"default", "b"})), ZONE))
        assert {"n-a": 2, "n-b": 1} == shown(cluster.terms.peers(Peers(WEB), HOSTNAME))

    def test_other_labels_of_a_pod_that_stays(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1"))
        found = cluster.terms.peers(Peers(WEB), ZONE)
        cluster.upsert_pod(pod("1", labels={"app": "db"}, resource_version="2"))

        assert {} == shown(found)
        assert found.is_empty()
        assert [] == cluster.check()


class TestRefusing:
    def test_pods_whose_required_anti_affinity_means_the_newcomer(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1", affinity=keeps_off(term(), term(HOSTNAME, "db"))))
        cluster.upsert_pod(pod("2", "n-b", affinity=keeps_off(term(), term(ZONE, namespaces=["default"]))))

        assert {ZONE: {"a": 1, "b": 1}} == refusing(cluster, incoming())
        assert {HOSTNAME: {"n-a": 1}} == refusing(cluster, incoming("db"))
        assert {} == refusing(cluster, incoming(namespace="shop"))

    def test_those_that_come_later_and_those_that_go(self, cluster: Cluster) -> None:
        assert {} == refusing(cluster, incoming())
        first, second = (pod(name, affinity=keeps_off(term())) for name in "12")
        cluster.upsert_pod(first)
        assert {ZONE: {"a": 1}} == refusing(cluster, incoming())
        cluster.upsert_pod(second)
        cluster.delete_pod(first.key)
        assert {ZONE: {"a": 1}} == refusing(cluster, incoming())
        cluster.delete_pod(second.key)
        assert {} == refusing(cluster, incoming())
        assert [] == cluster.check()

    def test_a_node_that_gets_another_label_and_one_that_comes_late(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1", affinity=keeps_off(term())))
        cluster.upsert_pod(pod("2", "n-c", affinity=keeps_off(term())))
        assert {ZONE: {"a": 1}} == refusing(cluster, incoming())

        cluster.upsert_node(make_node("n-a", zone="z"))
        cluster.upsert_node(make_node("n-c", zone="c"))

        assert {ZONE: {"c": 1, "z": 1}} == refusing(cluster, incoming())
        assert [] == cluster.check()

    def test_namespaces_are_told_apart_by_their_labels(self, cluster: Cluster) -> None:
        anywhere = term(namespaceSelector={"matchLabels": {"team": "a"}})
        cluster.upsert_pod(pod("1", affinity=keeps_off(anywhere)))
        of_team = Newcomer("shop", label_set({"team": "a"}), label_set({"app": "web"}))

        assert {ZONE: {"a": 1}} == refusing(cluster, of_team)
        assert {} == refusing(cluster, incoming(namespace="shop"))

    def test_an_overlay_is_seen_and_moves_nothing(self, cluster: Cluster) -> None:
        known = pod("1", affinity=keeps_off(term()))
        cluster.upsert_pod(known)
        added = pod("2", "n-b", affinity=keeps_off(term(), term(HOSTNAME)))

        with cluster.overlay(without=[known], with_=[added]):
            assert {ZONE: {"b": 1}, HOSTNAME: {"n-b": 1}} == refusing(cluster, incoming())
            assert {"b": 1} == shown(cluster.terms.peers(Peers(WEB), ZONE))

        assert {ZONE: {"a": 1}} == refusing(cluster, incoming())
        assert [] == cluster.check()

    def test_a_stamp_moves_with_the_domains_and_not_with_how_many(self, cluster: Cluster) -> None:
        def stamp() -> int:
            return run_prepared(lambda: cluster.terms.refusing(incoming()))[ZONE].stamp(0)

        cluster.upsert_pod(pod("1", affinity=keeps_off(term())))
        before = stamp()
        cluster.upsert_pod(pod("2", affinity=keeps_off(term())))
        same = stamp()
        cluster.upsert_pod(pod("3", "n-b", affinity=keeps_off(term())))

        assert before == same != stamp()


class TestWeights:
    def test_preferred_terms_of_both_kinds_and_required_affinity(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1", affinity=likes(5)))
        cluster.upsert_pod(pod("2", "n-b", affinity=dislikes(3)))
        cluster.upsert_pod(pod("3", "n-b", affinity={"podAffinity": {REQUIRED: [term(HOSTNAME)]}}))

        assert {ZONE: {"a": 5, "b": -3}, HOSTNAME: {"n-b": 10}} == weights(cluster, incoming(), 10)
        assert {ZONE: {"a": 5, "b": -3}} == weights(cluster, incoming(), 0)
        assert {} == weights(cluster, incoming("db"))

    def test_what_comes_to_nothing_is_there_all_the_same(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1", affinity=likes(5)))
        cluster.upsert_pod(pod("2", affinity=dislikes(5)))

        assert {ZONE: {}} == weights(cluster, incoming())

    def test_pods_on_nodes_without_the_label_weigh_nothing(self, cluster: Cluster) -> None:
        cluster.upsert_node(make_node("bare", hostname=None))
        cluster.upsert_pod(pod("1", "bare", affinity=likes(5)))

        assert {} == weights(cluster, incoming())

    def test_under_an_overlay(self, cluster: Cluster) -> None:
        known = pod("1", affinity=likes(5))
        cluster.upsert_pod(known)

        with cluster.overlay(without=[known]):
            assert {} == weights(cluster, incoming())
        with cluster.overlay(without=[known], with_=[pod("2", "n-b", affinity=likes(2))]):
            assert {"b": 2} == {value: it for value, it in weights(cluster, incoming())[ZONE].items() if it}
        with cluster.overlay(with_=[pod("2", affinity=dislikes(5))]):
            assert {ZONE: {"a": 0}} == weights(cluster, incoming())
        assert {ZONE: {"a": 5}} == weights(cluster, incoming())


class TestBounds:
    def test_who_is_asked_for_last_stays(self, cluster: Cluster) -> None:
        """Others are made anew when they are asked for."""
        found = Terms(cluster.base_nodes, most_match_bytes=5000)
        for number in range(50):
            found.pod(pod(f"{number}", affinity=keeps_off(term(app=f"a{number}"))), "n-a", 1)
        for _ in range(2):
            for number in range(50):
                assert {"a": 1} == shown(found.refusing(incoming(f"a{number}"))[ZONE])

        statistics = found.statistics()["matches"]
        assert statistics["entries"] < 10
        assert statistics["bytes"] <= 5000
        assert 100 == statistics["misses"]
        assert len(found._by_index_key) == 50
        assert all(len(it.matches) <= 1 for it in found._groups.values())

    def test_many_carriers_are_looked_at_in_pieces(self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        monkeypatch.setattr(terms, "_PIECE", 8)
        found = Terms(cluster.base_nodes)
        everybody = {"topologyKey": ZONE, "labelSelector": {}, "namespaceSelector": {}}
        for number in range(40):
            found.pod(pod(f"{number}", affinity=keeps_off(everybody, term(app=f"a{number}"))), "n-a", 1)

        with pytest.raises(Unprepared) as raised:
            found.refusing(incoming())
        steps = iter(raised.value.steps)
        next(steps)
        found.pod(pod("late", "n-b", affinity=keeps_off(everybody)), "n-b", 1)
        assert 5 < sum(1 for _ in steps)
        assert {"a": 40, "b": 1} == shown(run_prepared(lambda: found.refusing(incoming()))[ZONE])

    def test_of_newcomers_that_the_same_carriers_mean_the_first_are_given_up(
        self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
    ) -> None:
        """Whoever has terms that mean everybody comes and goes at the cost of so many matches; the others are right."""
        monkeypatch.setattr(terms, "_MOST_FAN_OUT", 5)
        everybody = {"topologyKey": ZONE, "labelSelector": {}, "namespaceSelector": {}}
        cluster.upsert_pod(pod("1", affinity=keeps_off(everybody, {**everybody, "topologyKey": HOSTNAME})))
        assert isinstance(cluster.terms, Terms)
        asked = [incoming(f"a{it}") for it in range(20)]
        for it in asked:
            assert {ZONE: {"a": 1}, HOSTNAME: {"n-a": 1}} == refusing(cluster, it)

        (carriers,) = cluster.terms._groups.values()
        assert asked[-2:] == [it.incoming for it in carriers.matches]
        assert 4 == carriers.fan_out
        cluster.upsert_pod(pod("2", "n-b", affinity=keeps_off(everybody)))
        assert all({ZONE: {"a": 1, "b": 1}, HOSTNAME: {"n-a": 1}} == refusing(cluster, it) for it in asked)
        assert [] == cluster.check()

    def test_over_keys_that_no_node_has_nobody_is_asked(self, cluster: Cluster) -> None:
        """Until one has it."""
        everybody = [{"topologyKey": f"k{it}", "labelSelector": {}, "namespaceSelector": {}} for it in range(30)]
        cluster.upsert_pod(pod("1", affinity=keeps_off(*everybody)))
        before = refusing(cluster, incoming())
        known = cluster.base_nodes["n-a"].node
        cluster.upsert_node(replace(known, resource_version="9", labels=label_set({**known.labels, "k3": "x"})))
        after = refusing(cluster, incoming())
        cluster.upsert_node(replace(known, resource_version="10"))

        assert ({}, {"k3": {"x": 1}}, {}) == (before, after, refusing(cluster, incoming()))

    def test_terms_that_name_others_cost_a_newcomer_nothing(self, cluster: Cluster) -> None:
        """However many there are: they are found by namespace and label."""
        found = Terms(cluster.base_nodes)
        for number in range(5000):
            of_others = term(app=f"a{number}", namespaces=[f"team-{number % 7}"])
            found.pod(pod(f"{number}", namespace="hostile", affinity=keeps_off(of_others)), "n-a", 1)

        assert [] == list(found._candidates(incoming()))
        assert {} == found.refusing(incoming())

    def test_where_nobody_declares_them_there_are_none(self) -> None:
        for ask in (
            lambda: Cluster().terms.refusing(incoming()),
            lambda: Cluster().terms.weights(incoming(), 1),
            lambda: Cluster().terms.peers(Peers(WEB), ZONE),
        ):
            with pytest.raises(NotDecoded, match="POD_AFFINITY"):
                ask()


class TestCheck:
    def test_a_count_that_is_wrong_is_told(self, cluster: Cluster) -> None:
        cluster.upsert_pod(pod("1", affinity=keeps_off(term())))
        refusing(cluster, incoming())
        weights(cluster, incoming())
        found: Any = cluster.terms
        (match, *_) = found._matches
        (carriers,) = found._groups.values()
        assert [] == cluster.check()

        match.selections[ZONE].nodes["n-b"] = 7
        assert ["terms: counts of matching terms differ from a recount"] == cluster.check()
        del match.selections[ZONE].nodes["n-b"]
        carriers.nodes["n-b"] = 1
        assert "terms: pods by their terms differ from a recount" in cluster.check()
