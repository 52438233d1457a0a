"""Certificates that nobody has to bring: an authority in a Secret that all replicas share, and what each issues.

    start      an authority in memory, so that listeners speak TLS at once
    settle     the Secret has one: it is taken over · it is empty: ours is stored, unless another replica was faster
    from then  every minute: leaves and the client's pair are renewed at two thirds of their life; a Secret that was
               emptied gets back what we have, one with another authority is taken over

Serving leaves stay in memory, each replica's own: their DNS names say that they are replicas. What is in a Secret and
is not ours is never overwritten. ``ca.crt`` may hold more than one certificate: the first belongs to ``ca.key`` and
signs, all are trusted, so that an authority can be replaced without a gap.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from time import time
from typing import Any, Final, NoReturn

import msgspec
import structlog
from msgspec import Struct

from app.kube.api_errors import ApiError, KubeError
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.decoding import Decoder
from app.replicas.issuing import (
    COMMON_NAME,
    SERVING_SECONDS,
    BadPair,
    Known,
    Pair,
    is_issued_by,
    is_of_any,
    issue,
    known,
    known_authority,
    new_authority,
)

_LOG: Final = structlog.get_logger(__name__)

SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True)

AGAIN_SECONDS: Final = 2.0
"""Between two attempts while something is not as it should be."""

STEADY_SECONDS: Final = 60.0

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

Sleep = Callable[[float], Awaitable[None]]

_CONFLICT: Final = 409
_OUT_OF_TIME: Final = "the authority does not hold now: empty the Secret for a new one, or put one there"
_SERVING_NAME: Final = "homeport"


class Asked(Struct, frozen=True):
    """What is to be made. ``client_secret`` is empty where nobody calls with a pair of ours; durations in seconds."""

    namespace: str
    secret: str
    dns_names: tuple[str, ...]
    client_secret: str = ""
    client_name: str = ""
    client_seconds: float = 0.0


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""


class _Secret(Struct):
    metadata: _Metadata
    data: dict[str, str | None] | None = None


_SECRETS: Final = Decoder[_Secret](_Secret)


class _NotOurs(Exception):
    """A Secret holds what must not be overwritten; says what."""


class Authority:
    """``contents`` are what listeners serve with, from the first moment. ``clock`` gives seconds since the epoch.

    ``unusable``: why listeners would not take such contents; empty if they would.
    """

    def __init__(
        self,
        client: KubeClient,
        asked: Asked,
        unusable: Callable[[tuple[bytes, ...]], str],
        *,
        clock: Callable[[], float] = time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._asked = asked
        self._unusable = unusable
        self._clock = clock
        self._sleep = sleep
        self._problem = "not read yet"
        self._shared = asyncio.Event()
        self._client_known: Known | None = None
        self._provided: tuple[Pair, Pair] | None = None
        self._pair = new_authority(clock())
        self._serving = self._issued(self._pair)

    # what is asked of it

    @property
    def stamp(self) -> object:
        """Another one whenever ``contents`` have changed."""
        return self._serving

    @property
    def contents(self) -> tuple[bytes, ...]:
        """Certificate chain, key and authorities, PEM."""
        return self._serving.certificates, self._serving.key, self._pair.certificates

    @property
    def trouble(self) -> str:
        """What is not as it should be, as of the last look; empty if all is well."""
        return self._problem

    def problem(self) -> str:
        """Why others cannot know us by the authority in the Secret; empty if they can."""
        if self._shared.is_set() and self._clock() < known(self._serving.certificates).ends:
            return ""
        return f"certificates: {self._problem or 'ours has ended'}"

    async def shared(self) -> None:
        """Wait until the authority is that of the Secret, for the first time."""
        await self._shared.wait()

    def ends(self) -> Mapping[str, float]:
        """When the ``client``'s pair ends, seconds since the epoch, once it is known."""
        return {} if self._client_known is None else {"client": self._client_known.ends}

    # what it does

    async def run(self) -> NoReturn:
        """Until cancelled, whatever the API server does."""
        while True:
            well = await self.look()
            await self._sleep(STEADY_SECONDS if well else AGAIN_SECONDS)

    async def look(self) -> bool:
        """One round; whether all is well. What is in memory is renewed also where nothing can be read."""
        try:
            try:
                await self._settle()
            finally:
                await self._renew()
            if self._asked.client_secret:
                await self._provide()
        except (KubeError, msgspec.DecodeError, BadPair, _NotOurs) as error:
            self._fail(error)
            return False
        self._problem = ""
        return True

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ApiError) and error.status == _CONFLICT:
            return  # another replica was faster: the next look shows what it wrote
        if self._problem != str(error):
            self._problem = str(error)
            _LOG.error("certificates not settled", cause=self._problem)

    async def _settle(self) -> None:
        found = await self._read(self._asked.secret)
        stored = self._stored(self._asked.secret, found, CA_CERTIFICATE, CA_KEY)
        if stored is None:
            await self._store(found)
        elif stored != self._pair:
            await self._take_over(stored)
        elif not self._holds(self._pair):
            raise _NotOurs(f"{self._where(self._asked.secret)}: {_OUT_OF_TIME}")
        self._shared.set()

    async def _store(self, found: _Secret) -> None:
        """What we have, or where that is not of this time a new one."""
        if not self._holds(self._pair):
            fresh = new_authority(self._clock())
            self._pair, self._serving = fresh, self._issued(fresh)
        data = {CA_CERTIFICATE: self._pair.certificates, CA_KEY: self._pair.key}
        await self._write(self._asked.secret, found, data)
        name = known_authority(self._pair).common_name
        _LOG.info("authority stored", secret=self._where(self._asked.secret), name=name)

    def _holds(self, authority: Pair) -> bool:
        found = known(authority.certificates)
        return found.begins <= self._clock() < found.ends

    async def _take_over(self, stored: Pair) -> None:
        """Raises ``_NotOurs``: what we have goes on. Large keys take their time, in a thread."""
        where = self._where(self._asked.secret)
        try:
            found = await asyncio.to_thread(known_authority, stored)
            serving = await asyncio.to_thread(self._issued, stored)
        except BadPair as error:
            raise _NotOurs(f"{where}: {CA_CERTIFICATE} and {CA_KEY} cannot be used: {error}") from None
        contents = (serving.certificates, serving.key, stored.certificates)
        why = await asyncio.to_thread(self._unusable, contents)
        if why:
            raise _NotOurs(f"{where}: what {CA_CERTIFICATE} and {CA_KEY} issue cannot be used: {why}")
        self._pair, self._serving = stored, serving
        _LOG.info("authority read", secret=where, name=found.common_name)

    async def _renew(self) -> None:
        """Not where the authority itself has ended: what to do about that, the look at its Secret has told."""
        if self._holds(self._pair) and known(self._serving.certificates).is_due(self._clock()):
            self._serving = await asyncio.to_thread(self._issued, self._pair)

    def _issued(self, authority: Pair) -> Pair:
        names = self._asked.dns_names
        return issue(authority, _SERVING_NAME, names, seconds=SERVING_SECONDS, now=self._clock())

    async def _provide(self) -> None:
        """The pair that a scheduler calls with, in a Secret that it can mount."""
        asked = self._asked
        found = await self._read(asked.client_secret)
        stored = self._stored(asked.client_secret, found, CERTIFICATE, KEY)
        if stored is None or not await self._is_good(stored):
            if stored is not None:
                self._check_ours(stored)
            stored = await asyncio.to_thread(
                issue, self._pair, asked.client_name, (), seconds=asked.client_seconds, now=self._clock()
            )
        elif _value(found, CA_CERTIFICATE) == self._pair.certificates:
            self._client_known = known(stored.certificates)
            return
        data = {CA_CERTIFICATE: self._pair.certificates, CERTIFICATE: stored.certificates, KEY: stored.key}
        await self._write(asked.client_secret, found, data)
        self._client_known = known(stored.certificates)
        _LOG.info("client pair stored", secret=self._where(asked.client_secret), name=asked.client_name)

    async def _is_good(self, pair: Pair) -> bool:
        """Signatures are looked at once: with a large key that takes a quarter of a second."""
        if self._provided != (self._pair, pair):
            if not await asyncio.to_thread(is_issued_by, self._pair, pair):
                return False
            self._provided = (self._pair, pair)
        found = known(pair.certificates)
        return found.common_name == self._asked.client_name and not found.is_due(self._clock())

    async def _read(self, name: str) -> _Secret:
        return _SECRETS.decode(await self._client.get(SECRETS, self._asked.namespace, name))

    async def _write(self, name: str, found: _Secret, data: Mapping[str, bytes]) -> None:
        """Raises ``ApiError`` (409) where the Secret is not as it was read."""
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "data": {key: b64encode(value).decode() for key, value in data.items()},
        }
        await self._client.patch(SECRETS, self._asked.namespace, name, change)

    def _where(self, name: str) -> str:
        return f"Secret {self._asked.namespace}/{name}"

    def _stored(self, name: str, found: _Secret, certificate: str, key: str) -> Pair | None:
        """``None`` where there is neither. Raises ``_NotOurs`` for one without the other."""
        pair = Pair(_value(found, certificate), _value(found, key))
        if bool(pair.certificates) != bool(pair.key):
            raise _NotOurs(f"{self._where(name)}: it has one of {certificate} and {key}, and not the other")
        return pair if pair.certificates else None

    def _check_ours(self, pair: Pair) -> None:
        """Raises ``_NotOurs`` unless it is of an authority of ours, a former one, or one that is trusted here."""
        where = self._where(self._asked.client_secret)
        try:
            found = known(pair.certificates)
        except BadPair as error:
            raise _NotOurs(f"{where}: {CERTIFICATE} cannot be used: {error}") from None
        if not found.issuer.startswith(COMMON_NAME) and not is_of_any(self._pair.certificates, pair.certificates):
            raise _NotOurs(f'{where}: {CERTIFICATE} was issued by "{found.issuer[:100]}", and not by Homeport')


def _value(found: _Secret, key: str) -> bytes:
    """Empty for what is not there, and for what cannot be: the API server lets nothing but base64 in."""
    try:
        return b64decode((found.data or {}).get(key) or "", validate=True)
    except ValueError:
        return b""
