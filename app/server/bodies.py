"""JSON bodies of the endpoints under /api/v1: bounded, whatever content type they claim to have, and never echoed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from app.server.limits import read_body
from app.verbs.outcome import VerbFailure

_MOST_BYTES: Final = 4 << 20
"""No object of an API server is larger than 1.5 MB."""
BODY_SECONDS: Final = 8.0
"""How long a body may take to come."""

_FAILURES: Final = {
    "408": {"description": "The body did not come in time."},
    "413": {"description": "The body is larger than 4 MiB, or than maxBodyBytes."},
    "422": {"description": "The body is not what is asked for; detail says where and why."},
}
Model = TypeVar("Model", bound=BaseModel)


def body_of(
    model: type[Model], limit: int, parse: Callable[[bytes], Model] | None = None
) -> Callable[[Request], Awaitable[Model]]:
    """A dependency that reads ``model``: 413 for a body larger than ``limit`` bytes or 4 MiB, 422 for other mistakes.

    ``parse`` is how it is made of the bytes, if not as pydantic does.

    FastAPI's own way reads a body of any size, takes only ``application/json``, and repeats in its answer what was
    sent, which fails for what is no UTF-8.
    """

    made = parse or model.model_validate_json

    async def read(request: Request) -> Model:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await read_body(request, min(limit, _MOST_BYTES))
            return made(bytes(body))
        except TimeoutError:
            raise HTTPException(408, f"homeport: the body did not come within {BODY_SECONDS:g} s") from None
        except VerbFailure as failure:
            raise HTTPException(413, failure.message) from None
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError(found) from None

    return read


def documented(model: type[BaseModel], **examples: object) -> dict[str, Any]:
    """What the OpenAPI document says of such a body."""
    shown = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": model.model_json_schema(), "examples": shown}}
    return {"requestBody": {"required": True, "content": content}, "responses": _FAILURES}
