"""Answers to callers if a verb fails. docs/wire.md describes them for users.

    verb        answer                                                  reason
    filter      200, ``Error``                                          only a 200 carries a message to the pod
    bind        200, ``Error``                                          only a 200 carries a message to the pod
    prioritize  200, the same score for every host                      else all pods would be put on one node
                500, no body, if the hosts cannot be read
    preempt     500, no body                                            its answer has no field for an error
    cycle,      404, 408, 413, 422, 500 or 503, ``Status``              for other schedulers and operators
    explain     (``failures``)

The table applies to every failed outcome: ``bad_request`` (malformed or oversized), ``not_ready``, ``fault``,
``forbidden``, ``out_of_time``, ``overloaded``, ``no_leader``, ``bind_conflict`` and ``bind_failed``. For cycle and
explain, it also applies to ``nothing_to_do``. A 500 of a verb has no body, because kube-scheduler would not read the
body, and Go closes a connection with unread bytes.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from app.server.failures import NOT_SERVED, error_body, is_in_api, mistakes_body, status_body
from app.verbs.outcome import Verb, VerbFailure
from app.wire.extender_answers import encode_binding, encode_filter_error, encode_priorities

OK: Final = 200
INTERNAL_SERVER_ERROR: Final = 500
_INVALID: Final = 422
_CLIENT_CLOSED_REQUEST: Final = 499

_JSON: Final = "application/json"
_FAULT: Final = "homeport: internal error"
_NOT_ALLOWED: Final = "homeport: the path does not accept the method"
_ROUTER_MESSAGES: Final = {HTTPStatus.NOT_FOUND.phrase: NOT_SERVED, HTTPStatus.METHOD_NOT_ALLOWED.phrase: _NOT_ALLOWED}
"""Messages that replace those of Starlette's router below ``/api/v1``, by the router's message."""

_STATUS_OF: Final = {"bad_request": 422, "not_ready": 503, "overloaded": 503, "out_of_time": 503, "nothing_to_do": 404}
"""HTTP status below ``/api/v1``, by outcome; 500 for other outcomes."""


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


async def failure_response(_: Request, failure: VerbFailure) -> Response:
    """Return the answer for a request below /api/v1 that failed."""
    code = _STATUS_OF.get(failure.outcome, INTERNAL_SERVER_ERROR)
    return Response(status_body(code, failure.message), code, media_type=_JSON)


async def invalid_response(_: Request, invalid: RequestValidationError) -> Response:
    """Return the answer for a request below /api/v1 with an invalid body or query."""
    return Response(mistakes_body(_INVALID, invalid.errors()), _INVALID, media_type=_JSON)


async def http_error_response(request: Request, error: HTTPException) -> Response:
    """Return the answer for an error of an endpoint, an unknown path, or a method that the path does not accept."""
    path, message = request.url.path, error.detail
    if is_in_api(path):
        message = _ROUTER_MESSAGES.get(message, message)
    return Response(error_body(path, error.status_code, message), error.status_code, error.headers, _JSON)


async def fault_response(request: Request, _fault: Exception) -> Response:
    """Return the answer after an unexpected exception."""
    if not is_in_api(request.url.path):
        return PlainTextResponse("Internal Server Error", INTERNAL_SERVER_ERROR)
    return Response(status_body(INTERNAL_SERVER_ERROR, _FAULT), INTERNAL_SERVER_ERROR, media_type=_JSON)


async def disconnected_response(_: Request, _disconnect: ClientDisconnect) -> Response:
    """Return a response for a client that has disconnected. The response is never sent; FastAPI needs it to end the
    request.
    """
    return Response(status_code=_CLIENT_CLOSED_REQUEST)
