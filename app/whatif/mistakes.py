"""Error for an invalid request of a what-if."""

from __future__ import annotations


class RequestMistake(ValueError):
    """Raised for a request that cannot be simulated. ``field``: path in the request, such as ``objects[2].spec``."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
