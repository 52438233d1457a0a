"""Bodies of error answers. Below ``/api/v1`` they are a ``Status``, like those of the Kubernetes API server.

Through the API server's service proxy, kubectl shows the message of a Status, and drops any other body. Other paths
answer ``{"detail": message}``, or plain text after an unexpected exception. Not here: the answers of the verbs
(``errors``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

API: Final = "/api/v1"

MOST_CAUSES: Final = 20
"""Maximum number of mistakes that an answer lists, because a body can have a mistake in each of 20,000 names."""

NOT_SERVED: Final = "homeport: this listener does not serve the path"
"""Message for an unknown path. Commands then try the next listener."""

_REASONS: Final = {
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
}
"""Values of Kubernetes for ``reason``, by status code."""

_CAUSES: Final = {
    "missing": "FieldValueRequired",
    "extra_forbidden": "FieldValueForbidden",
    "enum": "FieldValueNotSupported",
}
"""Values of Kubernetes for ``reason`` of a cause, by pydantic's type of the mistake; ``FieldValueInvalid`` for others.
"""


class FailureCause(BaseModel):
    """Mistake in the body or the query."""

    reason: str = Field(default="", description="Kind of the mistake, for example FieldValueRequired.")
    message: str
    field: str = Field(
        default="",
        description="Path in the body, or name of the parameter; body or query for a mistake without a place.",
    )


class FailureDetails(BaseModel):
    """Mistakes in the body or the query."""

    causes: Annotated[list[FailureCause], Field(description=f"At most {MOST_CAUSES}.")] = []


class FailureStatus(BaseModel):
    """Error answer below ``/api/v1``."""

    model_config = ConfigDict(populate_by_name=True)

    kind: Literal["Status"]
    api_version: Literal["v1"] = Field(alias="apiVersion")
    metadata: dict[str, Any] = {}
    status: Literal["Failure"]
    message: str
    reason: str = Field(default="", description="The code as a word, for example NotFound.")
    details: FailureDetails | None = None
    code: int


def is_in_api(path: str) -> bool:
    """Return true if the path belongs to the API (``API``), so that its error answers are a Status."""
    return path == API or path.startswith(f"{API}/")


def status_body(code: int, message: str, causes: Sequence[FailureCause] = ()) -> bytes:
    """Return a Status as JSON."""
    status = FailureStatus(
        kind="Status",
        api_version="v1",
        status="Failure",
        message=message,
        reason=_REASONS.get(code, ""),
        details=FailureDetails(causes=list(causes)) if causes else None,
        code=code,
    )
    return status.model_dump_json(by_alias=True, exclude_none=True).encode()


def mistakes_body(code: int, mistakes: Sequence[Mapping[str, Any]]) -> bytes:
    """Return, as JSON, a Status for an invalid body or query. Its message also counts the mistakes that are not listed.

    ``mistakes`` are errors of pydantic, with "body" or "query" as the first part of each ``loc``.
    """
    causes = [
        FailureCause(reason=_CAUSES.get(it["type"], "FieldValueInvalid"), message=_text(it), field=_field(*it["loc"]))
        for it in mistakes[:MOST_CAUSES]
    ]
    more = len(mistakes) - MOST_CAUSES
    named = [*map(sentence, causes), *([f"and {more} more mistakes"] if more > 0 else [])]
    return status_body(code, f"the request is invalid: {'; '.join(named)}", causes)


def error_body(path: str, code: int, message: str) -> bytes:
    """Return the body of an error answer, except of a verb: a Status below ``/api/v1``, else JSON with ``detail``."""
    return status_body(code, message) if is_in_api(path) else msgspec.json.encode({"detail": message})


def sentence(cause: FailureCause) -> str:
    """Return a mistake as text, with its field if it has one."""
    return f"{cause.field}: {cause.message}" if cause.field else cause.message


def _text(mistake: Mapping[str, Any]) -> str:
    """Return pydantic's message of a mistake, or our own for an unknown query parameter."""
    if mistake["type"] == "extra_forbidden" and mistake["loc"][0] == "query":
        return "the path has no such parameter"
    return str(mistake["msg"])


def _field(root: str, *location: str | int) -> str:
    """Return a place in the body or the query as Kubernetes writes it, for example ``pods[0].name``. For the whole body
    or query, return ``root``, because kubectl prints the place even if it is empty.
    """
    parts = (f"[{it}]" if isinstance(it, int) else f".{it}" for it in location)
    return "".join(parts).removeprefix(".") or root
