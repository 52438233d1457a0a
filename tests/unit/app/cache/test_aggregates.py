"""Images by their sizes and numbers. What pods take of nodes, after any events: ``tests/property/test_picture.py``."""

import pytest

from app.cache.aggregates import AGGREGATED
from app.cache.cluster import Cluster
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Node
from app.kube.extras import Extra, NotDecoded
from tests.builders import container, encoded, make_node, make_pod, node_object, pod_object

CORE = core_v1(list(Extra))


@pytest.mark.parametrize("extra", Extra, ids=lambda it: it.name)
def test_where_nothing_is_to_be_added_up_nothing_is_kept(extra: Extra) -> None:
    picture = Cluster(core_v1([extra]))

    assert (extra in AGGREGATED) == (picture.aggregates in picture._checked)
    assert AGGREGATED == {Extra.RESOURCES, Extra.PORTS, Extra.IMAGES, Extra.VOLUMES}


def sized(name: str, **images: int) -> Node:
    """A node with images of these sizes."""
    status = {"images": [{"names": [image], "sizeBytes": size} for image, size in images.items()]}
    return CORE.decode_node(encoded(node_object(name, status=status)))


def states(picture: Cluster, *names: str) -> dict[str, tuple[int, int]]:
    """Size and number of nodes of each image."""
    assert [] == picture.check()
    return {name: (it.size, it.nodes) for name, it in picture.aggregates.images(names).items()}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param([], {"a": (1, 2), "b": (3, 1)}, id="the size on the node that is known longest"),
        pytest.param([sized("n1")], {"a": (2, 1), "b": (3, 1)}, id="the first node loses it"),
        pytest.param([sized("n1", a=7)], {"a": (7, 2), "b": (3, 1)}, id="it has another size there"),
        pytest.param([sized("n1"), sized("n1", a=7)], {"a": (7, 2), "b": (3, 1)}, id="it is lost, and found again"),
        pytest.param([sized("n2")], {"a": (1, 1)}, id="another node loses it"),
        pytest.param([sized("n1"), sized("n2")], {}, id="all lose it"),
        pytest.param([sized("n0", a=9)], {"a": (1, 3), "b": (3, 1)}, id="a node that comes is the last"),
        pytest.param([sized("n1", a=1, b=5)], {"a": (1, 2), "b": (5, 2)}, id="a node gains it, and is the first now"),
        pytest.param(["n1"], {"a": (2, 1), "b": (3, 1)}, id="the first node goes"),
        pytest.param(["n1", sized("n1", a=1)], {"a": (2, 2), "b": (3, 1)}, id="and comes back as the last"),
    ],
)
def test_a_size_that_was_asked_for_follows_the_nodes(
    changes: list[Node | str], expected: dict[str, tuple[int, int]]
) -> None:
    picture = Cluster(CORE)
    for it in (sized("n1", a=1), sized("n2", a=2, b=3)):
        picture.upsert_node(it)
    assert {"a": (1, 2), "b": (3, 1)} == states(picture, "a", "b", "c")

    for change in changes:
        picture.delete_node(change) if isinstance(change, str) else picture.upsert_node(change)

    assert expected == states(picture, "a", "b", "c")


def test_a_picture_for_which_nothing_is_declared_keeps_nothing() -> None:
    picture = Cluster()
    picture.upsert_node(make_node())
    picture.upsert_pod(make_pod(node="n1"))

    assert ((), []) == (picture._indexes, picture.check())
    with pytest.raises(NotDecoded):
        picture.aggregates.nodes_with_image("a")


def test_a_check_finds_what_is_wrong() -> None:
    picture = Cluster(CORE)
    for it in (sized("n1", a=1), sized("n2", a=2)):
        picture.upsert_node(it)
    states(picture, "a")

    picture.aggregates._first_with["a"] = "n2"
    picture.aggregates._by_image["a"] = 3
    asks = container(requests={"cpu": "1"})
    picture.nodes["n2"].totals.add(CORE.decode_pod(encoded(pod_object(containers=[asks]))))

    assert [
        "totals of pods by node differ from a recount",
        "numbers of nodes by image differ from a recount",
        "first nodes of images differ from a recount",
    ] == picture.check()


def test_a_check_is_right_while_nodes_go() -> None:
    picture = Cluster(CORE)
    for it in (sized("n1", a=1), sized("n2", a=2)):
        picture.upsert_node(it)
    check = picture.aggregates.differences()
    told = [next(check)]

    picture.delete_node("n2")

    assert {""} == {*told, *check}
    assert [] == picture.aggregates._recounts
