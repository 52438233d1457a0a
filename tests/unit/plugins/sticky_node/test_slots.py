"""Whatever stands on an object, so many homes of it are looked at, those of the lowest ordinals first."""

from __future__ import annotations

import pytest

from plugins.sticky_node.slots import MOST_SLOTS, slots

HOME = "homeport.dev/home"


@pytest.mark.parametrize(
    ("keys", "per_ordinal", "found"),
    [
        pytest.param([], True, [], id="none"),
        pytest.param([HOME, f"{HOME}.1"], False, [""], id="no ordinals are told apart"),
        pytest.param([f"{HOME}.1"], False, [], id="only one of an ordinal, where none are told apart"),
        pytest.param([f"{HOME}.10", f"{HOME}.9", HOME], True, ["", "9", "10"], id="by number"),
        pytest.param([f"{HOME}.1-10", f"{HOME}.1-9"], True, ["1-9", "1-10"], id="of groups"),
        pytest.param([f"{HOME}-pod.1", f"{HOME}ly", f"{HOME}.1"], True, ["1"], id="annotations of other names"),
    ],
)
def test_the_homes_that_stand_there(keys: list[str], per_ordinal: bool, found: list[str]) -> None:
    assert found == slots(dict.fromkeys(keys, "n1"), HOME, per_ordinal=per_ordinal)


def test_there_are_not_more_than_a_bound() -> None:
    annotations = {f"{HOME}.{number}": "n1" for number in reversed(range(MOST_SLOTS + 100))}

    assert list(map(str, range(MOST_SLOTS))) == slots(annotations, HOME, per_ordinal=True)
