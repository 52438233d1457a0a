"""Uses of claims and pods by claim. That they are right after any events: ``tests/property/test_picture.py``."""

from collections.abc import Callable
from typing import Any

import pytest

from app.cache.cluster import Cluster
from app.kube.core_decoding import PLAIN, core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded
from tests.builders import encoded, mounting, node_object, pod_object

CORE = core_v1([Extra.VOLUMES])
CLAIMS = ("a", "b", "c")


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


@pytest.mark.parametrize("ask", [lambda it: it.uses_of_claim("default", "a"), lambda it: it.by_claim()])
def test_without_a_plugin_that_declares_volumes_nothing_is_kept(ask: Callable[[Cluster], object]) -> None:
    with pytest.raises(NotDecoded, match="volumes: not decoded"):
        ask(Cluster(PLAIN))


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

    @pytest.mark.parametrize("wrong", [{"a": {}, "b": {}}, {"a": {"one"}, "b": {"one"}}, {"a": {"one", "gone"}}])
    def test_a_difference_is_told(self, wrong: dict[str, set[str]]) -> None:
        one, gone = pod("one", "a"), pod("gone", "a")
        picture = cluster(one)
        picture.by_claim()
        assert picture._by_claim is not None
        forms = {"one": one, "gone": gone}
        picture._by_claim.pods = {
            f"default/{claim}": {forms[it].uid: forms[it] for it in names} for claim, names in wrong.items()
        }

        assert ["pods by claim differ from the pods"] == picture.check()
