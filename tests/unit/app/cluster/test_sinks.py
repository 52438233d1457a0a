"""Where the objects of one kind go."""

from __future__ import annotations

import pytest

from app.cluster.sinks import NodeSink, ObjectSink, PodSink, sink_for
from app.cluster.store import Cluster
from app.kube.kinds import NODES, PODS, SERVICES, Kind
from tests.builders import make_node, make_pod, make_service


def picture() -> Cluster:
    """One object of each kind, and two binds: one in flight, one accepted."""
    cluster = Cluster()
    for kind, found in (
        (NODES, make_node("n1")),
        (PODS, make_pod("web-1", node="n1")),
        (SERVICES, make_service("web")),
    ):
        sink_for(cluster, kind).upsert(found)
    for name in ("flying", "accepted"):
        cluster.upsert_pod(make_pod(name))
        cluster.assume(make_pod(name), "n1")
    cluster.accept("uid-default-accepted")
    return cluster


@pytest.mark.parametrize(
    ("kind", "sink"),
    [
        pytest.param(PODS, PodSink, id="pods"),
        pytest.param(NODES, NodeSink, id="nodes"),
        pytest.param(SERVICES, ObjectSink, id="any other kind"),
        pytest.param(Kind("v1", "Pod", PODS.decode), PodSink, id="a kind is known by its name"),
    ],
)
def test_each_kind_has_a_sink(kind: Kind[object], sink: type) -> None:  # type: ignore[type-var]
    assert sink is type(sink_for(Cluster(), kind))


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        pytest.param(NODES, [("", "n1")], id="nodes"),
        pytest.param(SERVICES, [("default", "web")], id="other objects"),
        pytest.param(
            PODS, [("default", "accepted"), ("default", "flying"), ("default", "web-1")], id="pods, however assumed"
        ),
    ],
)
def test_what_a_fresh_list_has_to_confirm(kind: Kind[object], keys: list[tuple[str, str]]) -> None:  # type: ignore[type-var]
    assert keys == sorted(sink_for(picture(), kind).keys())


@pytest.mark.parametrize(
    ("kind", "key", "uid"),
    [
        pytest.param(NODES, ("", "n1"), "uid-n1", id="a node"),
        pytest.param(PODS, ("default", "web-1"), "uid-default-web-1", id="a pod"),
        pytest.param(SERVICES, ("default", "web"), "uid-default-web", id="another object"),
    ],
)
class TestDelete:
    def test_it_is_gone(self, kind: Kind[object], key: tuple[str, str], uid: str) -> None:  # type: ignore[type-var]
        for given in (uid, ""):
            cluster = picture()
            before = cluster.count_of(kind)

            sink_for(cluster, kind).delete(key, given)

            assert before - 1 == cluster.count_of(kind)

    def test_another_of_the_same_name_stays(self, kind: Kind[object], key: tuple[str, str], uid: str) -> None:  # type: ignore[type-var]
        cluster = picture()
        before = cluster.count_of(kind)

        sink_for(cluster, kind).delete(key, f"{uid}-earlier")

        assert before == cluster.count_of(kind)

    def test_what_is_not_there_is_no_error(self, kind: Kind[object], key: tuple[str, str], uid: str) -> None:  # type: ignore[type-var]
        cluster = picture()

        for given in (uid, ""):
            sink_for(cluster, kind).delete((key[0], "other"), given)

        assert [] == cluster.check()
