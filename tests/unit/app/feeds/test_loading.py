"""While much is loaded that stays, nobody looks through it for garbage."""

from __future__ import annotations

import gc

import pytest

from app.feeds.loading import bulk_load


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
