"""The cases: the same for a seed, of every kind that is watched, and none left out without a reason."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from app.config.profile import DEFAULT_PROFILES, Profile
from app.kube.kinds import NODES, PODS
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.fuzz import amounts, large, lies, objects, requests
from tests.fuzz.families import EVERY, chosen

MADE: dict[str, Any] = {
    "requests": requests.made,
    "objects": objects.made,
    "amounts": amounts.made,
    "large": large.made,
    "lies": lies.made,
}
SOME = range(150)
FEW = range(5)
"""Numbers of the cases that are tried of a family whose cases have 1.4 MB."""


@pytest.mark.parametrize("part", MADE)
def test_a_case_is_the_same_for_its_seed_and_number(part: str) -> None:
    made, some = MADE[part], FEW if part == "large" else SOME

    assert [made(1, number) for number in some] == [made(1, number) for number in some]
    assert [made(1, number) for number in some] != [made(2, number) for number in some]


@pytest.mark.parametrize("part", MADE)
def test_a_case_is_found_again_by_its_family(part: str) -> None:
    for number in FEW if part == "large" else SOME:
        case = MADE[part](1, number, chosen(part))
        assert case == MADE[part](1, number, chosen(part, [case.family]))


@pytest.mark.parametrize(("part", "family"), [(part, family) for part in MADE for family in EVERY[part]])
def test_every_family_makes_cases(part: str, family: str) -> None:
    assert {family} == {MADE[part](1, number, chosen(part, [family])).family for number in range(5)}


def test_every_kind_that_is_watched_is_fuzzed() -> None:
    profiles = resolve(DEFAULT_PROFILES, Registry(SHIPPED, DEFAULT_WEIGHTS))
    watched = {NODES, PODS}.union(*(profile.kinds() for profile in profiles))

    assert {repr(kind) for kind in watched} == set(objects.KINDS)
    assert set(objects.KINDS) == {objects.made(1, number).kind for number in SOME}


def test_amounts_are_of_every_kind_that_kube_scheduler_s_plugins_read() -> None:
    (complete,) = resolve((Profile(preset="complete"),), Registry(SHIPPED, DEFAULT_WEIGHTS))
    watched = {repr(kind) for kind in {NODES, PODS}.union(complete.kinds())}
    ours = {kind for kind in watched if "kubevirt" in kind or "homeport" in kind}

    assert watched - ours == {it.kind for it in map(partial(amounts.made, 1), range(300))}


def test_a_list_of_cases_is_json() -> None:
    """Else it would be the stand-in that is at fault, and not what reads it."""
    families = {name: it for name, it in EVERY["objects"].items() if name not in ("nested", "huge")}
    items = [case.item for number in SOME if (case := objects.made(1, number, families)).item is not None]

    assert len(items) > len(SOME) // 2
    assert len(items) == len(json.loads(b"[" + b",".join(items) + b"]"))
