"""Where filter picks, it picks a node that kube-scheduler's own sums put first: against verdicts of the Go plugins.

Of each case the whole cluster is asked about, through the verb. kube-scheduler draws a lot among the nodes with the
highest weighted sum of normalised scores; so the node that is picked must be among these.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from app.runtime.profiles import ProfileErrors
from app.verbs.outcome import VerbFailure
from tests.builders import JsonObject
from tests.filtering import Filter
from tests.harness import World, cases

VECTORS: Final = Path(__file__).parent / "vectors"
TOPICS: Final = {
    "default-profile/everything": 95,
    "default-profile/images": 110,
    "default-profile/volumes": 50,
    "generated/default-profile": 45,
    "generated/default-nominated": 40,
}
"""Of kube-scheduler's whole default profile, each with how many cases have a single winner among several nodes."""


def identified(found: JsonObject) -> JsonObject:
    """Pods are told apart by UID; one written by hand goes by its name."""
    meta = found["metadata"]
    uid = meta.get("uid") or f"{meta.get('namespace', 'default')}/{meta['name']}"
    return {**found, "metadata": {**meta, "uid": uid}}


def picking(case: JsonObject) -> Filter | None:
    """The verb on the cluster of a case; ``None`` if its profile is one that may not pick."""
    profile = {**case.get("config", {}), "preset": "complete", "pick": True}
    try:
        world = World(profile=profile)
    except ProfileErrors as wrong:
        if not all(": pick: " in it for it in wrong.messages):
            raise
        return None
    return Filter(world.add(*map(identified, case.get("objects", ()))), lean=True)


def names_of(case: JsonObject) -> list[str]:
    return [it["metadata"]["name"] for it in case["objects"] if it["kind"] == "Node"]


def best_of(totals: Mapping[str, int]) -> list[str]:
    most = max(totals.values(), default=0)
    return sorted(name for name, total in totals.items() if total == most)


def answered(asked: Filter, case: JsonObject) -> Any:
    try:
        return asked.answer(identified(case["pod"]), names_of(case))["NodeNames"]
    except VerbFailure as failure:
        return failure.outcome


@pytest.mark.parametrize("topic", TOPICS)
def test_the_node_picked_is_one_that_kube_scheduler_could_choose(topic: str) -> None:
    alone = 0
    for line, expected in cases(VECTORS / topic):
        case = json.loads(line)
        asked, totals = picking(case), expected["total"]
        if asked is None:
            continue
        best = best_of(totals)
        found = answered(asked, case)

        assert (found in [[it] for it in best]) if best else (found in ([], "fault")), (expected["name"], found, totals)
        assert asked.picked.count == (len(totals) > 1), expected["name"]
        alone += len(best) == 1 < len(totals)

    assert alone >= TOPICS[topic]
