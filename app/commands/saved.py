"""Homeport's pages about a saved cluster, for commands that run without a server (``--saved``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import httpx

from app.commands.service import answered
from app.config.settings import Settings
from app.framework.spec import PluginSpec
from app.main import HomeportService

_BASE: Final = "http://homeport"


class SavedCluster:
    """Implementation of ``Pages`` that runs Homeport with a saved cluster in this process.

    It opens no port and starts no background tasks.
    """

    def __init__(
        self,
        settings: Settings,
        specs: Iterable[PluginSpec[Any]],
        defaults: Mapping[str, int],
        path: Path,
        *,
        version: str,
    ) -> None:
        """Read the file at ``path``.

        Raises ``SavedClusterError`` if the file cannot be used, and ``ProfileErrors`` if the profiles are invalid.
        """
        saved = Settings(cluster=str(path), profiles=settings.profiles)
        self._runner = asyncio.Runner()  # keeps its event loop, because all requests must run in the same loop
        finalize(self, self._runner.close)
        self._web = HomeportService(saved, specs, defaults, version=version).web()

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if the request fails."""
        return self._ask("GET", path, {"params": dict(query)})

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if the request fails."""
        return self._ask("POST", path, {"json": dict(body)})

    def _ask(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self._web), base_url=_BASE) as http:
                return await http.request(method, path, **content)

        return answered(path, self._runner.run(ask()))
