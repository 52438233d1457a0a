"""Rules of statuses: kube-scheduler's codes, words and reasons."""

import pytest

from app.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable


def test_codes_have_kube_schedulers_numbers_and_words() -> None:
    expected = {
        0: "Success",
        1: "Error",
        2: "Unschedulable",
        3: "UnschedulableAndUnresolvable",
        4: "Wait",
        5: "Skip",
        6: "Pending",
    }
    assert expected == {int(code): code.word for code in Code}


def test_three_codes_are_rejections() -> None:
    """Error, Wait and Skip are no rejection: where a filter answers them, the cycle ends."""
    rejections = {Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING}

    assert rejections == {code for code in Code if Status(code).is_rejected}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(SUCCESS, Status(Code.SUCCESS), id="success"),
        pytest.param(SKIP, Status(Code.SKIP), id="skip"),
        pytest.param(unschedulable("a", "b"), Status(Code.UNSCHEDULABLE, ("a", "b")), id="unschedulable"),
        pytest.param(unresolvable("a"), Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("a",)), id="unresolvable"),
        pytest.param(error("a"), Status(Code.ERROR, ("a",)), id="error"),
        pytest.param(error("a", "P"), Status(Code.ERROR, ("a",), "P"), id="error of a plugin"),
    ],
)
def test_short_forms(status: Status, expected: Status) -> None:
    assert expected == status


def test_one_code_is_success_and_one_is_skip() -> None:
    assert [Code.SUCCESS] == [code for code in Code if Status(code).is_success]
    assert [Code.SKIP] == [code for code in Code if Status(code).is_skip]


def test_the_message_joins_the_reasons() -> None:
    assert "too hot, too cold" == unschedulable("too hot", "too cold").message
    assert "" == SUCCESS.message


def test_a_status_can_be_given_its_plugin() -> None:
    named = unschedulable("a").by("P")

    assert Status(Code.UNSCHEDULABLE, ("a",), "P") == named
    assert named is named.by("P")
