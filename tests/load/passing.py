"""The least an extender in this stack can do: every node passes, every node scores 0, and nothing is looked at.

Run as ``python -m tests.load.passing PORT``. What a kube-scheduler reaches with it is what the protocol costs.
"""

from __future__ import annotations

import sys

import msgspec
from fastapi import FastAPI
from msgspec import Raw, Struct
from starlette.requests import Request
from starlette.responses import Response

from app.server.web import run
from tests.listening import on_loopback


class _Asked(Struct, rename="pascal"):
    node_names: Raw


class _Passed(Struct, rename="pascal"):
    node_names: Raw
    error: str = ""


_ASKED = msgspec.json.Decoder(_Asked)
_NAMES = msgspec.json.Decoder(list[str])


async def passes(request: Request) -> Response:
    """The names go back as the bytes they came as."""
    asked = _ASKED.decode(await request.body())
    return _json(msgspec.json.encode(_Passed(asked.node_names)))


async def scores(request: Request) -> Response:
    names = _NAMES.decode(_ASKED.decode(await request.body()).node_names)
    return _json(msgspec.json.encode([{"Host": name, "Score": 0} for name in names]))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def create() -> FastAPI:
    web = FastAPI()
    web.add_route("/filter", passes, methods=["POST"])
    web.add_route("/prioritize", scores, methods=["POST"])
    return web


if __name__ == "__main__":
    web = create()
    run(web, [on_loopback(web, int(sys.argv[1]))])
