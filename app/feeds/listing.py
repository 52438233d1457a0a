"""One listing of a live cluster into a snapshot, for commands that evaluate pods in their own process.

Nothing is watched, so the snapshot shows the cluster at the time of the listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

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

MOST_OTHERS: Final = 500_000
"""Maximum number of objects of all other kinds together. The size of such objects is not known in advance."""

MOST_BYTES: Final = 4 << 30
"""Maximum bytes that the API server sends for all lists. 150,000 pods of usual size take 660 MB."""

_ATTEMPTS: Final = 3
"""Maximum number of attempts at a list that has expired (410), and at a page that the API server throttles (429)."""

_LONGEST_PAUSE: Final = 10.0
"""Maximum seconds between two attempts at a page, even if ``Retry-After`` of the API server is longer."""

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_EXPIRED: Final = 410
_THROTTLED: Final = 429

Progress = Callable[[Kind[Any], int], None]
"""Function that is called after each page with the kind, and the number of objects of all kinds so far."""


class ListingError(Exception):
    """The cluster cannot be listed, or exceeds a limit. The message names the missing permissions or the cause."""


class _Received(Struct):
    """Sums over all lists: bytes of the answers, and numbers of listed objects."""

    bytes: int = 0
    objects: int = 0
    pods: int = 0


async def list_live(
    login: Login,
    cluster: Cluster,
    kinds: Iterable[Kind[Any]],
    progress: Progress,
    optional: Mapping[Kind[Any], list[str]] | None = None,
) -> int:
    """List the cluster of ``login``, see ``list_cluster``. Raises ``ListingError`` and ``CredentialsError``."""
    async with KubeClient(login.credentials()) as client:
        return await list_cluster(client, cluster, kinds, progress, optional)


async def list_cluster(
    client: KubeClient,
    cluster: Cluster,
    kinds: Iterable[Kind[Any]],
    progress: Progress,
    optional: Mapping[Kind[Any], list[str]] | None = None,
) -> int:
    """List nodes, unfinished pods and objects of ``kinds`` and ``optional`` into the snapshot; return their number.

    Kinds that the API server does not serve are left out. An object that cannot be decoded is marked as unreadable.
    ``optional``: kinds that are left out if the user has no permission to list them. The name of the resource, or of
    the kind if the resource is unknown, is then added to the kind's list. Raises ``ListingError``, also if there are no
    nodes, and above ``MOST_PODS``, ``MOST_OTHERS`` and ``MOST_BYTES``.
    """
    received = _Received()
    forbidden: list[str] = []
    left_out = optional or {}
    every: tuple[Kind[Any], ...] = (NODES, PODS, *kinds, *left_out)
    for kind in dict.fromkeys(every):
        resource: Resource | None = None
        try:
            resource = await client.resolve(kind.api_version, kind.kind)
            if resource is not None:
                with bulk_load():
                    await _Listing(client, cluster, kind, resource, received, progress).run()
        except ApiError as error:
            if error.status == _UNAUTHORIZED:
                raise ListingError(client.rejection(error)) from error
            if error.status != _FORBIDDEN:
                raise ListingError(f"{kind!r}: the API server refused: {error.message or error}") from error
            left_out.get(kind, forbidden).append(kind.kind if resource is None else _named(resource))
        except KubeError as error:
            raise ListingError(f"{kind!r}: the API server ({client.server}) does not answer: {error}") from error
    if forbidden:
        raise ListingError(f"you have no permission to list {', '.join(forbidden)} in all namespaces")
    if not cluster.nodes:
        raise ListingError("the cluster has no nodes: there is nothing to schedule to")
    return received.objects


def _named(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


class _Listing:
    """Listing of one kind. ``received``: sums over all kinds, to which this listing adds."""

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        kind: Kind[Any],
        resource: Resource,
        received: _Received,
        progress: Progress,
    ) -> None:
        self._client = client
        self._kind = kind
        self._resource = resource
        self._store: Store[Any] = store_for(cluster, kind)
        self._decode = cluster.decoder(kind)
        self._received = received
        self._progress = progress

    async def run(self) -> None:
        """Load all objects. Raises ``KubeError`` and ``ListingError``."""
        attempts = iter(range(1, _ATTEMPTS))
        while True:
            try:
                loaded = await self._pages()
            except ApiError as error:
                if error.status != _EXPIRED or next(attempts, None) is None:
                    raise
            else:
                self._received.objects += loaded
                self._received.pods += loaded if self._kind == PODS else 0
                return
            for key in tuple(self._store.keys()):  # the next attempt does not list what was deleted meanwhile
                self._store.delete(key, "")

    async def _pages(self) -> int:
        """Load all pages; return the number of objects. Each page is requested before the previous one is decoded."""
        loaded = 0
        page: Page | None = await self._page("")
        while page is not None:
            token = page.metadata.continue_ or ""
            following = asyncio.create_task(self._page(token)) if token else None
            await asyncio.sleep(0)  # sends the request
            loaded += self._load(page)
            self._check(loaded)
            self._progress(self._kind, self._received.objects + loaded)
            page = None if following is None else await following
        return loaded

    def _check(self, loaded: int) -> None:
        """Raise ``ListingError`` if a maximum is exceeded. ``loaded``: number of objects of this kind so far."""
        excess = ""
        if self._kind == PODS and loaded > MOST_PODS:
            excess = f"{MOST_PODS:,} pods"
        elif self._kind != PODS and self._received.objects - self._received.pods + loaded > MOST_OTHERS:
            excess = f"{MOST_OTHERS:,} objects besides its pods ({self._kind.kind} was listed last)"
        elif self._received.bytes > MOST_BYTES:
            excess = f"{MOST_BYTES >> 20:,} MiB of objects ({self._kind.kind} was listed last)"
        if excess:
            raise ListingError(f"the cluster has more than {excess}: use a Homeport that runs in the cluster")

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
                self._received.bytes += len(raw)
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
