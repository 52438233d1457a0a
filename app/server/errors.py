"""Answers to callers if a verb fails. docs/wire.md describes them for users.

    verb        answer                                                  reason
    filter      200, ``Error``                                          only a 200 carries a message to the pod
    bind        200, ``Error``                                          only a 200 carries a message to the pod
    prioritize  200, the same score for every host                      else all pods would be put on one node
                500, no body, if the hosts cannot be read
    preempt     500, no body                                            its answer has no field for an error
    cycle,      404, 422, 500 or 503, ``detail``                        for other schedulers and operators
    explain

The table applies to every failed outcome: ``bad_request`` (malformed or oversized), ``not_ready``, ``fault``,
``forbidden``, ``out_of_time``, ``overloaded``, ``no_leader``, ``bind_conflict`` and ``bind_failed``. A 500 of a verb
has no body, because kube-scheduler would not read the body, and Go closes a connection with unread bytes.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from app.verbs.outcome import Verb, VerbFailure
from app.wire.extender_answers import encode_binding, encode_filter_error, encode_priorities

OK: Final = 200
INTERNAL_SERVER_ERROR: Final = 500
_CLIENT_CLOSED_REQUEST: Final = 499

_STATUS_OF: Final = {"bad_request": 422, "not_ready": 503, "overloaded": 503, "out_of_time": 503, "nothing_to_do": 404}


def failure_answer(verb: Verb, failure: VerbFailure) -> tuple[int, bytes]:
    """Return status and body for a failed verb."""
    match verb:
        case "filter":
            return OK, encode_filter_error(failure.message)
        case "bind":
            return OK, encode_binding(failure.message)
        case "prioritize" if failure.hosts:
            return OK, encode_priorities(dict.fromkeys(failure.hosts, 0))
    return INTERNAL_SERVER_ERROR, b""


async def failure_response(_: Request, failure: VerbFailure) -> JSONResponse:
    """Return the answer for a failed request to /api/v1/cycle or /api/v1/explain."""
    return JSONResponse({"detail": failure.message}, _STATUS_OF.get(failure.outcome, INTERNAL_SERVER_ERROR))


async def disconnected_response(_: Request, _disconnect: ClientDisconnect) -> Response:
    """Return a response for a client that has disconnected. The response is never sent; FastAPI needs it to end the
    request.
    """
    return Response(status_code=_CLIENT_CLOSED_REQUEST)
