"""What ``tests/conformance`` does not ask of InterPodAffinity: certainty, which pods matter, and kept verdicts.

``tests/conformance/terms.py`` proves that certain verdicts hold, and that equal signatures mean equal verdicts.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.counters import run_prepared
from app.framework.counts import Unprepared
from app.kube.core_v1 import Pod
from app.kube.pod_affinity import Peers
from app.kube.selectors import of_labels
from plugins.in_tree.inter_pod_affinity import own
from plugins.in_tree.inter_pod_affinity.own import OwnTermsOf
from tests.builders import HOSTNAME, ZONE, JsonObject, node_object
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def term(app: str = "web", key: str = ZONE, **more: Any) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: JsonObject) -> JsonObject:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def away(*terms: JsonObject) -> JsonObject:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def likes(term: JsonObject, field: str = "podAffinity") -> JsonObject:
    return {"affinity": {field: {PREFERRED: [{"weight": 10, "podAffinityTerm": term}]}}}


def cluster(**args: Any) -> World:
    """Zones a and b with two nodes each, and a node that has no zone."""
    nodes = (node_object(name, zone=name[0]) for name in ("a1", "a2", "b1", "b2"))
    return World(*nodes, node_object("bare"), profile=only(NAME, **{NAME: args}))


def assume(world: World, name: str, app: str, node: str, **fields: Any) -> None:
    world.cluster.assume(world.pod(name, labels={"app": app}, **fields), node)


def certain(world: World, node: str, app: str = "web", **fields: Any) -> bool:
    recheck = world.recheck(world.pod("pending", labels={"app": app}, **fields), node)
    assert recheck.status.is_success
    return recheck.certain


class TestCertainty:
    def test_affinity_that_rests_on_a_bind_in_flight_is_not_certain(self) -> None:
        world = cluster()
        assume(world, "db", "db", "a1")
        assert not certain(world, "a2", **near(term("db")))

        world.add(world.pod("settled", labels={"app": "db"}, node="a2"))
        assert certain(world, "a2", **near(term("db")))

    def test_the_like_of_a_pod_may_all_fail_if_they_are_where_it_goes(self) -> None:
        world = cluster()
        assume(world, "1", "web", "a1")
        assume(world, "2", "web", "bare")
        assert certain(world, "a2", **near(term()))

        assume(world, "3", "web", "b1")
        assert not certain(world, "a2", **near(term()))

    def test_one_that_is_there_elsewhere_leaves_the_others_needed(self) -> None:
        world = cluster()
        world.add(world.pod("settled", labels={"app": "web"}, node="b1"))
        assume(world, "1", "web", "a1")

        assert [False, True] == [certain(world, it, **near(term())) for it in ("a2", "b2")]

    def test_anti_affinity_is_certain_however_binds_end(self) -> None:
        world = cluster()
        assume(world, "db", "db", "b1", **away(term()))

        assert certain(world, "a1", **away(term("db")))


@pytest.mark.parametrize(
    ("ours", "app", "theirs", "matters"),
    [
        pytest.param(near(term("db")), "db", {}, True, id="one that it needs"),
        pytest.param(away(term("db")), "db", {}, True, id="one that it cannot stand"),
        pytest.param({}, "db", away(term()), True, id="one that cannot stand it"),
        pytest.param(near(term("db")), "x", {}, False, id="a stranger"),
        pytest.param({}, "db", near(term()), False, id="one that needs it"),
        pytest.param(away(term("db")), "db", {"namespace": "shop"}, False, id="another namespace"),
    ],
)
def test_which_pods_matter_to_filter(ours: JsonObject, app: str, theirs: JsonObject, matters: bool) -> None:
    world = cluster()
    pod, other = world.pod("p", labels={"app": "web"}, **ours), world.pod("o", labels={"app": app}, **theirs)

    assert matters is world.framework.filters.depends(pod, other)


DISLIKES: Final = likes(term(), "podAntiAffinity")


@pytest.mark.parametrize(
    ("ours", "app", "theirs", "args", "matters"),
    [
        pytest.param(likes(term("db", HOSTNAME)), "db", {}, {}, True, id="one it likes"),
        pytest.param({}, "web", DISLIKES, {}, True, id="one that dislikes it"),
        pytest.param({}, "web", likes(term("db")), {}, False, id="one that means others"),
        pytest.param({}, "web", near(term()), {}, True, id="one that needs it"),
        pytest.param({}, "web", near(term()), {"hardPodAffinityWeight": 0}, False, id="one whose need weighs nothing"),
        pytest.param(
            {}, "web", DISLIKES, {"ignorePreferredTermsOfExistingPods": True}, False, id="one that is ignored"
        ),
    ],
)
def test_which_pods_matter_to_score(
    ours: JsonObject, app: str, theirs: JsonObject, args: JsonObject, matters: bool
) -> None:
    world = cluster(**args)
    pod, other = world.pod("p", labels={"app": "web"}, **ours), world.pod("o", labels={"app": app}, **theirs)

    assert matters is world.framework.scoring.score_depends_on(pod, other)


def test_a_signature_stands_while_the_same_domains_are_taken() -> None:
    world = cluster()
    pod = world.pod("web", labels={"app": "web"}, **away(term("db")))

    def with_another(app: str, node: str) -> Any:
        world.add(world.pod(f"{app}-{node}", labels={"app": app}, node=node))
        return run_prepared(lambda: world.framework.search.signatures(pod))[NAME]

    before = with_another("db", "a1")
    assert [before] * 2 == [with_another("db", "a2"), with_another("x", "b1")]
    assert before != with_another("db", "b1")


def test_many_namespaces_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_AT_ONCE", 4)
    world = cluster()
    for number in range(10):
        metadata = {"name": f"s{number}", "labels": {"team": "ab"[number % 2]}}
        world.add({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    resolved = OwnTermsOf(world.handle.objects)
    pod = world.pod(**away(term(namespaceSelector={"matchLabels": {"team": "a"}})))

    assert world.framework.filters.depends(pod, world.pod(labels={"app": "another"}))
    with pytest.raises(Unprepared) as raised:
        resolved.of(pod)
    assert 3 == sum(1 for _ in raised.value.steps)
    peers = Peers(of_labels({"app": "web"}), frozenset({"s0", "s2", "s4", "s6", "s8"}))
    assert ((ZONE, peers),) == resolved.of(pod).anti


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(near(*[term()] * 33), "more than 32 terms", id="terms"),
        pytest.param({"labels": {f"l{it}": "x" * 63 for it in range(1000)}}, "metadata.labels", id="labels"),
        pytest.param(
            near(term(labelSelector={"matchExpressions": [{"key": "a"}]})),
            'parsing pod: requiredAffinityTerms: "" is not a valid label selector operator',
            id="a selector",
        ),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_on_all_nodes(fields: JsonObject, said: str) -> None:
    world = cluster()
    pod: Pod = world.pod(**fields)
    (answer,) = set(world.filter(pod).values())

    assert ("UnschedulableAndUnresolvable", NAME) == answer[:2]
    assert said in answer[2][0]
    assert NAME in world.framework.search.signatures(pod)
