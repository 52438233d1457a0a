"""``GET /docs``: all endpoints to read and to try, in Swagger UI. Nothing comes from another host."""

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
"""This listener may bind pods: no script runs on its origin but its own, and no other site frames it."""

_HEADERS: Final = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
_KEPT: Final = {**_HEADERS, "Cache-Control": "max-age=3600"}

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
"""``validatorUrl``: by default Swagger UI sends the document's address to a service of its makers."""


def documentation_router() -> APIRouter:
    router = APIRouter()

    @router.get(DOCS, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_PAGE, headers=_HEADERS)

    @router.get(f"{DOCS}/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=_KEPT)

    @router.get(f"{DOCS}/{{name}}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in _ASSETS:
            return Response(status_code=404)
        found = files("fastapi_offline").joinpath("static", name).read_bytes()
        return Response(found, media_type=_ASSETS[name], headers=_KEPT)

    return router
