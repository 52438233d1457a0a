"""SparseClasses is a list of classes that is not written out."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.framework.score_classes import ScoreClasses, SparseClasses

NAMES = [f"n{number}" for number in range(8)]


@given(st.lists(st.sampled_from(NAMES), unique=True), st.data())
def test_it_is_the_list(names: list[str], data: st.DataObject) -> None:
    classes = st.sampled_from([None, 1, 2, "a"])
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True) if names else st.just([]))
    others = {name: data.draw(classes) for name in chosen}
    usual = data.draw(classes)
    scores = {key: number for number, key in enumerate([None, 1, 2, "a"])}

    written = [others.get(name, usual) for name in names]
    found, plain = ScoreClasses(SparseClasses(names, usual, others), scores), ScoreClasses(written, scores)

    assert written == list(found.of)
    assert len(written) == len(found.of)
    assert written[1:3] == list(found.of[1:3])
    assert written[:1] == ([found.of[0]] if names else [])
    assert plain.classes() == found.classes()
    assert Counter(written) == found.sizes()
    assert plain.each() == found.each()
    assert plain.by_name(names) == found.by_name(names)
