"""The one door through which JSON of the API server and of callers is decoded, however deep it is nested.

The API server stores documents of up to 10,000 levels (``managedFields[].fieldsV1`` of anybody's pod) and sends them.
msgspec gives up with a ``RecursionError`` where the interpreter's stack ends, some 900 levels down, also in parts that
it only skips. Then what lies far deeper than anybody reads is cut out of the bytes, and the rest is decoded. A document
that msgspec takes costs nothing beside msgspec.
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

KEPT: Final = 64
"""Levels of arrays and objects that always come through. The deepest that anybody reads is on level 14 of a list."""

DEEPEST: Final = 128
"""What begins below level ``KEPT`` is cut if it reaches deeper than this; the two are more than two words apart."""

_WINDOW: Final = 1 << 16
"""Bytes looked at in one step, for 2 ms."""

_WORD: Final = 8
_OPEN: Final = ord("[")
_NOTHING: Final = ord(" ")
_ALIKE: Final = bytes(ord("[") if byte in b"{[" else ord("]") if byte in b"}]" else ord(" ") for byte in range(256))
"""Both kinds of brackets as one, everything else as nothing."""

_NO_BRACKETS: Final = bytes(ord(" ") if byte in b"{[]}" else byte for byte in range(256))


class TooDeep(msgspec.DecodeError):
    """Nested deeper than the interpreter's stack allows; what ``levelled`` makes of it is not."""


class Decoder(Generic[T]):
    """A ``msgspec.json.Decoder`` for documents of any depth. All methods raise only ``msgspec.DecodeError``."""

    __slots__ = ("_decode",)

    def __init__(self, type_: Any) -> None:
        """``type_`` is the type to decode into; it can be more than a class, for example a union."""
        self._decode: Callable[[Document], T] = msgspec.json.Decoder(type_).decode

    def decode(self, raw: Document) -> T:
        try:
            return self._decode(raw)
        except RecursionError:
            return self.at_once(levelled(bytes(raw)))
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None

    def at_once(self, raw: Document) -> T:
        """Raise ``TooDeep`` instead of cutting, which takes 30 ms for a megabyte: for code that others wait for."""
        try:
            return self._decode(raw)
        except RecursionError:
            raise TooDeep("nested too deeply") from None
        except UnicodeDecodeError as error:
            raise msgspec.DecodeError(str(error)) from None

    async def in_turns(self, raw: Document) -> T:
        """Decode like ``decode``, and let other tasks run meanwhile."""
        try:
            return self.at_once(raw)
        except TooDeep:
            return self.at_once(await levelled_in_turns(bytes(raw)))


def levelled(raw: bytes) -> bytes:
    """``raw`` with ``null`` for each array or object right below level ``KEPT`` that reaches deeper than ``DEEPEST``.

    The document itself is on level 1. What is no JSON stays none, but for faults in what is cut out.
    """
    cut = _Cut(raw)
    for _ in cut.steps():
        pass
    return cut.result()


async def levelled_in_turns(raw: bytes) -> bytes:
    """``levelled`` that lets others run every 2 ms."""
    cut = _Cut(raw)
    for _ in cut.steps():
        await asyncio.sleep(0)
    return cut.result()


class _Cut:
    """One document. Python looks at words of 8 bytes, and at single bytes only where a cut begins or ends."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._found: list[tuple[int, int]] = []
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
        for start, end in self._found:
            pieces += (self._raw[at:start], b"null")
            at = end
        rest = _last_left(*self._crossing) if self._too_deep else len(self._raw)  # it never ended: no JSON
        return b"".join((*pieces, self._raw[at:rest]))

    def _window(self, at: int) -> bytes:
        """The next bytes, with the whole of their last escape."""
        window = self._raw[at : at + _WINDOW]
        escaping = len(window) - len(window.rstrip(b"\\"))
        return window if escaping % 2 == 0 else self._raw[at : at + _WINDOW + 1]

    def _structure(self, window: bytes) -> bytes:
        """As many bytes, of which brackets are the brackets outside of strings."""
        if b"\\" in window:
            window = window.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        parts = window.split(b'"')
        first = int(not self._in_string)
        strings = parts[first::2]
        if strings:
            parts[first::2] = b'"'.join(strings).translate(_NO_BRACKETS).split(b'"')
        self._in_string ^= len(parts) % 2 == 0
        return b'"'.join(parts).translate(_ALIKE)

    def _look(self, at: int, words: memoryview) -> None:
        depths = list(accumulate(map(_NET.__getitem__, words), initial=self._depth))
        highest = max(depths)
        self._depth = depths.pop()
        if highest + _WORD <= KEPT:
            return
        for index, depth in enumerate(depths):
            if depth > KEPT + _WORD:
                if depth > DEEPEST - _WORD and not self._too_deep:
                    self._too_deep = depth + _SHAPE[words[index]][1] > DEEPEST
            elif depth + _WORD > KEPT:
                low, high = _SHAPE[words[index]]
                if depth + low <= KEPT < depth + high:
                    self._cross(at + index * _WORD, words[index], depth)

    def _cross(self, at: int, word: int, depth: int) -> None:
        """Level ``KEPT`` is left or come back to within this word. Where exactly matters only for a cut."""
        if self._too_deep:
            self._found.append((_last_left(*self._crossing), _first_back(at, word, depth)))
            self._too_deep = False
        self._crossing = (at, word, depth)


class _Nets(dict[int, int]):
    """How much deeper one is after a word. Of the brackets alone there are 6,561 words."""

    def __missing__(self, word: int) -> int:
        bytes_ = word.to_bytes(_WORD, sys.byteorder)
        net = self[word] = bytes_.count(b"[") - bytes_.count(b"]")
        return net


class _Shapes(dict[int, tuple[int, int]]):
    """The lowest and the highest that one comes in a word, against where it begins."""

    def __missing__(self, word: int) -> tuple[int, int]:
        depths = (0, *(depth for _, depth in _steps(word, 0)))
        shape = self[word] = (min(depths), max(depths))
        return shape


_NET: Final = _Nets()
_SHAPE: Final = _Shapes()


def _words(structure: bytes) -> memoryview:
    return memoryview(structure + b" " * (-len(structure) % _WORD)).cast("Q")


def _steps(word: int, depth: int) -> list[tuple[int, int]]:
    """The depth after each bracket of a word, with the place of the bracket."""
    found: list[tuple[int, int]] = []
    for place, byte in enumerate(word.to_bytes(_WORD, sys.byteorder)):
        if byte != _NOTHING:
            depth += 1 if byte == _OPEN else -1
            found.append((place, depth))
    return found


def _last_left(at: int, word: int, depth: int) -> int:
    """Where the bracket is that leaves level ``KEPT`` last."""
    steps = _steps(word, depth)
    before = (depth, *(it for _, it in steps))
    return at + max(place for (place, after), was in zip(steps, before, strict=False) if was == KEPT < after)


def _first_back(at: int, word: int, depth: int) -> int:
    """Behind the bracket that comes back to level ``KEPT`` first."""
    return at + 1 + next(place for place, after in _steps(word, depth) if after == KEPT)
