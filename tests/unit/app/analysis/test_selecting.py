"""Pods are selected in order, and in short steps however many there are."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from app.analysis.selecting import PodSelection
from tests.builders import make_pod

PODS: Final = [make_pod(f"p-{number:04}", node="n1" if number % 3 else "") for number in range(1000)]


@pytest.mark.parametrize(("start", "most"), [(0, 50), (300, 50), (320, 50), (0, 5000), (400, 10)])
def test_one_page(start: int, most: int) -> None:
    mixed = Random(1).sample(PODS, len(PODS))
    selection = PodSelection(lambda it: not it.node_name, lambda it: it.name)

    steps = sum(1 for _ in selection.steps(mixed, start, most))

    wanted = [it for it in PODS if not it.node_name]
    assert (len(wanted), wanted[start : start + most]) == (selection.total, selection.pods)
    assert steps >= len(PODS) // 256
