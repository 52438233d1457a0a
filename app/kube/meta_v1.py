"""Metadata common to all kinds, reduced to the fields that scheduling decisions read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.labels import NO_LABELS, LabelSet, label_set
from app.kube.memo import MISSING, Memo

ObjectKey = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped kinds."""

ANNOTATION_DOMAIN: Final = "homeport.dev/"
"""Prefix of Homeport's annotations.

The field ``annotations`` of pods and owners contains only these, because other annotations are most of a pod's bytes.
Decoders that need another annotation read it into a field of its own, for example ``app.kube.deletion_cost``.
"""

ACTIVATED: Final = f"{ANNOTATION_DOMAIN}activated"
"""Annotation with the time at which a waiting pod was last activated.

Homeport writes it to change the pod, so that kube-scheduler queues the pod again. Homeport does not read the value.
"""

PREEMPTING: Final = f"{ANNOTATION_DOMAIN}preempting"
"""Annotation of a waiting pod: name of the node to which Homeport nominated the pod.

Homeport evicts other pods from this node.
"""

LARGEST_PART: Final = 64 << 10
"""Maximum bytes of one field that users write, for example a pod's affinity. Longer fields are not read."""

_LONGEST_KEY: Final = 253
"""Maximum characters of an annotation's key. Annotations with a longer key are dropped."""

_LONGEST_VALUE: Final = 1 << 10
"""Maximum characters of an annotation's value. Longer values are dropped, because Homeport writes only shorter ones."""

_MOST_POD_ANNOTATIONS: Final = 16
"""Maximum number of Homeport annotations that are read from one pod."""

_HOMEPORT_ANNOTATIONS: Final = tuple(
    ANNOTATION_DOMAIN + it
    for it in ("home", "home-after", "home-replaces", "never-evict", "policy", "preempting", "unclear-bind")
)
"""Annotations that are read first if a pod has too many, so that a user cannot displace them with other annotations."""

_LONGEST_VERSION: Final = 20
"""Number of digits of the largest unsigned 64-bit integer, the type of resourceVersions in the API server."""

_MEMO_BYTES: Final = 2 << 20
"""Maximum bytes of the cache of one field."""

_MEMO_ENTRY: Final = 4096
"""Maximum bytes of a field's JSON for which the parsed value is cached."""

_MEMO_OVERHEAD: Final = 200
"""Assumed bytes of a cached value, in addition to its JSON."""

T = TypeVar("T")


class OwnerReference(Struct, frozen=True, gc=False):
    """Entry of ``metadata.ownerReferences``."""

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool | None = None


class PartialObject(Struct, frozen=True, gc=False):
    """Metadata of an object of a kind for which only metadata is read, for example a VirtualMachine."""

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
    """``metadata`` in JSON. Fields that are equal among the pods of a workload stay raw, and are parsed only once."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: Raw = Raw()
    annotations: Raw = Raw()
    owner_references: Raw = Raw()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PartialMetadataObject(Struct):
    """PartialObjectMetadata, or a complete object from which only the metadata is decoded."""

    metadata: MetadataObject


class Oversized(Exception):  # not a ValidationError, because the object is valid
    """Raised if a part of an object (``field``) exceeds its limit of bytes or entries, so that it is not read."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field}: more than {LARGEST_PART} bytes")
        self.field = field


def version_number(version: str) -> int:
    """Return a resourceVersion as a number. Versions are compared as numbers (KEP-5504).

    Return -1 for an opaque version, which is any text except 1 to 20 digits. Opaque versions cannot be compared.
    """
    is_ordered = len(version) <= _LONGEST_VERSION and version.isascii() and version.isdecimal()
    return int(version) if is_ordered else -1


def precedes(version: str, other: str) -> bool:
    """Return whether ``version`` is earlier than ``other``, a version of the same kind; ``False`` if one is opaque."""
    return -1 < version_number(version) < version_number(other)


def micro_time(when: datetime) -> str:
    """Format a time as the API's MicroTime: UTC with microseconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def whole_seconds(when: datetime) -> str:
    """Format a time as the API's Time: UTC with seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shared(field: str, parse: Callable[[bytes], T], *, largest: int | None = LARGEST_PART) -> Callable[[Raw], T]:
    """Return ``parse`` with a cache by raw bytes, because most pods of a workload have equal bytes in ``field``.

    An absent field is parsed like ``null``. The returned function raises ``msgspec.ValidationError``, with ``field`` in
    its message. If the field has more than ``largest`` bytes (``None``: no limit), the function raises ``Oversized``
    instead of parsing it.
    """
    memo = Memo[bytes, T](_MEMO_BYTES)

    def of(raw: Raw) -> T:
        data = bytes(raw) or b"null"
        value = memo.young.get(data, MISSING)
        return parsed(data) if value is MISSING else value

    def parsed(data: bytes) -> T:
        size = len(data)
        if largest is not None and size > largest:
            raise Oversized(field)
        value = memo.get(data)
        if value is MISSING:
            try:
                value = parse(data)
            except msgspec.DecodeError as error:
                raise msgspec.ValidationError(f"{field}: {error}") from None
            if size <= _MEMO_ENTRY:
                memo.put(data, value, size + _MEMO_OVERHEAD)
        return value

    return of


_MAP: Final[Decoder[dict[str, str | None] | None]] = Decoder(dict[str, str | None] | None)


def parse_map(data: bytes) -> dict[str, str | None] | None:
    """Parse a map of strings, for example labels or a Service's selector. Raises ``msgspec.DecodeError``."""
    return _MAP.decode(data)


def parse_labels(data: bytes) -> LabelSet:
    return label_set(parse_map(data))


class _OwnerReferenceObject(Struct, rename="camel", gc=False):
    kind: str | None = None
    name: str | None = None
    api_version: str | None = None
    uid: str | None = None
    controller: bool | None = None

    def slim(self) -> OwnerReference:
        return OwnerReference(self.kind or "", self.name or "", self.api_version or "", self.uid or "", self.controller)


class _ControllerFlag(Struct, gc=False):
    controller: bool | None = None


_CONTROLS: Final = _ControllerFlag(controller=True)
_FLAGS: Final[Decoder[list[_ControllerFlag] | None]] = Decoder(list[_ControllerFlag] | None)
_RAW_REFERENCES: Final[Decoder[list[Raw]]] = Decoder(list[Raw])
_REFERENCE: Final[Decoder[_OwnerReferenceObject]] = Decoder(_OwnerReferenceObject)
_REFERENCES: Final[Decoder[list[_OwnerReferenceObject] | None]] = Decoder(list[_OwnerReferenceObject] | None)


def _parse_controller(data: bytes) -> OwnerReference | None:
    if len(data) > LARGEST_PART:
        return _find_controller(data)
    references = _REFERENCES.decode(data) or ()
    return next((reference.slim() for reference in references if reference.controller), None)


def _find_controller(data: bytes) -> OwnerReference | None:
    """Return the controller in a very long list. Only this reference is decoded fully, which is three times as fast."""
    flags = _FLAGS.decode(data) or []
    if _CONTROLS not in flags:
        return None
    return _REFERENCE.decode(_RAW_REFERENCES.decode(data)[flags.index(_CONTROLS)]).slim()


labels_of: Final = shared("metadata.labels", parse_labels)
controller_of: Final = shared("metadata.ownerReferences", _parse_controller, largest=None)

_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}
_DOMAIN_BYTES: Final = ANNOTATION_DOMAIN.encode()


def annotations_of(raw: Raw) -> Mapping[str, str]:
    """Return the annotations in ``ANNOTATION_DOMAIN``, without those with an overlong key or value.

    If the prefix does not occur, nothing is decoded. Raises ``msgspec.ValidationError``.
    """
    data = bytes(raw)
    if _DOMAIN_BYTES not in data:
        return _NO_ANNOTATIONS
    try:
        decoded = _MAP.decode(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    return {
        key: value or ""
        for key, value in decoded.items()
        if key.startswith(ANNOTATION_DOMAIN) and len(key) <= _LONGEST_KEY and len(value or "") <= _LONGEST_VALUE
    }


def annotations_of_pod(raw: Raw) -> Mapping[str, str]:
    """Return a pod's Homeport annotations without ``ACTIVATED``, at most ``_MOST_POD_ANNOTATIONS``.

    The annotations of owners are not limited in number, because an owner can have a home annotation for each pod.
    """
    annotations = annotations_of(raw)
    if ACTIVATED in annotations:
        annotations = {key: value for key, value in annotations.items() if key != ACTIVATED}
    if len(annotations) <= _MOST_POD_ANNOTATIONS:
        return annotations
    homeport_first = sorted(annotations, key=lambda key: key not in _HOMEPORT_ANNOTATIONS)
    return {key: annotations[key] for key in homeport_first[:_MOST_POD_ANNOTATIONS]}


def partial_object(wire: PartialMetadataObject) -> PartialObject:
    """Convert the metadata of a decoded object. Raises ``msgspec.ValidationError`` if it is invalid or has no name."""
    meta = wire.metadata
    return PartialObject(
        namespace=sys.intern(meta.namespace or ""),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels_or_empty(meta.labels),
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
    )


def labels_or_empty(raw: Raw) -> LabelSet:
    """Return the labels, or the empty set if they are oversized, so that the object itself is still decoded."""
    try:
        return labels_of(raw)
    except Oversized:
        return NO_LABELS


def required(value: str | None, field: str) -> str:
    """Return ``value``. If it is ``None`` or empty, raise ``msgspec.ValidationError``, which names ``field``."""
    if not value:
        raise msgspec.ValidationError(f"{field}: required")
    return value


_PARTIAL_DECODER: Final = Decoder[PartialMetadataObject](PartialMetadataObject)


def decode_partial(raw: bytes | Raw) -> PartialObject:
    """Decode the metadata of any object. Raises ``msgspec.DecodeError``."""
    return partial_object(_PARTIAL_DECODER.decode(raw))
