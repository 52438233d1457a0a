"""When the process looks for garbage: not during a first list, and never for long."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_LONG_SECONDS: Final = 0.01
"""Of processor time. 400,000 objects that are remembered took 0.5 s, in which nobody was answered."""


class _Loads:
    """How many first lists are under way in this process, and whether collection was on before."""

    under_way = 0
    collecting = False


@contextmanager
def bulk_load() -> Iterator[None]:
    """No garbage collection until the last one of these ends; what is there then is never looked at again.

    The picture lives as long as the process: looking through it took 20 s of a first list of 24 s.
    """
    if _Loads.under_way == 0:
        _Loads.collecting = gc.isenabled()
        gc.disable()
    _Loads.under_way += 1
    try:
        yield
    finally:
        _Loads.under_way -= 1
        if _Loads.under_way == 0:
            gc.freeze()
            if _Loads.collecting:
                gc.enable()


@contextmanager
def short_collections(long: float = _LONG_SECONDS, clock: Callable[[], float] = time.thread_time) -> Iterator[None]:
    """What a full collection leaves is never looked at again, if looking took ``long`` seconds or more.

    The next one looks at what came since. An object that is no part of a cycle still goes with its last user; a cycle
    that ends later stays until the process ends. What is remembered has none, nor has a closed connection.
    """
    began = 0.0

    def collected(phase: str, about: Mapping[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
        elif about["generation"] == 2 and clock() - began >= long:
            gc.freeze()

    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
