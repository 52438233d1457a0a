"""Rules of node infos and of the candidates a request asks about."""

from typing import Any

import pytest

from app.framework.node_info import Candidates, NodeInfo
from app.framework.resources import Totals
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra, HostPort, NotDecoded
from tests.builders import container, encoded, make_node, make_pod, node_object, pod_object

PODS = {pod.uid: pod for pod in (make_pod("a"), make_pod("b"))}


CORE = core_v1(list(Extra))
STATUS = {"allocatable": {"cpu": "4", "pods": "110"}, "images": [{"names": ["web:1"], "sizeBytes": 7}]}


def taking(name: str, cpu: str, port: int) -> Pod:
    one = container(requests={"cpu": cpu, "memory": "1"}, ports=[{"hostPort": port}])
    return CORE.decode_pod(encoded(pod_object(name, containers=[one])))


def whole(*pods: Pod, kept: bool = True) -> NodeInfo:
    """A node info with all its parts; ``kept`` as a picture has it."""
    by_uid = {pod.uid: pod for pod in pods}
    node = CORE.decode_node(encoded(node_object(status=STATUS)))
    return NodeInfo(node, by_uid, Totals(CORE.extras, pods) if kept else None)


def seen(info: NodeInfo) -> dict[str, Any]:
    return {
        "pods": set(info.pods),
        "requested": info.requested,
        "non zero": info.non_zero_requested,
        "ports": set(info.ports),
    }


def names_on(info: NodeInfo) -> list[str]:
    return [pod.name for pod in info.pods.values()]


def test_pods_are_added_and_taken_away_on_copies() -> None:
    info = NodeInfo(make_node(), dict(PODS))

    assert ["a", "b", "c"] == names_on(info.with_pods([make_pod("c")]))
    assert ["b"] == names_on(info.without_pods({make_pod("a").uid, "unknown"}))
    assert ["a", "b"] == names_on(info)


def test_a_copy_may_be_changed_by_itself() -> None:
    a, b = taking("a", "1", 80), taking("b", "2", 81)
    info = whole(a, b)
    copy, not_kept = info.with_pods(()), whole(a, b, kept=False)

    copy.drop(a.uid)
    not_kept.drop(a.uid)
    assert seen(whole(b)) == seen(copy) == seen(not_kept)
    copy.put(a)
    assert seen(whole(a, b)) == seen(copy) == seen(info)
    with pytest.raises(KeyError):
        copy.drop("unknown")


def test_a_node_info_says_what_its_pods_take() -> None:
    info = whole(taking("a", "1", 80), taking("b", "2", 81))

    assert {
        "pods": set(info.pods),
        "requested": {"cpu": 3000, "memory": 2},
        "non zero": {"cpu": 3000, "memory": 2},
        "ports": {HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "TCP", 81)},
    } == seen(info)
    assert ({"cpu": 4000, "pods": 110}, {"web:1": 7}) == (info.allocatable, info.images)


@pytest.mark.parametrize("kept", [pytest.param(True, id="kept"), pytest.param(False, id="worked out")])
def test_copies_say_what_their_pods_take(kept: bool) -> None:
    one, other, larger = taking("a", "1", 80), taking("b", "2", 81), taking("a", "3", 82)
    info = whole(one, other, kept=kept)

    assert seen(whole(one, other, taking("c", "1", 80))) == seen(info.with_pods([taking("c", "1", 80)]))
    assert seen(whole(larger, other)) == seen(info.with_pods([one, larger]))
    assert seen(whole(other)) == seen(info.without_pods({one.uid, "unknown"}))
    assert seen(whole(larger)) == seen(info.without_pods({one.uid, other.uid}).with_pods([larger]))
    assert seen(whole(one, other)) == seen(info)


def test_another_form_of_the_node_has_the_same_pods() -> None:
    info = whole(taking("a", "1", 80))
    smaller = CORE.decode_node(encoded(node_object(status={"allocatable": {"cpu": "1"}})))

    found = info.with_node(smaller)

    assert ({"cpu": 1000}, seen(info)) == (found.allocatable, seen(found))


@pytest.mark.parametrize("name", ["allocatable", "requested", "non_zero_requested", "ports", "images"])
def test_what_no_plugin_declares_raises(name: str) -> None:
    info = NodeInfo(make_node(), dict(PODS)).with_pods([make_pod("c")]).without_pods([make_pod("a").uid])

    with pytest.raises(NotDecoded, match="no enabled plugin declares"):
        getattr(info, name)


def test_candidates_without_some_are_the_others_in_order() -> None:
    candidates = Candidates.of({name: NodeInfo(make_node(name)) for name in ("n1", "n2", "n3")})

    assert ["n1", "n3"] == list(candidates.without({"n2": "why", "unknown": "why"}).names)
    assert candidates is candidates.without(())
