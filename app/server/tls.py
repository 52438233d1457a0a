"""Certificates of the listeners and of the hop between replicas, read again whenever their files change.

New connections get what was read last; open ones live on. A pair that does not fit, or is half written, is told and the
one before is kept: ``load_cert_chain`` on a context in use would leave it broken, so each reading makes new contexts.

Not here: who may do what (``access``), connections (``protocol``).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from msgspec import Struct

_LOG: Final = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks at the files. kubelet swaps a link, which is seen as well."""

_PROTOCOLS: Final = ["http/1.1"]
NO_PEER: Final = (
    "replicas know each other by this certificate: it must be of an authority in clientCAFile, for servers and for "
    "clients, and have a DNS name other than localhost"
)

_ROUNDS: Final = 10
"""Of an introduction in memory; TLS 1.2 takes the most, four."""


class CertificateError(ValueError):
    """The files cannot be used; says which and why."""


class _Read(Struct, frozen=True):
    """What a reading gave. ``name`` is how other replicas know ours; empty if they would not accept our certificate."""

    contents: tuple[bytes, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    name: str


class Certificates:
    """``server`` is for connections that come, ``client`` for those to other replicas. Raises ``CertificateError``.

    With ``client_ca_file`` callers are asked for a certificate; one of another authority ends the handshake, none at
    all does not, so that who has none can be told. With ``replicas``, what these would not accept is not taken.
    """

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None, *, replicas: bool = False) -> None:
        self._files = tuple(Path(it) for it in (cert_file, key_file, client_ca_file) if it is not None)
        self._told = ""
        self._peer: Peer | None = None
        self._replicas = replicas
        self._looked = self._look()
        self._read = self._load()

    @property
    def server(self) -> ssl.SSLContext:
        return self._read.server

    @property
    def names(self) -> frozenset[str]:
        """The name by which replicas know each other; none if they would not accept our certificate.

        No others that a certificate has: an address or ``localhost`` may be in anybody's.
        """
        return frozenset((self._read.name,)) if self._read.name else frozenset()

    def peer(self) -> Peer:
        """How to speak to another replica. Raises ``CertificateError``: it would not accept us, nor we it."""
        if self._peer is None:
            self._peer = self._find_peer()
        return self._peer

    def _find_peer(self) -> Peer:
        if self._read.client is None or not self._read.name:
            raise CertificateError(f"{self._files[0]}: {NO_PEER}")
        return Peer(self._read.client, self._read.name)

    async def follow(self) -> NoReturn:
        """Read again what has changed, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.reread()

    async def reread(self) -> bool:
        """Look whether the files have changed, and read them if so; whether there is something new."""
        looked = self._look()
        if looked == self._looked:
            return False
        try:
            found = await asyncio.to_thread(self._load)
        except CertificateError as error:
            self._tell(str(error))
            return False
        if self._replicas and not found.name:
            self._tell(f"{self._files[0]}: {NO_PEER}")
            return False
        self._looked, self._told = looked, ""
        if found.contents == self._read.contents:
            return False
        self._read, self._peer = found, None
        _LOG.info("certificates read", files=[str(file) for file in self._files], name=found.name)
        return True

    def _tell(self, cause: str) -> None:
        if cause != self._told:
            self._told = cause
            _LOG.error("certificates not usable, the former ones are kept", cause=cause)

    def _look(self) -> tuple[object, ...]:
        try:
            found = [file.stat() for file in self._files]
        except OSError as error:
            return (str(error),)
        return tuple((it.st_mtime_ns, it.st_ino, it.st_size) for it in found)

    def _load(self) -> _Read:
        certificate, key, *authorities = self._files
        contents = self._contents()
        try:
            server = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authorities)
            client = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authorities) if authorities else None
        except (OSError, ValueError) as error:
            raise CertificateError(f"{', '.join(map(str, self._files))}: {_told(error)}") from None
        if contents != self._contents():
            raise CertificateError(f"{certificate}: changed while it was read")
        return _Read(contents, server, client, _peer_name(server, client))

    def _contents(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in self._files)
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from None


class Peer(Struct, frozen=True, eq=False):
    """TLS to another replica, whose certificate must have ``name``."""

    context: ssl.SSLContext
    name: str


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The common names and all alternative names of what ``getpeercert`` gave."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = (value for key, value in subject if key == "commonName")
    return frozenset((*common, *(str(value) for _, value in certificate.get("subjectAltName", ()))))


def _context(purpose: int, certificate: Path, key: Path, authorities: Sequence[Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_PROTOCOLS)
    context.load_cert_chain(certificate, key)
    for file in authorities:
        context.load_verify_locations(file)
    if purpose == ssl.PROTOCOL_TLS_SERVER:
        context.verify_mode = ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE
        context.num_tickets = 0  # nobody comes back by a ticket after his authority was taken out
        context.options |= ssl.OP_NO_TICKET
    return context


def _peer_name(server: ssl.SSLContext, client: ssl.SSLContext | None) -> str:
    """The first name by which another replica would accept our certificate; empty without one."""
    if client is None:
        return ""
    client.check_hostname = False
    try:
        found = _introduced(server, client, None)
    finally:
        client.check_hostname = True
    names = (value for kind, value in found.get("subjectAltName", ()) if kind == "DNS")
    return next((it for it in sorted(names) if _is_own(it) and _introduced(server, client, it)), "")


def _is_own(name: str) -> bool:
    return "*" not in name and name.lower().rstrip(".").rpartition(".")[2] != "localhost"


def _introduced(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> Mapping[str, Any]:
    """Our certificate as another replica would see it: a handshake of ours with ourselves, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server, server_hostname=name)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    with suppress(ssl.SSLError):
        for _ in range(_ROUNDS):
            done = [_stepped(it) for it in (caller, called)]
            if all(done):
                return (caller.getpeercert() or {}) if called.getpeercert() else {}
    return {}


def _stepped(side: ssl.SSLObject) -> bool:
    """Take part in the handshake as far as it goes; whether it is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _told(error: Exception) -> str:
    """OpenSSL's words without its source lines."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
