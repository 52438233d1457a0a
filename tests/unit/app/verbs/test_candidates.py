"""Which nodes a request is about, and by what each is judged: the picture, or what was sent of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from msgspec import Raw

from app.cache.cluster import Cluster
from app.feeds.stores import store_for
from app.framework.status import Status
from app.kube.kinds import NODES, PODS
from app.verbs.candidates import (
    UNKNOWN_NODE,
    UNREADABLE_NODE,
    RequestedNodes,
    read_nodes,
    read_sent,
    requested_hosts,
    requested_nodes,
    unreadable_nodes,
)
from app.wire.extender_v1 import MalformedRequest, decode_args
from tests.builders import JsonObject, encoded, make_node, make_pod, node_object, pod_object

HUGE = [{"key": "x" * (64 << 10), "effect": "NoSchedule"}]
"""Taints longer than what is read of a node."""


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    for name in ("n1", "n2", "n3"):
        found.upsert_node(make_node(name, resource_version="7"))
    found.upsert_pod(make_pod("web-1", node="n1"))
    return found


def raw(*nodes: JsonObject) -> list[Raw]:
    return [Raw(encoded(it)) for it in nodes]


def found_in(asked: RequestedNodes) -> tuple[Sequence[str], Sequence[str], Mapping[str, Status]]:
    """The names as they were asked, those of the candidates, and why others are none."""
    return list(asked.names), list(asked.candidates.names), asked.unknown


class TestByName:
    @pytest.mark.parametrize(
        ("names", "candidates", "unknown"),
        [
            pytest.param(["n3", "n1"], ["n3", "n1"], [], id="in the order asked"),
            pytest.param(["n2", "n1", "n2"], ["n2", "n1"], [], id="one named twice is asked about once"),
            pytest.param(["n9", "n1", "n8"], ["n1"], ["n9", "n8"], id="not known"),
            pytest.param(["n9", "n9"], [], ["n9"], id="none known, named twice"),
        ],
    )
    def test_candidates(self, cluster: Cluster, names: list[str], candidates: list[str], unknown: list[str]) -> None:
        expected = (names, candidates, dict.fromkeys(unknown, UNKNOWN_NODE))

        assert expected == found_in(requested_nodes(names, None, cluster.nodes))

    def test_they_are_judged_by_the_picture(self, cluster: Cluster) -> None:
        asked = requested_nodes(["n1"], None, cluster.nodes)

        assert ([cluster.nodes["n1"]], {}, None) == (list(asked.candidates), asked.candidates.sent, asked.raw)

    def test_what_is_unreadable_is_no_candidate_and_says_so(self, cluster: Cluster) -> None:
        """Also where the picture still has an older form of it."""
        expected = (
            ["n1", "n9", "n2"],
            ["n2"],
            {"n9": UNKNOWN_NODE, "n1": UNREADABLE_NODE},
        )

        assert expected == found_in(requested_nodes(["n1", "n9", "n2"], None, cluster.nodes, {"n1", "n3"}))


class TestByObject:
    async def asked(self, cluster: Cluster, *nodes: JsonObject, unreadable: Iterable[str] = ()) -> RequestedNodes:
        return requested_nodes(None, await read_sent(raw(*nodes), cluster.nodes), cluster.nodes, set(unreadable))

    async def test_one_of_the_version_of_the_picture_is_taken_from_there(self, cluster: Cluster) -> None:
        """And its body is not read: it may hold anything."""
        sent = {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": 5}
        asked = await self.asked(cluster, sent)

        assert ([cluster.nodes["n1"]], {}) == (list(asked.candidates), asked.candidates.sent)
        assert asked.raw is not None
        assert {"n1": encoded(sent)} == {name: bytes(it) for name, it in asked.raw.items()}

    @pytest.mark.parametrize("version", ["8", ""])
    async def test_one_of_another_version_is_judged_by_what_was_sent(self, cluster: Cluster, version: str) -> None:
        """With the pods that the picture has there."""
        sent = node_object("n1", zone="z9", resource_version=version)
        asked = await self.asked(cluster, sent)

        (info,) = asked.candidates
        assert (make_node("n1", zone="z9", resource_version=version), cluster.nodes["n1"].pods) == (
            info.node,
            info.pods,
        )
        assert {"n1": info} == asked.candidates.sent

    async def test_two_without_a_version_are_not_taken_for_the_same(self, cluster: Cluster) -> None:
        cluster.upsert_node(make_node("n1", resource_version=""))
        (info,) = (await self.asked(cluster, node_object("n1", zone="z9", resource_version=""))).candidates

        assert make_node("n1", zone="z9", resource_version="") == info.node

    async def test_one_that_is_not_known_is_judged_too(self, cluster: Cluster) -> None:
        (info,) = (await self.asked(cluster, node_object("n9", zone="z9"))).candidates

        assert (make_node("n9", zone="z9"), {}) == (info.node, dict(info.pods))

    async def test_one_with_more_than_is_read_is_no_candidate(self, cluster: Cluster) -> None:
        sent = (node_object("n8", taints=HUGE), node_object("n9"))

        assert (["n9", "n8"], ["n9"], {"n8": UNREADABLE_NODE}) == found_in(await self.asked(cluster, *sent))

    async def test_what_the_picture_could_not_take_in_does_not_count(self, cluster: Cluster) -> None:
        """What was sent is the newer form of it."""
        asked = await self.asked(cluster, node_object("n1", resource_version="8"), unreadable=["n1"])

        assert (["n1"], ["n1"], {}) == found_in(asked)

    async def test_the_last_of_a_name_counts(self, cluster: Cluster) -> None:
        asked = await self.asked(cluster, node_object("n9", zone="a"), node_object("n9", zone="b"))

        assert ([make_node("n9", zone="b")], ["n9"]) == ([it.node for it in asked.candidates], list(asked.names))

    async def test_one_that_left_the_picture_since_it_was_read_is_read_then(self, cluster: Cluster) -> None:
        """Between reading and deciding others get their turn."""
        sent = await read_sent(raw(node_object("n2", resource_version="7")), cluster.nodes)
        assert [None] == [it.node for it in sent]
        cluster.delete_node("n2")

        (info,) = requested_nodes(None, sent, cluster.nodes).candidates
        assert (make_node("n2", resource_version="7"), {}) == (info.node, dict(info.pods))

    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(b"5", id="no object"),
            pytest.param(b'{"metadata":{"name":"n9"},"spec":{"taints":5}}', id="taints that are none"),
            pytest.param(b'{"metadata":{"name":"n\xff"}}', id="no UTF-8"),
        ],
    )
    async def test_what_makes_no_sense_is_refused(self, cluster: Cluster, sent: bytes) -> None:
        with pytest.raises(MalformedRequest, match=r"^Nodes\.items: "):
            await read_sent([Raw(sent)], cluster.nodes)


async def test_of_a_request_in_names_no_node_is_read(cluster: Cluster) -> None:
    body = encoded({"Pod": pod_object(), "NodeNames": ["n1"], "Nodes": {"items": [5]}})

    assert await read_nodes(decode_args(body), cluster.nodes) is None


class TestHosts:
    """Of a request that cannot be decided, to name each in what is answered."""

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            pytest.param(encoded({"Pod": pod_object(), "NodeNames": ["n2", "n9", "n2"]}), ("n2", "n9"), id="names"),
            pytest.param(
                encoded({"Pod": pod_object(), "Nodes": {"items": [node_object("n9"), node_object("n1")]}}),
                ("n9", "n1"),
                id="whole nodes",
            ),
            pytest.param(encoded({"Pod": pod_object(), "Nodes": {"items": [5]}}), (), id="nodes that make no sense"),
            pytest.param(b"nonsense", (), id="no request"),
            pytest.param(
                b'{"NodeNames":["n1"],"Pod":'
                + encoded(pod_object())[:-1]
                + b',"x":'
                + b"[" * 9_000
                + b"]" * 9_000
                + b"}}",
                ("n1",),
                id="however deep",
            ),
        ],
    )
    async def test_hosts(self, cluster: Cluster, body: bytes, expected: Sequence[str]) -> None:
        assert expected == await requested_hosts(body, cluster.nodes)


def test_unreadable_are_the_nodes_that_are_left_out(cluster: Cluster) -> None:
    before = set(unreadable_nodes(cluster))
    store_for(cluster, PODS).mark_unreadable(("default", "odd"), "odd")
    store_for(cluster, NODES).mark_unreadable(("", "n2"), "odd")

    assert (set(), {"n2"}) == (before, set(unreadable_nodes(cluster)))
