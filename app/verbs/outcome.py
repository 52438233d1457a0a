"""Outcome of a request, used as log field and metric label."""

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

``feasible``, ``no_fit``: filter · ``scored``: prioritize · ``candidates``: preempt with remaining nodes, else
``no_fit`` · ``nothing_to_do``: the pod has no profile here, or the request has no nodes · ``bound``, ``already_bound``,
``bind_conflict`` (a constraint would be violated, or the pod changed), ``bind_failed`` (the API server refused): bind ·
``fault``: a plugin failed · ``not_ready``: the snapshot is incomplete or too old · ``out_of_time`` · ``overloaded``:
rejected, because too many calls are in flight · ``bad_request`` · ``forwarded``: answered by the leader, which counts
its own outcome · ``no_leader``: there is no leader, or it cannot be reached · ``forbidden``: the caller lacks access.
"""


class Answer(Struct, frozen=True):
    """Encoded answer of a verb, and its outcome."""

    body: bytes | LongBody
    outcome: Outcome


class VerbFailure(Exception):
    """A verb could not decide. ``app.server.errors`` defines the answer for each caller.

    ``hosts``: node names of the request, if they could be decoded.
    """

    def __init__(self, outcome: Outcome, message: str, hosts: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.hosts = hosts
