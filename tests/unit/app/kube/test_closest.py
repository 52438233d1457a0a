"""A mistyped name stands for the known names that are one typo away, or have many equal letters."""

from __future__ import annotations

import pytest

from app.kube.closest import closest, is_typo


@pytest.mark.parametrize(
    ("name", "other", "typo"),
    [
        ("web", "web", True),
        ("web", "wab", True),
        ("web", "webs", True),
        ("web", "wbe", True),
        ("aab", "ab", True),
        ("a2", "a1", True),
        ("web", "bew", False),
        ("web", "wxy", False),
        ("abcd", "badc", False),
        ("web", "weboo", False),
        ("a", "b", False),
        ("a", "ab", False),
        ("", "a", False),
    ],
)
def test_one_typo(name: str, other: str, typo: bool) -> None:
    assert (typo, typo) == (is_typo(name, other), is_typo(other, name))


def test_names_with_many_equal_letters_come_before_short_typos() -> None:
    assert ["Deployment"] == closest("deploymnets", ["Deployment", "Job"], 3)
    assert ["webs", "wob"] == closest("web", ["wob", "api", "webs"], 3)
    assert ["webs"] == closest("web", ["wob", "api", "webs"], 1)
