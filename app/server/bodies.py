"""JSON bodies of the endpoints under /api/v1. Their length is limited, any content type is accepted, and error answers
do not repeat the input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.kube.decoding import TooDeep, without_deep_parts_in_steps
from app.server.incoming import read_body
from app.verbs.outcome import VerbFailure

MOST_BYTES: Final = 4 << 20
"""Maximum bytes of a body: more than the 1.5 MB that an object in an API server can have."""
BODY_SECONDS: Final = 8.0
"""Maximum seconds to receive a body."""

MOST_MISTAKES: Final = 20
"""Maximum number of mistakes that an answer lists. A body can have a mistake in each of 20,000 names."""

_FAILURES: Final = {
    "408": {"description": "The body was not received in time."},
    "413": {"description": "The body is larger than 4 MiB, or than maxBodyBytes."},
    "422": {"description": "The body is invalid; detail has the places and reasons."},
}
T = TypeVar("T")


async def parsed(request: Request, parse: Callable[[bytes], T], limit: int) -> T:
    """Read and parse a body.

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
        raise RequestValidationError(_first_of(error)) from None


def _first_of(error: ValidationError) -> list[Any]:
    """Return the first ``MOST_MISTAKES`` mistakes without the input, and the number of further ones."""
    mistakes: list[Any] = list(error.errors(include_url=False, include_context=False, include_input=False))
    more = len(mistakes) - MOST_MISTAKES
    if more > 0:
        mistakes[MOST_MISTAKES:] = [{"type": "more_mistakes", "loc": ("body",), "msg": f"and {more} more mistakes"}]
    return mistakes


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
