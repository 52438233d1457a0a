"""Rules of the object store: the newest form of each object, and a version that moves with every change."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from app.cache import changes
from app.cache.objects import DeletedUids, ObjectStore
from app.kube.apps_v1 import Workload
from app.kube.kinds import REPLICA_SETS, SERVICES, STATEFUL_SETS
from tests.builders import make_service, make_workload


def workload(version: str) -> Workload:
    return make_workload("web", resource_version=version)


def test_objects_are_found_by_kind_namespace_and_name() -> None:
    store = ObjectStore()
    web, db = make_service("web"), make_service("db", namespace="shop")
    store.upsert(SERVICES, web)
    store.upsert(SERVICES, db)
    store.upsert(REPLICA_SETS, workload("1"))

    assert web == store.get(SERVICES, "default", "web")
    assert [db] == list(store.in_namespace(SERVICES, "shop"))
    assert [("default", "web"), ("shop", "db")] == list(store.keys(SERVICES))
    assert [] == list(store.in_namespace(STATEFUL_SETS, "default"))
    assert (None, None) == (store.get(SERVICES, "shop", "web"), store.get(STATEFUL_SETS, "default", "web"))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(["1", "2"], "2", id="a newer form replaces an older one"),
        pytest.param(["2", "1"], "2", id="an older form is not taken back"),
        pytest.param(["9", "10"], "10", id="versions compare as numbers"),
        pytest.param(["2", "2"], "2", id="the same form twice"),
        pytest.param(["2", ""], "", id="a form without a version is taken"),
    ],
)
def test_the_newest_form_is_kept(versions: list[str], expected: str) -> None:
    """What we wrote ourselves is not undone by a watch event that was under way."""
    store = ObjectStore()
    for version in versions:
        store.upsert(REPLICA_SETS, workload(version))

    assert workload(expected) == store.get(REPLICA_SETS, "default", "web")


def test_an_object_made_anew_under_its_name_replaces_the_old_one() -> None:
    """Whichever of the two is heard of last: a late word of the predecessor changes nothing."""
    store = ObjectStore()
    store.upsert(REPLICA_SETS, workload("9"))
    again = Workload("default", "web", "another-uid", "11", {}, None, None)

    store.upsert(REPLICA_SETS, again)
    store.upsert(REPLICA_SETS, workload("10"))

    assert again == store.get(REPLICA_SETS, "default", "web")


@pytest.mark.parametrize(
    ("uid", "left"),
    [
        pytest.param("uid-default-web", 0, id="the object that is gone"),
        pytest.param("another-uid", 1, id="a new one under its name"),
    ],
)
def test_what_was_read_past_the_watch_does_not_bring_back_what_is_gone(uid: str, left: int) -> None:
    store = ObjectStore()
    store.upsert(SERVICES, make_service("web"))
    store.delete(SERVICES, ("default", "web"), "third-uid")
    assert 1 == store.count(SERVICES)
    store.delete(SERVICES, ("default", "web"), "uid-default-web")

    store.upsert_read(SERVICES, replace(make_service("web"), uid=uid))

    assert left == len(store.in_namespace(SERVICES, "default"))


def test_what_is_gone_is_remembered_for_a_while() -> None:
    gone = DeletedUids()
    for number in range(10_000):
        gone.add(f"uid-{number}")

    assert ("uid-9999" in gone, "uid-0" in gone, "" in gone) == (True, False, False)


def test_the_version_never_goes_back() -> None:
    """Whoever remembers what was derived without any object must not take it for what is there now."""
    store = ObjectStore()
    seen: list[tuple[int, ...]] = []
    for namespace in ("default", "shop", "default"):
        store.upsert(SERVICES, make_service("web", namespace=namespace))
        seen.append(tuple(store.version(SERVICES, it) for it in ("default", "shop")))
        store.delete(SERVICES, (namespace, "web"))
        seen.append(tuple(store.version(SERVICES, it) for it in ("default", "shop")))

    assert all(a <= b for before, after in pairwise(seen) for a, b in zip(before, after, strict=True))
    assert 6 == len({default for default, _ in seen} | {0})


def test_the_version_of_a_kind_moves_with_every_change_of_any_of_its_objects() -> None:
    store = ObjectStore()
    versions = [store.version(SERVICES)]
    changes: tuple[Callable[[], None], ...] = (
        lambda: store.upsert(SERVICES, make_service("web")),
        lambda: store.upsert(SERVICES, make_service("db", namespace="shop")),
        lambda: store.upsert(SERVICES, make_service("db", {"a": "2"}, namespace="shop")),
        lambda: store.delete(SERVICES, ("default", "web")),
        lambda: store.touch(SERVICES, ("nowhere", "web")),
        lambda: store.delete(SERVICES, ("shop", "db")),
    )
    for change in changes:
        change()
        versions.append(store.version(SERVICES))
    store.upsert(REPLICA_SETS, workload("1"))

    assert sorted(set(versions)) == versions
    assert versions[-1] == store.version(SERVICES)


def test_what_is_said_of_a_namespace_without_objects_leaves_nothing_behind() -> None:
    store = ObjectStore()
    for number in range(3):
        store.touch(SERVICES, (f"ns-{number}", "web"))

    assert [3, 3, 3] == [store.version(SERVICES, f"ns-{number}") for number in range(3)]
    store.upsert(SERVICES, make_service("web", namespace="ns-0"))
    assert (4, 3) == (store.version(SERVICES, "ns-0"), store.version(SERVICES, "ns-1"))


def test_the_version_stands_still_while_nothing_changes() -> None:
    store = ObjectStore()
    store.upsert(REPLICA_SETS, workload("9"))
    before = store.version(REPLICA_SETS, "default")

    store.upsert(REPLICA_SETS, workload("8"))
    store.delete(REPLICA_SETS, ("default", "unknown"))
    store.delete(REPLICA_SETS, ("default", "web"), "another-uid")

    assert before == store.version(REPLICA_SETS, "default")


def test_what_changed_since_is_told_once_the_earliest_first() -> None:
    store = ObjectStore()
    store.upsert(SERVICES, make_service("a"))
    seen = store.version(SERVICES)
    assert store.changed(SERVICES, 0) is None
    assert [] == store.changed(SERVICES, seen)

    for name in ("b", "c", "b"):
        store.upsert(SERVICES, make_service(name, selector={"round": str(store.changes)}))
    store.upsert(REPLICA_SETS, workload("1"))
    store.delete(SERVICES, ("default", "a"))

    assert [("default", "c"), ("default", "b"), ("default", "a")] == store.changed(SERVICES, seen)
    assert [] == store.changed(SERVICES, store.version(SERVICES))


def test_what_is_listed_no_more_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 2)
    store = ObjectStore()
    store.changed(SERVICES, 0)
    versions = []
    for name in "abc":
        store.upsert(SERVICES, make_service(name))
        versions.append(store.version(SERVICES))

    assert store.changed(SERVICES, versions[0] - 1) is None
    assert [("default", "b"), ("default", "c")] == store.changed(SERVICES, versions[0])


def test_a_listener_is_told_what_comes_and_what_changes_and_of_nothing_else() -> None:
    store, told = ObjectStore(), []
    store.on_change(REPLICA_SETS, lambda old, new: told.append((old and old.resource_version, new.resource_version)))
    store.upsert(SERVICES, make_service())
    store.upsert(SERVICES, make_service())

    for version in ("1", "3", "2"):
        store.upsert(REPLICA_SETS, workload(version))
    store.upsert(REPLICA_SETS, replace(workload("4"), uid="made anew"))
    store.delete(REPLICA_SETS, ("default", "web"))

    assert [(None, "1"), ("1", "3"), (None, "4")] == told
