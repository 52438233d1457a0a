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
from tests.builders import encoded, make_node, node_object


def test_images_are_told_by_what_is_kept_of_them() -> None:
    core = core_v1([Extra.IMAGES])
    cluster = Cluster(core)
    status = {"images": [{"names": ["web:1", "web@sha256:0"], "sizeBytes": 7}]}
    for name in ("n1", "n2"):
        cluster.upsert_node(core.decode_node(encoded(node_object(name, status=status))))

    assert {"web:1": ImageState(size=7, nodes=2)} == Nodes(cluster).images(["web:1", "db:1"])
    with pytest.raises(NotDecoded):
        Nodes(Cluster()).images(["web:1"])


def test_one_that_cannot_be_read_is_listed_as_it_was_and_not_given_by_name() -> None:
    cluster = Cluster()
    for name in ("n1", "n2"):
        cluster.upsert_node(make_node(name))
    nodes = Nodes(cluster)
    cluster.mark_unreadable(NODES, ("", "n1"), "too long")

    assert cluster.node_generation == nodes.generation
    assert (["n1", "n2"], cluster.nodes["n2"], None) == (
        [info.name for info in nodes.list()],
        nodes.get("n2"),
        nodes.get("n9"),
    )
    with pytest.raises(Unreadable, match="Node n1 cannot be read: too long"):
        nodes.get("n1")
