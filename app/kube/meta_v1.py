"""Object metadata as every kind carries it, reduced to what a scheduling decision reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.labels import LabelSet, label_set

ObjectKey = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped kinds."""

ANNOTATION_DOMAIN: Final = "homeport.dev/"
"""Annotations outside this domain are not kept: nobody reads them and they are the bulk of a realistic pod."""

_MEMO_ENTRIES: Final = 8192
_MEMO_BYTES: Final = 4096

T = TypeVar("T")


class OwnerReference(Struct, frozen=True, gc=False):
    """One entry of ``metadata.ownerReferences``."""

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool | None = None


class PartialObject(Struct, frozen=True, gc=False):
    """Any object of which only metadata is read (a VirtualMachine, a custom resource)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: LabelSet
    annotations: Mapping[str, str]
    owner: OwnerReference | None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class MetadataObject(Struct, rename="camel"):
    """``metadata`` on the wire. Parts that replicas share stay raw, so that they are parsed once per workload."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Raw = Raw()
    annotations: Raw = Raw()
    owner_references: Raw = Raw()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PartialObjectObject(Struct):
    """A PartialObjectMetadata, or any whole object read as one."""

    metadata: MetadataObject


def shared(field: str, parse: Callable[[bytes], T]) -> Callable[[Raw], T]:
    """Memoise ``parse`` by the raw bytes: replicas of one workload send identical bytes for ``field``.

    An absent field and ``null`` parse as ``b"null"``. Errors carry ``field``, since a raw part has lost its path.
    """
    memo = lru_cache(maxsize=_MEMO_ENTRIES)(parse)

    def of(raw: Raw) -> T:
        data = bytes(raw) or b"null"
        try:
            return memo(data) if len(data) <= _MEMO_BYTES else parse(data)
        except msgspec.DecodeError as error:
            raise msgspec.ValidationError(f"{field}: {error}") from None

    return of


_MAP: Final[Decoder[dict[str, str | None] | None]] = Decoder(dict[str, str | None] | None)


def _parse_labels(data: bytes) -> LabelSet:
    return label_set(_MAP.decode(data))


class _OwnerReferenceObject(Struct, rename="camel"):
    kind: str | None = None
    name: str | None = None
    api_version: str | None = None
    uid: str | None = None
    controller: bool | None = None

    def slim(self) -> OwnerReference:
        return OwnerReference(self.kind or "", self.name or "", self.api_version or "", self.uid or "", self.controller)


_REFERENCES: Final[Decoder[list[_OwnerReferenceObject] | None]] = Decoder(list[_OwnerReferenceObject] | None)


def _parse_controller(data: bytes) -> OwnerReference | None:
    references = _REFERENCES.decode(data) or ()
    return next((reference.slim() for reference in references if reference.controller), None)


labels_of: Final = shared("metadata.labels", _parse_labels)
controller_of: Final = shared("metadata.ownerReferences", _parse_controller)

_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
_DOMAIN_BYTES: Final = ANNOTATION_DOMAIN.encode()


def annotations_of(raw: Raw) -> Mapping[str, str]:
    """The annotations of our own domain; all others are left undecoded."""
    data = bytes(raw)
    if _DOMAIN_BYTES not in data:
        return _NO_ANNOTATIONS
    try:
        found = _MAP.decode(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    return {key: value or "" for key, value in found.items() if key.startswith(ANNOTATION_DOMAIN)}


def partial_object(found: PartialObjectObject) -> PartialObject:
    """Slim form of a decoded object. Raises ``msgspec.ValidationError`` if it has no name."""
    meta = found.metadata
    return PartialObject(
        namespace=sys.intern(meta.namespace or ""),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels_of(meta.labels),
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
    )


def required(value: str | None, field: str) -> str:
    """``value``, or a validation error that names ``field``."""
    if not value:
        raise msgspec.ValidationError(f"{field}: required")
    return value


_PARTIAL_DECODER: Final = Decoder[PartialObjectObject](PartialObjectObject)


def decode_partial(raw: bytes | Raw) -> PartialObject:
    """Decode the metadata of any object."""
    return partial_object(_PARTIAL_DECODER.decode(raw))
