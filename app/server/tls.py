"""Certificates of listeners and of connections between replicas. They are read from files or memory, and reloaded when
they change.

New connections use the latest valid certificates; open connections are kept. If new certificates cannot be used, an
error is logged and the former ones stay in use. Each reload creates new contexts, because a failed ``load_cert_chain``
leaves a context broken.

Not here: access rules (``access``), connections (``protocol``).
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NoReturn, Protocol

import structlog
from msgspec import Struct

from app.replicas.issuing import BadPair, certificate_info

_LOG: Final = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 1.0
"""Interval between two checks of the source. A check of files also detects an updated Secret volume, in which the
kubelet swaps a symbolic link.
"""

_PROTOCOLS: Final = ["http/1.1"]
NO_PEER: Final = (
    "replicas verify each other by this certificate: it must be of an authority in clientCAFile, for servers and for "
    "clients, and have a DNS name other than localhost"
)

_PAIR: Final = 2
"""Number of PEM contents of a source without authorities: the certificate chain and its key."""

_ROUNDS: Final = 10
"""Maximum number of rounds of an in-memory handshake. TLS 1.2 needs three, TLS 1.3 two."""


class CertificateError(ValueError):
    """The certificates cannot be used; the message names the files or the source, and the reason."""


class CertificateSource(Protocol):
    """Source of a certificate chain, its key, and optional authorities: files or memory."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the certificate, its key, and the authorities, if any, for use in messages."""
        ...

    def stamp(self) -> object:
        """Return a value that is cheap to compute. It differs from the last one if the contents might have changed."""
        ...

    def contents(self) -> tuple[bytes, ...]:
        """Return the contents in PEM, in the order of ``names``. Raises ``CertificateError``."""
        ...


class CertificateFiles:
    """Files with a certificate chain, its key, and optional authorities."""

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None) -> None:
        self._files = tuple(Path(it) for it in (cert_file, key_file, client_ca_file) if it is not None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self._files))

    def stamp(self) -> object:
        try:
            stats = [file.stat() for file in self._files]
        except OSError as error:
            return str(error)
        return tuple((it.st_mtime_ns, it.st_ino, it.st_size) for it in stats)

    def contents(self) -> tuple[bytes, ...]:
        """Read the files.

        Raises ``CertificateError``, also if a file changes meanwhile, because the contents might not belong together.
        """
        first = self._read()
        if first != self._read():
            raise CertificateError(f"{self._files[0]}: changed while it was read")
        return first

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in self._files)
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from None


class InMemoryCertificates(Struct, frozen=True):
    """Source of certificates that another part of the process holds and renews. Implements ``CertificateSource``."""

    stamp: Callable[[], object]
    contents: Callable[[], tuple[bytes, ...]]
    names: tuple[str, ...] = ("the self-signed certificate", "its key", "the self-signed authority")


class _LoadedCertificates(Struct, frozen=True):
    """Certificates that were loaded once from their source.

    ``client`` is ``None`` without authorities. ``name``: DNS name by which replicas verify this one; empty if they
    would reject the certificate. ``ends``: expiry times, see ``Certificates.ends``.
    """

    contents: tuple[bytes, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    name: str
    ends: Mapping[str, float]


class Certificates:
    """TLS contexts for incoming connections (``server``) and for connections to replicas (``peer``).

    The constructor raises ``CertificateError``. With authorities, client certificates are requested. The handshake
    fails for a certificate of another authority. It succeeds without a client certificate, so that the client gets an
    HTTP error. With ``replicas``, a reload does not use certificates that replicas would reject.
    """

    def __init__(self, source: CertificateSource, *, replicas: bool = False) -> None:
        self._source = source
        self._last_failure = ""
        self._peer: Peer | None = None
        self._replicas = replicas
        self._last_stamp = source.stamp()
        self._read = self._load()

    @property
    def server(self) -> ssl.SSLContext:
        return self._read.server

    @property
    def names(self) -> frozenset[str]:
        """Set with the one DNS name by which replicas verify each other; empty if they would reject our certificate.

        Other names are left out, because certificates of other processes can have them too, for example ``localhost``.
        """
        return frozenset((self._read.name,)) if self._read.name else frozenset()

    def ends(self) -> Mapping[str, float]:
        """Return expiry times in seconds since the epoch: ``serving`` for our certificate, and ``authority`` for the
        first authority, if any. A certificate that ``cryptography`` cannot parse is left out.
        """
        return self._read.ends

    def peer(self) -> Peer:
        """Return the TLS parameters for connections to replicas.

        Raises ``CertificateError`` if mutual verification would fail.
        """
        if self._read.client is None or not self._read.name:
            raise CertificateError(f"{self._source.names[0]}: {NO_PEER}")
        if self._peer is None:
            self._peer = Peer(self._read.client, self._read.name)
        return self._peer

    async def follow(self) -> NoReturn:
        """Reload after changes, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.reread()

    async def reread(self) -> bool:
        """Reload if the source's stamp has changed. Return true if different certificates are now in use.

        If the new ones cannot be used, the former ones are kept, and an error is logged once for its cause.
        """
        looked = self._source.stamp()
        if looked == self._last_stamp:
            return False
        try:
            reloaded = await asyncio.to_thread(self._load)
        except CertificateError as error:
            self._log_failure(str(error))
            return False
        if self._replicas and not reloaded.name:
            self._log_failure(f"{self._source.names[0]}: {NO_PEER}")
            return False
        self._last_stamp, self._last_failure = looked, ""
        if reloaded.contents == self._read.contents:
            return False
        self._read, self._peer = reloaded, None
        _LOG.info("certificates read", files=list(self._source.names), name=reloaded.name)
        return True

    def _log_failure(self, cause: str) -> None:
        if cause != self._last_failure:
            self._last_failure = cause
            _LOG.error("certificates not usable, the former ones stay in use", cause=cause)

    def _load(self) -> _LoadedCertificates:
        contents = self._source.contents()
        try:
            server = _context(ssl.PROTOCOL_TLS_SERVER, *contents)
            client = _context(ssl.PROTOCOL_TLS_CLIENT, *contents) if len(contents) > _PAIR else None
        except (OSError, ValueError) as error:
            raise CertificateError(f"{', '.join(self._source.names)}: {_openssl_error(error)}") from None
        return _LoadedCertificates(contents, server, client, _peer_name(server, client), _ends(contents))


def unusable(contents: tuple[bytes, ...]) -> str:
    """Return why a listener or another replica could not use a chain, its key and authorities; empty if both could."""
    try:
        server = _context(ssl.PROTOCOL_TLS_SERVER, *contents)
        client = _context(ssl.PROTOCOL_TLS_CLIENT, *contents)
    except (OSError, ValueError) as error:
        return _openssl_error(error)
    return "" if _peer_name(server, client) else NO_PEER


class Peer(Struct, frozen=True, eq=False):
    """TLS parameters for connections to other replicas, whose certificate must have the DNS name ``name``."""

    context: ssl.SSLContext
    name: str


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common names and all alternative names in ``certificate``, a result of ``getpeercert``."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = (value for key, value in subject if key == "commonName")
    return frozenset((*common, *(str(value) for _, value in certificate.get("subjectAltName", ()))))


def _context(purpose: int, chain: bytes, key: bytes, authorities: bytes | None = None) -> ssl.SSLContext:
    """Create a TLS context. ``purpose``: protocol constant of ``ssl`` for servers or clients. Contents are in PEM.

    Raises ``OSError`` or ``ValueError`` if the contents cannot be used.
    """
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_PROTOCOLS)
    with _as_file(chain) as chain_file, _as_file(key) as key_file:
        context.load_cert_chain(chain_file, key_file, password=b"")  # an encrypted key fails instead of prompting
    if authorities is not None:
        with _as_file(authorities) as file:
            context.load_verify_locations(file)
    if purpose == ssl.PROTOCOL_TLS_SERVER:
        context.verify_mode = ssl.CERT_NONE if authorities is None else ssl.CERT_OPTIONAL
        context.num_tickets = 0  # a ticket would stay valid after the client's authority is removed
        context.options |= ssl.OP_NO_TICKET
    return context


def _ends(contents: tuple[bytes, ...]) -> Mapping[str, float]:
    """Return the result of ``Certificates.ends``. OpenSSL accepts certificates that ``cryptography`` cannot parse."""
    times = {}
    for name, content in zip(("serving", "authority"), (contents[0], *contents[_PAIR:]), strict=False):
        with suppress(BadPair):
            times[name] = certificate_info(content).ends
    return times


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Provide the content as a file, because ``ssl`` reads only files.

    If the system supports it, the file is in memory, so that no key is written to a disk.
    """
    if not hasattr(os, "memfd_create"):
        with NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("certificates")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _peer_name(server: ssl.SSLContext, client: ssl.SSLContext | None) -> str:
    """Return the alphabetically first DNS name by which another replica would accept our certificate, or ``""``."""
    if client is None:
        return ""
    client.check_hostname = False
    try:
        certificate = _handshake(server, client, None)
    finally:
        client.check_hostname = True
    names = (value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")
    return next((it for it in sorted(names) if _is_usable_name(it) and _handshake(server, client, it)), "")


def _is_usable_name(name: str) -> bool:
    return "*" not in name and name.lower().rstrip(".").rpartition(".")[2] != "localhost"


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> Mapping[str, Any]:
    """Return our certificate as another replica would see it. The result comes from an in-memory handshake with this
    process.

    Return an empty mapping if one side rejects the certificate of the other, or if ours is not valid for ``name``.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname=name)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    with suppress(ssl.SSLError):
        for _ in range(_ROUNDS):
            done = [_advance(it) for it in (caller, called)]
            if all(done):
                return (caller.getpeercert() or {}) if called.getpeercert() else {}
    return {}


def _advance(side: ssl.SSLObject) -> bool:
    """Advance the handshake as far as possible; return true once it is complete."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _openssl_error(error: Exception) -> str:
    """Return the reason of an OpenSSL error, without library, function and line."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
