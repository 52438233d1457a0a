"""Scoring strategies: functions from a node's resource usage, including the incoming pod, to a score from 0 to 100.

Source of the rules: ``least_allocated.go``, ``most_allocated.go`` and ``requested_to_capacity_ratio.go`` of
``framework/plugins/noderesources`` of Kubernetes 1.36; 1.35 has the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from app.framework.allocation import Use, int64, quotient
from app.framework.points import MAX_NODE_SCORE
from plugins.in_tree.node_resources_fit.args import MOST, ScoringStrategy

Strategy = Callable[[Sequence[Use]], int]
"""Function from the usage of a node's resources to the node's score."""

_Of = Callable[[int, int], int]
"""Function from (requested, capacity) of one resource to the resource's score."""

_SCALE: Final = MAX_NODE_SCORE // 10
"""Factor by which scores of a shape (at most 10) become node scores (at most 100)."""

_EXACT: Final = 2**63 // MAX_NODE_SCORE
"""Limit below which an amount times ``MAX_NODE_SCORE`` cannot overflow an int64."""


def strategy_of(strategy: ScoringStrategy) -> Strategy:
    """Return the scoring function for the configured strategy."""
    if strategy.ratio is None:
        return partial(_mean, _most_of if strategy.type == MOST else _least_of)
    points = [(it.utilization, it.score * _SCALE) for it in strategy.ratio.shape]
    return partial(_rounded_mean, partial(_ratio_of, points))


def _mean(of: _Of, uses: Sequence[Use]) -> int:
    """Return the weighted mean of the resources' scores, truncated to an integer; 0 without resources."""
    total = weights = 0
    for allocatable, taken, incoming, weight in uses:
        total += of(int64(taken + incoming), allocatable) * weight
        weights += weight
    return quotient(int64(total), weights) if weights else 0


def _rounded_mean(of: _Of, uses: Sequence[Use]) -> int:
    """Return the weighted mean of the resources' scores above 0, rounded half up; 0 if no score is above 0."""
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
    """Return the score at ``utilization``, interpolated linearly between the points before and after it.

    Before the first point, the first point's score is returned, and after the last point, the last point's score.
    """
    before, low = points[0]
    for at, score in points:
        if utilization <= at:
            return low + quotient((score - low) * (utilization - before), at - before) if at > before else low
        before, low = at, score
    return low
