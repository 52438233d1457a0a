"""Decoder for JSON from the API server and from callers, at any nesting depth.

The API server stores and sends documents with up to 10,000 levels, for example in ``managedFields[].fieldsV1`` of a
pod. msgspec raises ``RecursionError`` at about 900 levels, where the interpreter's stack ends. It does so even in parts
that it skips. The decoder then cuts out all parts that are nested far below the deepest field that Homeport reads, and
decodes the rest. Documents that msgspec can decode take no additional time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from itertools import accumulate
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw

T = TypeVar("T")
Document = bytes | bytearray | memoryview | Raw

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

SAFE_DEPTH: Final = 64
"""Number of nesting levels that are never cut. The deepest field that Homeport reads is on level 14."""

MAX_DEPTH: Final = 128
"""Maximum level of a part that begins directly below level ``SAFE_DEPTH``. A part that goes deeper is cut out.

The number must exceed ``SAFE_DEPTH`` by at least 16, because ``_Cut`` scans words of 8 bytes, and each word can open 8
levels.
"""

_WINDOW: Final = 1 << 16
"""Number of bytes scanned in one step. A step takes 2 ms."""

_WORD: Final = 8
_OPEN: Final = ord("[")
_SPACE: Final = ord(" ")
_TO_SQUARE: Final = bytes(ord("[") if byte in b"{[" else ord("]") if byte in b"}]" else ord(" ") for byte in range(256))
"""Translation table: maps braces to square brackets, keeps square brackets, and maps other bytes to a space."""

_NO_BRACKETS: Final = bytes(ord(" ") if byte in b"{[]}" else byte for byte in range(256))


class TooDeep(msgspec.DecodeError):
    """The document is nested too deeply for the interpreter's stack; ``without_deep_parts`` makes it decodable."""


class Decoder(Generic[T]):
    """Decoder like ``msgspec.json.Decoder``, for documents of any depth. Methods raise only ``msgspec.DecodeError``."""

    __slots__ = ("_decode",)

    def __init__(self, type_: Any) -> None:
        """``type_`` is the type of the result: a class, or for example a union."""
        self._decode: Callable[[Document], T] = msgspec.json.Decoder(type_).decode

    def decode(self, raw: Document) -> T:
        """Decode a document. If it is nested too deeply for msgspec, first cut out its deep parts."""
        try:
            return self._decode(raw)
        except RecursionError:
            return self.at_once(without_deep_parts(bytes(raw)))
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None

    def at_once(self, raw: Document) -> T:
        """Decode without cutting, because a cut blocks the event loop for 30 ms per megabyte.

        Raises ``TooDeep`` if the document needs a cut.
        """
        try:
            return self._decode(raw)
        except RecursionError:
            raise TooDeep("nested too deeply") from None
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None

    async def decode_in_steps(self, raw: Document) -> T:
        """Decode like ``decode``, but let other tasks run while deep parts are cut."""
        try:
            return self.at_once(raw)
        except TooDeep:
            return self.at_once(await without_deep_parts_in_steps(bytes(raw)))


def without_deep_parts(raw: bytes) -> bytes:
    """Replace each part directly below level ``SAFE_DEPTH`` by ``null`` if it goes deeper than level ``MAX_DEPTH``.

    A part is an array or object; the document itself is on level 1. Invalid JSON stays invalid, unless all errors are
    inside the parts that are cut out.
    """
    cut = _Cut(raw)
    for _ in cut.steps():
        pass
    return cut.result()


async def without_deep_parts_in_steps(raw: bytes) -> bytes:
    """Like ``without_deep_parts``, but let other tasks run every 2 ms."""
    cut = _Cut(raw)
    for _ in cut.steps():
        await asyncio.sleep(0)
    return cut.result()


class _Cut:
    """Scanner that cuts the deep parts out of one document.

    It reads words of 8 bytes. Only in the words where a cut begins or ends, it looks at single bytes. ``_crossing`` is
    the latest word that crosses level ``SAFE_DEPTH``: (its position, the word, the depth before it).
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._cuts: list[tuple[int, int]] = []
        self._depth = 0
        self._in_string = False
        self._too_deep = False
        self._crossing = (0, 0, 0)

    def steps(self) -> Generator[None, None, None]:
        at = 0
        while at < len(self._raw):
            window = self._window(at)
            self._look(at, _words(self._structure(window)))
            at += len(window)
            yield

    def result(self) -> bytes:
        pieces: list[bytes] = []
        at = 0
        for start, end in self._cuts:
            pieces += (self._raw[at:start], b"null")
            at = end
        rest = _last_start(*self._crossing) if self._too_deep else len(self._raw)  # unclosed part: invalid JSON
        return b"".join((*pieces, self._raw[at:rest]))

    def _window(self, at: int) -> bytes:
        """Return the next ``_WINDOW`` bytes, or one more byte if they end with the backslash of an escape sequence."""
        window = self._raw[at : at + _WINDOW]
        escaping = len(window) - len(window.rstrip(b"\\"))
        return window if escaping % 2 == 0 else self._raw[at : at + _WINDOW + 1]

    def _structure(self, window: bytes) -> bytes:
        """Return ``window`` with ``[`` or ``]`` for each brace and bracket outside of strings.

        All other bytes are replaced by spaces.
        """
        if b"\\" in window:
            window = window.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        parts = window.split(b'"')
        first = int(not self._in_string)
        strings = parts[first::2]
        if strings:
            parts[first::2] = b'"'.join(strings).translate(_NO_BRACKETS).split(b'"')
        self._in_string ^= len(parts) % 2 == 0
        return b'"'.join(parts).translate(_TO_SQUARE)

    def _look(self, at: int, words: memoryview) -> None:
        depths = list(accumulate(map(_DEPTH_CHANGE.__getitem__, words), initial=self._depth))
        highest = max(depths)
        self._depth = depths.pop()
        if highest + _WORD <= SAFE_DEPTH:
            return
        for index, depth in enumerate(depths):
            if depth > SAFE_DEPTH + _WORD:
                if depth > MAX_DEPTH - _WORD and not self._too_deep:
                    self._too_deep = depth + _DEPTH_RANGE[words[index]][1] > MAX_DEPTH
            elif depth + _WORD > SAFE_DEPTH:
                low, high = _DEPTH_RANGE[words[index]]
                if depth + low <= SAFE_DEPTH < depth + high:
                    self._cross(at + index * _WORD, words[index], depth)

    def _cross(self, at: int, word: int, depth: int) -> None:
        """Record that a word crosses level ``SAFE_DEPTH``. If a part to cut ends in this word, record the cut."""
        if self._too_deep:
            self._cuts.append((_last_start(*self._crossing), _first_end(at, word, depth)))
            self._too_deep = False
        self._crossing = (at, word, depth)


class _DepthChanges(dict[int, int]):
    """Cache of the change of depth by word. It has at most 6,561 words, because each byte is "[", "]" or a space."""

    def __missing__(self, word: int) -> int:
        bytes_ = word.to_bytes(_WORD, sys.byteorder)
        change = self[word] = bytes_.count(b"[") - bytes_.count(b"]")
        return change


class _DepthRanges(dict[int, tuple[int, int]]):
    """Cache of the minimum and maximum depth within a word, relative to the depth at its start."""

    def __missing__(self, word: int) -> tuple[int, int]:
        depths = (0, *(depth for _, depth in _steps(word, 0)))
        lowest_and_highest = self[word] = (min(depths), max(depths))
        return lowest_and_highest


_DEPTH_CHANGE: Final = _DepthChanges()
_DEPTH_RANGE: Final = _DepthRanges()


def _words(structure: bytes) -> memoryview:
    return memoryview(structure + b" " * (-len(structure) % _WORD)).cast("Q")


def _steps(word: int, depth: int) -> list[tuple[int, int]]:
    """Return (index in the word, depth after the bracket) for each bracket of a word that begins at ``depth``."""
    steps: list[tuple[int, int]] = []
    for place, byte in enumerate(word.to_bytes(_WORD, sys.byteorder)):
        if byte != _SPACE:
            depth += 1 if byte == _OPEN else -1
            steps.append((place, depth))
    return steps


def _last_start(at: int, word: int, depth: int) -> int:
    """Return the position of the word's last bracket that raises the depth above ``SAFE_DEPTH``."""
    steps = _steps(word, depth)
    before = (depth, *(it for _, it in steps))
    return at + max(place for (place, after), was in zip(steps, before, strict=False) if was == SAFE_DEPTH < after)


def _first_end(at: int, word: int, depth: int) -> int:
    """Return the position after the word's first bracket that lowers the depth to ``SAFE_DEPTH``."""
    return at + 1 + next(place for place, after in _steps(word, depth) if after == SAFE_DEPTH)
