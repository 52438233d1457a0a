"""A scheduler of a few lines over plain HTTP: filter, take a node, bind; again a moment later if that fails."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final, Self

import httpx

from tests.chaos.checker import Event, Json
from tests.chaos.observer import Observer

RETRY_SECONDS: Final = 0.15
_TIMEOUT: Final = 6.0
"""Longer than Homeport's own: it answers in time, or somebody is at fault."""
_IMPATIENT: Final = 0.001


class PlainBinder:
    """Schedules the pods of one ``schedulerName``, some at once. ``outcomes`` counts what became of the calls.

    ``impatience``: how often it first asks for what it does not wait for, a bind to another node and one for a pod of
    the same name that is gone.
    """

    def __init__(
        self,
        observer: Observer,
        scheduler_name: str,
        urls: Sequence[str],
        nodes: Sequence[str],
        seed: int,
        *,
        workers: int = 4,
        impatience: float = 0.0,
    ) -> None:
        self._impatience = impatience
        self._scheduler_name = scheduler_name
        self._urls = urls
        self._nodes = nodes
        self._random = random.Random(seed)
        self._due: queue.Queue[Json | None] = queue.Queue()
        self._bound: set[str] = set()
        self._stopped = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        observer.on_event(self._take)

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for _worker in self._workers:
            self._due.put(None)
        for worker in self._workers:
            worker.join(2 * _TIMEOUT)

    def _take(self, event: Event) -> None:
        if event.kind != "Pod" or event.found["spec"]["schedulerName"] != self._scheduler_name:
            return
        if event.change == "DELETED" or event.found["spec"].get("nodeName"):
            self._bound.add(event.uid)
        elif event.change == "ADDED":
            self._due.put(event.found)

    def _work(self) -> None:
        with httpx.Client(timeout=_TIMEOUT, trust_env=False) as http:
            while (pod := self._due.get()) is not None:
                if pod["metadata"]["uid"] in self._bound:
                    continue
                outcome = self._schedule(http, pod)
                self.outcomes[outcome] += 1
                if outcome != "bound" and not self._stopped.is_set():
                    again = threading.Timer(RETRY_SECONDS, self._due.put, [pod])
                    again.daemon = True
                    again.start()

    def _schedule(self, http: httpx.Client, pod: Json) -> str:
        """One attempt, at one of the addresses."""
        url = self._random.choice(self._urls)
        try:
            found = http.post(f"{url}/filter", json={"Pod": pod, "NodeNames": self._nodes}).json()
            if found.get("Error"):
                return "filter_error"
            if not found.get("NodeNames"):
                return "no_node"
            meta = pod["metadata"]
            binding = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
            if self._random.random() < self._impatience:
                for fields in ({"PodUID": "gone"}, {}):
                    node = self._random.choice(found["NodeNames"])
                    self._ask_and_hang_up(f"{url}/bind", {**binding, **fields, "Node": node})
            binding["Node"] = self._random.choice(found["NodeNames"])
            answer = http.post(f"{url}/bind", json=binding).json()
        except (httpx.HTTPError, ValueError):
            return "no_answer"
        return "bind_error" if answer.get("Error") else "bound"

    def _ask_and_hang_up(self, url: str, binding: Json) -> None:
        with contextlib.suppress(httpx.HTTPError):
            httpx.post(url, json=binding, timeout=httpx.Timeout(_TIMEOUT, read=_IMPATIENT), trust_env=False)
