"""``homeport serve`` that also says how long its event loop did nothing else.

Run as ``python -m tests.load.observed PORT KUBECONFIG [CONFIG]``. ``GET /bench/pauses`` tells the longest pauses
since it was last asked: by the clock, and in processor time of the loop's thread, which a busy machine cannot stretch.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.config.loading import load_settings
from app.main import HomeportService
from app.server.web import run
from app.telemetry.logging import configure
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.listening import on_loopback

_TICK = 0.0005


class Pauses:
    """A task that asks to be woken all the time, and writes down when it was not."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._collecting = 0.0
        self._reset()
        gc.callbacks.append(self._collected)

    def _reset(self) -> None:
        self._wall = self._cpu = 0.0
        self._collections: dict[int, float] = {}

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            took, generation = time.perf_counter() - self._collecting, info["generation"]
            self._collections[generation] = max(took, self._collections.get(generation, 0.0))

    async def _watch(self) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(_TICK)
            now, used = time.perf_counter(), time.thread_time()
            self._wall, self._cpu = max(self._wall, now - wall - _TICK), max(self._cpu, used - cpu)
            wall, cpu = now, used

    async def tell(self, _: Request) -> Response:
        """The longest ones since the last time, in milliseconds; watching begins with the first call."""
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        found: dict[str, Any] = {
            "wall_ms": round(self._wall * 1000, 2),
            "cpu_ms": round(self._cpu * 1000, 2),
            "gc_ms": {str(generation): round(took * 1000, 2) for generation, took in self._collections.items()},
        }
        self._reset()
        return JSONResponse(found)


def main(port: int, kubeconfig: str, config: str | None = None) -> None:
    configure("error", "json")
    service = HomeportService(
        load_settings({"kubeconfig": kubeconfig}, config=config), SHIPPED, DEFAULT_WEIGHTS, version="bench"
    )
    web = service.web()
    web.add_route("/bench/pauses", Pauses().tell, methods=["GET"])
    run(web, [on_loopback(web, port)])


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
