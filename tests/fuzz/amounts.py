"""Objects and pods with amounts near every bound of int64 and float, for all plugins of kube-scheduler's profile.

They are those of the conformance cases (``tests/conformance/generate.py``), with numbers and quantities replaced.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any, Final

from msgspec import Struct

from tests.apiserver import event
from tests.builders import JsonObject, encoded, pod_object
from tests.conformance import generate
from tests.fuzz import requests
from tests.fuzz.world import VERSION


def _around(*bounds: int) -> tuple[int, ...]:
    return tuple(sign * bound + more for bound in bounds for more in (-1, 0, 1) for sign in (1, -1))


_HALF: Final = (0, 1, 7, 100, *_around(2**31)[:5])
_WHOLE: Final = (
    *_around(2**31, 2**32, 2**53, 2**62, 10**18),
    2**63 - 1,
    -(2**63),
    92233720368547758,
    92233720368547759,
)
_BEYOND: Final[tuple[int | float, ...]] = (
    *(2**63, 2**64, 10**19, -(2**63) - 1, 10**400),
    *(0.5, -0.0, 1e16, 9.223372036854775e18, 1e19, 1e38, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308),
)
"""What no field of an integer takes."""

_QUANTITIES: Final[tuple[str, ...]] = (
    *(str(number) for number in (*_WHOLE, 2**63, 2**64 - 1, 10**19)),
    *("0.5", "1n", "999999999n", "9223372036854775807m", "9223372036854775807n", "9223372036854775807k"),
    *("9E", "9.3E", "7Ei", "8Ei", "7.999999999999Ei", "16Ei", "1e18", "1e19", "1e-9", "1e308", "1e309", "1e999"),
    *("1e-999", "4611686018427387904Ki", "0.0000000001", "-1Gi", "-9E", "-8Ei"),
)
_LITERALS: Final = tuple(map(str, (*_WHOLE, *_BEYOND)))
_QUANTITY: Final = re.compile(r"[+-]?[0-9.]+(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_NUMBER: Final = re.compile(r"(?<![\w'.])\d+(?:\.\d+)?(?![\w'.])")
_QUOTED: Final = re.compile(r"(?<=quantity\(')[^']*(?='\))")
_OF_32_BITS: Final = frozenset(
    ("priority", "weight", "maxSkew", "minDomains", "hostPort", "containerPort", "count", "disruptionsAllowed")
)
_CASES_A_TOPIC: Final = 10
_UNTRANSLATABLE: Final = "aws://t0/strange"
"""A volume that is an Error in-tree too, logged with a traceback: it has nothing to do with amounts."""

FAMILIES: Final[Mapping[str, tuple[float, None]]] = {"amounts": (1, None)}


def absurd(random: Random, found: Any, share: float, key: str = "") -> Any:
    """``found`` with a share of its numbers, quantities and literals in expressions replaced."""
    if isinstance(found, dict):
        return {name: it if name == "metadata" else absurd(random, it, share, name) for name, it in found.items()}
    if isinstance(found, list):
        return [absurd(random, it, share, key) for it in found]
    if isinstance(found, bool) or random.random() >= share:
        return found
    if isinstance(found, int | float):
        if random.random() < 0.05:
            return random.choice(_BEYOND)
        return random.choice(_HALF if key in _OF_32_BITS else _WHOLE)
    if not isinstance(found, str):
        return found
    if _QUANTITY.fullmatch(found):
        return random.choice(_QUANTITIES)
    if key == "expression":
        found = _QUOTED.sub(lambda _: random.choice(_QUANTITIES), found)
        return _NUMBER.sub(lambda _: random.choice(_LITERALS), found)
    return found


class Pool:
    """Objects by kind, and pods that wait, of some cases of every topic. No two pods have one UID, as in a cluster."""

    def __init__(self, seed: int = 1) -> None:
        self.objects: dict[str, list[JsonObject]] = defaultdict(list)
        self.pods: list[JsonObject] = []
        for topic in generate.TOPICS:
            for line in generate.cases(topic, seed, range(_CASES_A_TOPIC)):
                case = json.loads(line)
                self.pods.append(case["pod"])
                for it in case.get("objects", ()):
                    if it["kind"] == "Pod":
                        it["metadata"]["uid"] = "pod-{namespace}-{name}".format_map(it["metadata"])
                    if _UNTRANSLATABLE not in json.dumps(it):
                        self.objects[f"{it['apiVersion']} {it['kind']}"].append(it)


@cache
def pool() -> Pool:
    """One for all cases."""
    return Pool()


SCHEDULER: Final = "full"
"""Whose pods the profile of kube-scheduler's own plugins is for."""

PROFILES: Final[list[JsonObject]] = [
    {"schedulerName": "default-scheduler"},
    {"schedulerName": SCHEDULER, "preset": "complete", "pick": True},
]
_ASKED: Final = tuple(f"n{number}" for number in range(10))
_EXPLAIN: Final = "/api/v1/explain"
_PENDING: Final = "/api/v1/pending"
_ENDPOINTS: Final[Mapping[str, float]] = {
    **dict.fromkeys(("/filter", "/lean/filter", "/prioritize", "/preempt", "/api/v1/cycle"), 1),
    _EXPLAIN: 0.05,
    _PENDING: 0.02,
}
"""How often each is asked; the last two judge every node."""

PLAIN: Final = encoded({"pod": pod_object("plain", scheduler=SCHEDULER), "nodes": ["more-1", *_ASKED]})
"""A cycle for a pod without any amount: never an error, whatever is on these nodes."""


class Case(Struct, frozen=True):
    """``line`` is what the watch of ``kind`` brings; then a pod is asked about."""

    number: int
    family: str
    kind: str
    line: bytes
    asked: requests.Case


def made(seed: int, number: int, families: Mapping[str, object] = FAMILIES) -> Case:
    """Return the case of this number, the same for a seed."""
    (family,) = families
    random = Random(f"amounts {seed} {number}")
    kind = random.choice(sorted(pool().objects))
    found = absurd(random, random.choice(pool().objects[kind]), random.choice((0.05, 0.2, 0.6)))
    found["metadata"] |= {"resourceVersion": VERSION}
    line = event(random.choices(("ADDED", "MODIFIED", "DELETED"), (5, 4, 2))[0], json.dumps(found).encode())
    pod = absurd(random, random.choice(pool().pods), random.choice((0.0, 0.05, 0.3)))
    pod["metadata"] = {**pod["metadata"], "uid": f"uid-{number}"}
    pod["spec"]["schedulerName"] = SCHEDULER
    (path,) = random.choices(tuple(_ENDPOINTS), tuple(_ENDPOINTS.values()))
    return Case(number, family, kind, line, _asked(number, family, path, pod))


def _asked(number: int, family: str, path: str, pod: JsonObject) -> requests.Case:
    if path == _PENDING:
        ask = requests.Ask("GET", path, b"")
        return requests.Case(number, family, "operator", (requests.whole(ask),), (ask,))
    if path.startswith("/api"):
        body: JsonObject = {"pod": pod, "nodes": list(_ASKED)} if path in requests.OF_VERBS else {"pod": pod}
        body |= {"node": _ASKED[number % len(_ASKED)]} if path == _EXPLAIN and number % 2 else {}
        ask = requests.Ask("POST", path, json.dumps(body).encode())
        to: requests.Side = "verbs" if path in requests.OF_VERBS else "operator"
        return requests.Case(number, family, to, (requests.whole(ask),), (ask,))
    verb: Any = path.rpartition("/")[2]
    body = {"Pod": pod, "Nodes": None, "NodeNames": list(_ASKED)}
    if verb == "preempt":
        body = {"Pod": pod, "NodeNameToMetaVictims": {name: {"Pods": [{"UID": "u"}]} for name in _ASKED}}
    ask = requests.Ask("POST", path, json.dumps(body).encode(), verb)
    return requests.Case(number, family, "verbs", (requests.whole(ask),), (ask,))
