"""Pods of no profile here are told of, whatever a tenant calls their scheduler."""

from __future__ import annotations

from structlog.testing import capture_logs

from app.verbs.unserved import LONGEST_NAME, MOST_NAMES, OTHER_NAMES, Unserved
from tests.builders import make_pod


def test_each_name_is_warned_of_once_and_counted() -> None:
    counted: list[tuple[str, str]] = []
    unserved = Unserved(lambda verb, name: counted.append((verb, name)))
    with capture_logs() as logs:
        for scheduler in ("volcano", "kueue", "volcano"):
            unserved.record("filter", make_pod("p", scheduler=scheduler))

    assert {"volcano": 2, "kueue": 1} == unserved.requests
    assert [("filter", "volcano"), ("filter", "kueue"), ("filter", "volcano")] == counted
    assert [("warning", "volcano"), ("warning", "kueue")] == [(it["log_level"], it["scheduler_name"]) for it in logs]


def test_names_are_bounded_in_number_and_length() -> None:
    unserved = Unserved()
    with capture_logs() as logs:
        for number in range(1000):
            unserved.record("bind", make_pod("p", scheduler=f"{number}-{'x' * 1000}"))

    names = list(unserved.requests)
    assert (MOST_NAMES + 1, OTHER_NAMES, 1000 - MOST_NAMES) == (len(names), names[-1], unserved.requests[OTHER_NAMES])
    assert (LONGEST_NAME, MOST_NAMES + 1) == (max(map(len, names)), len(logs))


def test_what_cannot_be_shown_is_not_shown_as_it_is() -> None:
    unserved = Unserved()
    unserved.record("filter", make_pod("p", scheduler="\x1b[31m\n\u202e" + "\U0001f600" * 63))

    (name,) = unserved.requests
    assert (True, LONGEST_NAME) == (name.isascii() and name.isprintable(), len(name))
