"""What each caller is told when a verb cannot decide."""

from __future__ import annotations

from typing import get_args

import pytest

from app.server.errors import failure_answer
from app.verbs.outcome import Outcome, Verb, VerbFailure

FAILURES: tuple[Outcome, ...] = (
    "bad_request",
    "not_ready",
    "fault",
    "out_of_time",
    "overloaded",
    "bind_conflict",
    "bind_failed",
    "no_leader",
    "forbidden",
)


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize(
    ("verb", "hosts", "expected"),
    [
        pytest.param(
            "filter",
            (),
            (200, b'{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":"why"}'),
            id="filter: only a 200 carries a message",
        ),
        pytest.param("bind", (), (200, b'{"Error":"why"}'), id="bind: only a 200 carries a message"),
        pytest.param(
            "prioritize",
            ("n2", "n1"),
            (200, b'[{"Host":"n2","Score":0},{"Host":"n1","Score":0}]'),
            id="prioritize: no host is better than another",
        ),
        pytest.param("prioritize", (), (500, b""), id="prioritize: no hosts"),
        pytest.param("preempt", (), (500, b""), id="preempt: no field for an error"),
        pytest.param("preempt", ("n1",), (500, b""), id="preempt: no field for an error, hosts or not"),
    ],
)
def test_a_failure(verb: Verb, hosts: tuple[str, ...], expected: tuple[int, bytes], outcome: Outcome) -> None:
    assert expected == failure_answer(verb, VerbFailure(outcome, "why", hosts))


def test_there_is_no_other_failure() -> None:
    answers = {"feasible", "no_fit", "scored", "nothing_to_do", "candidates", "bound", "already_bound", "forwarded"}

    assert set(get_args(Outcome)) == answers | set(FAILURES)
