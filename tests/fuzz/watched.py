"""``homeport serve`` that also says how long its event loop stood still, and looks up what its picture holds.

Run as ``python -m tests.fuzz.watched CONTROL_PORT serve …``: the command line of production, with a task in its loop
that asks to be woken all the time, and a listener of its own on loopback. That takes JSON, a question a line::

    {"do": "pauses"}                     the steps of the loop that took long since it was last asked
    {"do": "longest"}                    the longest step since it was last asked, however short
    {"do": "kinds"}                      the kinds that are watched
    {"do": "burn", "seconds": 0.1}       stand still at work; "sleep" does so without any
    {"do": "missing", "kind": "v1 Pod", "keys": [["ns", "name"]]}    those of the keys that the picture lacks

A step is measured in processor time of the loop's thread: what a busy machine takes away is not ours. A thread beside
it looks at what the loop is doing while it stands still.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import app.main
from app.__main__ import main as command_line
from app.feeds.live import LiveFeed
from app.server import web

TOLD_MS: Final = 20.0
"""Shorter steps are not told."""

_TICK: Final = 0.001
_LOOK_SECONDS: Final = 0.01
_STANDS_STILL: Final = 0.025
_FRAMES: Final = 12
_MOST_TOLD: Final = 1000


class Pauses:
    """Steps of the loop that took long: milliseconds of processor time and of the clock, and what was run in them."""

    def __init__(self) -> None:
        self._found: list[dict[str, Any]] = []
        self._woken = time.monotonic()
        self._seen = Counter[tuple[str, ...]]()
        self._loop_thread = threading.get_ident()
        self._collecting = 0.0
        self._collected = 0.0
        self._longest = {"cpu_ms": 0.0, "wall_ms": 0.0}
        gc.callbacks.append(self._collection)
        threading.Thread(target=self._look_forever, daemon=True).start()

    def tell(self) -> dict[str, Any]:
        found, self._found = self._found, []
        return {"pauses": found}

    def longest(self) -> dict[str, float]:
        found, self._longest = self._longest, {"cpu_ms": 0.0, "wall_ms": 0.0}
        return {name: round(milliseconds, 2) for name, milliseconds in found.items()}

    async def watch(self) -> None:
        """For the life of the loop."""
        wall, cpu, collected = time.monotonic(), time.thread_time(), 0.0
        while True:
            await asyncio.sleep(_TICK)
            now, used = time.monotonic(), time.thread_time()
            step = {"cpu_ms": (used - cpu) * 1000, "wall_ms": (now - wall - _TICK) * 1000}
            self._longest = {name: max(milliseconds, step[name]) for name, milliseconds in self._longest.items()}
            if (used - cpu) * 1000 >= TOLD_MS and len(self._found) < _MOST_TOLD:
                self._found.append(
                    {
                        "cpu_ms": round((used - cpu) * 1000, 1),
                        "wall_ms": round((now - wall) * 1000, 1),
                        "gc_ms": round((self._collected - collected) * 1000, 1),
                        "began": wall,
                        "ended": now,
                        "in": [frame for seen, _ in self._seen.most_common(1) for frame in seen],
                    }
                )
            wall, cpu, collected = now, used, self._collected
            self._woken, self._seen = now, Counter()

    def _collection(self, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting

    def _look_forever(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() - self._woken > _STANDS_STILL:
                with suppress(AttributeError):  # frames that run while they are read may not be whole
                    self._seen[_told(sys._current_frames().get(self._loop_thread))] += 1


def _told(frame: FrameType | None) -> tuple[str, ...]:
    """Innermost last, less the lines: which were run differs from look to look."""
    frames = list(traceback.walk_stack(frame))[:_FRAMES] if frame is not None else []
    return tuple(
        f"{it.f_code.co_filename.rpartition('site-packages/')[2]} {it.f_code.co_name}" for it, _ in frames[::-1]
    )


class Watched(app.main.HomeportService):
    """The service of production, known to the control listener."""

    made: Watched

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        Watched.made = self

    def kinds(self) -> dict[str, Any]:
        feed = self._feed
        assert isinstance(feed, LiveFeed)
        return {repr(kind): reflector._store for kind, reflector in feed._reflectors.items()}

    def missing(self, kind: str, keys: list[list[str]]) -> list[list[str]]:
        store = self.kinds()[kind]
        return [[namespace, name] for namespace, name in keys if not store.has((namespace, name))]


class Control:
    """Answers the questions."""

    def __init__(self, pauses: Pauses) -> None:
        self._answers: dict[str, Callable[..., Any]] = {
            "pauses": pauses.tell,
            "longest": pauses.longest,
            "kinds": lambda: list(Watched.made.kinds()),
            "missing": Watched.made.missing,
            "burn": _burn,
            "sleep": time.sleep,
        }

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            await asyncio.sleep(3 * _TICK)  # what has ended by now is noted
            answer = self._answers[asked.pop("do")](*asked.values())
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()


def _burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def _watch_the_loop(port: int) -> None:
    """As soon as the first server starts in it."""
    started: list[object] = []
    startup = web._Server.startup

    async def watched(server: web._Server, *arguments: Any, **named: Any) -> None:
        if not started:
            pauses = Pauses()
            started.append(asyncio.create_task(pauses.watch()))
            started.append(await asyncio.start_server(Control(pauses), "127.0.0.1", port, limit=1 << 26))
        await startup(server, *arguments, **named)

    web._Server.startup = watched  # type: ignore[method-assign,assignment]  # what app.main.serve runs


def main() -> int:
    app.main.HomeportService = Watched  # type: ignore[misc]  # what app.main.serve makes
    _watch_the_loop(int(sys.argv[1]))
    return command_line(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
