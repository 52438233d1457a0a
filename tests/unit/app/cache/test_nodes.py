"""The nodes as plugins ask for them."""

from __future__ import annotations

import pytest

from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.framework.listers import ImageState
from app.framework.objects import Unreadable
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra, NotDecoded
from app.kube.kinds import NODES
from tests.builders import encoded, make_node, make_pod, node_object


def test_images_are_told_by_what_is_kept_of_them() -> None:
    core = core_v1([Extra.IMAGES])
    cluster = Cluster(core)
    status = {"images": [{"names": ["web:1", "web@sha256:0"], "sizeBytes": 7}]}
    for name in ("n1", "n2"):
        cluster.upsert_node(core.decode_node(encoded(node_object(name, status=status))))

    assert {"web:1": ImageState(size=7, nodes=2)} == Nodes(cluster).images(["web:1", "db:1"])
    with pytest.raises(NotDecoded):
        Nodes(Cluster()).images(["web:1"])


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    for name in ("n1", "n2"):
        found.upsert_node(make_node(name))
    found.upsert_pod(make_pod("web", node="n1"))
    return found


def test_all_of_them_and_one_by_name(cluster: Cluster) -> None:
    nodes = Nodes(cluster)

    assert [("n1", ["default/web"]), ("n2", [])] == [
        (info.name, list(map(str, info.pods.values()))) for info in nodes.list()
    ]
    assert (cluster.nodes["n1"], None) == (nodes.get("n1"), nodes.get("n9"))


def test_a_pod_that_is_judged_is_not_on_them(cluster: Cluster) -> None:
    nodes = Nodes(cluster)

    with cluster.without("uid-default-web", ("default", "web")):
        found = nodes.get("n1")
        assert found is not None
        assert {} == found.pods
        assert [[], []] == [list(info.pods) for info in nodes.list()]


def test_one_that_cannot_be_read_is_listed_as_it_was_and_not_given_by_name(cluster: Cluster) -> None:
    nodes = Nodes(cluster)
    cluster.leave_out(NODES, ("", "n1"), "too long")

    assert ["n1", "n2"] == [info.name for info in nodes.list()]
    with pytest.raises(Unreadable, match="Node n1 cannot be read: too long"):
        nodes.get("n1")


def test_their_generation_is_that_of_the_picture(cluster: Cluster) -> None:
    nodes = Nodes(cluster)
    before = nodes.generation
    cluster.upsert_node(make_node("n1", resource_version="2"))

    assert before == nodes.generation
    cluster.upsert_node(make_node("n1", zone="a"))
    assert (True, cluster.node_generation) == (nodes.generation > before, nodes.generation)
