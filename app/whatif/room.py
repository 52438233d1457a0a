"""Memory that a child process can use before the kernel would end the whole container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_STATM: Final = Path("/proc/self/statm")
_UNLIMITED: Final = "max"
_OWN: Final = 64 << 20
"""Memory of a what-if besides the pages of the service that it changes, in bytes."""


def lacking_memory(cgroup: Path = _CGROUP, statm: Path = _STATM) -> int:
    """Return how many bytes of memory are missing for a child process; 0 if there is enough, or no limit is known.

    The child shares the memory of the service until it changes it, so it needs at most as much again, and ``_OWN``.
    ``cgroup``: folder of the cgroup (version 2) of the container. ``statm``: memory of this process, in pages.
    """
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        details = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        _, resident, shared, *_ = map(int, statm.read_text().split())
    except (OSError, ValueError):
        return 0
    if limit == _UNLIMITED:
        return 0
    needed = (resident - shared) * os.sysconf("SC_PAGE_SIZE") + _OWN
    cache = int(details.get("inactive_file", 0))  # the kernel drops it when memory is short
    return max(0, needed - (int(limit) - int(used) + cache))
