"""``GET /ui/``: the page, a set of static files that read the JSON below ``/api/v1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Header, HTTPException
from msgspec import Struct
from starlette.responses import HTMLResponse, Response

from app.server.failures import NOT_SERVED

FOLDER: Final = Path(__file__).parent.parent / "ui"
"""Folder of the page's files, which are part of the package."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: the page runs only its own files, and no other page can embed it in a frame."""

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"
_NOT_MODIFIED: Final = 304


class StaticFile(Struct, frozen=True):
    """File of the page: its content, its media type, and a strong ETag."""

    content: bytes
    media_type: str
    etag: str


def files() -> dict[str, StaticFile]:
    """Read all files of the page; return them by name."""
    return dict(_read(FOLDER))


def _read(folder: Path) -> Iterator[tuple[str, StaticFile]]:
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            yield path.name, StaticFile(content, _TYPES[path.suffix], etag_of(content))


def etag_of(content: bytes) -> str:
    """Return a strong ETag that depends only on the content."""
    return f'"{sha256(content).hexdigest()[:32]}"'


def is_known(etag: str, if_none_match: str) -> bool:
    """Return true if an ``If-None-Match`` header has the ETag or ``*``: the client has the current content.

    A proxy that compresses an answer makes its ETag weak. Weak ETags are compared like strong ones (RFC 9110, 13.1.2).
    """
    tags = (it.strip().removeprefix("W/") for it in if_none_match.split(","))
    return any(it in (etag, "*") for it in tags)


def ui_router() -> APIRouter:
    """Create the router. The files are read once, here."""
    router = APIRouter(tags=["operator"])
    static = files()

    @router.get("/ui", include_in_schema=False)
    async def without_slash() -> Response:
        """Redirect by a relative URL, because the client can have another prefix, for example behind a proxy."""
        return Response(status_code=307, headers={"Location": "ui/", **_HEADERS})

    @router.get("/ui/", response_class=HTMLResponse, summary="The page: the cluster in a browser")
    async def index(if_none_match: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
        return _answer(static[_INDEX], if_none_match)

    @router.get("/ui/{name}", include_in_schema=False)
    async def file(name: str, if_none_match: Annotated[str, Header()] = "") -> Response:
        if name not in static:
            raise HTTPException(404, NOT_SERVED)
        return _answer(static[name], if_none_match)

    return router


def _answer(file: StaticFile, if_none_match: str) -> Response:
    headers = {**_HEADERS, "ETag": file.etag}
    if is_known(file.etag, if_none_match):
        return Response(status_code=_NOT_MODIFIED, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
