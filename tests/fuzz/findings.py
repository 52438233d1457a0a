"""What was found: by what, in whose case, and how to see it again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

What = Literal["breach", "crash", "standstill"]
"""``breach``: an answer, or the feed · ``crash``: a traceback, an end, a service that is not well."""

_MOST_FILES: Final = 5
"""Of one family and kind of finding: more tell nothing new."""
_REPEATED: Final = re.compile(rb"(.{1,40}?)\1{20,}", re.DOTALL)
_SHOWN: Final = 6000


class Finding(Struct, frozen=True):
    """``numbers``: of the case, or of all that it may have been. ``sent``: the least found to bring it about."""

    what: What
    family: str
    numbers: tuple[int, ...]
    told: str
    sent: tuple[bytes, ...] = ()


class Findings:
    """Kept in ``folder``: for each a text to read and the bytes to send."""

    def __init__(self, part: str, seed: int, folder: Path) -> None:
        self.all: list[Finding] = []
        self._part = part
        self._seed = seed
        self._folder = folder
        self._written: Counter[tuple[str, str]] = Counter()

    def add(self, found: Finding) -> None:
        self.all.append(found)
        self._written[(found.what, found.family)] += 1
        if self._written[(found.what, found.family)] <= _MOST_FILES:
            self._write(found)

    def count(self, what: What) -> int:
        return sum(it.what == what for it in self.all)

    def by_family(self) -> dict[str, int]:
        return dict(Counter(f"{it.what}: {it.family}" for it in self.all))

    def told(self) -> list[dict[str, Any]]:
        """A line or two each, for the report."""
        return [
            {"what": it.what, "family": it.family, "cases": it.numbers[:8], "told": it.told[:600]}
            for it in self.all[:50]
        ]

    def _write(self, found: Finding) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._part}-{self._seed}-{found.numbers[0] if found.numbers else 'x'}-{found.what}"
        alone = f" FAMILY={found.family} CASE={found.numbers[0]}" if len(found.numbers) == 1 else ""
        again = f"make fuzz ONLY={self._part} SEED={self._seed}{alone}"
        lines = [f"{found.what} in family {found.family!r}", f"again: {again}", "", found.told, "", "sent:"]
        lines += [f"  {shown(piece)}" for piece in found.sent]
        (self._folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self._folder / f"{name}.bin").write_bytes(b"".join(found.sent))


def shown(sent: bytes) -> str:
    """Bytes for a person: what is repeated is told once, and not all of what is long."""

    def short(found: re.Match[bytes]) -> bytes:
        return b"<%d x %s>" % (len(found[0]) // len(found[1]), found[1])

    text = _REPEATED.sub(short, sent[: 1 << 18])
    told = json.dumps(text[:_SHOWN].decode("latin-1"), ensure_ascii=False)
    return told if len(text) <= _SHOWN and len(sent) <= 1 << 18 else f"{told}… {len(sent)} bytes"


def halves(items: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]
