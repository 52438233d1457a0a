"""A what-if is not started where its memory could end the container."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from app.verbs.outcome import VerbFailure
from app.whatif import running
from app.whatif.room import lacking_memory
from app.whatif.running import ForkedRunner

MIB = 1 << 20


def container(folder: Path, limit: str, used: int, private: int) -> tuple[Path, Path]:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{(used + 30) * MIB}\n")
    (folder / "memory.stat").write_text(f"anon {used * MIB}\ninactive_file {30 * MIB}\n")
    page = os.sysconf("SC_PAGE_SIZE")
    (folder / "statm").write_text(f"90000 {(private + 10) * MIB // page} {10 * MIB // page} 1 0 90000 0\n")
    return folder, folder / "statm"


@pytest.mark.parametrize(
    ("limit", "used", "private", "lacking"),
    [
        ("max", 5000, 400, 0),
        (str(1024 * MIB), 500, 400, 0),
        (str(1024 * MIB), 600, 400, 40 * MIB),
        (str(1024 * MIB), 560, 400, 0),
    ],
)
def test_as_much_again_and_64_mib(tmp_path: Path, limit: str, used: int, private: int, lacking: int) -> None:
    assert lacking == lacking_memory(*container(tmp_path, limit, used, private))


def test_without_a_cgroup(tmp_path: Path) -> None:
    assert 0 == lacking_memory(tmp_path, tmp_path / "statm")


def test_the_service_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "lacking_memory", lambda: 40 * MIB)

    with pytest.raises(VerbFailure, match="40 MiB") as raised:
        asyncio.run(ForkedRunner().run(lambda: iter(())))  # type: ignore[arg-type, return-value]  # not run

    assert "overloaded" == raised.value.outcome
