"""JSON bodies of the endpoints under /api/v1: bounded, whatever content type they claim to have, and never echoed."""

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

from app.kube.decoding import TooDeep, levelled_in_turns
from app.server.incoming import read_body
from app.verbs.outcome import VerbFailure

MOST_BYTES: Final = 4 << 20
"""No object of an API server is larger than 1.5 MB."""
BODY_SECONDS: Final = 8.0
"""How long a body may take to come."""

MOST_MISTAKES: Final = 20
"""Maximum number of mistakes in an answer. A body may have one in each of 20,000 names."""

_FAILURES: Final = {
    "408": {"description": "The body did not come in time."},
    "413": {"description": "The body is larger than 4 MiB, or than maxBodyBytes."},
    "422": {"description": "The body is not what is asked for; detail says where and why."},
}
T = TypeVar("T")


async def parsed(request: Request, parse: Callable[[bytes], T], limit: int) -> T:
    """What ``parse`` makes of a body: 413 beyond ``limit`` bytes or 4 MiB, 422 where it cannot validate it.

    FastAPI's own way reads a body of any size, takes only ``application/json``, and repeats in its answer what was
    sent, which fails for what is no UTF-8.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = bytes(await read_body(request, min(limit, MOST_BYTES)))
        try:
            return parse(body)
        except TooDeep:
            return parse(await levelled_in_turns(body))
    except TimeoutError:
        raise HTTPException(408, f"homeport: the body did not come within {BODY_SECONDS:g} s") from None
    except VerbFailure as failure:
        raise HTTPException(413, failure.message) from None
    except msgspec.DecodeError as error:
        raise HTTPException(422, f"homeport: {error}") from None
    except ValidationError as error:
        raise RequestValidationError(_first_of(error)) from None


def _first_of(error: ValidationError) -> list[Any]:
    """Return the first mistakes without what was sent, and how many more there are."""
    mistakes: list[Any] = list(error.errors(include_url=False, include_context=False, include_input=False))
    more = len(mistakes) - MOST_MISTAKES
    if more > 0:
        mistakes[MOST_MISTAKES:] = [{"type": "more_mistakes", "loc": ("body",), "msg": f"and {more} more mistakes"}]
    return mistakes


def documented(model: type[BaseModel], **examples: object) -> dict[str, Any]:
    """What the OpenAPI document says of such a body."""
    return {**request_body(model, **examples), "responses": _FAILURES}


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return schema


def request_body(model: type[BaseModel], **examples: object) -> dict[str, Any]:
    """The same of any body. What is within ``model`` must be in an answer too: FastAPI documents those."""
    schema = _schema(model)
    shown = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": shown}}}}
