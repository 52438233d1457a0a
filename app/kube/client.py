"""Client of the API server. Its methods return raw bytes.

Callers decode objects and handle errors (``app.kube.api_errors``). The only retry here is one after a 401, with
renewed credentials.

Not here: building requests (``app.kube.api_requests``) and sending them (``app.kube.transport``).
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
    review_request,
    watch_request,
)
from app.kube.credentials import Credentials
from app.kube.decoding import Decoder
from app.kube.transport import Transport
from app.telemetry.tracing import Tracing

REQUEST_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 140.0
"""Timeout of a silent watch. Bookmarks arrive each minute, for a kind without events after two minutes."""

_NOT_FOUND: Final = 404


class _ServedResource(Struct):
    name: str
    kind: str
    namespaced: bool


class _ServedResources(Struct):
    resources: list[_ServedResource] | None = None


_SERVED: Final = Decoder[_ServedResources](_ServedResources)


class KubeClient:
    """Client with the identity of ``credentials``. Every method raises only the errors of ``app.kube.api_errors``."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """``transport`` replaces the network, for tests. ``tracing`` adds spans to writes that belong to a trace."""
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
        """Address of the API server, or the credentials' source before they are read."""
        return self._credentials.server

    @property
    def certificate_ends(self) -> float | None:
        """Expiry of the client certificate as a Unix time, see ``Credentials``."""
        return self._credentials.certificate_ends

    async def aclose(self) -> None:
        """Close every connection; requests in flight fail."""
        await self._transport.aclose()

    async def resolve(
        self,
        api_version: str,
        kind: str,
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> Resource | None:
        """Return the resource that serves a kind; ``None`` if the API server does not serve it."""
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
        timeout: float = LIST_SECONDS,  # noqa: ASYNC109  # a deadline of the request, told apart from a cancellation
        silence: float = LIST_SECONDS,
        most: float = inf,
    ) -> bytes:
        """Return one page of a list over all namespaces, see :func:`list_request`. ``silence``: timeout without data.

        ``most``: maximum number of bytes. Reading a longer answer is aborted and raises ``AnswerTooLong``.
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
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Return the current version of one object."""
        return await self._transport.send(get_request(resource, namespace, name, metadata_only=metadata_only), timeout)

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
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Patch an object and return its new version. A ``resourceVersion`` in ``body`` is a precondition."""
        request = patch_request(
            resource,
            namespace,
            name,
            body,
            content_type=content_type,
            subresource=subresource,
            metadata_only=metadata_only,
        )
        return await self._transport.write(request, timeout)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Replace the object at a path and return its new version. A ``resourceVersion`` in it is a precondition."""
        return await self._transport.write(put_request(path, body), timeout)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
        before: PreSendCheck = allow_write,
    ) -> bytes:
        """Create an object at a path, see :meth:`Resource.path`.

        ``before`` is called once a connection is ready; the request is sent without another ``await`` in between.
        If it raises, the error is passed on and nothing is sent.
        """
        return await self._transport.write(post_request(path, body), timeout, before)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> None:
        """Delete an object if its UID and resourceVersion are still these."""
        await self._transport.write(delete_request(resource, namespace, name, uid, resource_version), timeout)

    async def review(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Post a review such as a SelfSubjectAccessReview. It stores nothing, so it raises the errors of a read."""
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
        """Open a watch: the events after ``resource_version``, one JSON document each.

        The events end when the API server closes the watch. They end with ``ApiUnavailable`` when the connection
        breaks, the headers take longer than ``opening`` seconds or no data arrives for ``silence`` seconds.
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
