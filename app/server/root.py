"""``GET /``: index of the listener, as HTML for browsers and JSON for other clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

_VARY: Final = {"Vary": "Accept"}
_NO_SCRIPT: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", **_VARY}
_NEVER: Final = re.compile(r"q\s*=\s*0(\.0*)?")
"""Pattern of the parameter (``q=0``) with which an Accept header excludes a media type."""

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Homeport</title>
<style>body {{ font-family: sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em }}
td {{ padding: .2em 1em .2em 0; vertical-align: top }}</style>
<h1>Homeport {version}</h1>
<p>A Kubernetes scheduler extender: replicas spread, machines come home.</p>
{body}
</html>
"""


def root_router(version: str, pages: Callable[[], Mapping[str, str]], verbs: Iterable[str]) -> APIRouter:
    """Create the router. ``pages`` returns the paths for GET on this listener, with descriptions. ``verbs``: paths of
    verbs.
    """
    router = APIRouter()
    called = sorted(verbs)

    @router.get("/", include_in_schema=False)
    async def root(request: Request) -> Response:
        served = pages()
        if wants_html(request.headers.get("accept", "")):
            return HTMLResponse(_PAGE.format(version=escape(version), body=_body(served, called)), headers=_NO_SCRIPT)
        return JSONResponse({"name": "homeport", "version": version, "pages": served, "verbs": called}, headers=_VARY)

    return router


def wants_html(accept: str) -> bool:
    """Return true if an Accept header names HTML and does not exclude it (``q=0``). Browsers name it; curl does not."""
    for part in accept.lower().split(","):
        kind, *parameters = (it.strip() for it in part.split(";"))
        if kind in ("text/html", "application/xhtml+xml"):
            return not any(_NEVER.fullmatch(it) for it in parameters)
    return False


def _body(pages: Mapping[str, str], verbs: Iterable[str]) -> str:
    rows = "".join(
        f'<tr><td><a href="{escape(path)}">{escape(path)}</a></td><td>{escape(description)}</td></tr>\n'
        for path, description in pages.items()
    )
    calls = ", ".join(f"<code>{escape(path)}</code>" for path in verbs)
    return (f"<table>\n{rows}</table>\n" if rows else "") + (f"<p>Called with POST: {calls}</p>" if calls else "")
