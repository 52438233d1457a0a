"""``nodeSelector`` and required node affinity: which nodes a pod may run on.

Source of the rules: component-helpers ``scheduling/corev1/nodeaffinity`` of Kubernetes 1.36. Terms are ORed, the
requirements of a term ANDed; an empty term and an empty list of terms match nothing; a term that cannot be parsed
matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app.kube.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, is_label_key, is_label_value

_INT64_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}")  # a label value is no longer, and int() refuses thousands of digits
_NAME_FIELD: Final = "metadata.name"


class NodeSelectorRequirement(Struct, frozen=True, gc=False, order=True):
    """``key operator values``; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a label set meets this; only asked of a well-formed requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = _int64(self.values[0])
        number = None if value is None else _int64(value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound

    @property
    def well_formed(self) -> bool:
        """Whether kube-scheduler can parse this as a label requirement."""
        return is_label_key(self.key) and self._has_right_values() and all(map(is_label_value, self.values))

    def _has_right_values(self) -> bool:
        if self.operator in (IN, NOT_IN):
            return bool(self.values)
        if self.operator in (EXISTS, DOES_NOT_EXIST):
            return not self.values
        return self.operator in ("Gt", "Lt") and len(self.values) == 1 and _int64(self.values[0]) is not None

    def matches_field(self, name: str) -> bool:
        """As one of ``matchFields``: In or NotIn with one value. ``metadata.name`` is the only field a node has."""
        if self.operator not in (IN, NOT_IN) or len(self.values) != 1:
            return False
        value = name if self.key == _NAME_FIELD else ""
        return (value == self.values[0]) == (self.operator == IN)


class NodeSelectorTerm(Struct, frozen=True, gc=False):
    """``matchExpressions`` AND ``matchFields``."""

    expressions: tuple[NodeSelectorRequirement, ...] = ()
    fields: tuple[NodeSelectorRequirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.expressions and not self.fields:
            return False
        if not all(it.well_formed for it in self.expressions):
            return False
        return all(it.matches(labels) for it in self.expressions) and all(it.matches_field(name) for it in self.fields)


class RequiredNodeAffinity(Struct, frozen=True, gc=False):
    """What ``spec.nodeSelector`` and ``requiredDuringSchedulingIgnoredDuringExecution`` demand together.

    ``terms`` is ``None`` where the pod has no required affinity; an empty tuple matches no node.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not all(labels.get(key) == value for key, value in self.node_selector):
            return False
        return self.terms is None or any(term.matches(name, labels) for term in self.terms)

    def label_keys(self) -> frozenset[str]:
        """The node labels that the answer depends on."""
        terms = (requirement.key for term in self.terms or () for requirement in term.expressions)
        return frozenset((*(key for key, _ in self.node_selector), *terms))


ANY_NODE: Final = RequiredNodeAffinity()


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else None
