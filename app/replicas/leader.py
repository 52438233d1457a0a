"""Executes the steps that ``app.replicas.lease`` decides: reads, watches, takes, renews and releases the Lease."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog
from msgspec import Raw, Struct

from app.kube.api_errors import ApiError, ApiUnavailable, KubeError
from app.kube.client import KubeClient
from app.kube.decoding import Decoder
from app.replicas.lease import Election
from app.replicas.lease_record import LEASES, LeaseRecord

_LOG: Final = structlog.get_logger(__name__)
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_WATCH_SECONDS: Final = 270
"""Requested duration of one watch of the Lease, in seconds."""


class _Event(Struct):
    type: str
    object: Raw


_EVENTS: Final = Decoder[_Event](_Event)


class Elector:
    """Client of one leader election: while ``run`` runs, it sends the requests that ``election`` decides.

    ``election`` holds the state; ``changed`` waits for a change of that state. ``retry_period`` is in seconds.
    ``attempt_seconds`` is the time limit of one request.
    """

    def __init__(
        self,
        client: KubeClient,
        election: Election,
        *,
        namespace: str,
        name: str,
        retry_period: float,
        attempt_seconds: float,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.election = election
        self._client = client
        self._namespace = namespace
        self._name = name
        self._retry_period = retry_period
        self._attempt_seconds = attempt_seconds
        self._rng = rng
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._failure_logged = False

    async def changed(self, seconds: float | None = None) -> bool:
        """Wait until the election's state might have changed; return false after ``seconds`` without a change."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """Resume all tasks that wait in ``changed``."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Take part in the election until cancelled; API errors are retried."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_forever())
            group.create_task(self._elect_forever())

    async def _elect_forever(self) -> None:
        while True:
            step = self.election.next_step()
            if step.do == "wait":
                await self.changed(step.seconds)
                continue
            async with self._writing:
                await self._do(step.do)
            self.notify()

    async def _do(self, what: str) -> None:
        try:
            async with asyncio.timeout(self._attempt_seconds):
                await (self._read() if what == "read" else self._write())
        except (KubeError, msgspec.DecodeError, TimeoutError) as error:
            self._failed(what, error)
        else:
            self._failure_logged = False

    def _failed(self, what: str, error: Exception) -> None:
        if isinstance(error, ApiError) and what == "write" and self._is_outdated(error.status):
            self.election.conflicted()
            return
        self.election.failed(0.5 + 0.5 * self._rng())
        if not self._failure_logged:
            self._failure_logged = True
            cause = str(error) or f"no answer within {self._attempt_seconds:g} s"
            _LOG.warning("lease request failed", attempt=what, lease=f"{self._namespace}/{self._name}", cause=cause)

    def _is_outdated(self, status: int) -> bool:
        """Return true if the write was refused because the Lease has changed, so that it must be read again.

        A create that fails with 404 does not count, because it means that the namespace is missing.
        """
        return status == _CONFLICT or (status == _NOT_FOUND and self.election.record is not None)

    async def _read(self) -> None:
        try:
            raw = await self._client.get(LEASES, self._namespace, self._name, timeout=self._attempt_seconds)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self.election.observe(None)
            return
        self.election.observe(LeaseRecord.of(raw))

    async def _write(self) -> None:
        self.election.written(LeaseRecord.of(await self._send(self.election.writing())))

    async def _send(self, lease: dict[str, Any]) -> bytes:
        """Replace the Lease if ``lease`` has a resource version, else create it; return the API server's answer."""
        if lease["metadata"].get("resourceVersion"):
            path = LEASES.path(self._namespace, self._name)
            return await self._client.put(path, lease, timeout=self._attempt_seconds)
        lease["metadata"] |= {"namespace": self._namespace, "name": self._name}
        return await self._client.post(LEASES.path(self._namespace), lease, timeout=self._attempt_seconds)

    async def release(self) -> bool:
        """If this replica leads, release the Lease and never take it again.

        Return true if the API server confirmed the release. False means that the request failed or that this replica
        did not lead.
        """
        async with self._writing:
            if not self.election.leads:
                return False
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    released = LeaseRecord.of(await self._send(self.election.resignation()))
                    self.election.observe(released, lagging=True)
            except (KubeError, msgspec.DecodeError, TimeoutError) as error:
                _LOG.warning("lease not released, the next leader waits until it expires", cause=str(error))
                self.election.failed()
                return False
            finally:
                self.notify()
        return True

    async def _watch_forever(self) -> None:
        """Watch the Lease until cancelled, to see changes early. If the watch fails, changes are seen later, by
        polling.
        """
        while True:
            record = self.election.record
            if record is None:
                await self.changed()
                continue
            try:
                await self._watch(record.version)
            except (KubeError, msgspec.DecodeError) as error:
                _LOG.debug("watch of the lease ended", cause=str(error))
            await asyncio.sleep(self._retry_period * (0.5 + 0.5 * self._rng()))

    async def _watch(self, version: str) -> None:
        watching = self._client.watch(
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=version,
            timeout_seconds=_WATCH_SECONDS,
            bookmarks=False,
        )
        async with watching as lines:
            async for line in lines:
                self._take(_EVENTS.decode(line))

    def _take(self, event: _Event) -> None:
        """Update the election from a watch event. Raises ``ApiUnavailable`` for ``ERROR``, which ends the watch."""
        if event.type == "ERROR":
            raise ApiUnavailable(str(ApiError.parse(event.object)))
        self.election.observe(None if event.type == "DELETED" else LeaseRecord.of(event.object), lagging=True)
        self.notify()
