"""Homeport says what kube-scheduler's own Go plugins say, to the letter: see ``vectors/PROVENANCE.md``."""

import json
from pathlib import Path

import pytest

from app.kube.core_v1 import decode_pod
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from app.verbs.evaluate import Evaluator
from plugins import IN_TREE
from tests.builders import JsonObject, encoded
from tests.harness import Answer, World, cases, only

VECTORS = Path(__file__).parent / "vectors"
FIRST = ("NodeUnschedulable", "NodeName", "TaintToleration")
"""The first filters of kube-scheduler's default profile, in its order: what they reject nobody else is asked about."""
TOPICS = sorted(path.name.partition(".")[0] for path in VECTORS.glob("*.cases.jsonl.gz"))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_verdict_of_a_topic(topic: str) -> None:
    evaluator = Evaluator(Registry(IN_TREE, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    judged = 0
    for case, expected in cases(VECTORS / topic):
        assert expected == json.loads(evaluator.evaluate(case)), expected["name"]
        judged += 1

    assert 400 == judged


def test_no_topic_is_missing() -> None:
    assert ["spread-defaults", "spread-hard", "spread-mixed", "spread-soft"] == TOPICS


def test_what_the_first_filters_of_the_default_profile_say_and_score() -> None:
    """The other plugins of these verdicts are not here yet: their rejections are read as no concern of the first."""
    judged, rejected, told_apart = 0, 0, 0
    for line, expected in cases(VECTORS / "default-profile" / "taints"):
        case = json.loads(line)
        world, pod = World(*case["objects"], profile=only(*FIRST)), decode_pod(encoded(case["pod"]))
        theirs = {name: _of_the_first(status) for name, status in expected["filter"].items()}
        scores = {name: found["TaintToleration"] for name, found in expected["score"].items()}

        assert theirs == world.filter(pod), expected["name"]
        assert scores == (world.score(pod, scores)["TaintToleration"] if scores else {}), expected["name"]
        judged += 1
        rejected += sum(answer != "Success" for answer in theirs.values())
        told_apart += len(set(scores.values())) > 1

    assert (200, 602, 114) == (judged, rejected, told_apart)


def _of_the_first(status: JsonObject) -> Answer:
    if status["plugin"] not in FIRST:
        return "Success"
    return (status["code"], status["plugin"], tuple(status["reasons"]))
