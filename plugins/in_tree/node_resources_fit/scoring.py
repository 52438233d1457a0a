"""Scoring strategies: 0 to 100, by the node's resource usage including the incoming pod.

Source of the rules: ``least_allocated.go``, ``most_allocated.go`` and ``requested_to_capacity_ratio.go`` of
``framework/plugins/noderesources`` of Kubernetes 1.36, the same in 1.35.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from app.framework.allocation import Use, int64, quotient
from app.framework.points import MAX_NODE_SCORE
from plugins.in_tree.node_resources_fit.args import MOST, ScoringStrategy

Strategy = Callable[[Sequence[Use]], int]
"""Function from the use of a node's resources to its score."""

_Of = Callable[[int, int], int]
"""Function from (requested, capacity) of one resource to its score."""

_SCALE: Final = MAX_NODE_SCORE // 10
"""Factor from shape scores, whose maximum is 10, to node scores."""

_EXACT: Final = 2**63 // MAX_NODE_SCORE
"""Limit below which an amount times ``MAX_NODE_SCORE`` cannot overflow an int64."""


def strategy_of(strategy: ScoringStrategy) -> Strategy:
    """Return the scoring function for the configured strategy."""
    if strategy.ratio is None:
        return partial(_mean, _most_of if strategy.type == MOST else _least_of)
    points = [(it.utilization, it.score * _SCALE) for it in strategy.ratio.shape]
    return partial(_rounded_mean, partial(_ratio_of, points))


def _mean(of: _Of, uses: Sequence[Use]) -> int:
    """Return the weighted mean, truncated to an integer."""
    total = weights = 0
    for allocatable, taken, incoming, weight in uses:
        total += of(int64(taken + incoming), allocatable) * weight
        weights += weight
    return quotient(int64(total), weights) if weights else 0


def _rounded_mean(of: _Of, uses: Sequence[Use]) -> int:
    """Return the weighted mean of scores above 0, rounded half up."""
    total = weights = 0
    for allocatable, taken, incoming, weight in uses:
        score = of(int64(taken + incoming), allocatable)
        if score > 0:
            total += score * weight
            weights += weight
    return (2 * total + weights) // (2 * weights) if weights else 0


def _least_of(requested: int, capacity: int) -> int:
    if requested > capacity:
        return 0
    if requested >= 0 and capacity < _EXACT:
        return (capacity - requested) * MAX_NODE_SCORE // capacity
    return quotient(int64(int64(capacity - requested) * MAX_NODE_SCORE), capacity)


def _most_of(requested: int, capacity: int) -> int:
    requested = min(requested, capacity)
    if 0 <= requested < _EXACT and capacity > 0:
        return requested * MAX_NODE_SCORE // capacity
    return quotient(int64(requested * MAX_NODE_SCORE), capacity)


def _ratio_of(points: Sequence[tuple[int, int]], requested: int, capacity: int) -> int:
    if requested > capacity:
        return _on_shape(points, MAX_NODE_SCORE)
    return _on_shape(points, quotient(int64(requested * MAX_NODE_SCORE), capacity))


def _on_shape(points: Sequence[tuple[int, int]], utilization: int) -> int:
    """Interpolate linearly between the neighbouring points; constant beyond the first and the last."""
    before, low = points[0]
    for at, score in points:
        if utilization <= at:
            return low + quotient((score - low) * (utilization - before), at - before) if at > before else low
        before, low = at, score
    return low
