"""The floor: the same server stack with a route that reads the body and sends prepared bytes, nothing else.

Run as ``python -m tests.load.echo PORT FOLDER``: ``POST /<name>`` answers with the bytes of ``FOLDER/<name>``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from app.server.web import run
from tests.listening import on_loopback


def create(folder: Path) -> FastAPI:
    """The application; answers are read once, at the first call."""
    web = FastAPI()
    answers: Final[dict[str, bytes]] = {}

    async def echo(request: Request) -> Response:
        name = request.path_params["name"]
        await request.body()
        if name not in answers:
            answers[name] = (folder / name).read_bytes()
        return Response(answers[name], media_type="application/json")

    web.add_route("/{name}", echo, methods=["POST"])
    return web


if __name__ == "__main__":
    web = create(Path(sys.argv[2]))
    run(web, [on_loopback(web, int(sys.argv[1]))])
