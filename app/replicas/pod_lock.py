"""File lock with a list of earlier processes of a pod. Once a restarted container has the lock, they have all ended.

The file lies in an emptyDir, which outlives a container and is not shared with other pods. A process appends its
identity only while it holds an exclusive flock. The kernel releases the flock when the last process with the
descriptor has ended. So once a process gets the lock, all other processes named in the file have ended. Requests that
they sent can still arrive (``app.writes.fences``).
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
"""Seconds until the next attempt to get the lock, if another process holds it."""

MOST_NAMED: Final = 16
"""Maximum number of identities in the file. The oldest are dropped, because their Leases have expired by that time."""

_MOST_BYTES: Final = 16_384
"""Maximum number of bytes that are read from the file."""


Sleep = Callable[[float], Awaitable[None]]


class PodLock:
    """Exclusive lock of this process on ``file``, held until the process ends.

    ``identity`` is the holder name of this process in the Lease.
    """

    def __init__(self, file: str, identity: str, sleep: Sleep = asyncio.sleep) -> None:
        self._file = file
        self._identity = identity
        self._sleep = sleep

    async def ended(self) -> frozenset[str]:
        """Wait for the lock; return the identities of the earlier processes of this pod, which have all ended.

        If the file cannot be opened, locked or read, the reason is logged and an empty set is returned.
        """
        try:
            while (names := await asyncio.to_thread(self.acquire)) is None:
                await self._sleep(RETRY_SECONDS)
        except OSError as error:
            _LOG.warning("lock file not usable", file=self._file, cause=str(error))
            return frozenset()
        return names

    def acquire(self) -> frozenset[str] | None:
        """Lock the file, add this process, and return the earlier identities; ``None`` if another process has the lock.

        The descriptor stays open until the process ends. Raises ``OSError`` if the file cannot be opened, locked or
        read.
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
        """Write the newest of ``names`` and the identity of this process to the file; failures are logged.

        If the process is killed during the write, an identity in the file can be cut off. That is harmless, because a
        cut-off identity is not the name of a running process.
        """
        lines = "".join(f"{it}\n" for it in (*names[1 - MOST_NAMED :], self._identity)).encode()
        try:
            os.pwrite(descriptor, lines, 0)
            os.ftruncate(descriptor, len(lines))
        except OSError as error:
            _LOG.warning("lock file not usable", file=self._file, cause=str(error))
