"""Services, ReplicationControllers and Namespaces, reduced to the fields that scheduling decisions read."""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.labels import LabelSet
from app.kube.meta_v1 import MetadataObject, ObjectKey, Oversized, labels_or_empty, parse_map, required, shared
from app.kube.selectors import Selector, of_labels


class Service(Struct, frozen=True, gc=False):
    """Service or ReplicationController. ``selector`` is ``None`` if it is absent, null or oversized."""

    namespace: str
    name: str
    uid: str
    selector: Selector | None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class Namespace(Struct, frozen=True, gc=False):
    """Namespace. ``labels`` are empty if they are oversized."""

    name: str
    uid: str
    resource_version: str
    labels: LabelSet

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class _ServiceSpecObject(Struct):
    selector: Raw = Raw()


class _ServiceObject(Struct):
    metadata: MetadataObject
    spec: _ServiceSpecObject | None = None


_SERVICE_DECODER: Final = Decoder[_ServiceObject](_ServiceObject)


def _parse_service_selector(data: bytes) -> Selector | None:
    labels = parse_map(data)
    return None if labels is None else of_labels(labels)


_service_selector_of: Final = shared("spec.selector", _parse_service_selector)


def _service_selector(raw: Raw) -> Selector | None:
    """Parse the selector; ``None`` if it is null, or oversized: default spread constraints then ignore the object."""
    try:
        return _service_selector_of(raw)
    except Oversized:
        return None


def decode_service(raw: bytes | Raw) -> Service:
    """Decode one Service or ReplicationController. Raises ``msgspec.DecodeError``."""
    service = _SERVICE_DECODER.decode(raw)
    meta = service.metadata
    return Service(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        selector=None if service.spec is None else _service_selector(service.spec.selector),
    )


class _NamespaceObject(Struct):
    metadata: MetadataObject


_NAMESPACE_DECODER: Final = Decoder[_NamespaceObject](_NamespaceObject)


def decode_namespace(raw: bytes | Raw) -> Namespace:
    """Decode one Namespace. Raises ``msgspec.DecodeError``."""
    meta = _NAMESPACE_DECODER.decode(raw).metadata
    return Namespace(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels_or_empty(meta.labels),
    )
