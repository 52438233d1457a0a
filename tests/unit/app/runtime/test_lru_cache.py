"""What was used last is kept, within a bound of bytes."""

from app.runtime.lru_cache import LruCache, size_of
from tests.builders import make_pod


def test_the_least_used_go_first() -> None:
    recent: LruCache[str, int] = LruCache(3)
    for number, key in enumerate("abc"):
        recent.put(key, number, 1)
    recent.get("a")

    recent.put("d", 3, 1)

    assert (("c", "a", "d"), 3) == (tuple(recent._entries), len(recent))
    assert "b" not in recent
    assert recent.get("b") is None


def test_an_entry_that_grows_is_weighed_anew() -> None:
    recent: LruCache[str, int] = LruCache(3)
    recent.put("a", 1, 1)
    recent.put("b", 2, 1)

    recent.put("b", 2, 3)

    assert (2,) == tuple(recent.values())


def test_what_is_heavier_than_all_room_is_not_kept() -> None:
    recent: LruCache[str, int] = LruCache(3)

    recent.put("a", 1, 4)

    assert 0 == len(recent)


def test_what_a_key_keeps_alive_is_counted_however_deep_it_is() -> None:
    long = "x" * 1000

    assert 1000 < size_of(long) < 1100
    assert 3000 < size_of((long, [long], {"a": long})) < 4000
    assert size_of(make_pod("a", labels={"a": long})) > 1000
