"""Homeport's pages from a service in this process, about a saved cluster or a cluster that the process lists."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import httpx

from app.cache.cluster import Cluster
from app.commands.progress import ProgressLine
from app.commands.service import CommandError, answered
from app.config.settings import Settings
from app.feeds.feed import Loader
from app.feeds.listing import ListingError, list_live
from app.framework.spec import PluginSpec
from app.kube.credentials import Login
from app.kube.kinds import Kind
from app.main import HomeportService

_BASE: Final = "http://homeport"


class InProcess:
    """Implementation of ``Pages`` with a Homeport in this process, which opens no port and runs no background tasks."""

    def __init__(
        self,
        settings: Settings,
        specs: Iterable[PluginSpec[Any]],
        defaults: Mapping[str, int],
        *,
        version: str,
        progress: ProgressLine,
        load: Loader | None = None,
    ) -> None:
        """``load``: fills the snapshot; ``None`` reads the file ``settings.cluster``.

        Raises ``SavedClusterError`` if the file cannot be used, ``ProfileErrors`` if the profiles are invalid, and
        whatever ``load`` raises.
        """
        self._runner = asyncio.Runner()  # keeps one event loop, because all requests must use the same event loop
        finalize(self, self._runner.close)
        service = HomeportService(settings, specs, defaults, version=version, load=load, progress=progress.show)
        self._web = service.web()
        self._progress = progress

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Send a GET request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._ask("GET", path, {"params": dict(query)})

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request; return the JSON object in the answer. Raises ``CommandError`` if that fails."""
        return self._ask("POST", path, {"json": dict(body)})

    def _ask(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self._web), base_url=_BASE) as http:
                return await http.request(method, path, **content)

        try:
            return answered(path, self._runner.run(ask()))
        finally:
            self._progress.clear()


def of_file(
    settings: Settings,
    specs: Iterable[PluginSpec[Any]],
    defaults: Mapping[str, int],
    path: Path,
    progress: ProgressLine,
    *,
    version: str,
) -> InProcess:
    """Return the pages about a saved cluster. ``settings``: only the profiles are used. Raises like ``InProcess``."""
    saved = Settings(cluster=str(path), profiles=settings.profiles)
    return InProcess(saved, specs, defaults, version=version, progress=progress)


def of_cluster(
    settings: Settings,
    specs: Iterable[PluginSpec[Any]],
    defaults: Mapping[str, int],
    login: Login,
    progress: ProgressLine,
    *,
    version: str,
) -> InProcess:
    """List the cluster of ``login``, and return the pages about it. Nothing is written to the cluster.

    ``settings``: only the profiles are used. Raises ``CommandError``, ``CredentialsError`` and ``ProfileErrors``.
    """

    def load(cluster: Cluster, kinds: Collection[Kind[Any]], optional: Collection[Kind[Any]]) -> int:
        return asyncio.run(list_live(login, cluster, [*kinds, *optional], show))

    def show(kind: Kind[Any], count: int) -> None:
        progress.show(f"listing the cluster: {count:,} objects ({kind.kind})")

    listing = Settings(cluster="the listed cluster", profiles=settings.profiles)
    try:
        return InProcess(listing, specs, defaults, version=version, progress=progress, load=load)
    except ListingError as error:
        raise CommandError(str(error)) from error
    finally:
        progress.clear()
