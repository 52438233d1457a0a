"""Fields of the Lease, decoded from the API server's JSON, and the terms of a leader."""

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
"""Annotation of the Lease: ``host:port`` to which followers forward verbs."""

SCHEDULERS: Final = f"{ANNOTATION_DOMAIN}schedulers"
"""Annotation of the Lease: schedulers whose pods its holder can bind. ``app.writes.callers`` defines the format."""

_LONGEST_ADDRESS: Final = 253 + len(":65535")
_LONGEST_TIME: Final = 64
"""Maximum characters of the address and of ``acquireTime``. Longer values are treated as missing."""


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
    """One version of the Lease that this replica has read, watched or written."""

    holder: str
    """Identity of the holder; empty if the Lease is released."""
    duration: float
    """``leaseDurationSeconds`` as the holder wrote it, without a bound; 0 if it is missing."""
    address: str
    """``host:port`` to which followers forward verbs; empty if it is missing or too long."""
    since: str
    """Time, on the holder's wall clock, at which it took the Lease, for display; empty if missing or too long."""
    transitions: int
    uid: str
    version: str
    callers: Callers | None
    """Schedulers whose pods the holder can bind; ``None`` if the annotation is missing or invalid."""
    raw: Mapping[str, Any]
    """The whole Lease object, so that a write keeps the fields that Homeport does not know."""

    @classmethod
    def of(cls, raw: bytes | msgspec.Raw) -> LeaseRecord:
        """Decode a Lease from JSON. Raises ``msgspec.DecodeError`` if it is invalid."""
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
        """The holder's identity for logs and pages, shortened, because a Lease can contain any text."""
        return shortened(self.holder)


def _up_to(most: int, text: str | None) -> str:
    return text if text is not None and len(text) <= most else ""


class LeadershipTerm(Struct, frozen=True):
    """One term of this replica as leader, which begins with a take-over from the previous holder."""

    number: int
    """Number that increases with each attempt of this process to take the Lease."""

    safe_at: float
    """Time, on the election's clock, by which the previous holder's last Binding is answered or timed out."""
    fence: Callers
    """Schedulers whose pending pods must be fenced off, because a late Binding of the previous holder can reach them.

    Empty if the previous holder released the Lease, or if this replica has seen no Lease before.
    """
    predecessor: str
    """Identity of the previous holder, shortened; empty if the Lease was released or did not exist."""
    together: bool = False
    """True if no Binding may be sent in any namespace before all pods to fence off (``fence``) are fenced off.

    It is set if the previous holder's process has ended. ``safe_at`` then does not include the time limit of its last
    Bindings, so they might still be in flight.
    """
