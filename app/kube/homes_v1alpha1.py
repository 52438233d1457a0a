"""Homeport's custom resource Home. It records a home: the node on which the pods of an owner are placed again.

A home is stored in an annotation of the pod's owner, and is lost if the owner is deleted. If the rule of the
owner's kind remembers homes by name, Homeport also stores the home in a Home object. A new owner with the same name
then gets it back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, ObjectKey, OwnerReference, annotations_of, controller_of, required

API_VERSION: Final = "homeport.dev/v1alpha1"
KIND: Final = "Home"

_LONGEST_NAME: Final = 200
"""Maximum characters of the readable part of a Home's name, which precedes the hash."""

_DIGITS: Final = 12
"""Number of hexadecimal digits of the hash in the name of a Home."""


class RecordedKeeper(Struct, frozen=True, gc=False):
    """Owner with a recorded home, for example a StatefulSet. A new owner with the same name gets the home back.

    ``uid`` is the UID of the owner when the home was recorded. ``slot`` identifies the pod if each pod of the owner has
    its own home; it is empty for an owner with a single home.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    slot: str


class HomeRecord(Struct, frozen=True):
    """Custom resource Home, reduced to the fields that are read.

    ``owner``: controller in the owner references of the Home object itself. ``keeper``: owner of the home.
    ``node``: name of the home node. ``machine``: the node's systemUUID when the home was recorded; empty if unknown.
    ``since``: time (RFC 3339) at which the node became the home.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    keeper: RecordedKeeper
    node: str
    machine: str
    since: str

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class _KeeperObject(Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    slot: str | None = None


class _HomeSpecObject(Struct):
    owner: _KeeperObject | None = None
    node: str | None = None
    machine: str | None = None
    since: str | None = None


class _HomeObject(Struct):
    metadata: MetadataObject
    spec: _HomeSpecObject | None = None


_DECODER: Final = Decoder[_HomeObject](_HomeObject)


def decode_home(raw: bytes | Raw) -> HomeRecord:
    """Decode one Home. Raises ``msgspec.DecodeError``."""
    home = _DECODER.decode(raw)
    meta, spec = home.metadata, home.spec or _HomeSpecObject()
    keeper = spec.owner or _KeeperObject()
    return HomeRecord(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
        keeper=RecordedKeeper(
            sys.intern(keeper.api_version or ""),
            sys.intern(keeper.kind or ""),
            keeper.name or "",
            keeper.uid or "",
            keeper.slot or "",
        ),
        node=sys.intern(spec.node or ""),
        machine=sys.intern(spec.machine or ""),
        since=spec.since or "",
    )


@lru_cache(maxsize=16384)
def memory_name(api_version: str, kind: str, name: str, slot: str) -> str:
    """Return the name of the Home for an owner and slot: kind, name and slot, truncated, then a unique hash."""
    digest = sha256("\n".join((api_version, kind, name, slot)).encode()).hexdigest()[:_DIGITS]
    readable = "-".join(filter(None, (kind.lower(), name, slot)))[:_LONGEST_NAME]
    return f"{readable.rstrip('-.')}-{digest}"
