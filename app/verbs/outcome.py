"""Outcomes of requests, used in log lines and as a metric label."""

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
"""All outcomes.

    feasible, no_fit   filter: some nodes pass, or none
    scored             prioritize
    candidates         preempt: some nodes remain; if none remains, the outcome is no_fit
    nothing_to_do      the pod has no profile here, or the request has no nodes; below /api/v1 also if the requested
                       object does not exist
    bound              bind: the API server accepted the Binding
    already_bound      bind: the pod was bound to that node before
    bind_conflict      bind: a constraint would or could be violated, or Reserve, Permit or PreBind did not succeed
    bind_failed        bind: pod or node is missing or unreadable, the pod is bound elsewhere or by another client, an
                       earlier bind is not confirmed, this replica must not send the Binding now, the API server
                       refused it or its outcome is unknown, or the pod has no profile here and bindOthers is false
    fault              a plugin failed, an object that it needs could not be read, or an unexpected exception was raised
    not_ready          the snapshot is incomplete or too old
    out_of_time        the deadline has passed, or the process shut down before a bind finished
    overloaded         rejected, because too many calls were in flight
    bad_request        the request is malformed or oversized
    forwarded          this replica forwarded the request to the leader, which also counts the outcome of the answer
    no_leader          there is no leader, it did not answer, or it cannot bind yet
    forbidden          the caller lacks access

Metrics count each answered request under one of these outcomes.
"""


class Answer(Struct, frozen=True):
    """Encoded answer of a verb, and its outcome."""

    body: bytes | LongBody
    outcome: Outcome


class VerbFailure(Exception):
    """A verb could not decide. ``app.server.errors`` defines the error answer of each verb.

    ``hosts``: node names of a prioritize request, if they could be decoded.
    """

    def __init__(self, outcome: Outcome, message: str, hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.hosts = hosts
