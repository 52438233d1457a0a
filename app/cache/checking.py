"""Consistency check of the cluster cache in small steps, so that other requests can run in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from time import monotonic
from typing import Final

from app.cache.cluster import Cluster

SLICE_SECONDS: Final = 0.002
"""Maximum seconds between two points at which other tasks can run."""


async def check_in_steps(cluster: Cluster, *more: Iterable[str], clock: Callable[[], float] = monotonic) -> list[str]:
    """Run ``Cluster.checking`` and ``more`` checks of its kind; return a sentence for each distinct difference.

    Other tasks run every ``SLICE_SECONDS``. Changes of the cluster meanwhile are not reported as differences.
    """
    differences: dict[str, None] = {}
    steps = cluster.checking()
    try:
        until = clock() + SLICE_SECONDS
        for sentence in chain(steps, *more):
            if sentence:
                differences[sentence] = None
            if clock() > until:
                await asyncio.sleep(0)
                until = clock() + SLICE_SECONDS
    finally:
        steps.close()
    return list(differences)
