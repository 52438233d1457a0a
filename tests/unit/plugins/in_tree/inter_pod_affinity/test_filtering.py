"""Required terms: the three steps of a verdict, dry runs, what is certain, and what a refusal rests on."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from tests.builders import ZONE, JsonObject, encoded, node_object, pod_object
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def term(app: str = "web", key: str = ZONE, **more: Any) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: JsonObject) -> JsonObject:
    return {"podAffinity": {REQUIRED: list(terms)}}


def away(*terms: JsonObject) -> JsonObject:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def named(name: str, app: str = "web", affinity: JsonObject | None = None, **fields: Any) -> JsonObject:
    return pod_object(name, labels={"app": app}, affinity=affinity or {}, **fields)


class Cluster(World):
    """Zones a and b with two nodes each, and a node that has no zone."""

    def __init__(self, *objects: JsonObject) -> None:
        super().__init__(profile=only(NAME))
        for name in ("a1", "a2", "b1", "b2"):
            self.add(node_object(name, zone=name[0]))
        self.add(node_object("bare"), *objects)

    def slim(self, pod: JsonObject) -> Pod:
        return self.cluster.core.decode_pod(encoded(pod))

    def verdicts(self, pod: JsonObject) -> dict[str, Any]:
        """Rejections by node, the same in one pass and node by node."""
        slim, nodes = self.slim(pod), Candidates.of(self.cluster.nodes)
        found = run_prepared(lambda: self.framework.search.find_nodes_that_fit(slim, nodes))
        state = CycleState()
        run_prepared(lambda: self.framework.filters.pre_filter(state, slim))
        alone = {it.name: self.framework.filters.filter_node(state, slim, it) for it in nodes}
        assert {name: it for name, it in alone.items() if not it.is_success} == found.rejected()
        assert [name for name, it in alone.items() if it.is_success] == list(found.passed)
        return {name: (it.code.word, it.plugin, it.reasons) for name, it in found.rejected().items()}

    def signature(self, pod: JsonObject) -> Any:
        return run_prepared(lambda: self.framework.search.signatures(self.slim(pod)))[NAME]

    def is_certain(self, pod: JsonObject, node: str) -> bool:
        found = run_prepared(
            lambda: self.framework.at_bind.recheck(
                CycleState(), self.slim(pod), self.cluster.nodes[node], self.cluster.assumed.in_flight()
            )
        )
        assert found.status.is_success
        return found.certain


class TestCertainty:
    def test_affinity_that_rests_on_a_bind_in_flight_is_not_certain(self) -> None:
        cluster, pod = Cluster(), named("web", affinity=near(term("db")))
        cluster.cluster.assume(cluster.slim(named("db", "db")), "a1")
        assert not cluster.is_certain(pod, "a2")

        cluster.add(named("settled", "db", node="a2"))
        assert cluster.is_certain(pod, "a2")

    def test_the_like_of_a_pod_may_all_fail_if_they_are_where_it_goes(self) -> None:
        cluster, pod = Cluster(), named("web", affinity=near(term()))
        cluster.cluster.assume(cluster.slim(named("1")), "a1")
        assert cluster.is_certain(pod, "a2")

        cluster.cluster.assume(cluster.slim(named("2")), "bare")
        assert cluster.is_certain(pod, "a2")
        cluster.cluster.assume(cluster.slim(named("3")), "b1")
        assert not cluster.is_certain(pod, "a2")

    def test_one_that_is_there_elsewhere_leaves_the_others_needed(self) -> None:
        cluster, pod = Cluster(named("settled", node="b1")), named("web", affinity=near(term()))
        cluster.cluster.assume(cluster.slim(named("1")), "a1")

        assert not cluster.is_certain(pod, "a2")
        assert cluster.is_certain(pod, "b2")

    def test_anti_affinity_is_certain_however_binds_end(self) -> None:
        cluster = Cluster()
        cluster.cluster.assume(cluster.slim(named("db", "db", affinity=away(term()))), "b1")

        assert cluster.is_certain(named("web", affinity=away(term("db"))), "a1")


class TestWhoMatters:
    @pytest.mark.parametrize(
        ("pod", "other", "matters"),
        [
            pytest.param(named("p", affinity=near(term("db"))), named("o", "db"), True, id="one that it needs"),
            pytest.param(named("p", affinity=away(term("db"))), named("o", "db"), True, id="one that it cannot stand"),
            pytest.param(named("p"), named("o", "db", affinity=away(term())), True, id="one that cannot stand it"),
            pytest.param(named("p", affinity=near(term("db"))), named("o", "x"), False, id="a stranger"),
            pytest.param(named("p"), named("o", "db", affinity=near(term())), False, id="one that needs it"),
            pytest.param(
                named("p", affinity=away(term("db"))), named("o", "db", namespace="shop"), False, id="another namespace"
            ),
        ],
    )
    def test_a_pod_by_its_terms_and_the_others(self, pod: JsonObject, other: JsonObject, matters: bool) -> None:
        cluster = Cluster()

        assert matters is cluster.framework.filters.depends(cluster.slim(pod), cluster.slim(other))


class TestSignature:
    def test_it_stands_while_the_same_domains_are_taken(self) -> None:
        pod = named("web", affinity=away(term("db")))
        cluster = Cluster(named("1", "db", node="a1"))
        before = cluster.signature(pod)
        cluster.add(named("2", "db", node="a2"), named("x", "x", node="b1"))
        assert before == cluster.signature(pod)

        cluster.add(named("3", "db", node="b1"))
        assert before != cluster.signature(pod)

    def test_it_moves_when_a_node_changes_place(self) -> None:
        pod = named("web", affinity=away(term("db")))
        cluster = Cluster(named("1", "db", node="a1"))
        before = cluster.signature(pod)
        cluster.add(node_object("b2", zone="a"))

        assert before != cluster.signature(pod)

    def test_it_moves_with_what_others_cannot_stand(self) -> None:
        cluster = Cluster()
        before = cluster.signature(named("web"))
        cluster.add(named("1", "db", node="a1", affinity=away(term())))

        assert before != cluster.signature(named("web"))
        assert before[0][:3] == cluster.signature(named("web", "x"))[0][:3]
