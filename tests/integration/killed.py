"""Homeport that ends by SIGKILL once, after the write that ``KILLED_AFTER`` names: ``nominate``, ``evict-1``, ….

The variable also has the path of a file, which exists once a process was killed: ``evict-1:/tmp/killed``.
"""

import os
import signal
from pathlib import Path
from typing import Any

from app.writes.evictions import Eviction, Evictor

KILLED_AFTER = "KILLED_AFTER"

_nominate, _evict = Evictor.nominate, Evictor.evict
_evictions = 0


def _end_after(write: str) -> None:
    named, _, path = os.environ.get(KILLED_AFTER, "").partition(":")
    if named == write and not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def nominate(self: Evictor, *pod_and_node: Any) -> str:
    problem = await _nominate(self, *pod_and_node)
    _end_after("nominate")
    return problem


async def evict(self: Evictor, victim: Any, *, dry_run: bool = False) -> Eviction:
    global _evictions  # noqa: PLW0603  # counts the Evictions of this process
    eviction = await _evict(self, victim, dry_run=dry_run)
    _evictions += not dry_run
    if not dry_run:
        _end_after(f"evict-{_evictions}")
    return eviction


if __name__ == "__main__":
    Evictor.nominate, Evictor.evict = nominate, evict  # type: ignore[method-assign, assignment]
    from homeport import main

    main()
