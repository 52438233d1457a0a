"""Selects and sorts pods of a snapshot in short steps, so that 150,000 pods do not block the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final

from app.kube.core_v1 import Pod

_PODS_PER_STEP: Final = 256


class PodSelection:
    """Pods that ``wanted`` accepts, sorted by ``order``. ``total``: number of accepted pods. ``pods``: one page."""

    def __init__(self, wanted: Callable[[Pod], bool], order: Callable[[Pod], Any]) -> None:
        self.total = 0
        self.pods: list[Pod] = []
        self._wanted = wanted
        self._order = order

    def steps(self, every: Iterable[Pod], start: int, most: int) -> Iterator[None]:
        """Skip the first ``start`` accepted pods, and fill ``pods`` with at most ``most`` of the next ones."""
        runs: list[list[Pod]] = []
        pods = iter(every)
        while some := list(islice(pods, _PODS_PER_STEP)):
            if run := sorted(filter(self._wanted, some), key=self._order):
                runs.append(run)
                self.total += len(run)
            yield
        for number, pod in enumerate(islice(merge(*runs, key=self._order), start + most)):
            if number >= start:
                self.pods.append(pod)
            if number % _PODS_PER_STEP == 0:
                yield
