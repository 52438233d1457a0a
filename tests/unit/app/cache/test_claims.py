"""Rules of the uses of claims: they are what a recount says, whatever happens, and what an overlay makes of them."""

import os
from random import Random
from typing import Any

import pytest

from app.cache.cluster import Cluster
from app.kube.core_decoding import PLAIN, core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded
from tests.builders import encoded, make_node, mounting, node_object, pod_object

CORE = core_v1([Extra.VOLUMES])
CLAIMS = ("a", "b", "c")
NODES = ("n1", "n2", "n3")


def node(name: str = "n1") -> Node:
    return CORE.decode_node(encoded(node_object(name)))


def pod(name: str = "web-1", *claims: str, ephemeral: tuple[str, ...] = (), **fields: Any) -> Pod:
    return CORE.decode_pod(encoded(pod_object(name, more=mounting(*claims, ephemeral=ephemeral), **fields)))


def cluster(*found: Node | Pod) -> Cluster:
    picture = Cluster(CORE)
    for it in found:
        picture.upsert_node(it) if isinstance(it, Node) else picture.upsert_pod(it)
    return picture


def used(picture: Cluster, namespace: str = "default") -> list[int]:
    assert [] == picture.check()
    return [picture.uses_of_claim(namespace, it) for it in CLAIMS]


def test_a_claim_is_used_by_pods_on_nodes() -> None:
    picture = cluster(
        node(),
        pod("one", "a", "b", node="n1"),
        pod("two", "a", "a", node="n1", terminating=True),
        pod("waiting", "a"),
        pod("finished", "a", node="n1", phase="Failed"),
        pod("stray", "c", node="gone"),
        pod("own", ephemeral=("c",), node="n1"),
        pod("other", "c", node="n1", namespace="shop"),
    )

    assert ([3, 1, 0], [0, 0, 1]) == (used(picture), used(picture, "shop"))


def test_pods_of_a_node_that_comes_back_use_their_claims_again() -> None:
    picture = cluster(node(), pod("one", "a", node="n1"))
    seen = [used(picture)]
    picture.delete_node("n1")
    seen.append(used(picture))
    picture.upsert_pod(pod("two", "a", node="n1"))
    seen.append(used(picture))
    picture.upsert_node(node())

    assert [[1, 0, 0], [0, 0, 0], [0, 0, 0], [2, 0, 0]] == [*seen, used(picture)]


def test_a_pod_that_is_being_bound_uses_its_claims() -> None:
    waiting = pod("one", "a")
    picture = cluster(node(), waiting)
    picture.assume(waiting, "n1")
    assert [1, 0, 0] == used(picture)

    picture.forget(waiting.uid)
    assert [0, 0, 0] == used(picture)


def test_an_overlay_changes_what_is_seen_and_nothing_that_is_kept() -> None:
    one = pod("one", "a", node="n1")
    picture = cluster(node(), one)
    with picture.overlay(without=[one], with_=[pod("two", "b", node="n1"), pod("three", "c", node="gone")]):
        seen = [picture.uses_of_claim("default", it) for it in CLAIMS]
    with picture.without(one.uid, one.key):
        alone = picture.uses_of_claim("default", "a")

    assert ([0, 1, 0], 0, [1, 0, 0]) == (seen, alone, used(picture))


def test_the_generation_moves_with_pods_that_have_volumes() -> None:
    picture = cluster(node())
    seen = [picture.mounts_generation]
    picture.upsert_pod(pod("plain", node="n1"))
    seen.append(picture.mounts_generation)
    picture.upsert_pod(pod("own", ephemeral=("v",), node="n1"))
    seen.append(picture.mounts_generation)

    assert seen[0] == seen[1] < seen[2]


def test_without_a_plugin_that_declares_volumes_nothing_is_kept() -> None:
    picture = Cluster(PLAIN)
    picture.upsert_node(make_node())

    with pytest.raises(NotDecoded, match="volumes: not decoded"):
        picture.uses_of_claim("default", "a")


def test_a_difference_is_told() -> None:
    picture = cluster(node(), pod("one", "a", node="n1"))
    picture._claims._uses["default/a"] = 2

    assert ["uses of claims differ from a recount"] == picture.check()


class TestPodsByClaim:
    """Pods by the claims that they name, once somebody has asked for them."""

    def test_those_that_are_there_and_those_that_come(self) -> None:
        picture = cluster(pod("there", "a", "b", "a"), pod("own", ephemeral=("a",)), pod("plain"))
        found = picture.by_claim()
        picture.upsert_pod(pod("comes", "b", node="gone", terminating=True))
        picture.upsert_pod(pod("other", "b", namespace="shop"))

        names = {key: [it.name for it in pods.values()] for key, pods in found.items()}
        assert {"default/a": ["there"], "default/b": ["there", "comes"], "shop/b": ["other"]} == names
        assert (found, []) == (picture.by_claim(), picture.check())

    def test_an_assumed_one_is_on_its_node_and_what_an_overlay_leaves_out_nowhere(self) -> None:
        waiting = pod("one", "a")
        picture = cluster(node(), waiting)
        found = picture.by_claim()
        picture.assume(waiting, "n1")
        assert ["n1"] == [it.node_name for it in found["default/a"].values()]

        with picture.overlay(without=[waiting], with_=[pod("two", "a", "b", node="n1")]):
            seen = {key: list(found[key]) for key in found}

        assert {"default/a": ["uid-default-two"], "default/b": ["uid-default-two"]} == seen
        assert ["default/a"] == list(found)

    @pytest.mark.parametrize(
        "last",
        [
            pytest.param(pod("one", "a", phase="Failed", resource_version="2"), id="finished"),
            pytest.param(pod("one", uid="new", resource_version="2"), id="replaced"),
        ],
    )
    def test_one_that_goes_leaves_nothing(self, last: Pod) -> None:
        picture = cluster(pod("one", "a", "b"))
        found = picture.by_claim()

        picture.upsert_pod(last)

        assert ({}, []) == (dict(found), picture.check())

    def test_without_a_plugin_that_declares_volumes_there_are_none(self) -> None:
        with pytest.raises(NotDecoded, match="volumes: not decoded"):
            Cluster(PLAIN).by_claim()

    @pytest.mark.parametrize("wrong", [{"a": {}, "b": {}}, {"a": {"one"}, "b": {"one"}}, {"a": {"one", "gone"}}])
    def test_a_difference_is_told(self, wrong: dict[str, set[str]]) -> None:
        one, gone = pod("one", "a"), pod("gone", "a")
        picture = cluster(one)
        picture.by_claim()
        assert picture._by_claim is not None
        forms = {"one": one, "gone": gone}
        picture._by_claim.kept = {
            f"default/{claim}": {forms[it].uid: forms[it] for it in names} for claim, names in wrong.items()
        }

        assert ["pods by claim differ from the pods"] == picture.check()


class History:
    """A picture, and what happens to it: nodes and pods come and go, pods are bound, binds are under way and fail."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.picture = Cluster(CORE)
        self.picture.by_claim()
        self.nodes: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.assumed: set[str] = set()
        self.acts = (
            *(self.node_comes, self.node_goes, self.pod_waits, self.pod_is_bound, self.pod_is_bound),
            *(self.pod_ends, self.pod_goes, self.bind_begins, self.binds_fail),
        )

    def happen(self, times: int) -> None:
        for _ in range(times):
            self.random.choice(self.acts)(f"p{self.random.randrange(12)}", self.random.choice(NODES))

    def node_comes(self, _pod: str, name: str) -> None:
        self.picture.upsert_node(node(name))
        self.nodes.add(name)

    def node_goes(self, _pod: str, name: str) -> None:
        if self.random.random() < 0.4:
            self.picture.delete_node(name)
            self.nodes.discard(name)

    def made(self, name: str, **fields: Any) -> Pod:
        claims = self.random.sample(CLAIMS, self.random.randint(0, 2))
        namespace = "shop" if name > "p5" else "default"
        return pod(name, *claims, uid=f"{name}-{self.random.random()}", namespace=namespace, **fields)

    def pod_waits(self, name: str, _node: str) -> None:
        if name not in self.pods:
            self.pods[name] = self.made(name)
            self.picture.upsert_pod(self.pods[name])

    def pod_is_bound(self, name: str, at: str) -> None:
        self.pods[name] = self.made(name, node=at)
        self.picture.upsert_pod(self.pods[name])

    def pod_ends(self, name: str, _node: str) -> None:
        if name in self.pods:
            was = self.pods.pop(name)
            self.picture.upsert_pod(pod(name, uid=was.uid, namespace=was.namespace, phase="Succeeded"))

    def pod_goes(self, name: str, _node: str) -> None:
        if name in self.pods:
            self.picture.delete_pod(self.pods.pop(name).key)

    def bind_begins(self, name: str, at: str) -> None:
        found = self.pods.get(name)
        if found is not None and not found.node_name and found.uid not in self.assumed:
            self.picture.assume(found, at)
            self.assumed.add(found.uid)

    def binds_fail(self, _pod: str, _node: str) -> None:
        for uid in self.assumed:
            self.picture.forget(uid)
        self.assumed.clear()


CHANGES = int(os.environ.get("CLAIM_CHANGES") or 1500)
"""In one history. A million of them take some minutes."""


@pytest.mark.parametrize("seed", range(3))
def test_after_any_history_it_is_as_if_built_anew(seed: int) -> None:
    history = History(seed)
    history.happen(CHANGES)
    history.node_comes("", "n1")
    history.pod_is_bound("p1", "n1")

    picture = history.picture
    rebuilt = cluster(*map(node, sorted(history.nodes)), *picture.pods())
    assert [used(rebuilt), used(rebuilt, "shop")] == [used(picture), used(picture, "shop")]
    assert {name: it.mounts for name, it in rebuilt.nodes.items()} == {
        name: it.mounts for name, it in picture.nodes.items()
    }
    assert any(it.mounts for it in rebuilt.nodes.values())
    assert {key: dict(pods) for key, pods in rebuilt.by_claim().items()} == {
        key: dict(pods) for key, pods in picture.by_claim().items()
    }
