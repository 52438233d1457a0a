"""Homeport's own kind: what is remembered of a machine beyond the object that keeps its home."""

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
_DIGITS: Final = 12


class Keeper(Struct, frozen=True, gc=False):
    """The object that keeps a home, by name; ``uid``: the one that kept it when this was written."""

    api_version: str
    kind: str
    name: str
    uid: str
    slot: str


class Home(Struct, frozen=True):
    """One home. ``machine``: the systemUUID of the node then, where it is known · ``since``: a time of Kubernetes'."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    keeper: Keeper
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


def decode_home(raw: bytes | Raw) -> Home:
    """Decode one Home. Raises ``msgspec.DecodeError``."""
    home = _DECODER.decode(raw)
    meta, spec = home.metadata, home.spec or _HomeSpecObject()
    keeper = spec.owner or _KeeperObject()
    return Home(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
        keeper=Keeper(
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
    """The name of a machine's Home: one that a person recognises, and no other machine's."""
    digest = sha256("\n".join((api_version, kind, name, slot)).encode()).hexdigest()[:_DIGITS]
    readable = "-".join(filter(None, (kind.lower(), name, slot)))[:_LONGEST_NAME]
    return f"{readable.rstrip('-.')}-{digest}"
