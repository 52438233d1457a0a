"""A history for the judges of tests/chaos, written line by line."""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.chaos.checker import Change, Event, Json, Kind


class History:
    """Events with a revision each; they are seen at the second of their revision."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._revisions = count(1)

    def tell(self, kind: Kind, change: Change, found: Json, **metadata: Any) -> Json:
        """Add an event of an object; return the object as the API server would send it."""
        revision = next(self._revisions)
        named = {"namespace": "default", "uid": f"uid-{found['metadata']['name']}", **found["metadata"], **metadata}
        made = {**found, "metadata": {**named, "resourceVersion": str(revision)}}
        self.events.append(Event(kind, change, made, received=float(revision)))
        return made
