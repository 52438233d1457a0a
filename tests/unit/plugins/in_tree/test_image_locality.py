"""Rules of ImageLocality."""

from typing import Any, Final

import pytest

from plugins.in_tree.image_locality import ImageLocality, ImageLocalityArgs
from tests.builders import JsonObject, container, node_object
from tests.harness import World, only

NAME: Final = "ImageLocality"
MIB: Final = 1 << 20


def node(name: str, **images: int) -> JsonObject:
    """A node with these images, in MiB."""
    found = [{"names": [f"{it}:1"], "sizeBytes": size * MIB} for it, size in images.items()]
    return node_object(name, status={"images": found})


def world(*nodes: JsonObject) -> World:
    return World(*nodes, profile=only(NAME))


def scores(found: World, *images: str, **more: Any) -> list[int]:
    """By node, for a pod with a container of each image."""
    pod = found.pod("pending", containers=[container(image=it) for it in images], more=more)
    return list(found.score(pod)[NAME].values())


@pytest.mark.parametrize(
    ("nodes", "images", "expected"),
    [
        pytest.param([{"web": 511}, {}], ["web:1"], [23, 0], id="half of the nodes have it: half of its size counts"),
        pytest.param([{"web": 511}, {"web": 511}], ["web:1"], [49, 49], id="all have it: all of it counts"),
        pytest.param([{"web": 46}, {}], ["web:1"], [0, 0], id="the first 23 MiB count for nothing"),
        pytest.param([{"web": 9000}, {}], ["web:1"], [100, 0], id="there is a most"),
        pytest.param([{"web": 2000}, {}], ["web:1", "db:1"], [49, 0], id="and it grows with the containers"),
        pytest.param(
            [{"web": 2000}, {}], ["web:1", "web:1"], [100, 0], id="an image that is wanted twice counts twice"
        ),
        pytest.param([{"web": 600, "db": 600}, {"db": 600}], ["web:1", "db:1"], [44, 29], id="several are added up"),
        pytest.param([{"web": 900}, {}], ["web"], [0, 0], id="no tag is the tag latest"),
        pytest.param([{"web": -900}, {}], ["web:1"], [0, 0], id="a size below nothing"),
        pytest.param([{"web": 2**43 - 1}, {"web": 2**43 - 1}], ["web:1"], [100, 100], id="a size of 63 bits"),
        pytest.param([{"web": 2**43 - 1}] * 2, ["web:1"] * 2, [0, 0], id="sums of 64 bits, as in Go"),
    ],
)
def test_an_image_counts_by_its_size_and_by_how_many_nodes_have_it(
    nodes: list[dict[str, int]], images: list[str], expected: list[int]
) -> None:
    found = world(*(node(f"n{index}", **of_node) for index, of_node in enumerate(nodes)))

    assert ImageLocalityArgs() == ImageLocalityArgs.model_validate({})
    assert isinstance(found.framework.plugins[NAME], ImageLocality)
    assert expected == scores(found, *images)


def test_what_changes_shows_at_once_though_raw_scores_are_kept() -> None:
    found = world(node("n1", web=500), node("n2"))
    assert [23, 0] == scores(found, "web:1")

    found.add(node("n2", web=500))
    assert [48, 48] == scores(found, "web:1")

    found.add(node("n3"))
    assert [31, 31, 0] == scores(found, "web:1")

    found.cluster.delete_node("n1")
    assert [23, 0] == scores(found, "web:1")
    assert [] == [*filter(None, found.framework.scoring.checking_scores()), *found.cluster.check()]


def test_more_images_than_are_read_make_no_difference() -> None:
    found = world(node("n1", web=900), node("n2"))

    assert [0, 0] == scores(found, *["web:1"] * 129)
