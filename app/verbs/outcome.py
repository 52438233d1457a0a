"""The one word every request ends in: log field, metric label and test expectation alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from msgspec import Struct

from app.wire.extender_answers import LongBody

Verb = Literal["filter", "prioritize", "preempt", "bind"]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)

Outcome = Literal[
    "feasible",
    "no_fit",
    "scored",
    "nothing_to_do",
    "candidates",
    "fault",
    "not_ready",
    "out_of_time",
    "overloaded",
    "bad_request",
    "bound",
    "already_bound",
    "bind_conflict",
    "bind_failed",
    "forwarded",
    "no_leader",
    "forbidden",
]
"""``feasible``, ``no_fit``: filter · ``scored``: prioritize · ``candidates``: preempt, some nodes are left, else
``no_fit`` · ``nothing_to_do``: the pod is of no profile here, or nothing was asked · ``bound``, ``already_bound``,
``bind_conflict`` (a constraint would break, or the pod changed), ``bind_failed`` (the API server would not): bind ·
``fault``: a plugin failed · ``not_ready``: the picture is incomplete or too old · ``out_of_time`` ·
``overloaded``: turned away, too many calls are under way · ``bad_request`` · ``forwarded``: answered by the replica
that leads, which counts it by its outcome · ``no_leader``: no replica leads, or not yet, or it cannot be reached ·
``forbidden``: the caller may not ask this.
"""


class Answer(Struct, frozen=True):
    """What a verb decided, in the words of the caller's protocol, and the outcome."""

    body: bytes | LongBody
    outcome: Outcome


class VerbFailure(Exception):
    """The verb could not decide. ``app.server.errors`` says what each caller is told.

    ``hosts`` are the names that were asked for, where these could be read.
    """

    def __init__(self, outcome: Outcome, message: str, hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.hosts = hosts
