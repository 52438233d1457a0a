"""DeviceClasses of ``resource.k8s.io``, reduced to which extended resources their devices stand for."""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, ObjectKey, required

_LONGEST_NAME: Final = 317


class DeviceClass(Struct, frozen=True, gc=False):
    """A DeviceClass. ``extended_resource``: the one that requests for it can be written as, empty if there is none."""

    name: str
    uid: str
    extended_resource: str

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


class _DeviceClassSpecObject(Struct, rename="camel"):
    extended_resource_name: str | None = None


class _DeviceClassObject(Struct):
    metadata: MetadataObject
    spec: _DeviceClassSpecObject | None = None


_DECODER: Final = Decoder[_DeviceClassObject](_DeviceClassObject)


def decode_device_class(raw: bytes | Raw) -> DeviceClass:
    """Decode one DeviceClass; an overlong name of a resource is none. Raises ``msgspec.DecodeError``."""
    found = _DECODER.decode(raw)
    resource = (found.spec.extended_resource_name if found.spec else None) or ""
    return DeviceClass(
        name=sys.intern(required(found.metadata.name, "metadata.name")),
        uid=found.metadata.uid or "",
        extended_resource=sys.intern(resource) if len(resource) <= _LONGEST_NAME else "",
    )
