"""An API server in virtual time: versions over all kinds, watches with bookmarks, and a network that loses its way.

Bookmarks come as they do from kube-apiserver 1.36: two seconds before a watch ends and else once a minute, and only of
what a consistent list has made the watch cache come up to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Literal, TypeAlias

import httpx
import msgspec

from tests.api.virtual import now

Json: TypeAlias = dict[str, Any]
Network = Literal["up", "silent", "refused"]

_ROUND_TRIP: Final = 0.005

_TICK: Final = 0.95
"""Bookmarks are handed out in rounds of about a second."""


class Wire:
    """The connections made while the network held. ``alive`` ends with them, and never comes back."""

    def __init__(self) -> None:
        self.alive = True


class ApiServer:
    """Serves the kind Thing. ``asked``: every request that arrived, with its time. ``pace``: seconds between events."""

    def __init__(self) -> None:
        self.version = 100
        self.things: dict[str, Json] = {}
        self.changes: list[tuple[int, Json]] = []
        self.oldest = 0
        self.asked: list[tuple[float, str]] = []
        self.network: Network = "up"
        self.refuse: httpx.Response | None = None
        self.pace = 0.0
        self._wire = Wire()
        self._known = 0
        self._changed = asyncio.Event()

    def write(self, name: str) -> None:
        """Somebody creates a thing."""
        self.version += 1
        metadata = {"namespace": "ns", "name": name, "resourceVersion": str(self.version)}
        self.things[name] = {"metadata": metadata, "spec": 0}
        self._tell({"type": "ADDED", "object": self.things[name]})

    def write_another_kind(self) -> None:
        """Versions are counted over all kinds."""
        self.version += 1

    def restart(self) -> None:
        """The watch cache of a new process knows nothing of before: watches from there are refused."""
        self.oldest = self.version
        self.changes.clear()
        self.lose("refused")

    def lose(self, how: Network) -> None:
        """From now on; every connection made before is dead for good."""
        self.network = how
        self.cut()

    def cut(self) -> None:
        """Every connection made before is dead for good, new ones work."""
        self._wire.alive = False
        self._wire = Wire()
        self._wake()

    def heal(self) -> None:
        self.network = "up"

    def requests(self, kind: str) -> int:
        return sum(words == kind for _, words in self.asked)

    def _tell(self, event: Json) -> None:
        self.changes.append((self.version, event))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(_ROUND_TRIP)
        if self.network == "refused":
            raise httpx.ConnectError("refused")
        if self.network == "silent":
            await asyncio.sleep(request.extensions["timeout"]["connect"])
            raise httpx.ConnectTimeout("silent")
        asked = request.url.params
        self.asked.append((now(), "watch" if "watch" in asked else "probe" if asked.get("limit") == "1" else "list"))
        if self.refuse is not None:
            return self.refuse
        if "watch" in asked:
            stream = self._watch(int(asked["resourceVersion"]), int(asked["timeoutSeconds"]), self._wire, request)
            return httpx.Response(200, content=stream)
        self._known = self.version
        items = list(self.things.values())[: int(asked["limit"])]
        return httpx.Response(200, json={"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, seen: int, seconds: int, wire: Wire, request: httpx.Request) -> AsyncIterator[bytes]:
        opened = last = now()
        if seen < self.oldest:
            yield _line({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
            return
        bookmark = min(opened + seconds - 2 + _TICK, opened + 60)
        silence: float = request.extensions["timeout"]["read"]
        while (end := opened + seconds) > now():
            news = [(version, event) for version, event in self.changes if version > seen] if wire.alive else []
            for version, event in news:
                seen, last = version, now()
                yield _line(event)
                await asyncio.sleep(self.pace)
            if wire.alive and now() >= bookmark:
                bookmark, last = now() + 60, now()
                if self._known > seen:
                    seen = self._known
                    yield _line({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(seen)}}})
            wakes = min(end, bookmark) if wire.alive else last + silence
            try:
                async with asyncio.timeout(wakes - now()):
                    await self._changed.wait()
            except TimeoutError:
                if not wire.alive and now() >= last + silence:
                    raise httpx.ReadTimeout("silent") from None
            if self.network == "refused":
                raise httpx.ReadError("reset")


def _line(event: Json) -> bytes:
    return msgspec.json.encode(event) + b"\n"
