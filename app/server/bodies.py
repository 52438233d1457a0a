"""JSON bodies of the endpoints under /api/v1. Their length is limited, any content type is accepted, and error answers
do not repeat the input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, TypeVar

import msgspec
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.kube.decoding import TooDeep, without_deep_parts_in_steps
from app.kube.selectors import InvalidSelector, Selector, parse_selector
from app.server.incoming import read_body
from app.verbs.outcome import VerbFailure

MOST_BYTES: Final = 4 << 20
"""Maximum bytes of a body: more than the 1.5 MB that an object in an API server can have."""
BODY_SECONDS: Final = 8.0
"""Maximum seconds to receive a body."""

_FAILURES: Final = {
    "408": {"description": "The body was not received in time."},
    "413": {"description": "The body is larger than 4 MiB, or than maxBodyBytes."},
    "422": {"description": "The body is invalid; details.causes names the fields."},
}
"""Error answers of ``parsed``, for the OpenAPI document."""

T = TypeVar("T")


async def parsed(request: Request, parse: Callable[[bytes], T], limit: int) -> T:
    """Read and parse a body. If ``parse`` raises ``TooDeep``, parse it again without its deeply nested parts.

    Raises exceptions that FastAPI answers with 408 for a late body, 413 above ``limit`` bytes or 4 MiB, and 422 for an
    invalid body. FastAPI's own parsing is not used: it reads bodies of any size, accepts only ``application/json``, and
    repeats the input in its answer, which fails for invalid UTF-8.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = bytes(await read_body(request, min(limit, MOST_BYTES)))
        try:
            return parse(body)
        except TooDeep:
            return parse(await without_deep_parts_in_steps(body))
    except TimeoutError:
        raise HTTPException(408, f"homeport: the body was not received within {BODY_SECONDS:g} s") from None
    except VerbFailure as failure:
        raise HTTPException(413, failure.message) from None
    except msgspec.DecodeError as error:
        raise HTTPException(422, f"homeport: {error}") from None
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**it, "loc": ("body", *it["loc"])} for it in mistakes]) from None


def invalid(place: Literal["body", "query"], field: str, message: str) -> RequestValidationError:
    """Create the exception for one invalid field of a body, or one invalid parameter of a query."""
    return RequestValidationError([{"type": "value_error", "loc": (place, field), "msg": message}])


def selector_in(text: str) -> Selector:
    """Parse the query parameter ``labelSelector``. Raises an exception that FastAPI answers with 422."""
    try:
        return parse_selector(text)
    except InvalidSelector as error:
        raise invalid("query", "labelSelector", str(error)) from None


def documented(model: type[BaseModel], **examples: object) -> dict[str, Any]:
    """Return the OpenAPI description of a body that ``parsed`` reads, with its error answers."""
    return {**request_body(model, **examples), "responses": _FAILURES}


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return schema


def request_body(model: type[BaseModel], **examples: object) -> dict[str, Any]:
    """Return the OpenAPI description of a request body.

    Models nested in ``model`` must also be part of an answer, because FastAPI describes only models of answers.
    """
    schema = _schema(model)
    shown = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": shown}}}}
