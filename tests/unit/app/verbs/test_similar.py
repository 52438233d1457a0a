"""Names that are offered instead of one that does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from app.verbs.similar import MOST_COMPARED, Shortlist, similar

NODES: Final = [f"ip-10-0-{number // 256}-{number % 256}.compute.internal" for number in range(5000)]


@pytest.mark.parametrize(
    ("name", "known", "suggestion"),
    [
        pytest.param("web-2", ["api-1", "web-1"], "; did you mean web-1?", id="one"),
        pytest.param("web-9", ["web-1", "web-2", "db"], "; did you mean web-2 or web-1?", id="two"),
        pytest.param("web-9", [f"web-{it}" for it in range(5)], "; did you mean web-4, web-3 or web-2?", id="three"),
        pytest.param("deployment", ["Deployment"], "; did you mean Deployment?", id="in another case"),
        pytest.param("nothing-like-it", ["web-1"], "", id="none"),
        pytest.param("web", [], "", id="nothing is known"),
        pytest.param("", ["web"], "", id="no name"),
        pytest.param("wbe", ["api", "db", "web"], "; did you mean web?", id="two letters swapped"),
    ],
)
def test_names(name: str, known: Sequence[str], suggestion: str) -> None:
    assert suggestion == similar(name, known)


def test_a_word_before_them() -> None:
    assert "; did you mean namespace shop?" == similar("shp", ["shop"], "namespace")


@pytest.mark.parametrize("place", [0, 3, 15, 30])
def test_a_wrong_letter_anywhere_among_very_many(place: int) -> None:
    name = NODES[4321]
    shortlist = Shortlist(name[:place] + "x" + name[place + 1 :])

    steps = sum(1 for _ in shortlist.steps(NODES))

    assert name in shortlist.suggestion()
    assert steps > len(NODES) // 300


def test_a_typo_is_found_beside_many_names_with_the_same_beginning() -> None:
    shortlist = Shortlist("wbe")

    for _ in shortlist.steps([*(f"wb-{it}" for it in range(100)), "web"]):
        pass

    assert "web" in shortlist.suggestion()


def test_at_once_a_bounded_number_is_compared() -> None:
    assert "" == similar("web-1", [*["another"] * MOST_COMPARED, "web-1"])
