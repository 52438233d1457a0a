"""No object, however absurd, ends a run of evaluate: it is judged, or an error names the object and the field."""

import copy
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from app.analysis.evaluate import Evaluator
from app.config.profile import Profile
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.runtime.resolving import resolve
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.builders import controller, node_object, pod_object, workload_object
from tests.harness import cases

Json = dict[str, Any]

ABSURD: Final[tuple[Any, ...]] = (
    None,
    "",
    "-5",
    "1e400",
    "1e-400",
    "9" * 400,
    "\x00",
    "x" * 70_000,
    -1,
    0,
    2**63,
    -(2**63) - 1,
    1.5,
    True,
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"a": "1e400"},
    {"cpu": "-3", "memory": "1Zi"},
)
FIELD: Final = re.compile(r"\$|`[a-z]\w+`|[a-z]+\.[a-zA-Z]+|^[a-z]\w+: |^\[\d+\]\.[a-zA-Z]+\[")
"""A path or a name as msgspec has it, one of ours, or one of kube-scheduler's."""

REFUSING: Final = ("objects[", "pod: ", 'running PreScore plugin "NodeAffinity": ')
"""Where the field is. NodeAffinity refuses preferred terms only when it scores, as in kube-scheduler."""

VECTORS: Final = Path(__file__).parent / "vectors" / "generated"
TOPICS: Final = (
    "affinity", "default-profile", "defaults", "dra-beta", "features", "image-volumes", "interpod", "limits",
    "preemption", "restrictions", "strategies", "taints", "volumes",
)  # fmt: skip
"""Topics whose objects have all kinds and fields that plugins read."""

EACH: Final = 12
"""Cases of each topic that are spoilt."""

CASES: Final = 1500


def spoil(random: Random, found: Any) -> None:
    """Put something absurd, or nothing, in the place of one part of an object."""
    places = [(holder, key) for holder, key in _places(found) if key not in ("apiVersion", "kind")]
    holder, key = random.choice(places)
    if random.random() < 0.15:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(random.choice(ABSURD))


def _places(found: Any) -> Iterator[tuple[Any, Any]]:
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, part in items:
        yield found, key
        yield from _places(part)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))


@pytest.fixture(scope="module")
def sound() -> list[Json]:
    """Generated cases in kube-scheduler's default profile."""
    every = (islice(cases(VECTORS / topic), EACH) for topic in TOPICS)
    return [{**json.loads(case), "config": {}} for of_topic in every for case, _ in of_topic]


def test_every_kind_that_the_default_profile_reads_is_tried(sound: list[Json]) -> None:
    (profile,) = resolve((Profile(),), Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS))
    tried = {(it["apiVersion"], it["kind"]) for case in sound for it in case["objects"]}

    assert {(it.api_version, it.kind) for it in profile.kinds()} <= tried


def test_an_absurd_object_is_judged_or_named(evaluator: Evaluator, sound: list[Json]) -> None:
    random, judged, refused = Random(5), 0, 0
    for _ in range(CASES):
        case = copy.deepcopy(random.choice(sound))
        for _ in range(random.randint(1, 3)):
            spoil(random, random.choice((*case["objects"], case["pod"])))
        said = json.loads(evaluator.evaluate(json.dumps(case).encode()))
        if "error" in said:
            refused += 1
            assert said["error"].startswith(REFUSING), said
            assert FIELD.search(said["error"].partition(": ")[2]), said
        else:
            judged += 1
            assert {"name", "preFilter", "filter", "score", "total"} <= said.keys()

    assert judged > CASES / 10
    assert refused > CASES / 10


def evaluated(evaluator: Evaluator, pod: Json, *objects: Json) -> Json:
    case = {"name": "absurd", "objects": [node_object("n0"), *objects], "pod": pod}
    said: Json = json.loads(evaluator.evaluate(json.dumps(case).encode()))
    return said


def test_a_hundred_thousand_containers(evaluator: Evaluator) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}] * 100_000
    said = evaluated(evaluator, pod_object("new", containers=containers))

    assert "NodeResourcesFit" == said["preFilter"]["plugin"]
    assert "names more than 64 resources" in said["preFilter"]["reasons"][0]


def test_owners_in_a_circle(evaluator: Evaluator) -> None:
    ring = []
    for number in (0, 1):
        workload = workload_object("ReplicaSet", f"rs{number}", {"matchLabels": {"a": "b"}})
        workload["metadata"]["ownerReferences"] = [controller("ReplicaSet", f"rs{1 - number}")]
        ring.append(workload)
    said = evaluated(evaluator, pod_object("new", labels={"a": "b"}, owner=controller("ReplicaSet", "rs1")), *ring)

    assert "Success" == said["preFilter"]["code"]
    assert {"n0"} == set(said["filter"])
