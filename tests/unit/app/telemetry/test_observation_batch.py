"""What is noted is found by whoever reads the metrics, and is put in behind the call that notes."""

from __future__ import annotations

import asyncio

from app.telemetry.metrics import Metrics
from app.telemetry.observation_batch import ObservationBatch

COUNT = "homeport_expected_bind_wait_seconds_count"


def test_what_was_noted_is_found() -> None:
    metrics = Metrics()
    note = metrics.batched(metrics.expected_bind_wait.observe)
    for _ in range(3):
        note(0.001)
    first = metrics.registry.get_sample_value(COUNT)
    for _ in range(100):
        note(0.001)

    assert (3, 103) == (first, metrics.registry.get_sample_value(COUNT))


def test_little_is_kept_where_nobody_reads() -> None:
    found: list[int] = []
    note = ObservationBatch(found.append)
    for number in range(100):
        note(number)

    assert list(range(96)) == found


async def test_it_is_put_in_behind_the_call_that_notes() -> None:
    found: list[int] = []
    note = ObservationBatch(found.append)
    for number in range(70):
        note(number)
    before = len(found)
    await asyncio.sleep(0)

    assert (0, list(range(70))) == (before, found)
