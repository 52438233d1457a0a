"""Rules of statuses: kube-scheduler's codes, words and reasons."""

from app.framework.status import Code, Status, unschedulable


def test_codes_have_kube_schedulers_numbers_and_words() -> None:
    words = ["Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable", "Wait", "Skip", "Pending"]

    assert dict(enumerate(words)) == {int(code): code.word for code in Code}


def test_three_codes_are_rejections() -> None:
    """Error, Wait and Skip are no rejection: where a filter answers them, the cycle ends."""
    rejections = {Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING}

    assert rejections == {code for code in Code if Status(code).is_rejected}


def test_a_status_can_be_given_its_plugin() -> None:
    named = unschedulable("a").by("P")

    assert Status(Code.UNSCHEDULABLE, ("a",), "P") == named
    assert named is named.by("P")
