"""Client of the API server, with a method for each verb. Most methods return raw bytes, which callers decode.

Callers also handle the errors (``app.kube.api_errors``). A request is retried only after status 401, and only once,
with renewed credentials. ``app.kube.api_requests`` builds requests and ``app.kube.transport`` sends them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from math import inf
from types import TracebackType
from typing import Any, Final, Self

import httpx
import msgspec
from msgspec import Struct

from app.kube.api_errors import ApiError, ApiUnavailable
from app.kube.api_requests import (
    MERGE_PATCH,
    PreSendCheck,
    Resource,
    allow_write,
    delete_request,
    discovery_request,
    get_request,
    list_request,
    patch_request,
    post_request,
    put_request,
    read_request,
    review_request,
    watch_request,
)
from app.kube.credentials import Credentials
from app.kube.decoding import Decoder
from app.kube.transport import Transport
from app.telemetry.tracing import Tracing

REQUEST_SECONDS: Final = 10.0
"""Default timeout of the opening of a watch, and of each request that is not for a page of a list."""

LIST_SECONDS: Final = 60.0
"""Default timeout of a request for one page of a list, and default for its maximum seconds without data."""

SILENCE_SECONDS: Final = 140.0
"""Default for the maximum seconds without data on a watch.

The API server sends a bookmark every minute, or every two minutes if no object changes.
"""

_NOT_FOUND: Final = 404


class _ServedResource(Struct):
    name: str
    kind: str
    namespaced: bool


class _ServedResources(Struct):
    resources: list[_ServedResource] | None = None


_SERVED: Final = Decoder[_ServedResources](_ServedResources)


class KubeClient:
    """Client that authenticates with ``credentials``.

    Methods raise only the errors of ``app.kube.api_errors``, and those that a caller's ``before`` raises.

    All timeouts are in seconds.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """Create a client. ``transport`` replaces the network in tests; ``tracing`` adds spans to traced writes."""
        self._credentials = credentials
        self._transport = Transport(credentials, network=transport, tracing=tracing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def server(self) -> str:
        """URL of the API server; before the first read of the credentials, the name of their source."""
        return self._credentials.server

    @property
    def certificate_ends(self) -> float | None:
        """Expiry of the client certificate (Unix time), or ``None``; see ``Credentials.certificate_ends``."""
        return self._credentials.certificate_ends

    def rejection(self, error: ApiError) -> str:
        """Return text for users about a 401, see ``Credentials.rejection``."""
        return self._credentials.rejection(error.message or str(error))

    async def aclose(self) -> None:
        """Close all reads and watches and the current pool for writes; their requests in flight fail."""
        await self._transport.aclose()

    async def resolve(
        self,
        api_version: str,
        kind: str,
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> Resource | None:
        """Return the resource of a kind from API discovery, or ``None`` if the API server does not serve the kind."""
        try:
            raw = await self._transport.send(discovery_request(api_version), timeout)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        group, _, version = api_version.rpartition("/")
        for served in _decoded(_SERVED, raw).resources or ():
            if served.kind == kind and "/" not in served.name:
                return Resource(group, version, served.name, kind, served.namespaced)
        return None

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int = 0,
        continue_: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
        field_selector: str = "",
        timeout: float = LIST_SECONDS,  # noqa: ASYNC109  # its expiry raises ApiSilent, not TimeoutError
        silence: float = LIST_SECONDS,
        most: float = inf,
    ) -> bytes:
        """Return one page of a list over all namespaces, see :func:`list_request`.

        ``timeout`` limits the whole request, and ``silence`` the time without data. Raises ``AnswerTooLong`` if the
        answer has more than ``most`` bytes.
        """
        request = list_request(
            resource,
            limit=limit,
            continue_=continue_,
            resource_version=resource_version,
            metadata_only=metadata_only,
            field_selector=field_selector,
        )
        return await self._transport.send(request, timeout, silence, most)

    async def get(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        metadata_only: bool = False,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> bytes:
        """Return the newest version of one object; with ``metadata_only``, only its metadata."""
        return await self._transport.send(get_request(resource, namespace, name, metadata_only=metadata_only), timeout)

    async def read(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> bytes:
        """Return the answer to a GET of any percent-encoded path, for example a list with a selector."""
        return await self._transport.send(read_request(path, query), timeout)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        metadata_only: bool = False,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
        before: PreSendCheck = allow_write,
    ) -> bytes:
        """Patch an object, and return the object that the API server has stored. ``before``: see ``post``.

        With ``metadata_only``, only the metadata is returned. Raises ``ApiError`` (409) if ``body`` contains an
        outdated ``resourceVersion``.
        """
        request = patch_request(
            resource,
            namespace,
            name,
            body,
            content_type=content_type,
            subresource=subresource,
            metadata_only=metadata_only,
        )
        return await self._transport.write(request, timeout, before)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> bytes:
        """Replace an object, and return the object that the API server has stored.

        Raises ``ApiError`` (409) if ``body`` contains an outdated ``resourceVersion``.
        """
        return await self._transport.write(put_request(path, body), timeout)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
        before: PreSendCheck = allow_write,
        dry_run: bool = False,
    ) -> bytes:
        """Post an object to a path, see :meth:`Resource.path`. Return the answer, usually the created object.

        With ``dry_run``, nothing is stored. ``before`` is called when a connection is ready. No other task runs between
        this call and the sending, except if a proxy is used. Before a retry after status 401, ``before`` is called
        again. If it raises an exception, the request is not sent, and the exception is passed on.
        """
        return await self._transport.write(post_request(path, body, dry_run=dry_run), timeout, before)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> None:
        """Delete an object. Raises ``ApiError`` if it is gone, or has another UID or resourceVersion."""
        await self._transport.write(delete_request(resource, namespace, name, uid, resource_version), timeout)

    async def review(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # its expiry raises a KubeError
    ) -> bytes:
        """Post a review, for example a SelfSubjectAccessReview. It raises the errors of a read: it stores nothing."""
        return await self._transport.send(review_request(path, body), timeout)

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        metadata_only: bool = False,
        field_selector: str = "",
        timeout_seconds: int = 290,
        bookmarks: bool = True,
        silence: float = SILENCE_SECONDS,
        opening: float = REQUEST_SECONDS,
        namespace: str = "",
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return a context manager that opens a watch and yields an iterator of its events, one JSON document each.

        The events end when the API server ends the watch, after ``timeout_seconds`` at the latest. Opening raises
        ``ApiError`` if the API server refuses the watch. It raises ``ApiUnavailable`` if the API server cannot be
        reached, or if its response headers take longer than ``opening``. Reading raises ``ApiUnavailable`` if the
        connection breaks, or if no data arrives for ``silence``.
        """
        request = watch_request(
            resource,
            resource_version=resource_version,
            metadata_only=metadata_only,
            field_selector=field_selector,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
            namespace=namespace,
        )
        return self._transport.stream(request, silence, opening)


def _decoded(decoder: Decoder[_ServedResources], raw: bytes) -> _ServedResources:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiUnavailable(f"discovery: {error}") from error
