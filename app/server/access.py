"""Access control of listeners, based on the connection's certificate and the head of the request.

    listener    serves                                   accepts
    verbs       the four verbs, cycle, allow, reject     every client; over TLS with a CA, a certificate with an
                                                         ``allowed`` name (any name if none is configured), or with
                                                         a name of our own
    operator    probes and metrics                       every client
                other pages: read-only                   over loopback, ``open_reads``, or a certificate of ``readers``
    peers       verbs forwarded by other replicas        a certificate with a name of our own

Without an operator listener, the listener for verbs also serves the pages, with the access rules for verbs.

Listeners reject requests that web pages of other sites send through a user's browser, because such a browser might be
able to reach the listener. Other sites can only link to the operator's pages.

Not here: certificates (``tls``), and the format of refusals (``errors``, ``failures``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

Role = Literal["verbs", "operator", "peers"]
"""Role of a listener, see the table above."""

OPEN_TARGETS: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Probes and metrics. On the operator's listener, every client can read them: they show no pods and change nothing.

These paths with a query, for example ``/readyz?verbose``, are not open, because they can show more.
"""

WATCHED: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"})
"""Request headers that access control uses."""

NO_CERTIFICATE: Final = "homeport: a client certificate of an authority in clientCAFile is required"
WRONG_NAME: Final = "homeport: the client certificate has none of the allowed names"
NOT_A_PEER: Final = "homeport: the client certificate is not that of a replica"
READS_CLOSED: Final = (
    "homeport: off loopback, pages other than probes and metrics need a client certificate with one of readerNames, "
    "or openReads: true"
)
FOREIGN_SITE: Final = "homeport: requests from pages of other sites are rejected"
FOREIGN_HOST: Final = "homeport: a listener on loopback accepts only a loopback name or address as Host"

_READS: Final = (b"GET", b"HEAD")
_OWN_SITES: Final = (b"same-origin", b"none")
"""Values of ``Sec-Fetch-Site`` for requests of our own pages, and for addresses that the user entered."""

_LONGEST_OWN_HOST: Final = 64
"""Maximum length in bytes of a Host header that can be a loopback name or address."""

_LOCAL_ADDRESSES: Final = ("127.0.0.1", "::1")
_NO_NAMES: Final = frozenset[str]()

CertificateNames = frozenset[str]
"""Common names and alternative names in a certificate."""

Headers = Mapping[bytes, bytes]
"""Values of headers by name in lower case."""


class ListenerAccess(Struct, frozen=True):
    """Access rules of a listener.

    ``loopback``: the listener's address is a loopback address. ``certified``: callers of verbs need a certificate, with
    one of the ``allowed`` names, if any are configured, or one of our own. ``readers``: names in certificates whose
    clients can read the operator's pages; with ``open_reads`` every client can. ``pages``: the listener serves HTML
    pages, to which other sites can link. ``our_names`` returns the names in our own current certificate.
    """

    role: Role
    loopback: bool
    certified: bool = False
    allowed: CertificateNames = _NO_NAMES
    readers: CertificateNames = _NO_NAMES
    open_reads: bool = False
    pages: bool = False
    our_names: Callable[[], CertificateNames] = frozenset

    def refusal(
        self, names: CertificateNames | None, method: bytes, target: str, headers: Headers, *, local: bool = False
    ) -> str:
        """Return why a request is rejected; empty if it is allowed.

        ``names``: names in the client certificate, ``None`` without one. ``target``: the path with its query.
        ``headers``: the headers of ``WATCHED`` that the request has.

        ``local``: the connection came over loopback, for example by ``kubectl port-forward`` or ``kubectl exec``. Such
        a client can read the operator's pages if ``is_own_host`` accepts its Host header, because kubectl already
        needed a permission to connect.
        """
        local = local and is_own_host(headers.get(b"host", b""))
        return self._of_caller(names, method, target, local=local) or self._of_site(method, headers)

    def _of_caller(self, names: CertificateNames | None, method: bytes, target: str, *, local: bool) -> str:
        """Return why the client is not allowed to send this request; empty if it is allowed."""
        if self.role == "operator":
            is_open = (target in OPEN_TARGETS and method in _READS) or self.loopback or local or self.open_reads
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
        """Return why a request that might come from a page of another site is rejected; empty if it is allowed."""
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
    """Return true if a request from a page of another site is a link that the browser opens, not a frame there."""
    return headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest", b"document") == b"document"


def is_local_client(address: str) -> bool:
    """Return true if a connection comes from this pod or host, over 127.0.0.1 or ::1.

    Service-mesh proxies in the pod use other loopback addresses, so clients behind them are not local.
    """
    return address in _LOCAL_ADDRESSES


def is_own_host(host: bytes) -> bool:
    """Return true if a Host header is empty, or a loopback name or address.

    Other names are rejected, because an attacker's domain name can resolve to a loopback address.
    """
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
    """Return true if host and port of an Origin equal those of the Host header. The Origin ``null`` has no host, so the
    result is false.
    """
    try:
        url = urlsplit(origin.decode("latin-1"))
    except ValueError:
        return False
    return bool(url.netloc) and url.netloc.lower() == host.decode("latin-1").lower()
