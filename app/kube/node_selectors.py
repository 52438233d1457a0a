"""Types for the JSON of required and preferred node affinity, and their parsers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from app.kube.decoding import Decoder, Int32
from app.kube.field_errors import aggregate, invalid, label_key_flaws, label_value_flaws, not_supported
from app.kube.meta_v1 import shared
from app.kube.node_affinity import (
    AFFINITY,
    GT,
    LT,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredNodeAffinity,
    PreferredNodeTerm,
    is_int64,
)
from app.kube.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN

_LABEL_OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST, GT, LT)
_FIELD_OPERATORS: Final = (IN, NOT_IN)

_MOST_FLAWS: Final = 64
"""Maximum number of errors in the message for preferred terms that cannot be parsed."""

_LONGEST_FLAWS: Final = 16 << 10
"""Maximum characters of the message for preferred terms that cannot be parsed; the rest is dropped."""


class RequirementObject(Struct):
    """Requirement on a label or a field, in JSON."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def slim(self) -> NodeSelectorRequirement:
        operator = sys.intern(self.operator or "")
        return NodeSelectorRequirement(self.key or "", operator, tuple(self.values or ()))

    def flaws(self, path: str) -> Iterator[str]:
        """Yield the errors of this label requirement, with the text of kube-scheduler's messages."""
        key, operator, values = self.key or "", self.operator or "", self.values
        if operator not in _LABEL_OPERATORS:
            yield not_supported(f"{path}.operator", operator, _LABEL_OPERATORS)
            return
        if flaws := label_key_flaws(key):
            yield invalid(f"{path}.key", key, "; ".join(flaws))
        yield from _value_flaws(f"{path}.values", operator, values)
        for index, value in enumerate(values or ()):
            if flaws := label_value_flaws(value):
                yield invalid(f"{path}.values[{index}][{key}]", value, "; ".join(flaws))

    def field_flaws(self, path: str) -> Iterator[str]:
        """Yield the errors of this field requirement, with the text of kube-scheduler's messages."""
        if self.operator not in _FIELD_OPERATORS:
            yield not_supported(f"{path}.operator", self.operator or "", _FIELD_OPERATORS)
        elif len(self.values or ()) != 1:
            yield invalid(f"{path}.values", self.values, "must have one element")


def _value_flaws(path: str, operator: str, values: Sequence[str] | None) -> Iterator[str]:
    if operator in (IN, NOT_IN):
        if not values:
            yield invalid(path, values, "for 'in', 'notin' operators, values set can't be empty")
    elif operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            yield invalid(path, values, "values set must be empty for exists and does not exist")
    else:
        if len(values or ()) != 1:
            yield invalid(path, values, "for 'Gt', 'Lt' operators, exactly one value is required")
        for index, value in enumerate(values or ()):
            if not is_int64(value):
                yield invalid(f"{path}[{index}]", value, "for 'Gt', 'Lt' operators, the value must be an integer")


class TermObject(Struct, rename="camel"):
    """Term of a node selector in JSON: a node must meet all of its requirements on labels and fields."""

    match_expressions: list[RequirementObject] | None = None
    match_fields: list[RequirementObject] | None = None

    @property
    def is_empty(self) -> bool:
        """True if the term has no requirements; such a term matches no node."""
        return not self.match_expressions and not self.match_fields

    def slim(self) -> NodeSelectorTerm:
        expressions, fields = self.match_expressions or (), self.match_fields or ()
        return NodeSelectorTerm(tuple(it.slim() for it in expressions), tuple(it.slim() for it in fields))

    def flaws(self, path: str) -> Iterator[str]:
        """Yield the errors that kube-scheduler's parser reports for this term."""
        for index, requirement in enumerate(self.match_expressions or ()):
            yield from requirement.flaws(f"{path}.matchExpressions[{index}]")
        for index, requirement in enumerate(self.match_fields or ()):
            yield from requirement.field_flaws(f"{path}.matchFields[{index}]")


class PreferredTermObject(Struct):
    """Preferred term with its weight, in JSON."""

    weight: Int32 | None = None
    preference: TermObject | None = None

    @property
    def matters(self) -> bool:
        """True if the term can affect a score. kube-scheduler skips terms that are empty or have weight 0."""
        return bool(self.weight) and self.preference is not None and not self.preference.is_empty

    def slim(self) -> PreferredNodeTerm:
        return PreferredNodeTerm(self.weight or 0, (self.preference or TermObject()).slim())


class NodeSelectorObject(Struct, rename="camel"):
    """Node selector in JSON: a list of terms. A node must match at least one term."""

    node_selector_terms: list[TermObject] | None = None

    def slim(self) -> tuple[NodeSelectorTerm, ...]:
        return tuple(term.slim() for term in self.node_selector_terms or ())


class _RequiredObject(Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: NodeSelectorObject | None = None


class _WithRequired(Struct, rename="camel"):
    node_affinity: _RequiredObject | None = None


class _PreferredObject(Struct, rename="camel"):
    preferred_during_scheduling_ignored_during_execution: list[PreferredTermObject] | None = None


class _WithPreferred(Struct, rename="camel"):
    node_affinity: _PreferredObject | None = None


_REQUIRED: Final[Decoder[_WithRequired | None]] = Decoder(_WithRequired | None)
_PREFERRED: Final[Decoder[_WithPreferred | None]] = Decoder(_WithPreferred | None)


def _parse_required(data: bytes) -> tuple[NodeSelectorTerm, ...] | None:
    affinity = _REQUIRED.decode(data)
    node = affinity and affinity.node_affinity
    selector = node and node.required_during_scheduling_ignored_during_execution
    return selector.slim() if selector else None


def _parse_preferred(data: bytes) -> PreferredNodeAffinity:
    affinity = _PREFERRED.decode(data)
    node = None if affinity is None else affinity.node_affinity
    terms = None if node is None else node.preferred_during_scheduling_ignored_during_execution
    return PreferredNodeAffinity() if terms is None else preferred(terms)


def preferred(terms: Sequence[PreferredTermObject], path: str = "") -> PreferredNodeAffinity:
    """Convert preferred terms. If one cannot be parsed, the result has no terms, and ``invalid`` has all errors.

    ``path`` names the list in these errors. Terms that cannot affect a score are omitted, even if they are invalid.
    """
    relevant = [(index, it) for index, it in enumerate(terms) if it.matters]
    flaws = (flaw for index, it in relevant if it.preference for flaw in it.preference.flaws(f"{path}[{index}]"))
    if errors := list(islice(flaws, _MOST_FLAWS)):
        return PreferredNodeAffinity((), aggregate(errors)[:_LONGEST_FLAWS])
    return PreferredNodeAffinity(tuple(it.slim() for _, it in relevant))


required_terms_of: Final = shared(AFFINITY, _parse_required)
"""Return the required terms of the raw ``spec.affinity``, or ``None`` without required node affinity.

Raises ``Oversized`` or ``msgspec.ValidationError``.
"""

preferred_affinity_of: Final = shared(AFFINITY, _parse_preferred)
"""Return the preferred terms of the raw ``spec.affinity``. Raises ``Oversized`` or ``msgspec.ValidationError``."""
