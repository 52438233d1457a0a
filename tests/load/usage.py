"""What a process has used, from /proc."""

from __future__ import annotations

import os
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


def resident_megabytes(pid: int) -> float:
    """Memory in use now."""
    return _status(pid, "VmRSS")


def peak_megabytes(pid: int) -> float:
    """The most memory that was ever in use."""
    return _status(pid, "VmHWM")


def _status(pid: int, field: str) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024
