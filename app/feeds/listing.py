"""One listing of a live cluster into a snapshot, for commands that evaluate pods in their own process.

Nothing is watched, so the snapshot shows the cluster at the time of the listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from app.cache.cluster import Cluster
from app.feeds.collecting import bulk_load
from app.feeds.documents import NOT_FINISHED, Page, key_in, read_page
from app.feeds.stores import Store, store_for
from app.kube.api_errors import ApiError, KubeError
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credentials import Login
from app.kube.kinds import NODES, PODS, Kind

PAGE: Final = 500
"""Maximum number of objects on a page of a list."""

MOST_PODS: Final = 200_000
"""Maximum number of pods. The process then uses some 220 MB; 150,000 pods took 181 MB."""

_ATTEMPTS: Final = 3
"""Maximum number of attempts at a list that has expired (410), and at a page that the API server throttles (429)."""

_LONGEST_PAUSE: Final = 10.0
"""Maximum seconds between two attempts at a page, even if ``Retry-After`` of the API server is longer."""

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_EXPIRED: Final = 410
_THROTTLED: Final = 429

Progress = Callable[[Kind[Any], int], None]
"""Function that is called with the kind that is listed, and the number of all objects so far."""


class ListingError(Exception):
    """The cluster cannot be listed. The message names the permissions that are missing, or the kind and the cause."""


async def list_live(login: Login, cluster: Cluster, kinds: Iterable[Kind[Any]], progress: Progress) -> int:
    """List the cluster of ``login``, see ``list_cluster``. Raises ``ListingError`` and ``CredentialsError``."""
    async with KubeClient(login.credentials()) as client:
        return await list_cluster(client, cluster, kinds, progress)


async def list_cluster(client: KubeClient, cluster: Cluster, kinds: Iterable[Kind[Any]], progress: Progress) -> int:
    """List nodes, pods and the objects of ``kinds`` into the snapshot, and return their number.

    Kinds that the API server does not serve are left out. An object that cannot be decoded is marked as unreadable.
    Raises ``ListingError``.
    """
    loaded = 0
    forbidden: list[str] = []
    every: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
    for kind in dict.fromkeys(every):
        resource: Resource | None = None
        try:
            resource = await client.resolve(kind.api_version, kind.kind)
            if resource is not None:
                with bulk_load():
                    loaded += await _Listing(client, cluster, kind, resource, loaded, progress).run()
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                raise ListingError(client.rejection(error)) from error
            if error.status != _FORBIDDEN:
                raise ListingError(f"{kind!r}: the API server refused: {error.message or error}") from error
            forbidden.append(kind.kind if resource is None else _named(resource))
        except KubeError as error:
            raise ListingError(f"{kind!r}: the API server ({client.server}) does not answer: {error}") from error
    if forbidden:
        raise ListingError(f"you have no permission to list {', '.join(forbidden)} in all namespaces")
    if not cluster.nodes:
        raise ListingError("the cluster has no nodes: there is nothing to schedule to")
    return loaded


def _named(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class _Listing:
    """Listing of one kind. ``before``: number of objects of other kinds that are loaded already."""

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        kind: Kind[Any],
        resource: Resource,
        before: int,
        progress: Progress,
    ) -> None:
        self._client = client
        self._kind = kind
        self._resource = resource
        self._store: Store[Any] = store_for(cluster, kind)
        self._decode = cluster.decoder(kind)
        self._before = before
        self._progress = progress

    async def run(self) -> int:
        """Load all objects, and return their number. Raises ``KubeError`` and ``ListingError``."""
        attempts = iter(range(1, _ATTEMPTS))
        while True:
            try:
                return await self._pages()
            except ApiError as error:
                if error.status != _EXPIRED or next(attempts, None) is None:
                    raise
            for key in tuple(self._store.keys()):  # the next attempt does not list what was deleted meanwhile
                self._store.delete(key, "")

    async def _pages(self) -> int:
        """Load page after page. The next page is requested before the objects of a page are decoded."""
        loaded = 0
        page: Page | None = await self._page("")
        while page is not None:
            token = page.metadata.continue_ or ""
            following = asyncio.create_task(self._page(token)) if token else None
            await asyncio.sleep(0)  # sends the request
            loaded += self._load(page)
            if self._kind == PODS and loaded > MOST_PODS:
                raise ListingError(f"the cluster has more than {MOST_PODS:,} pods: ask a Homeport that runs there")
            self._progress(self._kind, self._before + loaded)
            page = None if following is None else await following
        return loaded

    async def _page(self, token: str) -> Page:
        """Return a page. Wait and repeat the request if the API server throttles it. Raises ``KubeError``."""
        attempts = iter(range(1, _ATTEMPTS))
        while True:
            try:
                raw = await self._client.list_page(
                    self._resource,
                    limit=PAGE,
                    continue_=token,
                    metadata_only=self._kind.metadata_only,
                    field_selector=NOT_FINISHED if self._kind == PODS else "",
                )
                return await read_page(raw)
            except ApiError as error:
                if error.status != _THROTTLED or next(attempts, None) is None:
                    raise
                pause = 1.0 if error.retry_after is None else error.retry_after
            await asyncio.sleep(min(pause, _LONGEST_PAUSE))

    def _load(self, page: Page) -> int:
        for item in page.items or ():
            try:
                self._store.upsert(self._decode(item))
            except Exception as error:  # noqa: BLE001  # like a reflector: a fault with one object hides no other
                self._store.mark_unreadable(key_in(item), str(error))
        return len(page.items or ())
