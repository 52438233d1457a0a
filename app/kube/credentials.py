"""Credentials for the API server, from a kubeconfig or a pod's service account, and their renewal.

The ``kubernetes`` library reads them (docs/adr/0003-credentials-by-a-library.md): certificates, tokens, token files,
exec plugins. It blocks, so it runs in a thread. This module only decides when to read again and prepares requests.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from app.kube.credential_sources import (
    SERVICE_ACCOUNT,
    CredentialsError,
    LoadedCredentials,
    Source,
    Tls,
    credentials_errors,
    source_of,
)

_LOG: Final = structlog.get_logger(__name__)

RENEW_AT: Final = 0.9
"""Fraction of its lifetime after which a credential with an expiry is renewed."""

_PLUGIN_SECONDS: Final = 60.0
_TRY_AGAIN_SECONDS: Final = 5.0
_SHORTEST_LIFE: Final = 1.0  # of expired credentials: a plugin must not run for each request


@dataclass(frozen=True, slots=True)
class Access:
    """Server, credentials and proxy for one request. ``tls`` is the identical object until certificates change."""

    server: str
    authorization: str
    tls: ssl.SSLContext
    tls_server_name: str
    proxy: str


def load(kubeconfig: str | None = None, *, service_account: Path = SERVICE_ACCOUNT) -> Credentials:
    """Find credentials: the file given, ``$KUBECONFIG``, a pod's service account, ``~/.kube/config``, in this order.

    ``kubeconfig`` can be a list of files as in ``$KUBECONFIG``. Plugins run only at the first request.
    Raises ``CredentialsError``.
    """
    source = source_of(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account)
    source.check()
    return Credentials(source)


def namespace_in_use(kubeconfig: str | None = None, *, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return the default namespace, like kubectl: that of the current context, or of the pod.

    Searches the same sources as ``load``; without credentials or a namespace in them, it returns ``default``. The
    cluster and user need not exist. Raises ``CredentialsError`` if the given ``kubeconfig`` does not exist, or if a
    file cannot be read.
    """
    source = source_of(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account)
    return source.namespace(required=bool(kubeconfig)) or "default"


class Credentials:
    """Credentials, read again each minute, before they expire, and when the API server rejects them."""

    def __init__(self, source: Source, *, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._lock = asyncio.Lock()
        self._access: Access | None = None
        self._tls: Tls | None = None
        self._read_at = -inf
        self._renew_at = -inf
        self._expires = -inf
        self._certificate_ends: float | None = None

    @property
    def certificate_ends(self) -> float | None:
        """Expiry of the client certificate as a Unix time.

        ``None`` if there is no certificate, if an exec plugin renews it, or before the first read.
        """
        return self._certificate_ends

    @property
    def server(self) -> str:
        """URL of the API server; the name of the credentials' source before the first read."""
        return str(self._source) if self._access is None else self._access.server

    async def access(self) -> Access:
        """Return the access for the next request; waits only for a read. Raises ``CredentialsError``."""
        if self._access is None or self._now() >= self._renew_at:
            async with self._lock:
                if self._access is None or self._now() >= self._renew_at:
                    return await self._keep_fresh()
        return self._access

    async def renewed(self, rejected: Access) -> Access:
        """Return the access after a 401. Many rejected requests cause only one read. Raises ``CredentialsError``."""
        async with self._lock:
            too_soon = self._now() - self._read_at < _TRY_AGAIN_SECONDS
            if self._access is not None and (self._access is not rejected or too_soon):
                return self._access
            return await self._read()

    async def _keep_fresh(self) -> Access:
        """Read again. If that fails, return the previous access until it expires."""
        try:
            return await self._read()
        except CredentialsError as error:
            if self._access is None or self._now() >= self._expires:
                raise
            self._renew_at = self._now() + _TRY_AGAIN_SECONDS
            _LOG.warning("credentials not renewed", cause=str(error))
            return self._access

    async def _read(self) -> Access:
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                loaded, context = await asyncio.to_thread(self._read_and_build)
        except TimeoutError:
            raise CredentialsError(f"{self._source}: no answer within {_PLUGIN_SECONDS:.0f} s") from None
        now = self._now()
        self._read_at, self._expires = now, loaded.expires
        life = RENEW_AT * (loaded.expires - now)
        self._renew_at = now + max(_SHORTEST_LIFE, min(loaded.reread, life))
        self._tls = loaded.tls
        self._certificate_ends = _certificate_ends(loaded)
        self._access = Access(loaded.server, loaded.authorization, context, loaded.tls_server_name, loaded.proxy)
        return self._access

    def _read_and_build(self) -> tuple[LoadedCredentials, ssl.SSLContext]:
        loaded = self._source.read()
        if self._access is not None and self._tls == loaded.tls:
            return loaded, self._access.tls
        with credentials_errors(str(self._source)):
            return loaded, _context(loaded.tls)


def _certificate_ends(loaded: LoadedCredentials) -> float | None:
    """Return the expiry of the first certificate, the client's own; the others belong to its issuers."""
    authority, certificate, _ = loaded.tls.files
    if not certificate or loaded.renews_certificate:
        return None
    try:
        own = x509.load_pem_x509_certificate(loaded.tls.contents[1 if authority else 0])
    except ValueError:  # OpenSSL accepts more than this parser
        return None
    return own.not_valid_after_utc.timestamp()


def _context(tls: Tls) -> ssl.SSLContext:
    authority, certificate, key = tls.files
    context = ssl.create_default_context(cafile=authority)
    # Python 3.13 sets this flag; it requires key identifiers that cluster CAs often lack. Go does not require them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
