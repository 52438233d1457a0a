"""What score plugins share in bringing their raw scores into 0..100."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from app.framework.interface import MAX_NODE_SCORE

K = TypeVar("K", bound=Hashable)


def default_normalize(scores: Mapping[K, int], *, reverse: bool = False) -> dict[K, int]:
    """Scale ``scores``, none of them negative, so that the largest becomes 100; fractions are cut off.

    ``reverse``: fewer is better, so each is taken from 100. Where all are 0 they stay 0, or all become 100 in reverse.
    Source of the rule: ``DefaultNormalizeScore`` in ``framework/plugins/helper`` of Kubernetes 1.36.
    """
    largest = max(scores.values(), default=0)
    scaled = {raw: MAX_NODE_SCORE * raw // (largest or 1) for raw in set(scores.values())}
    if reverse:
        scaled = {raw: MAX_NODE_SCORE - score for raw, score in scaled.items()}
    return {key: scaled[raw] for key, raw in scores.items()}
