"""Normalization of raw scores to 0..100, shared by score plugins."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from app.framework.points import MAX_NODE_SCORE

K = TypeVar("K", bound=Hashable)


def default_normalize(scores: Mapping[K, int], *, reverse: bool = False) -> dict[K, int]:
    """Scale ``scores`` so that the largest becomes 100; fractions are truncated.

    ``reverse``: subtract each result from 100, for scores where lower is better. If no score is above 0, scores are
    unchanged, or all become 100 with ``reverse``. A negative score next to positive scores can become a result below
    0, or above 100 with ``reverse``; the engine replaces such a result with 0. Source of the rule:
    ``DefaultNormalizeScore`` in ``framework/plugins/helper`` of Kubernetes 1.36.
    """
    largest = max(scores.values(), default=0)
    if largest <= 0:
        return dict.fromkeys(scores, MAX_NODE_SCORE) if reverse else dict(scores)
    scaled = {raw: _scaled(raw, largest) for raw in set(scores.values())}
    if reverse:
        scaled = {raw: MAX_NODE_SCORE - score for raw, score in scaled.items()}
    return {key: scaled[raw] for key, raw in scores.items()}


def _scaled(raw: int, largest: int) -> int:
    """Return 100 * ``raw`` / ``largest``, truncated toward 0 as in Go."""
    return MAX_NODE_SCORE * raw // largest if raw >= 0 else -(MAX_NODE_SCORE * -raw // largest)
