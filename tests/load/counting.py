"""A proxy that counts what goes over the wire: names asked, passed and scored, and bytes. Never used while timing."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct

_MOST: Final = 256 << 20


class _Names(Struct, rename="pascal"):
    node_names: list[Raw] | None = None


_NAMES: Final = msgspec.json.Decoder(_Names)
_LIST: Final = msgspec.json.Decoder(list[Raw])


class CountingProxy:
    """As a context manager it runs in a thread; ``url`` is what to call instead of Homeport."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._counts: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_MOST), self._loop
        )
        self._server = starting.result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def per_call(self) -> dict[str, dict[str, float]]:
        """By verb: how many calls, and the mean of everything else."""
        found: dict[str, dict[str, float]] = {}
        for key, total in self._counts.items():
            verb, _, what = key.partition(" ")
            calls = self._counts[f"{verb} calls"]
            found.setdefault(verb, {})[what] = total if what == "calls" else round(total / calls, 1)
        return found

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(self._connection(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST)
        try:
            while True:
                head, asked = await _message(reader)
                upstream_writer.write(head + asked)
                answer_head, answered = await _message(upstream_reader)
                self._count(head.split(b" ", 2)[1].decode().rpartition("/")[2], asked, answered)
                writer.write(answer_head + answered)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for end in (writer, upstream_writer):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    def _count(self, verb: str, asked: bytes, answered: bytes) -> None:
        found: dict[str, int] = {"calls": 1, "bytes asked": len(asked), "bytes answered": len(answered)}
        if verb == "filter":
            found["names asked"] = len(_NAMES.decode(asked).node_names or ())
            found["names passed"] = len(_NAMES.decode(answered).node_names or ())
        elif verb == "prioritize":
            found["names asked"] = len(_NAMES.decode(asked).node_names or ())
            found["names scored"] = len(_LIST.decode(answered))
        self._counts.update({f"{verb} {what}": amount for what, amount in found.items()})


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a message that says its length, as both sides of the extender protocol do."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    return head, await reader.readexactly(int(length))
