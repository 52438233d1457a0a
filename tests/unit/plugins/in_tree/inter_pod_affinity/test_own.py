"""The terms of a pod as they are evaluated: resolved by namespaces, once, in steps where there are many."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.counters import run_prepared
from app.framework.counts import Unprepared
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.kube.pod_affinity import Peers
from app.kube.selectors import of_labels
from plugins.in_tree.inter_pod_affinity import own
from plugins.in_tree.inter_pod_affinity.own import OwnTermsOf
from tests.builders import ZONE, JsonObject, encoded, node_object, pod_object
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
WEB: Final = of_labels({"app": "web"})


def term(app: str = "web", key: str = ZONE, **more: Any) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def namespace(name: str, **labels: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def world() -> World:
    return World(node_object("n1", zone="a"), profile=only(NAME))


def pod_of(world: World, affinity: JsonObject | None = None, **fields: Any) -> Pod:
    return world.cluster.core.decode_pod(encoded(pod_object(affinity=affinity or {}, **fields)))


class TestNamespaces:
    def test_many_are_looked_at_in_steps(self, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
        monkeypatch.setattr(own, "_AT_ONCE", 4)
        for number in range(10):
            world.add(namespace(f"s{number}", team="ab"[number % 2]))
        resolved = OwnTermsOf(world.handle.objects)
        selected = term(namespaceSelector={"matchLabels": {"team": "a"}})
        pod = pod_of(world, {"podAntiAffinity": {REQUIRED: [selected]}})

        assert world.framework.filters.depends(pod, pod_of(world, labels={"app": "another"}))
        with pytest.raises(Unprepared) as raised:
            resolved.of(pod)
        assert 3 == sum(1 for _ in raised.value.steps)
        assert ((ZONE, Peers(WEB, frozenset({"s0", "s2", "s4", "s6", "s8"}))),) == resolved.of(pod).anti


class TestWhatCannotBeRead:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            pytest.param({"affinity": {"podAffinity": {REQUIRED: [term()] * 33}}}, "more than 32 terms", id="terms"),
            pytest.param({"labels": {f"l{it}": "x" * 63 for it in range(1000)}}, "metadata.labels", id="labels"),
            pytest.param(
                {"affinity": {"podAffinity": {REQUIRED: [term(labelSelector={"matchExpressions": [{"key": "a"}]})]}}},
                'parsing pod: requiredAffinityTerms: "" is not a valid label selector operator',
                id="a selector",
            ),
        ],
    )
    def test_the_pod_is_refused_on_all_nodes(self, world: World, fields: JsonObject, said: str) -> None:
        pod = pod_of(world, **fields)
        found = run_prepared(lambda: world.framework.search.find_nodes_that_fit(pod, world.candidates()))
        status: Status = found.rejected()["n1"]

        assert [] == list(found.passed)
        assert ("UnschedulableAndUnresolvable", NAME) == (status.code.word, status.plugin)
        assert said in status.message
        assert NAME in world.framework.search.signatures(pod)
