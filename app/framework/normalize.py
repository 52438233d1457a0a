"""Normalization of raw scores to 0..100, shared by score plugins."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from app.framework.points import MAX_NODE_SCORE

K = TypeVar("K", bound=Hashable)


def default_normalize(scores: Mapping[K, int], *, reverse: bool = False) -> dict[K, int]:
    """Scale ``scores`` so that the largest becomes 100; fractions are cut off.

    ``reverse``: fewer is better, so each is taken from 100. Where none is above 0 they stay as they are, or all become
    100 in reverse. A score below 0 stays below 0, which the engine then refuses.
    Source of the rule: ``DefaultNormalizeScore`` in ``framework/plugins/helper`` of Kubernetes 1.36.
    """
    largest = max(scores.values(), default=0)
    if largest <= 0:
        return dict.fromkeys(scores, MAX_NODE_SCORE) if reverse else dict(scores)
    scaled = {raw: _scaled(raw, largest) for raw in set(scores.values())}
    if reverse:
        scaled = {raw: MAX_NODE_SCORE - score for raw, score in scaled.items()}
    return {key: scaled[raw] for key, raw in scores.items()}


def _scaled(raw: int, largest: int) -> int:
    """Cut off towards 0, as Go divides."""
    return MAX_NODE_SCORE * raw // largest if raw >= 0 else -(MAX_NODE_SCORE * -raw // largest)
