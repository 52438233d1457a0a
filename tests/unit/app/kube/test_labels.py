"""Rules of interned label sets: equal sets are one object, so that identity is equality."""

import gc
from collections.abc import Mapping

import pytest

from app.kube import labels
from app.kube.labels import label_set


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": "1", "b": "2"}, {"b": "2", "a": "1"}, id="the order of the keys plays no part"),
        pytest.param({"a": ""}, {"a": None}, id="a null value is the empty string"),
        pytest.param({}, None, id="null labels are no labels"),
    ],
)
def test_equal_labels_are_the_same_object(
    one: Mapping[str, str | None] | None, other: Mapping[str, str | None] | None
) -> None:
    assert label_set(one) is label_set(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": "1"}, {"a": "2"}, id="another value"),
        pytest.param({"a": ""}, {}, id="an empty value is not an absent key"),
    ],
)
def test_different_labels_are_different(one: Mapping[str, str], other: Mapping[str, str]) -> None:
    assert label_set(one) != label_set(other)


def test_a_label_set_reads_and_compares_like_the_dict_it_was_made_of() -> None:
    given = {"app": "web", "tier": "front"}

    assert given == label_set(given)
    assert dict(label_set(given)) == given


def test_a_label_set_lives_only_as_long_as_somebody_holds_it() -> None:
    """A cluster makes new label sets for ever (pod-template-hash): those of gone pods must not pile up."""
    items = (("only-here", "yes"),)
    held = label_set(dict(items))
    assert items in labels._SETS

    del held
    gc.collect()

    assert items not in labels._SETS
