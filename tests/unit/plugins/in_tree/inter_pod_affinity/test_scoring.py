"""Preferred terms: what both sides weigh, what is left out, and how weights become scores."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from tests.builders import HOSTNAME, ZONE, JsonObject, encoded, node_object, pod_object
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
WEB: Final[JsonObject] = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
DB: Final[JsonObject] = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}


def likes(term: JsonObject, weight: int = 10) -> JsonObject:
    return {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def dislikes(term: JsonObject, weight: int = 10) -> JsonObject:
    return {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def named(name: str, app: str = "web", affinity: JsonObject | None = None, **fields: Any) -> JsonObject:
    return pod_object(name, labels={"app": app}, affinity=affinity or {}, **fields)


class Cluster(World):
    """Zone a with two nodes, zone b with one, and a node without a zone."""

    def __init__(self, *objects: JsonObject, **args: Any) -> None:
        super().__init__(profile=only(NAME, **{NAME: args}))
        nodes = (node_object(name, zone=name[0]) for name in ("a1", "a2", "b1"))
        self.add(*nodes, node_object("bare"), *objects)

    def slim(self, pod: JsonObject) -> Pod:
        return self.cluster.core.decode_pod(encoded(pod))

    def points(self, pod: JsonObject) -> dict[str, int] | None:
        """By node; ``None`` where the plugin is left out."""
        found = run_prepared(lambda: self.framework.scoring.score(CycleState(), self.slim(pod), self.candidates()))
        return found.by_plugin.get(NAME)


class TestWhoMatters:
    @pytest.mark.parametrize(
        ("pod", "other", "args", "matters"),
        [
            pytest.param(named("p", affinity=likes(DB)), named("o", "db"), {}, True, id="one it likes"),
            pytest.param(named("p"), named("o", affinity=dislikes(WEB)), {}, True, id="one that dislikes it"),
            pytest.param(named("p", "db"), named("o", affinity=dislikes(WEB)), {}, False, id="one that means others"),
            pytest.param(
                named("p"), named("o", affinity={"podAffinity": {REQUIRED: [WEB]}}), {}, True, id="one that needs it"
            ),
            pytest.param(
                named("p"),
                named("o", affinity={"podAffinity": {REQUIRED: [WEB]}}),
                {"hardPodAffinityWeight": 0},
                False,
                id="one whose need weighs nothing",
            ),
            pytest.param(
                named("p"),
                named("o", affinity=dislikes(WEB)),
                {"ignorePreferredTermsOfExistingPods": True},
                False,
                id="one that is ignored",
            ),
        ],
    )
    def test_by_the_terms_of_both(self, pod: JsonObject, other: JsonObject, args: JsonObject, matters: bool) -> None:
        cluster = Cluster(**args)

        assert matters is cluster.framework.scoring.score_depends_on(cluster.slim(pod), cluster.slim(other))
