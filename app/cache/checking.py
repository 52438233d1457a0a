"""Consistency check of the cluster cache, in small steps between which requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from time import monotonic
from typing import Final

from app.cache.cluster import Cluster

SLICE_SECONDS: Final = 0.002
"""Seconds of checking after which the check lets other tasks run."""


async def check_in_steps(cluster: Cluster, *more: Iterable[str], clock: Callable[[], float] = monotonic) -> list[str]:
    """Run ``Cluster.checking``, then the steps of ``more``; return each distinct sentence on a difference once.

    ``more``: iterables that yield a sentence or ``""`` for each step, like ``Cluster.checking``. Other tasks run after
    every ``SLICE_SECONDS``. Changes that they make to the cluster are not reported as differences.
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
