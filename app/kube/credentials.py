"""Credentials for the API server, from a kubeconfig or a pod's service account, and their renewal.

The ``kubernetes`` library reads certificates, tokens and token files, and runs exec plugins
(docs/adr/0003-credentials-by-a-library.md). The library blocks, so ``Credentials`` uses it in a thread. This module
decides when to read credentials again, and creates the TLS context for requests.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
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
"""Credentials are renewed after this fraction of the time from their reading to their expiry."""

_PLUGIN_SECONDS: Final = 60.0
"""Timeout of one read of the credentials, which can run an exec plugin."""

_TRY_AGAIN_SECONDS: Final = 5.0
"""Seconds until a failed renewal is repeated, while the previous credentials are valid.

Also the minimum seconds from a successful read to a new read after a status 401.
"""

_SHORTEST_LIFE: Final = 1.0  # seconds; an exec plugin that returns expired credentials must not run for each request


@dataclass(frozen=True, slots=True)
class Access:
    """Server, credentials and proxy for requests. ``tls`` is the same object until the source's ``Tls`` changes.

    ``impersonated``: user whose permissions the requests have instead of the credentials' own; empty for none.
    """

    server: str
    authorization: str
    tls: ssl.SSLContext
    tls_server_name: str
    proxy: str
    impersonated: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """Choice of credentials on a command line, with kubectl's flags: ``--kubeconfig``, ``--context`` and ``--as``."""

    kubeconfig: str | None = None
    context: str = ""
    impersonated: str = ""

    def credentials(self) -> Credentials:
        """Check and return the credentials. Raises ``CredentialsError``."""
        return load(self.kubeconfig, context=self.context, impersonated=self.impersonated)

    def namespace(self) -> str:
        """Return the default namespace like kubectl, see ``namespace_in_use``. Raises ``CredentialsError``."""
        return namespace_in_use(self.kubeconfig, context=self.context)


def load(
    kubeconfig: str | None = None,
    *,
    context: str = "",
    impersonated: str = "",
    service_account: Path = SERVICE_ACCOUNT,
) -> Credentials:
    """Check the credentials of a source and return them. Raises ``CredentialsError``.

    The source is ``kubeconfig`` if it is given, else ``$KUBECONFIG`` if it is set. Otherwise it is the service account,
    unless there is none or a ``context`` is given; then it is ``~/.kube/config``. ``kubeconfig`` can be a list of files
    like ``$KUBECONFIG``. ``context``: name of a context in the kubeconfig; empty for the current one. ``impersonated``:
    user as whom requests are sent. Exec plugins do not run before the first request.
    """
    source = source_of(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account, context)
    source.check()
    return Credentials(source, impersonated=impersonated)


def namespace_in_use(
    kubeconfig: str | None = None, *, context: str = "", service_account: Path = SERVICE_ACCOUNT
) -> str:
    """Return the default namespace like kubectl: the namespace of the context, or of the pod.

    The source is that of ``load``. Without credentials, or without a namespace in them, ``default`` is returned.
    Cluster and user of the context need not exist. Raises ``CredentialsError`` if a given ``kubeconfig`` or ``context``
    does not exist, if the current context is not defined, or if a file cannot be read.
    """
    source = source_of(kubeconfig or os.environ.get("KUBECONFIG", ""), service_account, context)
    return source.namespace(required=bool(kubeconfig or context)) or "default"


class Credentials:
    """Credentials that are read again before a request if necessary.

    This is necessary after a minute (unless an exec plugin supplies the credentials), shortly before they expire, and
    after the API server has rejected them.
    """

    def __init__(self, source: Source, *, impersonated: str = "", now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._impersonated = impersonated
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

        It is ``None`` before the first read, or if the certificate is absent or cannot be parsed. It is also ``None``
        if an exec plugin supplies the credentials.
        """
        return self._certificate_ends

    @property
    def server(self) -> str:
        """URL of the API server; the name of the credentials' source before the first read."""
        return str(self._source) if self._access is None else self._access.server

    def rejection(self, cause: str) -> str:
        """Return text for users about a 401 of the API server: the expiry of an expired certificate, else ``cause``."""
        ends = self._certificate_ends
        if ends is not None and ends <= self._now():
            cause = f"the client certificate expired on {datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC"
        return f"the API server ({self.server}) rejects the credentials: {cause}"

    async def access(self) -> Access:
        """Return the access for the next request; first read the credentials again if necessary.

        Raises ``CredentialsError`` if they cannot be read, and there are no previous ones that are still valid.
        """
        if self._access is None or self._now() >= self._renew_at:
            async with self._lock:
                if self._access is None or self._now() >= self._renew_at:
                    return await self._keep_fresh()
        return self._access

    async def renewed(self, rejected: Access) -> Access:
        """Return the access for the retry of a request that was rejected with status 401. Raises ``CredentialsError``.

        The credentials are read again, but only once if many requests are rejected at the same time. They are not read
        within 5 s of the previous read; the result can then be ``rejected`` itself.
        """
        async with self._lock:
            too_soon = self._now() - self._read_at < _TRY_AGAIN_SECONDS
            if self._access is not None and (self._access is not rejected or too_soon):
                return self._access
            return await self._read()

    async def _keep_fresh(self) -> Access:
        """Read the credentials again. If that fails, return the previous access until it expires."""
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
        self._access = Access(
            loaded.server,
            loaded.authorization,
            context,
            loaded.tls_server_name,
            loaded.proxy,
            self._impersonated,
        )
        return self._access

    def _read_and_build(self) -> tuple[LoadedCredentials, ssl.SSLContext]:
        loaded = self._source.read()
        if self._access is not None and self._tls == loaded.tls:
            return loaded, self._access.tls
        with credentials_errors(str(self._source)):
            return loaded, _context(loaded.tls)


def _certificate_ends(loaded: LoadedCredentials) -> float | None:
    """Return the expiry of the client certificate as a Unix time; for ``None``, see ``Credentials.certificate_ends``.

    The client's certificate is the first certificate in the file; the others belong to its issuers.
    """
    authority, certificate, _ = loaded.tls.files
    if not certificate or loaded.renews_certificate:
        return None
    try:
        own = x509.load_pem_x509_certificate(loaded.tls.contents[1 if authority else 0])
    except ValueError:  # this parser rejects some certificates that OpenSSL accepts
        return None
    return own.not_valid_after_utc.timestamp()


def _context(tls: Tls) -> ssl.SSLContext:
    authority, certificate, key = tls.files
    context = ssl.create_default_context(cafile=authority)
    # Python 3.13 requires key identifiers in certificates. Cluster CAs often lack them, and Go does not require them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
