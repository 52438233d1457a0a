"""What becomes of a pod once its node is drained: by its policy, and by how its home is."""

from __future__ import annotations

import pytest

from app.commands.drain import becomes
from tests.builders import JsonObject


def home(
    node: str = "n1", policy: str = "grace", state: str = "usable", *, away: bool = False, orphaned: bool = False
) -> JsonObject:
    return {"node": node, "policy": policy, "state": state, "away": away, "orphaned": orphaned}


@pytest.mark.parametrize(
    ("found", "could", "expected"),
    [
        pytest.param(home(policy="hard"), True, "waits for n1", id="hard"),
        pytest.param(home(policy="hard"), False, "waits for n1", id="hard, and nobody else would take it"),
        pytest.param(home(), True, "waits for n1; elsewhere after its grace", id="grace"),
        pytest.param(home(), False, "waits: no other node takes it", id="grace, and nobody else takes it"),
        pytest.param(home(state="leaving", away=True), True, "starts elsewhere", id="grace, and the node goes"),
        pytest.param(home(policy="soft"), True, "starts elsewhere", id="soft"),
        pytest.param(home(policy="off"), True, "starts elsewhere", id="off"),
        pytest.param(home(policy="soft"), False, "waits: no other node takes it", id="soft, and nobody else takes it"),
        pytest.param(home("n2", "hard"), True, "goes home to n2", id="a guest"),
        pytest.param(home("n2", away=True), True, "waits for n2; elsewhere after its grace", id="its home is away"),
        pytest.param(home("n2", "hard", orphaned=True), True, "waits for n2", id="hard, and its home is gone"),
        pytest.param(home("n2", "soft", orphaned=True), True, "starts elsewhere", id="soft, and its home is gone"),
        pytest.param(home("", "hard", "none"), True, "starts elsewhere", id="it has no home"),
        pytest.param(home("", "hard", "none"), False, "waits: no other node takes it", id="no home, and no place"),
    ],
)
def test_what_becomes_of_it(found: JsonObject, could: bool, expected: str) -> None:
    assert expected == becomes(found, "n1", could=could)
