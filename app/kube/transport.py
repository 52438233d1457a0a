"""Transport of requests to the API server with current credentials. Failures become ``app.kube.api_errors``.

Reads use httpx. Writes use ``app.kube.connections``, so that a ``PreSendCheck`` runs immediately before sending.
Watches carry most of the data, so they use ``app.kube.streams``, which takes less CPU time. If a proxy is configured,
all requests use httpx.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from math import inf
from typing import Final
from urllib.parse import urlencode

import httpx

from app.kube.api_errors import ApiSilent, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PreSendCheck, Request, allow_write
from app.kube.connections import SOCKET_OPTIONS, BrokenConnection, Connections, HttpResponse, NotConnected
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Access, Credentials
from app.kube.http_answers import checked_body, error_of, lines_of, lines_of_stream, no_response, whole_answer
from app.kube.retiring import RetirableTransport
from app.kube.streams import Silent, Stream
from app.telemetry.tracing import Tracing

_CONNECT_SECONDS: Final = 2.0
"""Timeout of a connection attempt; with httpx, of each step: free slot, TCP, TLS. Short, as a read can be repeated."""

_NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=())
"""Policy that rejects all cookies. Otherwise a server could set new cookies in each response, so that requests grow."""

_LIMITS: Final = httpx.Limits(max_connections=1024, max_keepalive_connections=256, keepalive_expiry=45.0)
_UNAUTHORIZED: Final = 401


class Transport:
    """Sender of requests to the API server of ``credentials``.

    Methods raise only the errors of ``app.kube.api_errors``, and those of a caller's check before a write.

    ``network`` replaces the network in tests.
    """

    def __init__(
        self, credentials: Credentials, *, network: httpx.AsyncBaseTransport | None, tracing: Tracing | None
    ) -> None:
        self._tracing = tracing
        self._credentials = credentials
        self._network = network
        self._access: Access | None = None
        self._http: httpx.AsyncClient | None = None
        self._reads: list[RetirableTransport] = []
        self._connections: Connections | None = None
        self._connections_of: Access | None = None
        self._streams: set[Stream] = set()

    async def aclose(self) -> None:
        """Close all reads and watches and the current pool for writes; their requests in flight end with an error."""
        for reads in self._reads:
            await reads.aclose()
        if self._connections is not None:
            self._connections.close()
        for stream in tuple(self._streams):
            stream.close()

    async def write(self, request: Request, seconds: float, before: PreSendCheck = allow_write) -> bytes:
        """Send a write and return the body of the response. If the caller is traced, add a span to its trace."""
        tracing = self._tracing
        span = None if tracing is None else tracing.outgoing(f"{request.method} {_written_kind(request.path)}")
        if span is None:
            return await self._write(request, seconds, before)

        def check() -> None:
            try:
                before()
            except BaseException:
                span.held_back()
                raise

        with span:
            span.tell({"http.request.method": request.method, "url.path": request.path})
            traced = replace(request, trace=tuple(span.headers.items()))
            return await self._write(traced, seconds, check)

    async def _write(self, request: Request, seconds: float, before: PreSendCheck = allow_write) -> bytes:
        """Send a write, with a timeout of ``seconds`` after sending. On status 401, retry once with new credentials."""
        try:
            access = await self._credentials.access()
            response = await self._written(request, access, seconds, before)
            if response.status == _UNAUTHORIZED:
                access = await self._credentials.renewed(access)
                response = await self._written(request, access, seconds, before)
        except CredentialsError as error:
            raise ApiUnavailable(str(error)) from error
        return checked_body(request, response)

    async def _written(self, request: Request, access: Access, seconds: float, before: PreSendCheck) -> HttpResponse:
        """Send a write once and return the response, whatever its status."""
        if self._network is not None or access.proxy:
            return await self._written_by_httpx(request, access, seconds, before)
        connections = self._connections_for(access)
        try:
            raw = connections.request(request.method, _target(request), _headers(request, access), request.body)
        except ValueError as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        try:
            async with connections.acquire() as connection:
                before()
                answer = connection.send(raw)
                async with asyncio.timeout(seconds):
                    return await answer
        except NotConnected as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        except BrokenConnection as error:
            raise UnknownOutcome(f"{request}: {error}") from error
        except TimeoutError as error:
            await self._drop_idle_connections()
            raise UnknownOutcome(f"{request}: no answer within {seconds:g} s") from error

    async def _written_by_httpx(
        self, request: Request, access: Access, seconds: float, before: PreSendCheck
    ) -> HttpResponse:
        """Write through a proxy, or in tests. Other tasks can run between ``before`` and sending."""
        before()
        try:
            async with asyncio.timeout(seconds):
                response = await self._attempt(request, access, seconds)
                return await whole_answer(response)
        except httpx.HTTPError as error:
            raise error_of(request, error) from error
        except TimeoutError as error:
            raise no_response(request, f"no answer within {seconds:g} s") from error

    def _connections_for(self, access: Access) -> Connections:
        """Return the pool for writes and watches with the server and certificates of ``access``.

        If one of them has changed, create a new pool and retire the previous one.
        """
        known = self._connections_of
        if self._connections is None or not _same_peer(known, access) or known is None or known.server != access.server:
            if self._connections is not None:
                self._connections.retire()
            self._connections = Connections(access.server, access.tls, access.tls_server_name)
        self._connections_of = access
        return self._connections

    async def send(self, request: Request, seconds: float, silence: float = inf, most: float = inf) -> bytes:
        """Send a read and return the body of the response.

        ``seconds`` is the timeout of the whole request, and ``silence`` the maximum number of seconds without data. A
        body of more than ``most`` bytes raises ``AnswerTooLong``.
        """
        async with self._converted_errors(request, f"no answer within {seconds:g} s"), asyncio.timeout(seconds):
            response = await whole_answer(await self._authorized(request, min(seconds, silence)), most)
        return checked_body(request, response)

    @asynccontextmanager
    async def stream(self, request: Request, silence: float, opening: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a streamed response for the time of an ``async with`` block; yield an iterator over its lines.

        ``silence`` is the maximum number of seconds without data. ``opening`` is the timeout of the response headers.
        """
        async with AsyncExitStack() as stack:
            lines = await self._opened(request, silence, opening, stack)
            await stack.enter_async_context(aclosing(lines))
            try:
                yield lines
            except ApiSilent:
                await self._drop_idle_connections()
                raise

    async def _opened(
        self, request: Request, silence: float, opening: float, stack: AsyncExitStack
    ) -> AsyncGenerator[bytes, None]:
        """Open a stream; ``stack`` closes it. The API server sends headers at once, even if there are no events."""
        async with self._converted_errors(request, f"not opened within {opening:g} s"), asyncio.timeout(opening):
            try:
                access = await self._credentials.access()
                if self._network is not None or access.proxy:
                    return await self._opened_by_httpx(request, silence, stack)
                stream, response = await self._streamed(request, access, silence, stack)
                if response.status == _UNAUTHORIZED:
                    access = await self._credentials.renewed(access)
                    stream, response = await self._streamed(request, access, silence, stack)
            except CredentialsError as error:
                raise ApiUnavailable(str(error)) from error
            checked_body(request, response)
            return lines_of_stream(request, stream)

    async def _streamed(
        self, request: Request, access: Access, silence: float, stack: AsyncExitStack
    ) -> tuple[Stream, HttpResponse]:
        try:
            connections = self._connections_for(access)
            raw = connections.request(request.method, _target(request), _headers(request, access), request.body)
        except ValueError as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        try:
            stream = await connections.connect(lambda: Stream(raw, silence), _CONNECT_SECONDS)
            self._streams.add(stream)
            stack.callback(self._streams.discard, stream)
            stack.callback(stream.close)
            return stream, await stream.answer()
        except (NotConnected, BrokenConnection) as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        except Silent as error:
            await self._drop_idle_connections()
            raise ApiSilent(f"{request}: {error}") from error

    async def _opened_by_httpx(
        self, request: Request, silence: float, stack: AsyncExitStack
    ) -> AsyncGenerator[bytes, None]:
        response = await self._authorized(request, silence)
        stack.push_async_callback(response.aclose)
        if not response.is_success:
            checked_body(request, await whole_answer(response))
        return lines_of(request, response)

    @asynccontextmanager
    async def _converted_errors(self, request: Request, too_late: str) -> AsyncIterator[None]:
        """Convert timeouts and httpx errors to ``app.kube.api_errors``. After a timeout, drop idle connections."""
        try:
            yield
        except TimeoutError as error:
            await self._drop_idle_connections()
            raise ApiSilent(f"{request}: {too_late}") from error
        except httpx.HTTPError as error:
            failure = error_of(request, error)
            if isinstance(failure, ApiSilent):
                await self._drop_idle_connections()
            raise failure from error

    async def _drop_idle_connections(self) -> None:
        """Drop idle connections, so that no further request uses them. Requests in flight continue.

        This method is called after a missing response. A network failure breaks all connections at once, so each
        request on an old connection would wait until its timeout.
        """
        if self._connections is not None:
            self._connections.close_idle()
        await self._retire()

    async def _authorized(self, request: Request, silence: float) -> httpx.Response:
        """Send a request with current credentials. On status 401, retry once with renewed credentials."""
        try:
            access = await self._credentials.access()
            response = await self._attempt(request, access, silence)
            if response.status_code != _UNAUTHORIZED:
                return response
            await response.aclose()
            access = await self._credentials.renewed(access)
        except CredentialsError as error:
            raise ApiUnavailable(str(error)) from error
        return await self._attempt(request, access, silence)

    async def _attempt(self, request: Request, access: Access, silence: float) -> httpx.Response:
        """Send a request once and return the response, with an unread body. Raises ``httpx.HTTPError``."""
        http = await self._http_for(access)
        built = http.build_request(
            request.method,
            access.server + request.path,
            params=request.query or None,
            content=request.body or None,
            headers=_headers(request, access),
            timeout=httpx.Timeout(silence, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS),
            extensions={"sni_hostname": access.tls_server_name} if access.tls_server_name else None,
        )
        try:
            response = await http.send(built, stream=True)
        except AttributeError as error:
            # If the peer has closed the connection, httpcore sets socket options without a socket.
            raise httpx.ConnectError(f"the server closed the connection at once: {error}") from error
        if response.headers.get("content-encoding", "identity") != "identity":
            # Reject compressed data, which can expand to a thousand times its size. The request does not accept it.
            await response.aclose()
            raise httpx.DecodingError("the answer is compressed, which the request does not accept")
        return response

    async def _http_for(self, access: Access) -> httpx.AsyncClient:
        """Return the HTTP client with the proxy and the certificates of ``access``.

        If there is none, or one of the two has changed, create a new client and retire any previous one.
        """
        if self._http is not None and _same_peer(self._access, access):
            return self._http
        await self._retire()
        self._access = access
        return self._connected(access)

    async def _retire(self) -> None:
        retired, self._http = self._reads[-1:], None
        self._reads = [it for it in self._reads if not it.closed]
        for transport in retired:
            await transport.retire()

    def _connected(self, access: Access) -> httpx.AsyncClient:
        reads = RetirableTransport(self._network or _network(access))
        self._reads.append(reads)
        # Disable compression: decompressing a list would block the event loop for longer than it saves on the network.
        self._http = httpx.AsyncClient(
            transport=reads, trust_env=False, headers={"Accept-Encoding": "identity"}, cookies=CookieJar(_NO_COOKIES)
        )
        return self._http


def _network(access: Access) -> httpx.AsyncBaseTransport:
    # Use the proxy-url of a kubeconfig, but no proxies of the environment: they are for traffic outside of the cluster.
    # NO_PROXY often exempts cluster networks in CIDR notation, which httpx does not understand.
    return httpx.AsyncHTTPTransport(
        verify=access.tls,
        limits=_LIMITS,
        trust_env=False,
        proxy=access.proxy or None,
        socket_options=SOCKET_OPTIONS,
    )


def _same_peer(known: Access | None, access: Access) -> bool:
    """Return whether ``known`` is set and has the same proxy and certificates as ``access``."""
    return known is not None and known.tls is access.tls and known.proxy == access.proxy


def _headers(request: Request, access: Access) -> dict[str, str]:
    headers = {"User-Agent": "homeport", "Accept": request.accept}
    if access.authorization:
        headers["Authorization"] = access.authorization
    if access.impersonated:
        headers["Impersonate-User"] = access.impersonated
    if request.content_type:
        headers["Content-Type"] = request.content_type
    headers.update(request.trace)
    return headers


def _written_kind(path: str) -> str:
    """Return resource and subresource of a namespaced path, for example ``pods/binding``; object names are left out.

    For any other path, return its last segment.
    """
    rest = path.rpartition("/namespaces/")[2].split("/")[1:] if "/namespaces/" in path else path.split("/")[-1:]
    return "/".join((*rest[:1], *rest[2:]))


def _target(request: Request) -> str:
    return f"{request.path}?{urlencode(request.query)}" if request.query else request.path
