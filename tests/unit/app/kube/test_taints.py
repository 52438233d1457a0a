"""Rules of taints and tolerations."""

import pytest

from app.kube.taints import NO_EXECUTE, NO_SCHEDULE, Taint, Tolerance, Toleration, tolerates_all

TAINT = Taint("dedicated", NO_SCHEDULE, "db")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration("dedicated", "Equal", "db", NO_SCHEDULE), True, id="key, value and effect are equal"),
        pytest.param(Toleration("dedicated", "", "db", NO_SCHEDULE), True, id="no operator means Equal"),
        pytest.param(Toleration("dedicated", "Equal", "web"), False, id="Equal: another value"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="Exists: any value"),
        pytest.param(Toleration("dedicated", "Exists", "web"), True, id="Exists does not read the value"),
        pytest.param(Toleration("other", "Exists"), False, id="another key"),
        pytest.param(Toleration("", "Exists"), True, id="an empty key with Exists tolerates all"),
        pytest.param(Toleration("", "Equal", "db"), True, id="an empty key with Equal reads the value alone"),
        pytest.param(Toleration("", "Equal", "web"), False, id="an empty key with Equal and another value"),
        pytest.param(Toleration("dedicated", "Exists", "", NO_EXECUTE), False, id="another effect"),
        pytest.param(Toleration("dedicated", "Exists", "", ""), True, id="an empty effect matches all"),
        pytest.param(Toleration("dedicated", "Gt", "db"), False, id="Gt is behind a gate that is off"),
        pytest.param(Toleration("dedicated", "Lt", "db"), False, id="Lt is behind a gate that is off"),
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
        pytest.param("", False, id="no effect at all"),
    ],
)
def test_two_effects_keep_a_pod_out(effect: str, expected: bool) -> None:
    assert expected is Taint("key", effect).keeps_out


@pytest.mark.parametrize(
    ("tolerations", "taints", "expected"),
    [
        pytest.param([], [], True, id="nothing to tolerate"),
        pytest.param([], [Taint("a", "PreferNoSchedule")], True, id="a wish needs no toleration"),
        pytest.param([], [Taint("a", NO_SCHEDULE)], False, id="one taint, no toleration"),
        pytest.param(
            [Toleration("a", "Exists")],
            [Taint("a", NO_SCHEDULE), Taint("b", NO_EXECUTE)],
            False,
            id="one of two taints is tolerated",
        ),
        pytest.param(
            [Toleration("a", "Exists"), Toleration("b", "Exists")],
            [Taint("a", NO_SCHEDULE), Taint("b", NO_EXECUTE)],
            True,
            id="each taint has its own toleration",
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
