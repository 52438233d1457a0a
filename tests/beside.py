"""Work that goes on beside a test, in threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run each of ``works`` for the length of the block, until the event it is called with is set.

    Raises the first failure of one of them after the block.
    """
    over = threading.Event()
    failures: list[BaseException] = []

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(over)
        except BaseException as failure:  # noqa: BLE001  # raised below, in the thread that waits
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
