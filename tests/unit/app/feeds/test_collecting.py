"""While much is loaded that stays, nobody looks through it for garbage, and never for long at a time."""

from __future__ import annotations

import gc

import pytest

from app.feeds.collecting import bulk_load, short_collections


def test_garbage_is_not_collected_until_the_last_first_list_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool | str] = []
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("freeze"))
    with bulk_load():
        with bulk_load():
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
    seen.append(gc.isenabled())

    assert [False, False, "freeze", True] == seen


def test_who_collects_no_garbage_does_not_begin_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: None)
    gc.disable()
    try:
        with bulk_load():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(("generation", "took", "frozen"), [(2, 0.01, True), (2, 0.0099, False), (1, 5.0, False)])
def test_what_a_long_full_collection_leaves_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, generation: int, took: float, frozen: bool
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("freeze"))
    now = iter((100.0, 100.0 + took))
    gc.collect()
    gc.disable()
    try:
        with short_collections(clock=lambda: next(now)):
            gc.collect(generation)
    finally:
        gc.enable()

    assert seen == ["freeze"] * frozen


def test_collections_are_left_alone_afterwards() -> None:
    before = list(gc.callbacks)
    with short_collections():
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
