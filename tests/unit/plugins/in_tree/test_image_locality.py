"""Scores that change with the nodes, and images that are not read. All other rules: topics ``images``."""

from typing import Final

from tests.builders import JsonObject, container, node_object
from tests.harness import World, only

NAME: Final = "ImageLocality"


def node(name: str, web: int = 0) -> JsonObject:
    """A node with the image ``web:1``, in MiB."""
    images = [{"names": ["web:1"], "sizeBytes": web << 20}] if web else []
    return node_object(name, status={"images": images})


def scores(found: World, *images: str) -> list[int]:
    """By node, for a pod with a container of each image."""
    pod = found.pod("pending", containers=[container(image=it) for it in images])
    return list(found.score(pod)[NAME].values())


def test_what_changes_shows_at_once_though_raw_scores_are_kept() -> None:
    found = World(node("n1", web=500), node("n2"), profile=only(NAME))
    assert [23, 0] == scores(found, "web:1")

    found.add(node("n2", web=500))
    assert [48, 48] == scores(found, "web:1")

    found.add(node("n3"))
    assert [31, 31, 0] == scores(found, "web:1")

    found.cluster.delete_node("n1")
    assert [23, 0] == scores(found, "web:1")
    assert [] == [*filter(None, found.framework.scoring.checking_scores()), *found.cluster.check()]


def test_more_images_than_are_read_make_no_difference() -> None:
    found = World(node("n1", web=900), node("n2"), profile=only(NAME))

    assert [0, 0] == scores(found, *["web:1"] * 129)
