"""Who may ask what of a listener: decided by the certificate of the connection and the head of the request.

    verbs       the four verbs, cycle, allow, reject     a certificate where a CA is given, one of ``allowed`` names
    operator    probes and metrics                       everybody
                other pages: reading alone               over loopback, ``open_reads``, or a certificate of ``readers``
    peers       what other replicas send on              a certificate like our own
    one port    on loopback, or as strict as the verbs   both of the first two

No listener answers a web page of another site: a browser on the machine, or in the cluster's network, reaches what its
user reaches. Links into the operator's pages work.

Not here: certificates (``tls``), and what a refusal looks like (``errors``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

Role = Literal["verbs", "operator", "peers"]

OPEN_TARGETS: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Probes and metrics: they tell nothing of anybody's pods, and change nothing. With a query they may tell more."""

WATCHED: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"})
"""The headers that are looked at."""

NO_CERTIFICATE: Final = "homeport: this needs a client certificate of an authority in clientCAFile"
WRONG_NAME: Final = "homeport: the client certificate has none of the names that may ask this"
NOT_A_PEER: Final = "homeport: the client certificate is not that of a replica"
READS_CLOSED: Final = (
    "homeport: off loopback, pages other than probes and metrics need a client certificate with one of readerNames, "
    "or openReads: true"
)
FOREIGN_SITE: Final = "homeport: not from a page of another site"
FOREIGN_HOST: Final = "homeport: a listener on loopback is asked by its own name only"

_READS: Final = (b"GET", b"HEAD")
_OWN_SITES: Final = (b"same-origin", b"none")
_LONGEST_OWN_HOST: Final = 64
_NEAR: Final = ("127.0.0.1", "::1")
_NOBODY: Final = frozenset[str]()

Names = frozenset[str]
Headers = Mapping[bytes, bytes]


class Access(Struct, frozen=True):
    """What a listener lets through. ``our_names`` are those of our own certificate, as it is now.

    ``certified``: who calls a verb needs a certificate, by one of the ``allowed`` names if there are any. ``pages``:
    there are some for people, which others link to.
    """

    role: Role
    loopback: bool
    certified: bool = False
    allowed: Names = _NOBODY
    readers: Names = _NOBODY
    open_reads: bool = False
    pages: bool = False
    our_names: Callable[[], Names] = frozenset

    def refusal(self, names: Names | None, method: bytes, target: str, headers: Headers, *, near: bool = False) -> str:
        """Why a request is not answered; empty if it is. ``names``: in the caller's certificate, ``None`` without one.

        ``target``: the path, with its query. ``headers`` holds those of ``WATCHED``. ``near``: the connection came over
        loopback, as ``kubectl port-forward`` and ``exec`` do, which take rights of their own to use.
        """
        near = near and is_own_host(headers.get(b"host", b""))
        return self._of_caller(names, method, target, near=near) or self._of_site(method, headers)

    def _of_caller(self, names: Names | None, method: bytes, target: str, *, near: bool) -> str:
        if self.role == "operator":
            is_open = (target in OPEN_TARGETS and method in _READS) or self.loopback or near or self.open_reads
            return "" if is_open or not self.readers.isdisjoint(names or ()) else READS_CLOSED
        if not self.certified:
            return ""
        if names is None:
            return NO_CERTIFICATE
        if not names.isdisjoint(self.our_names()):
            return ""
        if self.role == "peers":
            return NOT_A_PEER
        return "" if not self.allowed or not self.allowed.isdisjoint(names) else WRONG_NAME

    def _of_site(self, method: bytes, headers: Headers) -> str:
        if not headers:
            return ""
        if self.loopback and not is_own_host(headers.get(b"host", b"")):
            return FOREIGN_HOST
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in _OWN_SITES:
            return "" if self.pages and method == b"GET" and _is_link(headers) else FOREIGN_SITE
        origin = headers.get(b"origin")
        if origin is not None and not _is_same(origin, headers.get(b"host", b"")):
            return FOREIGN_SITE
        return ""


def _is_link(headers: Headers) -> bool:
    """Followed by a person, and not shown in a frame of the other site."""
    return headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest", b"document") == b"document"


def is_near(address: str) -> bool:
    """Whether a connection comes from this pod or machine. Other loopback addresses are those of proxies in a pod."""
    return address in _NEAR


def is_own_host(host: bytes) -> bool:
    """Whether a Host header names this machine as only itself can: a name that resolves to it can be anybody's."""
    return not host or (len(host) <= _LONGEST_OWN_HOST and _names_loopback(host))


@lru_cache(maxsize=64)
def _names_loopback(host: bytes) -> bool:
    name, _, port = host.decode("latin-1").rpartition(":")
    if not name or not port.isdecimal():
        name = host.decode("latin-1")
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_same(origin: bytes, host: bytes) -> bool:
    """Whether an Origin is the very place that was asked. ``null`` is nobody's."""
    try:
        found = urlsplit(origin.decode("latin-1"))
    except ValueError:
        return False
    return bool(found.netloc) and found.netloc.lower() == host.decode("latin-1").lower()
