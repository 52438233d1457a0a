"""Node affinity of PersistentVolumes. It is evaluated with the labels of a node only, as in kube-scheduler."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import shared
from app.kube.node_affinity import NodeSelectorTerm, RequiredNodeAffinity
from app.kube.node_selectors import NodeSelectorObject
from app.kube.selectors import IN, NOT_IN


class _VolumeAffinityObject(Struct):
    required: NodeSelectorObject | None = None


_AFFINITY: Final[Decoder[_VolumeAffinityObject | None]] = Decoder(_VolumeAffinityObject | None)


def _parse_affinity(data: bytes) -> RequiredNodeAffinity | None:
    affinity = _AFFINITY.decode(data)
    if affinity is None or affinity.required is None:
        return None
    return RequiredNodeAffinity(terms=affinity.required.slim())


def without_match_fields(affinity: RequiredNodeAffinity | None) -> RequiredNodeAffinity | None:
    """Remove ``matchFields``: for volumes, kube-scheduler evaluates the labels of a node, not its name.

    A term with valid ``matchFields`` and no ``matchExpressions`` then matches every node, so the result is ``None``.
    A term with an invalid field matches no node, so the whole term is removed.
    """
    if affinity is None:
        return None
    terms: list[NodeSelectorTerm] = []
    for term in affinity.terms or ():
        if all(it.operator in (IN, NOT_IN) and len(it.values) == 1 for it in term.fields):
            if term.fields and not term.expressions:
                return None
            terms.append(NodeSelectorTerm(term.expressions))
    return RequiredNodeAffinity(terms=tuple(terms))


def _parse_affinity_by_labels(data: bytes) -> RequiredNodeAffinity | None:
    return without_match_fields(_parse_affinity(data))


_AFFINITY_FIELD: Final = "spec.nodeAffinity"
affinity_of: Final = shared(_AFFINITY_FIELD, _parse_affinity)
"""Return the node affinity of a volume, including ``matchFields``; ``None`` without affinity.

Raises ``Oversized`` or ``msgspec.ValidationError``.
"""

affinity_by_labels_of: Final = shared(_AFFINITY_FIELD, _parse_affinity_by_labels)
"""Return the node affinity ``without_match_fields``; ``None`` if it does not restrict the nodes.

Volumes of a node or zone share the result, which saves memory. Raises ``Oversized`` or ``msgspec.ValidationError``.
"""
