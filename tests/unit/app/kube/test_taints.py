"""Rules of taints and tolerations."""

import pytest

from app.kube.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    LatestTolerance,
    Taint,
    Tolerance,
    Toleration,
    tolerates_all,
)

TAINT = Taint("dedicated", NO_SCHEDULE, "db")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration("dedicated", "Equal", "db", NO_SCHEDULE), True, id="key, value and effect are equal"),
        pytest.param(Toleration("dedicated", "", "db", NO_SCHEDULE), True, id="no operator means Equal"),
        pytest.param(Toleration("dedicated", "Equal", "web"), False, id="Equal: another value"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="Exists: any value"),
        pytest.param(Toleration("", "Exists"), True, id="an empty key with Exists tolerates all"),
        pytest.param(Toleration("", "Equal", "db"), True, id="an empty key with Equal reads the value alone"),
        pytest.param(Toleration("dedicated", "Exists", "", NO_EXECUTE), False, id="another effect"),
        pytest.param(Toleration("", "", "db", NO_SCHEDULE), True, id="no key and no operator: value and effect"),
        pytest.param(Toleration("dedicated", "exists"), False, id="operators are spelled exactly"),
        pytest.param(Toleration("dedicated", "Gt", "db"), False, id="Gt is behind a gate that is off"),
    ],
)
def test_a_toleration_matches_a_taint_by_key_value_and_effect(toleration: Toleration, expected: bool) -> None:
    assert expected is Tolerance([toleration]).tolerates(TAINT)


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        pytest.param("NoSchedule", True, id="NoSchedule"),
        pytest.param("NoExecute", True, id="NoExecute"),
        pytest.param("PreferNoSchedule", False, id="PreferNoSchedule is a wish"),
    ],
)
def test_two_effects_keep_a_pod_out(effect: str, expected: bool) -> None:
    assert expected is Taint("key", effect).keeps_out


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        pytest.param([], [Taint("a", "PreferNoSchedule")], True, id="a wish needs no toleration"),
        pytest.param(
            [Toleration("a", "Exists")],
            [Taint("a", NO_SCHEDULE), Taint("b", NO_EXECUTE)],
            False,
            id="one of two taints is tolerated",
        ),
        pytest.param(
            [Toleration("", "Exists")],
            [Taint("a", NO_SCHEDULE), Taint("b", NO_EXECUTE)],
            True,
            id="one toleration for all",
        ),
    ],
)
def test_every_taint_that_keeps_out_must_be_tolerated(
    tolerations: list[Toleration], taints: list[Taint], expected: bool
) -> None:
    assert expected is tolerates_all(iter(tolerations), iter(taints))


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        pytest.param([], [Taint("a", NO_SCHEDULE), Taint("a", NO_EXECUTE)], 0, id="what keeps out is no wish"),
        pytest.param([], [Taint("a", PREFER_NO_SCHEDULE)] * 2, 2, id="also if it is there twice"),
        pytest.param(
            [Toleration("a", "Exists")],
            [Taint("a", PREFER_NO_SCHEDULE), Taint("b", PREFER_NO_SCHEDULE)],
            1,
            id="one that is tolerated does not",
        ),
        pytest.param(
            [Toleration("a", "Exists", "", NO_SCHEDULE)],
            [Taint("a", PREFER_NO_SCHEDULE)],
            1,
            id="one that is tolerated with another effect does",
        ),
    ],
)
def test_wishes_that_are_not_tolerated_are_counted(
    tolerations: list[Toleration], taints: list[Taint], expected: int
) -> None:
    assert expected == Tolerance(tolerations).untolerated_preferences(taints)


def test_the_latest_tolerance_is_kept_and_only_that() -> None:
    latest = LatestTolerance()
    db, everything = (Toleration("dedicated", "Exists"),), (Toleration("", "Exists"),)

    first = latest.of(db)

    assert first.tolerates(TAINT)
    assert first is latest.of(db)
    assert not latest.of(()).tolerates(TAINT)
    assert latest.of(everything).tolerates(Taint("other", NO_EXECUTE))
    assert first is not latest.of(db)
    assert not latest.of(db).tolerates(Taint("other", NO_EXECUTE))
