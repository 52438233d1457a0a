"""What a first list of many objects does to the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
