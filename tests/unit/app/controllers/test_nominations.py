"""A nomination of ours reserves nothing; what another has nominated counts."""

from __future__ import annotations

from app.cache.cluster import Cluster
from app.controllers.nominations import CountedNominations
from app.kube.core_v1 import Pod
from tests.builders import constraint, make_node, make_pod


def nominations(*pods: Pod) -> CountedNominations:
    cluster = Cluster()
    for pod in pods:
        cluster.upsert_pod(pod)
    return CountedNominations(cluster)


def test_for_a_filter_that_counts_nominated_pods_ours_are_not_there() -> None:
    found = nominations(make_pod("ours", nominated="b1"), make_pod("theirs", nominated="b1"))
    found.put("uid-default-ours", "b1")

    assert ["theirs"] == [pod.name for pod in found.nominated("b1")]
    assert {"b1"} == set(found.nominated_nodes)


def test_a_node_with_ours_alone_has_none_that_count() -> None:
    found = nominations(make_pod("ours", nominated="b1"))
    before = set(found.nominated_nodes)
    found.put("uid-default-ours", "b1")
    ours = set(found.nominated_nodes)
    found.drop("uid-default-ours")

    assert ({"b1"}, set(), {"b1"}) == (before, ours, set(found.nominated_nodes))


def test_one_that_somebody_else_changed_counts() -> None:
    found = nominations(make_pod("ours", nominated="b1"))
    found.put("uid-default-ours", "a1")

    assert ["ours"] == [pod.name for pod in found.nominated("b1")]


def test_of_too_many_the_oldest_count_again() -> None:
    found = nominations(make_pod("first", nominated="b1"))
    found.put("uid-default-first", "b1")
    for number in range(4096):
        found.put(f"uid-{number}", "b2")

    assert ["first"] == [pod.name for pod in found.nominated("b1")]


def test_ours_are_known_in_another_snapshot_too() -> None:
    deciding, other = nominations(), Cluster()
    explaining = deciding.on(other)
    for name in ("ours", "theirs"):
        other.upsert_pod(make_pod(name, nominated="b1"))
    deciding.put("uid-default-ours", "b1")

    assert ["theirs"] == [pod.name for pod in explaining.nominated("b1")]


def test_a_reserved_place_in_another_snapshot_counts_with_the_pod_of_that_snapshot() -> None:
    """The explain snapshot has fields that the snapshot of the verbs does not decode."""
    there = Cluster()
    there.upsert_pod(make_pod("web", labels={"seen": "by explain"}))
    found = nominations(pod := make_pod("web"))
    found.reserve(pod, "a1")

    (counted,) = found.on(there).nominated("a1")

    assert ({"seen": "by explain"}, "a1") == (counted.labels, counted.nominated_node_name)


def test_a_reserved_place_counts_on_all_nodes_of_its_domain_until_the_pod_has_a_node() -> None:
    cluster = Cluster()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        cluster.upsert_node(make_node(name, zone=zone))
    pod = make_pod("high", nominated="a1", spread=[constraint(app="web")])
    cluster.upsert_pod(pod)
    found = CountedNominations(cluster)
    found.reserve(pod, "a1")

    during = {name: [it.name for it in found.nominated(name)] for name in found.nominated_nodes}
    cluster.upsert_pod(make_pod("high", node="a2", spread=[constraint(app="web")]))
    bound = set(found.nominated_nodes)
    found.release(pod.uid)

    assert ({"a1": ["high"], "a2": ["high"]}, set(), set()) == (during, bound, set(found.nominated_nodes))
