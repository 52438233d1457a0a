"""Self-signed certificates: an authority in a Secret that all replicas share, and certificates that each replica
issues.

At its start, a replica creates an authority in memory, so that its listeners can serve TLS at once. Then it reads the
Secret. If the Secret holds an authority, the replica uses that one. If the Secret is empty, the replica stores its own
authority there, unless another replica was faster. The replica repeats this every minute, so that an emptied Secret is
filled again and a replaced authority comes into use. It also renews certificates after two thirds of their lifetime.

Each replica keeps its serving certificate in memory. A stored authority, and a client pair that Homeport did not
issue, are never overwritten. ``ca.crt`` can hold several certificates, so that an authority can be replaced without a
gap. The first belongs to ``ca.key`` and issues certificates; clients trust all of them.
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
    CertificateInfo,
    Pair,
    authority_info,
    certificate_info,
    is_issued_by,
    is_of_any,
    issue,
    new_authority,
)

_LOG: Final = structlog.get_logger(__name__)

SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True)

AGAIN_SECONDS: Final = 2.0
"""Seconds until the next reconciliation after a failed one."""

STEADY_SECONDS: Final = 60.0
"""Seconds until the next reconciliation after a successful one."""

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

Sleep = Callable[[float], Awaitable[None]]

_CONFLICT: Final = 409
_OUT_OF_TIME: Final = "the authority is outside its validity period: empty the Secret, or store a valid authority"
_SERVING_NAME: Final = "homeport"


class CertificateSpec(Struct, frozen=True):
    """Settings of the certificates to issue. ``secret`` is the name of the authority's Secret. ``dns_names`` are the
    names in each serving certificate.

    ``client_secret`` is the Secret for the scheduler's client certificate and key; empty to issue none. ``client_name``
    is the common name of that certificate, and ``client_seconds`` its lifetime in seconds.
    """

    namespace: str
    secret: str
    dns_names: tuple[str, ...]
    client_secret: str = ""
    client_name: str = ""
    client_seconds: float = 0.0


class _SecretMetadata(Struct, rename="camel"):
    resource_version: str = ""


class _Secret(Struct):
    metadata: _SecretMetadata
    data: dict[str, str | None] | None = None


_SECRETS: Final = Decoder[_Secret](_Secret)


class _ForeignData(Exception):
    """Raised if a Secret holds data that cannot be used and must not be overwritten; the message names the Secret."""


class Authority:
    """Certificate authority that the replicas share. Listeners serve TLS with ``contents``, which is always set.

    ``unusable`` returns why listeners cannot use the given contents, or an empty string. ``clock`` returns seconds
    since the epoch.
    """

    def __init__(
        self,
        client: KubeClient,
        spec: CertificateSpec,
        unusable: Callable[[tuple[bytes, ...]], str],
        *,
        clock: Callable[[], float] = time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._spec = spec
        self._unusable = unusable
        self._clock = clock
        self._sleep = sleep
        self._problem = "not read yet"
        self._shared = asyncio.Event()
        self._client_known: CertificateInfo | None = None
        self._provided: tuple[Pair, Pair] | None = None
        self._pair = new_authority(clock())
        self._serving = self._issued(self._pair)

    # state

    @property
    def stamp(self) -> object:
        """Object that identifies the current serving certificate; a different object after each change."""
        return self._serving

    @property
    def contents(self) -> tuple[bytes, ...]:
        """Serving certificate, its key, and the trusted authority certificates, in PEM."""
        return self._serving.certificates, self._serving.key, self._pair.certificates

    @property
    def trouble(self) -> str:
        """Cause of the last failed reconciliation; empty after a success, and ``not read yet`` before the first result.

        A conflict with the write of another replica does not change it.
        """
        return self._problem

    def problem(self) -> str:
        """Return why other replicas cannot verify this replica's serving certificate; empty if they can.

        They cannot verify it before this replica uses the authority in the Secret, or after the certificate has
        expired.
        """
        if self._shared.is_set() and self._clock() < certificate_info(self._serving.certificates).ends:
            return ""
        return f"certificates: {self._problem or 'the certificate of this replica has expired'}"

    async def shared(self) -> None:
        """Wait until this replica uses the authority in the Secret for the first time."""
        await self._shared.wait()

    def ends(self) -> Mapping[str, float]:
        """Return the expiry of the ``client`` certificate in seconds since the epoch; an empty mapping if unknown."""
        return {} if self._client_known is None else {"client": self._client_known.ends}

    # actions

    async def run(self) -> NoReturn:
        """Reconcile the Secrets and certificates until cancelled; failures are logged and retried."""
        while True:
            succeeded = await self.look()
            await self._sleep(STEADY_SECONDS if succeeded else AGAIN_SECONDS)

    async def look(self) -> bool:
        """Reconcile the Secrets and certificates once; return true on success.

        The serving certificate is renewed even if the authority's Secret cannot be read.
        """
        try:
            try:
                await self._settle()
            finally:
                await self._renew()
            if self._spec.client_secret:
                await self._provide()
        except (KubeError, msgspec.DecodeError, BadPair, _ForeignData) as error:
            self._fail(error)
            return False
        self._problem = ""
        return True

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ApiError) and error.status == _CONFLICT:
            return  # another replica was faster: the next reconciliation reads what it wrote
        if self._problem != str(error):
            self._problem = str(error)
            _LOG.error("certificate Secret not reconciled", cause=self._problem)

    async def _settle(self) -> None:
        """Use the authority in the Secret; if the Secret is empty, store the authority of this replica there."""
        secret = await self._read(self._spec.secret)
        stored = self._stored(self._spec.secret, secret, CA_CERTIFICATE, CA_KEY)
        if stored is None:
            await self._store(secret)
        elif stored != self._pair:
            await self._take_over(stored)
        elif not self._is_valid_now(self._pair):
            raise _ForeignData(f"{self._where(self._spec.secret)}: {_OUT_OF_TIME}")
        self._shared.set()

    async def _store(self, secret: _Secret) -> None:
        """Store this replica's authority in the Secret. Replace the authority first if it is not valid now."""
        if not self._is_valid_now(self._pair):
            fresh = new_authority(self._clock())
            self._pair, self._serving = fresh, self._issued(fresh)
        data = {CA_CERTIFICATE: self._pair.certificates, CA_KEY: self._pair.key}
        await self._write(self._spec.secret, secret, data)
        name = authority_info(self._pair).common_name
        _LOG.info("authority stored", secret=self._where(self._spec.secret), name=name)

    def _is_valid_now(self, authority: Pair) -> bool:
        info = certificate_info(authority.certificates)
        return info.begins <= self._clock() < info.ends

    async def _take_over(self, stored: Pair) -> None:
        """Switch to the authority in the Secret. Its keys are verified in threads, because large keys take long.

        If it cannot be used, raises ``_ForeignData``, and the previous authority stays in use.
        """
        where = self._where(self._spec.secret)
        try:
            info = await asyncio.to_thread(authority_info, stored)
            serving = await asyncio.to_thread(self._issued, stored)
        except BadPair as error:
            raise _ForeignData(f"{where}: {CA_CERTIFICATE} and {CA_KEY} cannot be used: {error}") from None
        contents = (serving.certificates, serving.key, stored.certificates)
        why = await asyncio.to_thread(self._unusable, contents)
        if why:
            raise _ForeignData(f"{where}: certificates issued by {CA_CERTIFICATE} and {CA_KEY} cannot be used: {why}")
        self._pair, self._serving = stored, serving
        _LOG.info("authority read", secret=where, name=info.common_name)

    async def _renew(self) -> None:
        """Renew the serving certificate after two thirds of its lifetime, if the authority is valid.

        If the authority has expired, ``_settle`` reports it.
        """
        if self._is_valid_now(self._pair) and certificate_info(self._serving.certificates).needs_renewal(self._clock()):
            self._serving = await asyncio.to_thread(self._issued, self._pair)

    def _issued(self, authority: Pair) -> Pair:
        names = self._spec.dns_names
        return issue(authority, _SERVING_NAME, names, seconds=SERVING_SECONDS, now=self._clock())

    async def _provide(self) -> None:
        """Store the scheduler's client pair and the authority's certificates in the Secret that the scheduler mounts.

        A stored client pair is kept while ``_is_good`` is true for it.
        """
        spec = self._spec
        secret = await self._read(spec.client_secret)
        stored = self._stored(spec.client_secret, secret, CERTIFICATE, KEY)
        if stored is None or not await self._is_good(stored):
            if stored is not None:
                self._check_ours(stored)
            stored = await asyncio.to_thread(
                issue, self._pair, spec.client_name, (), seconds=spec.client_seconds, now=self._clock()
            )
        elif _value(secret, CA_CERTIFICATE) == self._pair.certificates:
            self._client_known = certificate_info(stored.certificates)
            return
        data = {CA_CERTIFICATE: self._pair.certificates, CERTIFICATE: stored.certificates, KEY: stored.key}
        await self._write(spec.client_secret, secret, data)
        self._client_known = certificate_info(stored.certificates)
        _LOG.info("client pair stored", secret=self._where(spec.client_secret), name=spec.client_name)

    async def _is_good(self, pair: Pair) -> bool:
        """Return true if the pair has the configured name, is issued by the authority in use, and need not be renewed.

        The signature of a pair is verified only once, because a large key takes a quarter of a second.
        """
        if self._provided != (self._pair, pair):
            if not await asyncio.to_thread(is_issued_by, self._pair, pair):
                return False
            self._provided = (self._pair, pair)
        info = certificate_info(pair.certificates)
        return info.common_name == self._spec.client_name and not info.needs_renewal(self._clock())

    async def _read(self, name: str) -> _Secret:
        return _SECRETS.decode(await self._client.get(SECRETS, self._spec.namespace, name))

    async def _write(self, name: str, secret: _Secret, data: Mapping[str, bytes]) -> None:
        """Store entries in the Secret. Raises ``ApiError`` with status 409 if it has changed since it was read."""
        change: dict[str, Any] = {
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": {key: b64encode(value).decode() for key, value in data.items()},
        }
        await self._client.patch(SECRETS, self._spec.namespace, name, change)

    def _where(self, name: str) -> str:
        return f"Secret {self._spec.namespace}/{name}"

    def _stored(self, name: str, secret: _Secret, certificate: str, key: str) -> Pair | None:
        """Return certificates and key in the Secret; ``None`` if both entries are empty.

        Raises ``_ForeignData`` if only one of them is empty.
        """
        pair = Pair(_value(secret, certificate), _value(secret, key))
        if bool(pair.certificates) != bool(pair.key):
            raise _ForeignData(f"{self._where(name)}: it must have both {certificate} and {key}, or neither")
        return pair if pair.certificates else None

    def _check_ours(self, pair: Pair) -> None:
        """Raise ``_ForeignData`` if the pair must not be overwritten: Homeport did not issue it, or it cannot be read.

        Accepts certificates that name an authority of Homeport as issuer, or that an authority in ``ca.crt`` issued.
        """
        where = self._where(self._spec.client_secret)
        try:
            info = certificate_info(pair.certificates)
        except BadPair as error:
            raise _ForeignData(f"{where}: {CERTIFICATE} cannot be used: {error}") from None
        if not info.issuer.startswith(COMMON_NAME) and not is_of_any(self._pair.certificates, pair.certificates):
            raise _ForeignData(f'{where}: {CERTIFICATE} was issued by "{info.issuer[:100]}", and not by Homeport')


def _value(secret: _Secret, key: str) -> bytes:
    """Return a decoded entry of the Secret; empty if it is missing or not base64."""
    try:
        return b64decode((secret.data or {}).get(key) or "", validate=True)
    except ValueError:
        return b""
