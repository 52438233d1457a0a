"""Which nodes changed since when."""

import pytest

from app.cache import changes
from app.cache.changes import NodeChanges, ObjectChanges


def noted(*names: str) -> NodeChanges:
    found = NodeChanges()
    for name in names:
        found.note(name)
    return found


def test_each_is_told_once_the_newest_first() -> None:
    found = noted("a", "b", "a", "c")

    assert ["c", "a", "b"] == list(found.since(0) or ())
    assert ["c", "a"] == list(found.since(2) or ())
    assert [] == list(found.since(found.now) or ())


def test_what_is_too_long_ago_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 2)
    found = noted("a", "b", "c")

    assert found.since(0) is None
    assert ["c", "b"] == list(found.since(1) or ())


def test_objects_are_told_once_by_the_numbers_of_who_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_OBJECTS", 2)
    found = ObjectChanges(10)
    for number, name in ((12, "a"), (15, "b"), (17, "a")):
        found.note(("shop", name), number)

    assert [("shop", "a"), ("shop", "b")] == list(found.since(10) or ())
    assert [("shop", "a")] == list(found.since(15) or ())
    assert [] == list(found.since(17) or ())
    assert found.since(9) is None
    found.note(("", "c"), 20)
    assert (None, [("", "c"), ("shop", "a")]) == (found.since(14), list(found.since(15) or ()))
