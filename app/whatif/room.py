"""Memory that a child process can use before the kernel would end the whole container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_STATM: Final = Path("/proc/self/statm")
_UNLIMITED: Final = "max"
_OWN: Final = 64 << 20
"""Bytes that a what-if needs in addition to its copies of the service's pages."""


def lacking_memory(cgroup: Path = _CGROUP, statm: Path = _STATM) -> int:
    """Return how many bytes of memory a child process lacks; 0 if there is enough, or if no limit is known.

    The child shares the pages of the service until it changes them. So it needs at most the service's private memory
    again, plus ``_OWN``.

    ``cgroup``: folder of the container's cgroup (version 2). ``statm``: file with the memory of this process, in pages.
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
