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

from app.cluster.issuing import (
    COMMON_NAME,
    SERVING_SECONDS,
    BadPair,
    Known,
    Pair,
    is_issued_by,
    issue,
    known,
    known_authority,
    new_authority,
)
from app.kube.client import ApiError, KubeClient, KubeError, Resource
from app.kube.decoding import Decoder

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
    """``contents`` are what listeners serve with, from the first moment. ``clock`` gives seconds since the epoch."""

    def __init__(
        self, client: KubeClient, asked: Asked, *, clock: Callable[[], float] = time, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._client = client
        self._asked = asked
        self._clock = clock
        self._sleep = sleep
        self._problem = "not read yet"
        self._settled = False
        self._client_known: Known | None = None
        self._pair = new_authority(clock())
        self._serving = self._issued()

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
        return "" if self._settled else f"certificates: {self._problem}"

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
        """One round; whether all is well."""
        try:
            self._renew()
            await self._settle()
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

    def _renew(self) -> None:
        """What is in memory asks nobody."""
        if self._clock() >= known(self._serving.certificates).renewal:
            self._serving = self._issued()

    async def _settle(self) -> None:
        found = await self._read(self._asked.secret)
        stored = self._stored(self._asked.secret, found, CA_CERTIFICATE, CA_KEY)
        if stored is None:
            data = {CA_CERTIFICATE: self._pair.certificates, CA_KEY: self._pair.key}
            await self._write(self._asked.secret, found, data)
            name = known_authority(self._pair).common_name
            _LOG.info("authority stored", secret=self._where(self._asked.secret), name=name)
        elif stored != self._pair:
            self._take_over(stored)
        self._settled = True

    def _take_over(self, stored: Pair) -> None:
        """Raises ``_NotOurs``: what we have goes on."""
        try:
            found = known_authority(stored)
            serving = self._issued(stored)
        except BadPair as error:
            where = self._where(self._asked.secret)
            raise _NotOurs(f"{where}: {CA_CERTIFICATE} and {CA_KEY} cannot be used: {error}") from None
        self._pair, self._serving = stored, serving
        _LOG.info("authority read", secret=self._where(self._asked.secret), name=found.common_name)

    def _issued(self, authority: Pair | None = None) -> Pair:
        names = self._asked.dns_names
        return issue(authority or self._pair, _SERVING_NAME, names, seconds=SERVING_SECONDS, now=self._clock())

    async def _provide(self) -> None:
        """The pair that a scheduler calls with, in a Secret that it can mount."""
        asked = self._asked
        found = await self._read(asked.client_secret)
        stored = self._stored(asked.client_secret, found, CERTIFICATE, KEY)
        if stored is None or not self._is_good(stored):
            if stored is not None:
                self._check_ours(stored)
            stored = issue(self._pair, asked.client_name, (), seconds=asked.client_seconds, now=self._clock())
        elif _value(found, CA_CERTIFICATE) == self._pair.certificates:
            self._client_known = known(stored.certificates)
            return
        data = {CA_CERTIFICATE: self._pair.certificates, CERTIFICATE: stored.certificates, KEY: stored.key}
        await self._write(asked.client_secret, found, data)
        self._client_known = known(stored.certificates)
        _LOG.info("client pair stored", secret=self._where(asked.client_secret), name=asked.client_name)

    def _is_good(self, pair: Pair) -> bool:
        if not is_issued_by(self._pair, pair):
            return False
        found = known(pair.certificates)
        return found.common_name == self._asked.client_name and self._clock() < found.renewal

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
        """Raises ``_NotOurs`` unless it is a former one of ours."""
        where = self._where(self._asked.client_secret)
        try:
            found = known(pair.certificates)
        except BadPair as error:
            raise _NotOurs(f"{where}: {CERTIFICATE} cannot be used: {error}") from None
        if found.common_name != self._asked.client_name and not found.issuer.startswith(COMMON_NAME):
            raise _NotOurs(f'{where}: {CERTIFICATE} was issued to "{found.common_name[:100]}", and not by Homeport')


def _value(found: _Secret, key: str) -> bytes:
    """Empty for what is not there, and for what cannot be: the API server lets nothing but base64 in."""
    try:
        return b64decode((found.data or {}).get(key) or "", validate=True)
    except ValueError:
        return b""
