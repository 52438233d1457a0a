"""The API client: requests are built by plain functions, sent by ``KubeClient``, and answered in raw bytes.

What can go wrong::

    KubeError
    ├── ApiError          the API server said no; nothing was changed
    ├── ApiUnavailable    no answer to a read, or a write that was never sent; nothing was changed
    │   └── ApiSilent         a read that was sent, and nothing came within its time: slow, or gone without a word
    └── UnknownOutcome    a write that may or may not have happened: read it back

Callers decide what an object is and what to do about an error; nothing here retries except once after a 401, with
renewed credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote, urlencode

import httpx
import msgspec
from msgspec import Raw, Struct

from app.kube.connections import (
    SOCKET_OPTIONS,
    Answered,
    BrokenConnection,
    Connections,
    NotConnected,
)
from app.kube.credentials import Access, Credentials, CredentialsError
from app.kube.decoding import Decoder
from app.kube.names import is_segment, shown
from app.kube.retiring import Retiring
from app.telemetry.tracing import Tracing

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

REQUEST_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 140.0
"""A watch that says nothing for this long is taken for dead: bookmarks come each minute, a quiet kind's after two."""

_CONNECT_SECONDS: Final = 2.0
"""For a connection with its TLS handshake. A read loses nothing by asking again, and then an outage may be over."""

_LIMITS: Final = httpx.Limits(max_connections=1024, max_keepalive_connections=256, keepalive_expiry=45.0)
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_NEVER_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_LONGEST_MESSAGE: Final = 500


class KubeError(Exception):
    """Any failure to get something done by the API server."""


class ApiUnavailable(KubeError):
    """A read without an answer, or a write that never left."""


class ApiSilent(ApiUnavailable):
    """A read that left on an open connection and was not answered in time."""


class UnknownOutcome(KubeError):
    """A write that was sent and not clearly answered: a timeout, a reset, an answer from the 5xx range."""


class ApiError(KubeError):
    """The API server's refusal. ``retry_after`` is in seconds, ``None`` if it names no time."""

    def __init__(self, status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason})".replace(" )", ")"))
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @classmethod
    def parse(cls, raw: bytes | Raw, *, status: int = 0, retry_after: float | None = None) -> Self:
        """Read a Status object; what is none becomes the message, since proxies answer in prose."""
        try:
            found = _STATUS.decode(raw)
        except msgspec.DecodeError:
            return cls(status, "", bytes(raw)[:_LONGEST_MESSAGE].decode(errors="replace").strip(), retry_after)
        if retry_after is None and found.details is not None:
            retry_after = found.details.retry_after_seconds or None
        return cls(status or found.code or 0, found.reason or "", found.message or "", retry_after)


class _StatusDetails(Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _StatusDetails | None = None


class _ServedResource(Struct):
    name: str
    kind: str
    namespaced: bool


class _ServedResources(Struct):
    resources: list[_ServedResource] | None = None


_STATUS: Final = Decoder[_Status](_Status)
_SERVED: Final = Decoder[_ServedResources](_ServedResources)


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the API server keeps the objects of a kind. ``group`` is empty for core/v1."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str | None = None, subresource: str = "") -> str:
        """The path of the collection (in one namespace or in all), of an object, or of its subresource.

        Raises ``ApiError`` for what cannot be a name: it might mean another path.
        """
        of_object = () if name is None else (name, *filter(None, (subresource,)))
        scope = ("namespaces", namespace) if self.namespaced and (namespace or of_object) else ()
        return _path(*_root(self.api_version), *scope, self.plural, *of_object)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, not yet sent."""

    method: Literal["GET", "PATCH", "POST", "PUT"]
    path: str
    query: tuple[tuple[str, str], ...] = ()
    accept: str = JSON
    body: bytes = b""
    content_type: str = ""
    asks: bool = False
    """A question that takes a POST and changes nothing."""

    trace: tuple[tuple[str, str], ...] = ()
    """Headers of the trace that it belongs to."""

    @property
    def writes(self) -> bool:
        return self.method != "GET" and not self.asks

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def discovery_request(api_version: str) -> Request:
    return Request("GET", _path(*_root(api_version)))


def list_request(
    resource: Resource,
    *,
    limit: int = 0,
    continue_: str = "",
    resource_version: str = "",
    metadata_only: bool = False,
    field_selector: str = "",
) -> Request:
    """One page. Without ``resource_version`` the newest state, without ``limit`` all of it.

    A ``continue_`` token holds the version of its first page, and the API server takes no other beside it.
    """
    query = {
        "limit": str(limit or ""),
        "continue": continue_,
        "resourceVersion": "" if continue_ else resource_version,
        "fieldSelector": field_selector,
    }
    return Request("GET", resource.path(), _set(query), METADATA_LIST if metadata_only else JSON)


def watch_request(
    resource: Resource,
    *,
    resource_version: str,
    metadata_only: bool = False,
    field_selector: str = "",
    timeout_seconds: int = 0,
    bookmarks: bool = True,
    namespace: str = "",
) -> Request:
    """Everything after ``resource_version``. ``timeout_seconds``: after which the API server ends it in good order.

    Without ``namespace`` in all of them.
    """
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true" if bookmarks else "",
        "resourceVersion": resource_version,
        "fieldSelector": field_selector,
        "timeoutSeconds": str(timeout_seconds or ""),
    }
    return Request("GET", resource.path(namespace), _set(query), METADATA if metadata_only else JSON)


def get_request(resource: Resource, namespace: str, name: str, *, metadata_only: bool = False) -> Request:
    return Request("GET", resource.path(namespace, name), accept=_accept(metadata_only))


def patch_request(
    resource: Resource,
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    *,
    content_type: str = MERGE_PATCH,
    subresource: str = "",
    metadata_only: bool = False,
) -> Request:
    path = resource.path(namespace, name, subresource)
    sent = msgspec.json.encode(body)
    return Request("PATCH", path, accept=_accept(metadata_only), body=sent, content_type=content_type)


def put_request(path: str, body: Mapping[str, Any]) -> Request:
    return Request("PUT", path, body=msgspec.json.encode(body), content_type=JSON)


def post_request(path: str, body: Mapping[str, Any]) -> Request:
    return Request("POST", path, body=msgspec.json.encode(body), content_type=JSON)


def review_request(path: str, body: Mapping[str, Any]) -> Request:
    return Request("POST", path, body=msgspec.json.encode(body), content_type=JSON, asks=True)


def _accept(metadata_only: bool) -> str:
    return METADATA if metadata_only else JSON


def _root(api_version: str) -> tuple[str, ...]:
    return ("apis", *api_version.split("/", 1)) if "/" in api_version else ("api", api_version)


def _path(*segments: str) -> str:
    """The one place where names become a path. Raises ``ApiError``, as the API server would if it saw them whole."""
    for segment in segments:
        if not is_segment(segment):
            raise ApiError(_BAD_REQUEST, "BadRequest", f"{shown(segment)} cannot be a name")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _set(query: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in query.items() if value)


PreSendCheck = Callable[[], None]
"""Asked immediately before a write leaves; raises to hold it back."""


def _nothing() -> None:
    """No objection."""


class KubeClient:
    """Sends requests as whoever the credentials say. Every method raises only the errors drawn above."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """``transport`` replaces the network, for tests. ``tracing``: writes of what is traced have spans."""
        self._tracing = tracing
        self._credentials = credentials
        self._transport = transport
        self._access: Access | None = None
        self._http: httpx.AsyncClient | None = None
        self._reads: list[Retiring] = []
        self._writing: Connections | None = None
        self._writing_as: Access | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def server(self) -> str:
        """The address of the API server, as far as it is known."""
        return self._credentials.server

    @property
    def certificate_ends(self) -> float | None:
        """When the client certificate in use ends, as a Unix time, see ``Credentials``."""
        return self._credentials.certificate_ends

    async def aclose(self) -> None:
        """Close every connection; requests under way end with an error."""
        for reads in self._reads:
            await reads.aclose()
        if self._writing is not None:
            self._writing.close()

    async def resolve(
        self,
        api_version: str,
        kind: str,
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> Resource | None:
        """Where a kind is kept; ``None`` if the API server does not serve it."""
        try:
            raw = await self._send(discovery_request(api_version), timeout)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        group, _, version = api_version.rpartition("/")
        for it in _decoded(_SERVED, raw).resources or ():
            if it.kind == kind and "/" not in it.name:
                return Resource(group, version, it.name, kind, it.namespaced)
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
    ) -> bytes:
        """One page of a list over all namespaces, see :func:`list_request`. ``silence``: the longest without a byte."""
        request = list_request(
            resource,
            limit=limit,
            continue_=continue_,
            resource_version=resource_version,
            metadata_only=metadata_only,
            field_selector=field_selector,
        )
        return await self._send(request, timeout, silence)

    async def get(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        metadata_only: bool = False,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """One object, as it is now."""
        return await self._send(get_request(resource, namespace, name, metadata_only=metadata_only), timeout)

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
        """Change an object; returns it as it then is. A ``resourceVersion`` in ``body`` is a precondition."""
        request = patch_request(
            resource,
            namespace,
            name,
            body,
            content_type=content_type,
            subresource=subresource,
            metadata_only=metadata_only,
        )
        return await self._change(request, timeout)

    async def put(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Replace the object at a path; returns it as it then is. A ``resourceVersion`` in it is a precondition."""
        return await self._change(put_request(path, body), timeout)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
        before: PreSendCheck = _nothing,
    ) -> bytes:
        """Create something at a path, see :meth:`Resource.path`.

        ``before`` is called when nothing is left to wait for; if it returns, the request has left in the same step.
        What it raises comes out of here, and then nothing was sent.
        """
        return await self._change(post_request(path, body), timeout, before)

    async def review(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: float = REQUEST_SECONDS,  # noqa: ASYNC109  # a deadline, as in list_page
    ) -> bytes:
        """Have something judged, as by a SelfSubjectAccessReview. Nothing is stored: it fails as reads do."""
        return await self._send(review_request(path, body), timeout)

    @asynccontextmanager
    async def watch(
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
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The events after ``resource_version``, one JSON document each.

        They end when the API server ends the watch in good order, and with ``ApiUnavailable`` when the connection
        breaks, the headers take longer than ``opening`` or nothing comes for ``silence`` seconds.
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
        response = await self._opened(request, silence, opening)
        lines = _lines(request, response)
        try:
            yield lines
        except ApiSilent:
            await self._distrust()
            raise
        finally:
            await lines.aclose()
            await response.aclose()

    async def _change(self, request: Request, seconds: float, before: PreSendCheck = _nothing) -> bytes:
        """``_write``, with a span where something that is traced asks for it."""
        tracing = self._tracing
        span = None if tracing is None else tracing.outgoing(f"{request.method} {_written_kind(request.path)}")
        if span is None:
            return await self._write(request, seconds, before)

        def ask() -> None:
            try:
                before()
            except BaseException:
                span.held_back()
                raise

        with span:
            span.tell({"http.request.method": request.method, "url.path": request.path})
            traced = replace(request, trace=tuple(span.headers.items()))
            return await self._write(traced, seconds, ask)

    async def _write(self, request: Request, seconds: float, before: PreSendCheck = _nothing) -> bytes:
        """Send a write, ``seconds`` for the answer from the moment it leaves; once more if credentials are refused."""
        try:
            access = await self._credentials.access()
            answered = await self._written(request, access, seconds, before)
            if answered.status == _UNAUTHORIZED:
                access = await self._credentials.renewed(access)
                answered = await self._written(request, access, seconds, before)
        except CredentialsError as error:
            raise ApiUnavailable(str(error)) from error
        return _checked(request, answered)

    async def _written(self, request: Request, access: Access, seconds: float, before: PreSendCheck) -> Answered:
        if self._transport is not None or access.proxy:
            return await self._written_by_httpx(request, access, seconds, before)
        connections = self._connections_as(access)
        try:
            raw = connections.request(request.method, _target(request), _headers(request, access), request.body)
        except ValueError as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        try:
            async with connections.taken() as connection:
                before()
                answer = connection.send(raw)
                async with asyncio.timeout(seconds):
                    return await answer
        except NotConnected as error:
            raise ApiUnavailable(f"{request}: {error}") from error
        except BrokenConnection as error:
            raise UnknownOutcome(f"{request}: {error}") from error
        except TimeoutError as error:
            await self._distrust()
            raise UnknownOutcome(f"{request}: no answer within {seconds:g} s") from error

    async def _written_by_httpx(
        self, request: Request, access: Access, seconds: float, before: PreSendCheck
    ) -> Answered:
        """Through a proxy; here the request leaves soon after ``before``, not in the same step."""
        before()
        try:
            async with asyncio.timeout(seconds):
                response = await self._attempt(request, access, seconds)
                return await _answered(response)
        except httpx.HTTPError as error:
            raise _failure(request, error) from error
        except TimeoutError as error:
            raise _unanswered(request, f"no answer within {seconds:g} s") from error

    def _connections_as(self, access: Access) -> Connections:
        """The connections for writes made with these certificates; those of earlier ones end with what runs on them."""
        known = self._writing_as
        if self._writing is None or not _same_peer(known, access) or known is None or known.server != access.server:
            if self._writing is not None:
                self._writing.retire()
            self._writing = Connections(access.server, access.tls, access.tls_server_name)
        self._writing_as = access
        return self._writing

    async def _send(self, request: Request, seconds: float, silence: float = inf) -> bytes:
        """Send and read the whole answer within ``seconds``, and each part of it within ``silence``."""
        async with self._heard(request, f"no answer within {seconds:g} s"), asyncio.timeout(seconds):
            answered = await _answered(await self._authorized(request, min(seconds, silence)))
        return _checked(request, answered)

    async def _opened(self, request: Request, silence: float, opening: float) -> httpx.Response:
        """The headers come at once, also where no event is due."""
        async with self._heard(request, f"not opened within {opening:g} s"), asyncio.timeout(opening):
            response = await self._authorized(request, silence)
            if not response.is_success:
                _checked(request, await _answered(response))
        return response

    @asynccontextmanager
    async def _heard(self, request: Request, too_late: str) -> AsyncIterator[None]:
        """Say in our own words what went wrong with a read."""
        try:
            yield
        except TimeoutError as error:
            await self._distrust()
            raise ApiSilent(f"{request}: {too_late}") from error
        except httpx.HTTPError as error:
            failure = _failure(request, error)
            if isinstance(failure, ApiSilent):
                await self._distrust()
            raise failure from error

    async def _distrust(self) -> None:
        """Somebody does not answer: what is under way goes on, and all that is asked from now on is on new connections.

        A network that lost its way loses all connections at once, and each kept one would cost its user a time-out.
        """
        if self._writing is not None:
            self._writing.close_idle()
        await self._retire()

    async def _authorized(self, request: Request, silence: float) -> httpx.Response:
        """Send with fresh credentials; once more with renewed ones if these are refused."""
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
            return await http.send(built, stream=True)
        except AttributeError as error:
            # httpcore sets options on the socket of a connection whose peer has closed it by then, and there is none.
            raise httpx.ConnectError(f"closed as soon as it was open: {error}") from error

    async def _http_for(self, access: Access) -> httpx.AsyncClient:
        """The connections made with these certificates; those of earlier ones are left to what still runs over them."""
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
        reads = Retiring(self._transport or self._network(access))
        self._reads.append(reads)
        # Unpacking a list would hold up the event loop for longer than a cluster's network saves by packing it.
        self._http = httpx.AsyncClient(transport=reads, trust_env=False, headers={"Accept-Encoding": "identity"})
        return self._http

    def _network(self, access: Access) -> httpx.AsyncBaseTransport:
        # No proxy from the environment: that one is meant for the world outside, and the networks in NO_PROXY that
        # keep cluster traffic off it are read by Go programs only. A kubeconfig's proxy-url is meant for us.
        return httpx.AsyncHTTPTransport(
            verify=access.tls,
            limits=_LIMITS,
            trust_env=False,
            proxy=access.proxy or None,
            socket_options=SOCKET_OPTIONS,
        )


def _same_peer(known: Access | None, access: Access) -> bool:
    return known is not None and known.tls is access.tls and known.proxy == access.proxy


def _headers(request: Request, access: Access) -> dict[str, str]:
    headers = {"User-Agent": "homeport", "Accept": request.accept}
    if access.authorization:
        headers["Authorization"] = access.authorization
    if request.content_type:
        headers["Content-Type"] = request.content_type
    headers.update(request.trace)
    return headers


def _written_kind(path: str) -> str:
    """What is written, without names: ``pods/binding``."""
    rest = path.rpartition("/namespaces/")[2].split("/")[1:] if "/namespaces/" in path else path.split("/")[-1:]
    return "/".join((*rest[:1], *rest[2:]))


def _target(request: Request) -> str:
    return f"{request.path}?{urlencode(request.query)}" if request.query else request.path


async def _answered(response: httpx.Response) -> Answered:
    """The whole answer; its body is not kept on the response.

    httpx's responses are cycles of references: without garbage collection, as in a first list, the bodies of all pages
    would pile up, 600 MB for 150,000 pods.
    """
    try:
        body = b"".join([chunk async for chunk in response.aiter_bytes()])
    finally:
        await response.aclose()
    return Answered(response.status_code, response.headers, body)


def _checked(request: Request, answered: Answered) -> bytes:
    if 200 <= answered.status < 300:
        return answered.body
    retry_after = _seconds(answered.headers.get("retry-after"))
    error = ApiError.parse(answered.body, status=answered.status, retry_after=retry_after)
    if request.writes and error.status >= _SERVER_ERROR:
        # A time-out of etcd, or a proxy that lost its peer, says nothing about what became of the write.
        raise UnknownOutcome(f"{request}: {error}") from error
    raise error


def _failure(request: Request, error: httpx.HTTPError) -> KubeError:
    told = f"{type(error).__name__} {error}".strip()
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout) and not request.writes:
        return ApiSilent(f"{request}: {told}")
    return ApiUnavailable(f"{request}: {told}") if isinstance(error, _NEVER_SENT) else _unanswered(request, told)


def _unanswered(request: Request, told: str) -> KubeError:
    return UnknownOutcome(f"{request}: {told}") if request.writes else ApiUnavailable(f"{request}: {told}")


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` as a number; its other form, a date, is not used by API servers."""
    return float(header) if header is not None and header.isdecimal() else None


def _decoded(decoder: Decoder[_ServedResources], raw: bytes) -> _ServedResources:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiUnavailable(f"discovery: {error}") from error


async def _lines(request: Request, response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Complete lines; what a broken connection leaves of the last one is dropped, the next watch brings it whole."""
    rest = b""
    try:
        async for chunk in response.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    except httpx.HTTPError as error:
        raise _failure(request, error) from error
