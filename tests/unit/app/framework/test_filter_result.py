"""Which nodes pass, and, if anybody asks, why the others do not."""

from collections.abc import Mapping

from app.framework.filter_result import FilterResult
from app.framework.status import Status, unresolvable

NO = unresolvable("no")


def test_reasons_are_worked_out_once_and_only_if_they_are_read() -> None:
    asked: list[str] = []

    def why() -> Mapping[str, Status]:
        asked.append("why")
        return {"n1": NO}

    found = FilterResult(["n2"], why)

    assert (["n2"], []) == (found.passed, asked)
    assert {"n1": NO} == found.rejected() == found.rejected()
    assert ["why"] == asked
