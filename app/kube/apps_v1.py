"""ReplicaSets and StatefulSets, reduced to metadata and selector.

The default topology spread constraints use the selector of the pod's ReplicaSet or StatefulSet.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import (
    MetadataObject,
    ObjectKey,
    Oversized,
    OwnerReference,
    annotations_of,
    controller_of,
    required,
    shared,
)
from app.kube.selectors import InvalidSelector, Selector, decode_selector


class Workload(Struct, frozen=True, gc=False):
    """A ReplicaSet or StatefulSet. ``owner`` is its controller, ``None`` without one. ``annotations``: Homeport's only.

    ``selector`` is ``None`` if it is absent, null, oversized or invalid.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    selector: Selector | None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class _WorkloadSpecObject(Struct):
    selector: Raw = Raw()


class _WorkloadObject(Struct):
    metadata: MetadataObject
    spec: _WorkloadSpecObject | None = None


def _parse_selector(data: bytes) -> Selector | None:
    try:
        return decode_selector(data)
    except InvalidSelector:
        return None


_selector_of: Final = shared("spec.selector", _parse_selector)
_DECODER: Final = Decoder[_WorkloadObject](_WorkloadObject)


def _selector(raw: Raw) -> Selector | None:
    try:
        return _selector_of(raw)
    except Oversized:
        return None


def decode_workload(raw: bytes | Raw) -> Workload:
    """Decode one ReplicaSet or StatefulSet. Raises ``msgspec.DecodeError``."""
    workload = _DECODER.decode(raw)
    meta = workload.metadata
    return Workload(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        annotations=annotations_of(meta.annotations),
        owner=controller_of(meta.owner_references),
        selector=_selector(workload.spec.selector) if workload.spec else None,
    )
