"""Homeport says what kube-scheduler's own Go plugins say, to the letter: see ``vectors/PROVENANCE.md``."""

import json
from pathlib import Path

import pytest

from app.analysis.evaluate import Evaluator
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.builders import JsonObject
from tests.harness import cases

VECTORS = Path(__file__).parent / "vectors"
TOPICS = sorted(path.name.partition(".")[0] for path in VECTORS.glob("*.cases.jsonl.gz"))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_verdict_of_a_topic(topic: str) -> None:
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    judged = 0
    for case, expected in cases(VECTORS / topic):
        assert expected == json.loads(evaluator.evaluate(case)), expected["name"]
        judged += 1

    assert 400 == judged


def test_no_topic_is_missing() -> None:
    assert ["spread-defaults", "spread-hard", "spread-mixed", "spread-soft"] == TOPICS


@pytest.mark.parametrize(
    "topic", sorted(path.name.partition(".")[0] for path in (VECTORS / "default-profile").glob("*.cases.jsonl.gz"))
)
def test_every_verdict_of_the_default_profile(topic: str) -> None:
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    judged = 0
    for case, expected in cases(VECTORS / "default-profile" / topic):
        assert in_order(expected) == in_order(json.loads(evaluator.evaluate(case))), expected["name"]
        judged += 1

    assert judged in (200, 400)


def in_order(verdict: JsonObject) -> JsonObject:
    """kube-scheduler leaves it to chance in which order NodeResourcesFit names extended resources."""
    for status in verdict.get("filter", {}).values():
        if status["plugin"] == "NodeResourcesFit":
            status["reasons"].sort()
    return verdict
