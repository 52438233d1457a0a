"""What a process has used, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time, user and system, of all threads so far; counted in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def processor_microseconds(pid: int) -> float:
    """Processor time of the first thread of a process so far; counted in nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e3


def waits(pid: int) -> int:
    """How often threads of it that still run have waited for something so far: voluntary context switches."""
    found = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            found += int(_field((thread / "status").read_text(), "\nvoluntary_ctxt_switches"))
    return found


def all_waits(pids: Mapping[str, int]) -> dict[str, float]:
    """The same of several processes."""
    return {name: waits(pid) for name, pid in pids.items()}


def all_cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """The same of several processes."""
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def resident_megabytes(pid: int) -> float:
    """Memory in use now."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int) -> float:
    """The most memory that was ever in use."""
    return _status(pid, "VmHWM")


def _status(pid: int, field: str) -> float:
    return int(_field(Path(f"/proc/{pid}/status").read_text(), field)) / 1024


def _field(status: str, field: str) -> str:
    return status.partition(f"{field}:")[2].split()[0]
