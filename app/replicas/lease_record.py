"""The Lease as it is on the wire and as it was seen, and one leadership term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from app.kube.api_requests import Resource
from app.kube.decoding import Decoder
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.quoting import shortened
from app.writes.callers import Callers

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
ADDRESS: Final = f"{ANNOTATION_DOMAIN}address"
"""Annotation of the Lease: ``host:port`` at which its holder answers verbs."""

SCHEDULERS: Final = f"{ANNOTATION_DOMAIN}schedulers"
"""Annotation of the Lease: names of the schedulers whose pods were bound, see ``app.writes.callers``."""

_LONGEST_ADDRESS: Final = 253 + len(":65535")
_LONGEST_TIME: Final = 64


class _LeaseMeta(Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None
    annotations: dict[str, str | None] | None = None


class _LeaseSpec(Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: float | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _LeaseObject(Struct):
    metadata: _LeaseMeta | None = None
    spec: _LeaseSpec | None = None


_WHOLE: Final[Decoder[dict[str, Any]]] = Decoder(dict[str, Any])
_LEASE: Final = Decoder[_LeaseObject](_LeaseObject)


class LeaseRecord(Struct, frozen=True):
    """A Lease as it was seen. ``holder`` is empty once released. ``duration`` is in seconds, as written.

    ``address``: ``host:port`` of the holder, empty if it is too long · ``since``: when its holder took it, on the
    holder's wall clock, for display · ``callers``: schedulers whose pods were bound, ``None`` if missing or unreadable
    · ``raw``: the whole object.
    """

    holder: str
    duration: float
    address: str
    since: str
    transitions: int
    uid: str
    version: str
    callers: Callers | None
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, raw: bytes | msgspec.Raw) -> LeaseRecord:
        """Decode a Lease. Raises ``msgspec.DecodeError`` if it is invalid."""
        lease = _LEASE.decode(raw)
        metadata, spec = lease.metadata or _LeaseMeta(), lease.spec or _LeaseSpec()
        annotations = metadata.annotations or {}
        return cls(
            holder=spec.holder_identity or "",
            duration=spec.lease_duration_seconds or 0.0,
            address=_up_to(_LONGEST_ADDRESS, annotations.get(ADDRESS)),
            since=_up_to(_LONGEST_TIME, spec.acquire_time),
            transitions=spec.lease_transitions or 0,
            uid=metadata.uid or "",
            version=metadata.resource_version or "",
            callers=Callers.read(annotations.get(SCHEDULERS)),
            raw=_WHOLE.decode(raw),
        )

    @property
    def holder_shown(self) -> str:
        """The holder for logs and pages, shortened: a Lease can contain any text."""
        return shortened(self.holder)


def _up_to(most: int, text: str | None) -> str:
    return text if text is not None and len(text) <= most else ""


class LeadershipTerm(Struct, frozen=True):
    """One leadership term. ``safe_at``: time by which the predecessor's last Binding is answered or timed out.

    ``fence``: schedulers whose waiting pods a Binding of the predecessor may still reach; empty if the predecessor
    settled all its binds, or if there was none. ``together``: the predecessor's last Bindings might not have timed out,
    so that no Binding is sent in any namespace before all these pods are fenced off.
    """

    number: int
    safe_at: float
    fence: Callers
    predecessor: str
    together: bool = False
