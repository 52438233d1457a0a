"""Certificates of the listeners and of the hop between replicas, from files or memory, read again whenever they change.

New connections get what was read last; open ones live on. A pair that does not fit, or is half written, is told and the
one before is kept: ``load_cert_chain`` on a context in use would leave it broken, so each reading makes new contexts.

Not here: who may do what (``access``), connections (``protocol``).
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

LOOK_SECONDS: Final = 1.0
"""Between two looks at the files. kubelet swaps a link, which is seen as well."""

_PROTOCOLS: Final = ["http/1.1"]
NO_PEER: Final = (
    "replicas know each other by this certificate: it must be of an authority in clientCAFile, for servers and for "
    "clients, and have a DNS name other than localhost"
)

_PAIR: Final = 2
"""Contents without authorities."""

_ROUNDS: Final = 10
"""Of an introduction in memory; TLS 1.2 takes the most, four."""


class CertificateError(ValueError):
    """The files cannot be used; says which and why."""


class Source(Protocol):
    """Where certificates come from."""

    @property
    def names(self) -> tuple[str, ...]:
        """For a person: of the certificate, its key, and of the authorities if callers are asked for certificates."""
        ...

    def stamp(self) -> object:
        """Cheap to make, and another one if something may have changed."""
        ...

    def contents(self) -> tuple[bytes, ...]:
        """PEM, as many as ``names``. Raises ``CertificateError``."""
        ...


class Files:
    """A certificate chain, its key, and authorities or none."""

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None) -> None:
        self._files = tuple(Path(it) for it in (cert_file, key_file, client_ca_file) if it is not None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self._files))

    def stamp(self) -> object:
        try:
            found = [file.stat() for file in self._files]
        except OSError as error:
            return str(error)
        return tuple((it.st_mtime_ns, it.st_ino, it.st_size) for it in found)

    def contents(self) -> tuple[bytes, ...]:
        """Raises ``CertificateError`` also where they change while they are read: they may not belong together."""
        found = self._read()
        if found != self._read():
            raise CertificateError(f"{self._files[0]}: changed while it was read")
        return found

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in self._files)
        except OSError as error:
            raise CertificateError(f"{error.filename}: {error.strerror}") from None


class InMemory(Struct, frozen=True):
    """What another part of the process holds and replaces."""

    stamp: Callable[[], object]
    contents: Callable[[], tuple[bytes, ...]]
    names: tuple[str, ...] = ("the certificate made here", "its key", "the authority made here")


class _Read(Struct, frozen=True):
    """What a reading gave. ``name`` is how other replicas know ours; empty if they would not accept our certificate."""

    contents: tuple[bytes, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext | None
    name: str
    ends: Mapping[str, float]


class Certificates:
    """``server`` is for connections that come, ``client`` for those to other replicas. Raises ``CertificateError``.

    With authorities callers are asked for a certificate; one of another authority ends the handshake, none at
    all does not, so that who has none can be told. With ``replicas``, what these would not accept is not taken.
    """

    def __init__(self, source: Source, *, replicas: bool = False) -> None:
        self._source = source
        self._told = ""
        self._peer: Peer | None = None
        self._replicas = replicas
        self._looked = source.stamp()
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

    def ends(self) -> Mapping[str, float]:
        """When they end, seconds since the epoch: ``serving``, and the first ``authority`` where there is one."""
        return self._read.ends

    def peer(self) -> Peer:
        """How to speak to another replica. Raises ``CertificateError``: it would not accept us, nor we it."""
        if self._peer is None:
            self._peer = self._find_peer()
        return self._peer

    def _find_peer(self) -> Peer:
        if self._read.client is None or not self._read.name:
            raise CertificateError(f"{self._source.names[0]}: {NO_PEER}")
        return Peer(self._read.client, self._read.name)

    async def follow(self) -> NoReturn:
        """Read again what has changed, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.reread()

    async def reread(self) -> bool:
        """Look whether there is another stamp, and read if so; whether there is something new."""
        looked = self._source.stamp()
        if looked == self._looked:
            return False
        try:
            found = await asyncio.to_thread(self._load)
        except CertificateError as error:
            self._tell(str(error))
            return False
        if self._replicas and not found.name:
            self._tell(f"{self._source.names[0]}: {NO_PEER}")
            return False
        self._looked, self._told = looked, ""
        if found.contents == self._read.contents:
            return False
        self._read, self._peer = found, None
        _LOG.info("certificates read", files=list(self._source.names), name=found.name)
        return True

    def _tell(self, cause: str) -> None:
        if cause != self._told:
            self._told = cause
            _LOG.error("certificates not usable, the former ones are kept", cause=cause)

    def _load(self) -> _Read:
        contents = self._source.contents()
        try:
            server = _context(ssl.PROTOCOL_TLS_SERVER, *contents)
            client = _context(ssl.PROTOCOL_TLS_CLIENT, *contents) if len(contents) > _PAIR else None
        except (OSError, ValueError) as error:
            raise CertificateError(f"{', '.join(self._source.names)}: {_told(error)}") from None
        return _Read(contents, server, client, _peer_name(server, client), _ends(contents))


def unusable(contents: tuple[bytes, ...]) -> str:
    """Why listeners and other replicas would not take a chain, its key and authorities; empty if they would."""
    try:
        server = _context(ssl.PROTOCOL_TLS_SERVER, *contents)
        client = _context(ssl.PROTOCOL_TLS_CLIENT, *contents)
    except (OSError, ValueError) as error:
        return _told(error)
    return "" if _peer_name(server, client) else NO_PEER


class Peer(Struct, frozen=True, eq=False):
    """TLS to another replica, whose certificate must have ``name``."""

    context: ssl.SSLContext
    name: str


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The common names and all alternative names of what ``getpeercert`` gave."""
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = (value for key, value in subject if key == "commonName")
    return frozenset((*common, *(str(value) for _, value in certificate.get("subjectAltName", ()))))


def _context(purpose: int, chain: bytes, key: bytes, authorities: bytes | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_PROTOCOLS)
    with _as_file(chain) as chain_file, _as_file(key) as key_file:
        context.load_cert_chain(chain_file, key_file, password=b"")  # a key with one is refused, not asked about
    if authorities is not None:
        with _as_file(authorities) as file:
            context.load_verify_locations(file)
    if purpose == ssl.PROTOCOL_TLS_SERVER:
        context.verify_mode = ssl.CERT_NONE if authorities is None else ssl.CERT_OPTIONAL
        context.num_tickets = 0  # nobody comes back by a ticket after his authority was taken out
        context.options |= ssl.OP_NO_TICKET
    return context


def _ends(contents: tuple[bytes, ...]) -> Mapping[str, float]:
    """Of what OpenSSL takes and cannot be read here nothing is known."""
    found = {}
    for name, content in zip(("serving", "authority"), (contents[0], *contents[_PAIR:]), strict=False):
        with suppress(BadPair):
            found[name] = certificate_info(content).ends
    return found


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """``ssl`` reads files alone. Where files can be in memory this is one: no folder is written to, nothing stays."""
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
