"""Query parameters of the pages under /api/v1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

RequireNamespace: TypeAlias = Callable[[str], None]
"""Function that raises ``VerbFailure`` if a namespace does not exist."""


class KnownQuery(BaseModel):
    """Query of a page. Unknown parameters are rejected, because they would be ignored otherwise."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    timeout: str = Field(default="", description="Has no effect. kubectl sends it with --request-timeout.")
