"""Where the objects of one kind go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.cache.cluster import Cluster
from app.feeds.stores import PodStore, store_for
from app.kube.kinds import NODES, PODS, SERVICES, Kind
from app.kube.selectors import EVERYTHING
from tests.builders import make_node, make_pod, make_service


def picture() -> Cluster:
    """One object of each kind, and two binds: one in flight, one accepted."""
    cluster = Cluster()
    for kind, found in (
        (NODES, make_node("n1")),
        (PODS, make_pod("web-1", node="n1")),
        (SERVICES, make_service("web")),
    ):
        store_for(cluster, kind).upsert(found)
    for name in ("flying", "accepted"):
        cluster.upsert_pod(make_pod(name))
        cluster.assume(make_pod(name), "n1")
    cluster.accept("uid-default-accepted")
    return cluster


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
    assert keys == sorted(store_for(picture(), kind).keys())


@pytest.mark.parametrize(
    ("kind", "key", "uid"),
    [
        pytest.param(NODES, ("", "n1"), "uid-n1", id="a node"),
        pytest.param(PODS, ("default", "web-1"), "uid-default-web-1", id="a pod"),
        pytest.param(SERVICES, ("default", "web"), "uid-default-web", id="another object"),
    ],
)
@pytest.mark.parametrize(
    ("named", "given", "gone"),
    [("that", "that", 1), ("that", "", 1), ("that", "another", 0), ("other", "that", 0), ("other", "", 0)],
    ids=["by UID", "by name", "another of the name stays", "one that is not there", "nor by name"],
)
def test_an_object_is_deleted(
    kind: Kind[object],  # type: ignore[type-var]
    key: tuple[str, str],
    uid: str,
    named: str,
    given: str,
    gone: int,
) -> None:
    cluster = picture()
    before = cluster.count_of(kind)

    store_for(cluster, kind).delete(
        key if named == "that" else (key[0], "other"), {"that": uid, "": ""}.get(given, f"{uid}-earlier")
    )

    assert (before - gone, []) == (cluster.count_of(kind), cluster.check())


class TestAPodThatAListLacks:
    """It was deleted while nobody watched. That its bind is in flight does not bring it back: UIDs never do."""

    def lacking(self) -> tuple[Cluster, PodStore]:
        """A list has begun that will lack the pod whose bind is in flight."""
        cluster = picture()
        store = PodStore(cluster)
        assert ("default", "flying") in list(store.keys())
        return cluster, store

    @pytest.mark.parametrize(
        "settles",
        [
            pytest.param(lambda it: it.forget("uid-default-flying"), id="its bind is answered with 404"),
            pytest.param(lambda it: it.accept("uid-default-flying"), id="its bind is answered with 201"),
            pytest.param(lambda it: it.upsert_read_pod(make_pod("flying", node="n1")), id="it was read before"),
        ],
    )
    @pytest.mark.parametrize("first", ["the list", "the bind"])
    def test_it_is_gone_whenever_its_bind_settles(self, first: str, settles: Callable[[Cluster], None]) -> None:
        cluster, store = self.lacking()
        if first == "the bind":
            settles(cluster)

        store.delete(("default", "flying"), "")

        if first == "the list":
            settles(cluster)
        assert (None, []) == (cluster.pod("default", "flying"), cluster.check())
        assert {"n1": 2} == dict(cluster.counts.pods_by_node("default", EVERYTHING))

    def test_whoever_waits_for_its_bind_is_told(self) -> None:
        cluster, store = self.lacking()
        told: list[bool] = []
        cluster.assumed.on_settled(lambda _: told.append(True))

        store.delete(("default", "flying"), "")

        assert ([True], ()) == (told, cluster.assumed.in_flight())

    @pytest.mark.parametrize("state", ["waits", "in flight", "accepted"])
    def test_one_of_its_name_that_was_made_since_is_another(self, state: str) -> None:
        """Read past the watch while the list was taken; the watch will tell of it."""
        cluster, store = self.lacking()
        cluster.upsert_read_pod(make_pod("flying", uid="another"))
        if state != "waits":
            cluster.assume(make_pod("flying", uid="another"), "n1")
        if state == "accepted":
            cluster.accept("another")

        store.delete(("default", "flying"), "")

        known = cluster.pod("default", "flying")
        assert known is not None
        assert "another" == known.uid
