"""JSON of any depth is decoded, and what is cut out for it is what a recursive definition says."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from app.kube import decoding
from app.kube.decoding import MAX_DEPTH, SAFE_DEPTH, Decoder, TooDeep, without_deep_parts, without_deep_parts_in_steps
from tests.strategies import examples

DEPTHS = (1_200, 9_000, 9_990, 100_000)
"""What the API server stores, and what no interpreter takes: Python 3.11 ends at some 900, 3.13 at 10,000."""


def nested(levels: int, inmost: str = "1") -> str:
    """Objects and arrays in turns, with keys that look like structure."""
    half = levels // 2
    return '{"f:]}":[' * half + inmost + "]}" * half


def chain(levels: int) -> Any:
    """So many arrays within each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def depth_of(value: Any) -> int:
    """Levels of arrays and objects."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth_of, parts), default=0)


def cut(value: Any, level: int = 1) -> Any:
    """The definition."""
    if not isinstance(value, list | dict):
        return value
    if level == SAFE_DEPTH + 1 and level - 1 + depth_of(value) > MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: cut(part, level + 1) for key, part in value.items()}
    return [cut(part, level + 1) for part in value]


texts = st.text(st.sampled_from('[]{}"\\:,/ué€\n'), max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts


@st.composite
def towers(draw: st.DrawFn) -> Any:
    """Values of which parts begin around the level that is kept, and end around the deepest one."""
    value: Any = draw(scalars)
    for _ in range(
        draw(
            st.sampled_from((0, 1, MAX_DEPTH - SAFE_DEPTH - 1, MAX_DEPTH - SAFE_DEPTH, MAX_DEPTH - SAFE_DEPTH + 1, 150))
        )
    ):
        value = [value] if draw(st.booleans()) else {draw(texts): value}
    return value


@st.composite
def documents(draw: st.DrawFn) -> Any:
    value: Any = draw(st.lists(towers(), max_size=4))
    for _ in range(draw(st.sampled_from((0, 1, SAFE_DEPTH - 2, SAFE_DEPTH - 1, SAFE_DEPTH, SAFE_DEPTH + 3)))):
        beside = draw(st.lists(scalars | towers(), max_size=1))
        value = [*beside, value] if draw(st.booleans()) else {draw(texts): value, "beside": beside}
    return value


@pytest.mark.parametrize("window", [7, 64, 1 << 16], ids="windows of {} bytes".format)
@settings(max_examples=examples(50))
@given(document=documents(), spaces=st.booleans(), escaped=st.booleans())
def test_what_is_cut_is_what_the_definition_says(window: int, document: Any, spaces: bool, escaped: bool) -> None:
    separators = (" , ", " : ") if spaces else (",", ":")
    raw = json.dumps(document, separators=separators, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoding, "_WINDOW", window)
        found = without_deep_parts(raw)

    assert cut(document) == json.loads(found)
    assert found == raw or cut(document) != document


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'"' * 3, id="a string that does not end"),
        pytest.param(b"]" * 500 + b"[" * 500, id="ends before beginnings"),
        pytest.param(b"[" * 500, id="beginnings without an end"),
        pytest.param(b'{"a":' * 500 + b"1" + b"}" * 400, id="too few ends"),
        pytest.param(b"\\" * 501, id="escapes of nothing"),
        pytest.param(b'["\xff\xfe"]', id="no UTF-8"),
        pytest.param(b"[" * 5000 + b'"\\', id="an escape at the end"),
    ],
)
def test_what_is_no_json_stays_none(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Decoder[Any](Any).decode(without_deep_parts(raw))
    with pytest.raises(ValueError, match=r"."):
        Decoder[Any](Any).decode(raw)


class Slim(Struct):
    name: str
    rest: Raw = Raw()


@pytest.mark.parametrize("levels", DEPTHS)
class TestDecoder:
    def body(self, levels: int, name: str = '"web"') -> bytes:
        return f'{{"unknown":{nested(levels)},"name":{name},"rest":{nested(levels)}}}'.encode()

    @pytest.mark.parametrize("form", [bytes, memoryview, Raw])
    def test_it_takes_any_depth(self, levels: int, form: type) -> None:
        found = Decoder[Slim](Slim).decode(form(self.body(levels)))

        assert "web" == found.name
        assert Decoder[Slim](Slim).at_once(without_deep_parts(self.body(levels))).name == "web"

    async def test_in_turns_it_finds_the_same(self, levels: int) -> None:
        decoder = Decoder[Slim](Slim)

        assert decoder.decode(self.body(levels)) == await decoder.decode_in_steps(self.body(levels))

    def test_other_mistakes_are_told_as_ever(self, levels: int) -> None:
        with pytest.raises(msgspec.ValidationError, match=r"^Expected `str`, got `int` - at `\$.name`$"):
            Decoder[Slim](Slim).decode(self.body(levels, name="5"))


def test_where_others_wait_depth_is_told() -> None:
    raw = f'{{"rest":{nested(DEPTHS[-1])},"name":"web"}}'.encode()
    decoder = Decoder[Slim](Slim)

    with pytest.raises(TooDeep, match=r"^nested too deeply$"):
        decoder.at_once(raw)
    found = decoder.at_once(without_deep_parts(raw))
    assert ("web", SAFE_DEPTH - 1) == (found.name, depth_of(json.loads(bytes(found.rest))))


def test_what_msgspec_takes_is_left_alone() -> None:
    """However deep: the bound is the interpreter's, as long as it holds."""
    raw = nested(sys.getrecursionlimit() // 2).encode()

    assert raw == bytes(Decoder[Raw](Raw).decode(raw))


async def test_others_run_meanwhile() -> None:
    """Two megabytes come in steps; how many there are says that none is long."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    raw = ("[" + ",".join([nested(5_000)] * 40) + "]").encode()
    task = asyncio.create_task(other())
    found = await without_deep_parts_in_steps(raw)
    task.cancel()

    assert (without_deep_parts(raw), True) == (found, turns >= len(raw) >> 16)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_work_grows_with_length_alone(size: int) -> None:
    """Counted in words looked at, whatever the document."""
    looked: list[int] = []
    raw = (nested(9_000) + ",") * size

    class Counting(decoding._Cut):
        def _look(self, at: int, words: memoryview) -> None:
            looked.append(len(words))
            super()._look(at, words)

    for _ in Counting(raw.encode()).steps():
        pass

    assert len(raw) // 8 <= sum(looked) <= len(raw) // 8 + len(looked)
