"""Some thousand random changes; `python -m tests.conformance.terms` makes a million."""

import pytest

from app.cache import counters, terms
from tests.conformance.terms import run


def test_kept_terms_equal_those_counted_afresh() -> None:
    found = run(changes=3000, seed=20261122)

    assert found["rejections"] > 1000
    assert found["remembered"] > 20
    assert found["certain"] > 20


def test_they_do_where_hardly_anything_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as one question needs: what others need is given up for it."""
    for name, limit in {"_MOST_OF_A_GROUP": 6, "_MOST_OF_A_SELECTION": 3, "_AT_AN_EVENT": 1, "_PIECE": 3}.items():
        monkeypatch.setattr(counters, name, limit)
    monkeypatch.setattr(terms, "_MOST_FAN_OUT", 6)

    assert run(changes=1500, seed=7)["rejections"] > 500
