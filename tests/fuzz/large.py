"""Objects of 1.4 MB of every kind that is watched by default: every kind in turn, the same for a seed."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from tests.apiserver import event
from tests.builders import JsonObject
from tests.fuzz.objects import KINDS, Case, Family, _base, _json, _Made

SIZE: Final = 1_400_000
"""Bytes of JSON, just below what etcd takes."""

_MANY: Final = 60
"""Bytes of an entry, about."""


def one_text(random: Random, base: JsonObject) -> _Made:
    """One long text, where the kind keeps or skips it."""
    where = random.choice((base, base["metadata"], base.setdefault("spec", {}), base.setdefault("status", {})))
    where[random.choice(("more", "name2", "message"))] = "x" * SIZE
    return _Made(_json(base))


def escapes(random: Random, base: JsonObject) -> _Made:
    """A text that JSON writes in six bytes a character."""
    base["metadata"]["annotations"] = {random.choice(("example.com/x", "homeport.dev/home")): "\x01" * (SIZE // 6)}
    return _Made(_json(base))


def entries(random: Random, base: JsonObject) -> _Made:
    """Many entries in a map or list that is read."""
    count = SIZE // _MANY
    names = [f"example.com/{place:0{_MANY - 24}}" for place in range(count)]
    match random.choice(("labels", "annotations", "ownerReferences", "finalizers", "managedFields")):
        case "labels" | "annotations" as field:
            base["metadata"][field] = dict.fromkeys(names, "v")
        case "ownerReferences":
            owners = [{"kind": "X", "apiVersion": "v1", "name": it, "uid": "u"} for it in names[: count // 2]]
            base["metadata"]["ownerReferences"] = owners
        case field:
            base["metadata"][field] = [{"manager": it} for it in names]
    return _Made(_json(base))


def filled(random: Random, base: JsonObject) -> _Made:
    """A list that the object has, with its own entries over and over; a list of its spec where it has none."""
    lists = list(_lists(base))
    into = (
        random.choice(lists) if lists else base.setdefault("spec", {}).setdefault("more", [{"name": "x", "value": 1}])
    )
    size = max(len(_json(into)) - 2, 1)
    into *= max(1, SIZE // (size + 2))
    return _Made(_json(base))


def _lists(part: Any) -> Any:
    """Every list that has something in it."""
    if isinstance(part, list):
        if part:
            yield part
        for it in part:
            yield from _lists(it)
    elif isinstance(part, dict):
        for it in part.values():
            yield from _lists(it)


FAMILIES: Final[Mapping[str, tuple[float, Family]]] = {
    "one-text": (1, one_text),
    "escapes": (1, escapes),
    "entries": (2, entries),
    "filled": (3, filled),
}


def made(seed: int, number: int, families: Mapping[str, tuple[float, Family]] = FAMILIES) -> Case:
    """The case of this number. As many cases as there are kinds are one of each."""
    (name,) = Random(f"large {seed} {number}").choices(tuple(families), [weight for weight, _ in families.values()])
    random = Random(f"large {seed} {number} {name}")
    kind = KINDS[number % len(KINDS)]
    it = families[name][1](random, _base(random, kind, number))
    line = event(random.choice(("ADDED", "MODIFIED")), it.raw)
    return Case(number, name, kind, line, it.raw)
