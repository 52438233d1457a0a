"""Rules of what is kept of nodes for plugins that declare it: it is what a recount says, whatever happens."""

from itertools import islice
from typing import Any

import pytest

from app.cache.aggregates import KEPT
from app.cache.cluster import Cluster
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, HostPort, NotDecoded
from tests.builders import container, encoded, make_node, make_pod, node_object, pod_object

CORE = core_v1(list(Extra))


def taking(name: str = "web-1", cpu: str = "1", port: int = 80, **fields: Any) -> Pod:
    one = container(requests={"cpu": cpu, "memory": "1"}, ports=[{"hostPort": port}])
    return CORE.decode_pod(encoded(pod_object(name, containers=[one], **fields)))


def node(name: str = "n1", *images: str) -> Node:
    status = {"allocatable": {"cpu": "4"}, "images": [{"names": [image], "sizeBytes": 1} for image in images]}
    return CORE.decode_node(encoded(node_object(name, status=status)))


def cluster(*found: Node | Pod) -> Cluster:
    picture = Cluster(CORE)
    for it in found:
        if isinstance(it, Node):
            picture.upsert_node(it)
        else:
            picture.upsert_pod(it)
    return picture


def taken(picture: Cluster, name: str = "n1") -> tuple[int, set[int]]:
    """Thousandths of a core, and host ports."""
    assert [] == picture.check()
    info = picture.nodes[name]
    return info.requested.get("cpu", 0), {it.port for it in info.ports}


def test_a_pod_takes_something_where_it_runs() -> None:
    picture = cluster(node("n1"), node("n2"), taking(node="n1"), taking("waiting"))

    assert ((1000, {80}), (0, set())) == (taken(picture, "n1"), taken(picture, "n2"))


@pytest.mark.parametrize("extra", Extra, ids=lambda it: it.name)
def test_where_nothing_is_to_be_added_up_nothing_is_kept(extra: Extra) -> None:
    picture = Cluster(core_v1([extra]))

    assert (extra in KEPT) == (picture.aggregates in picture._derived)
    assert KEPT == {Extra.RESOURCES, Extra.PORTS, Extra.IMAGES, Extra.VOLUMES}


def test_a_pod_takes_it_until_it_is_gone() -> None:
    """Also while it terminates: what it holds is not free before."""
    picture = cluster(node(), taking(node="n1"))
    picture.upsert_pod(taking(node="n1", terminating=True))
    assert (1000, {80}) == taken(picture)

    picture.delete_pod(("default", "web-1"))
    assert (0, set()) == taken(picture)


def test_a_finished_pod_takes_nothing() -> None:
    picture = cluster(node(), taking(node="n1"))

    picture.upsert_pod(taking(node="n1", phase="Succeeded"))

    assert (0, set()) == taken(picture)


def test_a_pod_in_flight_takes_it_too() -> None:
    picture = cluster(node("n1"), node("n2"), taking())

    picture.assume(taking(), "n1")
    assert (1000, {80}) == taken(picture)

    picture.forget(taking().uid)
    assert (0, set()) == taken(picture)

    picture.assume(taking(), "n1")
    picture.upsert_pod(taking(node="n2", resource_version="2"))
    assert ((0, set()), (1000, {80})) == (taken(picture, "n1"), taken(picture, "n2"))


def test_a_pod_that_is_resized_takes_more() -> None:
    picture = cluster(node(), taking(node="n1"))

    picture.upsert_pod(taking(cpu="3", port=81, node="n1"))

    assert (3000, {81}) == taken(picture)


def test_a_pod_that_is_made_anew_takes_the_place_of_its_predecessor() -> None:
    picture = cluster(node(), taking(node="n1"))

    picture.upsert_pod(taking(cpu="2", uid="another", node="n1"))

    assert (2000, {80}) == taken(picture)


def test_what_is_on_a_node_is_known_when_the_node_is() -> None:
    picture = cluster(taking("a", node="n1"), taking("b", port=81, node="n1"), node("n1"))
    assert (2000, {80, 81}) == taken(picture)

    picture.delete_node("n1")
    picture.delete_pod(("default", "a"))
    picture.upsert_node(node("n1"))
    assert (1000, {81}) == taken(picture)


def test_a_node_that_changes_keeps_its_pods() -> None:
    picture = cluster(node("n1"), taking(node="n1"))

    picture.upsert_node(node("n1", "web:1"))

    assert ((1000, {80}), {"web:1": 1}) == (taken(picture), picture.nodes["n1"].images)


def test_a_pod_is_not_its_own_peer() -> None:
    picture = cluster(node(), taking("a", node="n1"), taking("b", port=81, node="n1"))

    with picture.without(taking("a").uid, ("default", "a")):
        info = picture.nodes["n1"]
        assert (1000, [HostPort("0.0.0.0", "TCP", 81)]) == (info.requested["cpu"], list(info.ports))

    assert (2000, {80, 81}) == taken(picture)


def test_nodes_are_counted_by_the_images_they_have() -> None:
    picture = cluster(node("n1", "a", "b"), node("n2", "b"))
    assert [1, 2, 0] == [picture.aggregates.nodes_with_image(name) for name in "abc"]

    picture.upsert_node(node("n2", "c"))
    assert [1, 1, 1] == [picture.aggregates.nodes_with_image(name) for name in "abc"]

    picture.delete_node("n1")
    assert [0, 0, 1] == [picture.aggregates.nodes_with_image(name) for name in "abc"]
    assert [] == picture.check()


def sized(name: str, **images: int) -> Node:
    """A node with images of these sizes."""
    status = {"images": [{"names": [image], "sizeBytes": size} for image, size in images.items()]}
    return CORE.decode_node(encoded(node_object(name, status=status)))


def states(picture: Cluster, *names: str) -> dict[str, tuple[int, int]]:
    """Size and number of nodes of each image."""
    assert [] == picture.check()
    return {name: (it.size, it.nodes) for name, it in picture.aggregates.images(names).items()}


def test_an_image_has_the_size_it_has_on_the_node_that_is_known_longest() -> None:
    picture = cluster(sized("n1", a=1), sized("n2", a=2, b=3), sized("n3", a=4))

    assert {"a": (1, 3), "b": (3, 1)} == states(picture, "a", "b", "c")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param([sized("n1")], {"a": (2, 2)}, id="the first node loses it"),
        pytest.param([sized("n1", a=7)], {"a": (7, 3)}, id="it has another size there"),
        pytest.param([sized("n1"), sized("n1", a=7)], {"a": (7, 3)}, id="it is lost, and found again"),
        pytest.param([sized("n2")], {"a": (1, 2)}, id="another node loses it"),
        pytest.param([sized("n1"), sized("n2"), sized("n3")], {}, id="all lose it"),
        pytest.param([sized("n0", a=9)], {"a": (1, 4)}, id="a node that comes is the last"),
    ],
)
def test_a_size_that_was_asked_for_follows_the_nodes(changed: list[Node], expected: dict[str, tuple[int, int]]) -> None:
    picture = cluster(sized("n1", a=1), sized("n2", a=2), sized("n3", a=4))
    assert {"a": (1, 3)} == states(picture, "a")

    for it in changed:
        picture.upsert_node(it)

    assert expected == states(picture, "a")


def test_a_node_that_goes_takes_its_sizes_along() -> None:
    picture = cluster(sized("n1", a=1, b=1), sized("n2", a=2))
    assert {"a": (1, 2), "b": (1, 1)} == states(picture, "a", "b")

    picture.delete_node("n1")
    assert {"a": (2, 1)} == states(picture, "a", "b")

    picture.upsert_node(sized("n1", a=1))
    assert {"a": (2, 2)} == states(picture, "a")


def test_a_node_that_gains_an_image_may_be_the_first_that_has_it() -> None:
    picture = cluster(sized("n1"), sized("n2", a=2))
    assert {"a": (2, 1)} == states(picture, "a")

    picture.upsert_node(sized("n1", a=1))

    assert {"a": (1, 2)} == states(picture, "a")


def test_a_check_finds_a_size_that_is_read_off_the_wrong_node() -> None:
    picture = cluster(sized("n1", a=1), sized("n2", a=2))
    states(picture, "a")

    picture.aggregates._first_with["a"] = "n2"

    assert ["the nodes by which images have their size differ from a recount"] == picture.check()


def test_a_picture_for_which_nothing_is_declared_keeps_nothing() -> None:
    picture = Cluster()
    picture.upsert_node(make_node())
    picture.upsert_pod(make_pod(node="n1"))

    assert ((), []) == (picture._indexes, picture.check())
    with pytest.raises(NotDecoded):
        picture.aggregates.nodes_with_image("a")


def test_a_check_finds_what_a_node_is_wrong_about() -> None:
    picture = cluster(node("n1"), node("n2"), taking(node="n1"))

    picture.nodes["n2"].totals.add(taking("stranger"))

    assert ["what pods take of their nodes differs from a recount"] == picture.check()


def test_a_check_finds_images_that_are_counted_wrongly() -> None:
    picture = cluster(node("n1", "a"))

    picture.aggregates._by_image["a"] = 2

    assert ["nodes by image differ from a recount"] == picture.check()


@pytest.mark.parametrize("steps", range(5))
def test_a_check_is_right_while_nodes_come_and_go(steps: int) -> None:
    picture = cluster(node("n1", "a"), node("n2", "a", "b"), node("n3", "c"))
    check = picture.aggregates.differences()
    told = list(islice(check, steps))

    picture.delete_node("n1")
    picture.upsert_node(node("n2", "b", "d"))
    picture.upsert_node(node("n4", "a"))
    picture.delete_node("n3")
    picture.upsert_node(node("n3", "d"))

    assert {""} == {*told, *check}
    assert [] == picture.aggregates._recounts
