"""Rules of node infos and of the candidates a request asks about."""

from app.framework.node_info import Candidates, NodeInfo
from tests.builders import make_node, make_pod

PODS = {pod.uid: pod for pod in (make_pod("a"), make_pod("b"))}


def names_on(info: NodeInfo) -> list[str]:
    return [pod.name for pod in info.pods.values()]


def test_a_node_info_without_pods_is_empty() -> None:
    info = NodeInfo(make_node("n1"))

    assert ("n1", []) == (info.name, names_on(info))


def test_pods_are_added_and_taken_away_on_copies() -> None:
    info = NodeInfo(make_node(), dict(PODS))

    assert ["a", "b", "c"] == names_on(info.with_pods([make_pod("c")]))
    assert ["b"] == names_on(info.without_pods({make_pod("a").uid, "unknown"}))
    assert ["a", "b"] == names_on(info)


def test_a_pod_is_added_once() -> None:
    newer = make_pod("a", labels={"v": "2"})

    assert [newer, PODS[make_pod("b").uid]] == list(NodeInfo(make_node(), dict(PODS)).with_pods([newer]).pods.values())


def test_candidates_keep_the_order_asked() -> None:
    infos = {name: NodeInfo(make_node(name)) for name in ("n1", "n2", "n3")}
    candidates = Candidates(("n3", "n1"), infos.__getitem__)

    assert [infos["n3"], infos["n1"]] == list(candidates)
    assert (2, ("n3", "n1"), infos["n1"]) == (len(candidates), candidates.names, candidates.info("n1"))
    assert ("n1", "n2", "n3") == Candidates.of(infos).names


def test_candidates_without_some_are_the_others_in_order() -> None:
    candidates = Candidates.of({name: NodeInfo(make_node(name)) for name in ("n1", "n2", "n3")})

    assert ["n1", "n3"] == list(candidates.without({"n2": "why", "unknown": "why"}).names)
    assert candidates is candidates.without(())
