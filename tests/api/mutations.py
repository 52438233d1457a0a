"""Bad input by the thousand: recorded requests with something wrong, the same at every run for one seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

Path = tuple[Any, ...]
Mutation = Callable[[Random, Any], bytes]

_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    10**40,
    "",
    "x",
    "n\u0000l",
    "\u2028\U0001f600",
    "homeport.dev/",
    [],
    [None],
    [[]],
    {},
    {"": None},
    {"metadata": None},
)
_HUGE: Final = ("1e400", "-1e400", "9" * 400, "0." + "0" * 300 + "1", "-0", "1E2", "NaN", "Infinity")


def mutated(random: Random, request: bytes, *, deep: bool = True) -> bytes:
    """``request`` with one to three things wrong; nested deeply only if ``deep``."""
    body = request
    mutations = _MUTATIONS if deep else _SHALLOW
    for _ in range(random.randint(1, 3)):
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return body
        body = random.choice(mutations)(random, found)
    return body


def _replace(random: Random, found: Any) -> bytes:
    """Any value becomes something else."""
    path = random.choice(list(_paths(found)))
    return _dumped(_with(found, path, random.choice(_ODD)))


def _null(random: Random, found: Any) -> bytes:
    return _dumped(_with(found, random.choice(list(_paths(found))), None))


def _remove(random: Random, found: Any) -> bytes:
    path = random.choice(list(_paths(found)))
    if not path:
        return b"{}"
    changed = _copied(found, path)
    del _at(changed, path[:-1])[path[-1]]
    return _dumped(changed)


def _recase(random: Random, found: Any) -> bytes:
    """A key is spelled oddly."""
    keyed = [path for path in _paths(found) if path and isinstance(path[-1], str)]
    if not keyed:
        return _dumped(found)
    path = random.choice(keyed)
    changed = _copied(found, path)
    parent = _at(changed, path[:-1])
    case = random.choice((str.lower, str.upper, str.swapcase))
    items = [(case(key) if key == path[-1] else key, value) for key, value in parent.items()]
    parent.clear()
    parent.update(items)
    return _dumped(changed)


def _repeat(random: Random, found: Any) -> bytes:
    """An outer key comes twice, the second time with another value."""
    if not isinstance(found, dict) or not found:
        return _dumped(found)
    key = random.choice(list(found))
    again = json.dumps({key: random.choice(_ODD)})[1:-1]
    return f"{json.dumps(found)[:-1]},{again}}}".encode()


def _swell(random: Random, found: Any) -> bytes:
    """A list holds its elements many times."""
    lists = [path for path in _paths(found) if isinstance(_at(found, path), list)]
    if not lists:
        return _dumped(found)
    path = random.choice(lists)
    return _dumped(_with(found, path, _at(found, path) * random.choice((2, 50))))


def _number(random: Random, found: Any) -> bytes:
    """A number becomes one that no machine holds."""
    numbers = [path for path in _paths(found) if type(_at(found, path)) is int]
    if not numbers:
        return _dumped(found)
    marked = _dumped(_with(found, random.choice(numbers), "HUGE"))
    return marked.replace(b'"HUGE"', random.choice(_HUGE).encode())


def _deepen(random: Random, found: Any) -> bytes:
    path = random.choice(list(_paths(found)))
    depth = random.choice((10, 500, 3000))
    marked = _dumped(_with(found, path, "DEEP"))
    return marked.replace(b'"DEEP"', b'{"a":[' * depth + b"1" + b"]}" * depth)


def _truncate(random: Random, found: Any) -> bytes:
    body = _dumped(found)
    return body[: random.randrange(len(body) + 1)]


def _scramble(random: Random, found: Any) -> bytes:
    """Bytes become others, mostly no UTF-8."""
    body = bytearray(_dumped(found))
    for _ in range(random.randint(1, 4)):
        body[random.randrange(len(body))] = random.randrange(256)
    return bytes(body)


def _append(random: Random, found: Any) -> bytes:
    return _dumped(found) + random.choice((b"{}", b",", b"\x00", b" \n", b"null"))


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _replace,
    _replace,
    _null,
    _null,
    _remove,
    _recase,
    _repeat,
    _swell,
    _number,
    _deepen,
    _truncate,
    _scramble,
    _append,
)

_SHALLOW: Final = tuple(it for it in _MUTATIONS if it is not _deepen)


def _dumped(found: Any) -> bytes:
    return json.dumps(found).encode()


def _paths(found: Any) -> Iterator[Path]:
    """Depth first, without a call for each level: Python 3.13 has no room for so many generators in one another."""
    left: list[tuple[Path, Any]] = [((), found)]
    while left:
        at, value = left.pop()
        yield at
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        left += reversed([((*at, key), it) for key, it in inner])


def _at(found: Any, path: Path) -> Any:
    for key in path:
        found = found[key]
    return found


def _copied(found: Any, path: Path) -> Any:
    """The same with everything on the way to ``path`` copied, so that it can be changed there."""
    changed = copy.copy(found)
    at = changed
    for key in path[:-1]:
        at[key] = copy.copy(at[key])
        at = at[key]
    return changed


def _with(found: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed = _copied(found, path)
    _at(changed, path[:-1])[path[-1]] = value
    return changed
