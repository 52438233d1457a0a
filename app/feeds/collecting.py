"""Control of Python's garbage collection: it is disabled during initial lists, and kept short afterwards."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_LONG_SECONDS: Final = 0.01
"""If a full collection takes at least this many processor seconds, later ones skip all surviving objects.

For comparison, a full collection over 400,000 objects took 0.5 s.
"""


class _Loads:
    """Number of initial lists in progress in this process.

    ``was_enabled``: true if garbage collection was enabled before the first of them began.
    """

    in_progress = 0
    was_enabled = False


@contextmanager
def bulk_load() -> Iterator[None]:
    """Disable garbage collection inside the block, or until the last of several concurrent blocks ends.

    Then exclude all existing objects from later collections, because the snapshot exists until the process ends.
    Without ``bulk_load``, collections took 20 s of an initial list that took 24 s.
    """
    if _Loads.in_progress == 0:
        _Loads.was_enabled = gc.isenabled()
        gc.disable()
    _Loads.in_progress += 1
    try:
        yield
    finally:
        _Loads.in_progress -= 1
        if _Loads.in_progress == 0:
            gc.freeze()
            if _Loads.was_enabled:
                gc.enable()


@contextmanager
def short_collections(long: float = _LONG_SECONDS, clock: Callable[[], float] = time.thread_time) -> Iterator[None]:
    """After each full collection of ``long`` seconds or more, exclude all existing objects from later collections.

    Later collections then examine only newer objects. Reference counting still frees excluded objects that are not part
    of a cycle. A reference cycle among excluded objects is never freed, but caches and closed connections have no such
    cycles. ``clock``: returns processor seconds.
    """
    began = 0.0

    def collected(phase: str, details: Mapping[str, Any]) -> None:
        nonlocal began
        if phase == "start":
            began = clock()
        elif details["generation"] == 2 and clock() - began >= long:
            gc.freeze()

    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
