"""The fake API server behind a socket, for the service in a process of its own."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.apiserver import Answer, ApiServer, Watch

BOOKMARK_SECONDS: Final = 1.0
_MOST_HEAD: Final = 1 << 20


class ListeningApiServer(ApiServer):
    """``port`` once it listens, on loopback. It runs in the loop of whoever starts it."""

    def __init__(self) -> None:
        super().__init__()
        self.bookmark_seconds = BOOKMARK_SECONDS
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", port, limit=_MOST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        super().close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                body = await reader.readexactly(int(length or 0))
                method, target, _ = head.decode("latin-1").split(" ", 2)
                url = urlsplit(target)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                watches = method == "GET" and query.get("watch") == "true"
                found = self.watch(url.path, query) if watches else self.answer(method, url.path, query, body)
                await (_stream(found, writer) if isinstance(found, Watch) else _send(found, writer))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


async def _stream(watch: Watch, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    async for line in watch:
        if writer.is_closing():
            return
        writer.write(b"%x\r\n" % len(line) + line + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send(answer: Answer, writer: asyncio.StreamWriter) -> None:
    length = len(answer.body)
    head = f"HTTP/1.1 {answer.status} Told\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode() + answer.body)
    await writer.drain()
