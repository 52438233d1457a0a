"""Lock on a file of the pod, by which a restarted container knows that its predecessors have ended.

The file lies in an emptyDir: it outlives a container, and no other pod sees it. A process appends its identity only
while it holds an exclusive flock, which the kernel releases when the last process with the descriptor has ended. So
every process named in the file has ended once another process gets the lock. Requests that these processes sent can
still arrive (``app.writes.fences``).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

_LOG: Final = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 0.5
"""Delay before the next attempt to get a lock that another process holds."""

MOST_NAMED: Final = 16
"""Maximum number of ended processes remembered. A container that crashes more often runs longer than a Lease lasts."""

_MOST_BYTES: Final = 16_384

Sleep = Callable[[float], Awaitable[None]]


class PodLock:
    """Exclusive lock of one process on ``file``, kept until the process ends. ``identity``: its name in the Lease."""

    def __init__(self, file: str, identity: str, sleep: Sleep = asyncio.sleep) -> None:
        self._file = file
        self._identity = identity
        self._sleep = sleep

    async def ended(self) -> frozenset[str]:
        """Return the identities of ended processes of this pod. Waits while one of them lives.

        Without a file that can be locked and written there are none, and the reason is logged.
        """
        try:
            while (names := await asyncio.to_thread(self.acquire)) is None:
                await self._sleep(RETRY_SECONDS)
        except OSError as error:
            _LOG.warning("lock file not usable", file=self._file, cause=str(error))
            return frozenset()
        return names

    def acquire(self) -> frozenset[str] | None:
        """Return the identities in the file and append ours; ``None`` if another process holds the lock.

        The descriptor stays open until the process ends. Raises ``OSError`` if the file cannot be locked.
        """
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written = os.pread(descriptor, _MOST_BYTES, 0)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        names = written.decode(errors="replace").split("\n")[:-1][-MOST_NAMED:]
        self._append(descriptor, names)
        return frozenset(names)

    def _append(self, descriptor: int, names: list[str]) -> None:
        """Append our identity.

        A process killed during the write leaves whole or partial names of lock holders, all ended.
        """
        lines = "".join(f"{it}\n" for it in (*names[1 - MOST_NAMED :], self._identity)).encode()
        try:
            os.pwrite(descriptor, lines, 0)
            os.ftruncate(descriptor, len(lines))
        except OSError as error:
            _LOG.warning("lock file not usable", file=self._file, cause=str(error))
