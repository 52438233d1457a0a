"""What is derived from objects of a kind follows them one by one."""

from typing import Final

import pytest

from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.following import AT_ONCE, Following
from app.kube.kinds import PERSISTENT_VOLUMES
from tests.builders import encoded, volume_object

ENDED: Final = object()


class Names:
    """The names of all volumes, as somebody may derive them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.found: set[str] = set()
        self.taken: list[str] = []
        self.restarts = 0
        self.following = Following(cluster, PERSISTENT_VOLUMES, self.take, self.restart)

    def take(self, namespace: str, name: str) -> int:
        self.taken.append(name)
        self.found.discard(name)
        if self.cluster.get(PERSISTENT_VOLUMES, namespace, name) is not None:
            self.found.add(name)
        return AT_ONCE // 2 if name.startswith("large") else 1

    def restart(self) -> None:
        self.restarts += 1
        self.found.clear()


def put(cluster: Cluster, *names: str, version: str = "1", size: str = "1Gi") -> None:
    for name in names:
        found = encoded(volume_object(name, resourceVersion=version, size=size))
        cluster.others.upsert(PERSISTENT_VOLUMES, PERSISTENT_VOLUMES.decode(found))


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    put(found, "a", "b", "c")
    return found


def test_after_all_only_what_changes_is_taken_in(cluster: Cluster) -> None:
    names = Names(cluster)
    names.following.catch_up()
    assert ({"a", "b", "c"}, 1) == (names.found, names.restarts)

    names.taken.clear()
    put(cluster, "a", version="2")
    put(cluster, "b", "d", "d", version="2", size="2Gi")
    cluster.others.delete(PERSISTENT_VOLUMES, ("", "c"))
    names.following.catch_up()
    names.following.catch_up()
    assert ({"a", "b", "d"}, ["b", "c", "d"], 1) == (names.found, sorted(names.taken), names.restarts)


def test_many_are_taken_in_by_steps_and_what_changes_meanwhile_too(cluster: Cluster) -> None:
    put(cluster, *(f"v{it}" for it in range(2 * AT_ONCE)))
    names = Names(cluster)
    with pytest.raises(Unprepared) as missing:
        names.following.catch_up()
    assert AT_ONCE == len(names.taken)

    next(missing.value.steps)
    assert AT_ONCE < len(names.taken) < 2 * AT_ONCE
    put(cluster, "new")
    cluster.others.delete(PERSISTENT_VOLUMES, ("", names.taken[0]))
    for _ in missing.value.steps:
        pass
    names.following.catch_up()
    assert {it.name for it in cluster.every(PERSISTENT_VOLUMES)} == names.found
    assert (1, 2 * AT_ONCE + 5) == (names.restarts, len(names.taken))


def test_steps_need_not_be_taken_to_the_end(cluster: Cluster) -> None:
    """What one call has begun another goes on with."""
    put(cluster, *(f"v{it}" for it in range(2 * AT_ONCE)))
    names = Names(cluster)
    for _ in range(2):
        with pytest.raises(Unprepared):
            names.following.catch_up()
    names.following.catch_up()
    assert 2 * AT_ONCE + 3 == len(names.found) == len(names.taken)


def test_more_changes_than_are_listed_are_a_new_beginning(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cache.changes.MOST", 2)
    names = Names(cluster)
    names.following.catch_up()
    put(cluster, "d", "e", "f")
    cluster.others.delete(PERSISTENT_VOLUMES, ("", "a"))
    names.following.catch_up()

    assert ({"b", "c", "d", "e", "f"}, 2) == (names.found, names.restarts)


def test_an_object_that_takes_long_counts_as_several(cluster: Cluster) -> None:
    names = Names(cluster)
    names.following.catch_up()
    put(cluster, "large-1", "large-2", "large-3")
    names.taken.clear()

    with pytest.raises(Unprepared) as missing:
        names.following.catch_up()
    assert ["large-3", "large-2"] == names.taken

    for _ in missing.value.steps:
        pass
    assert {"a", "b", "c", "large-1", "large-2", "large-3"} == names.found
