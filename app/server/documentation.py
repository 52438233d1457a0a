"""``GET /docs``: all endpoints in Swagger UI, without resources of other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

DOCS: Final = "/docs"

_ASSETS: Final[Mapping[str, str]] = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
"""Files of Swagger UI that the page needs, with their types. The package ``fastapi_offline`` ships them."""

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy of the page. Without an operator listener, the listener for verbs serves the page, and
requests to it can bind pods. So the page runs only the listener's own scripts, and no other page can embed it in a
frame.
"""

_HEADERS: Final = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
_CACHED_HEADERS: Final = {**_HEADERS, "Cache-Control": "max-age=3600"}

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Homeport</title>
<link rel="icon" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</html>
"""
_START: Final = """\
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""
"""Script of the page. ``validatorUrl: null`` stops Swagger UI from sending the document's address to its vendor."""


def documentation_router() -> APIRouter:
    router = APIRouter()

    @router.get(DOCS, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_PAGE, headers=_HEADERS)

    @router.get(f"{DOCS}/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=_CACHED_HEADERS)

    @router.get(f"{DOCS}/{{name}}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in _ASSETS:
            return Response(status_code=404)
        content = files("fastapi_offline").joinpath("static", name).read_bytes()
        return Response(content, media_type=_ASSETS[name], headers=_CACHED_HEADERS)

    return router
