"""The same on generated cases, small and nasty: see ``docs/conformance.md``."""

import gzip
import json
from pathlib import Path

import pytest

from app.analysis.evaluate import Evaluator
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.conformance import generate
from tests.conformance.compare import is_mixed, settled
from tests.conformance.histories import HISTORIES
from tests.conformance.replay import replayed
from tests.harness import cases

RECORDED = 160
"""Of each topic and release, at least."""

VECTORS = Path(__file__).parent / "vectors" / "generated"


OTHER_RELEASE = "1.35"
SAYING_SOMETHING_ELSE = [it.name.partition(".")[0] for it in VECTORS.glob(f"*.expected-{OTHER_RELEASE}.jsonl.gz")]


@pytest.mark.parametrize("topic", generate.TOPICS)
def test_every_verdict_of_a_topic(topic: str) -> None:
    """One evaluator for all: what it remembers of a case must not show in the next."""
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    verdicts = []
    for case, expected in cases(VECTORS / topic):
        assert expected == settled(evaluator.evaluate(case)), expected["name"]
        verdicts.append(expected)

    assert len(verdicts) >= RECORDED
    assert sum(map(is_mixed, verdicts)) > len(verdicts) / 3


@pytest.mark.long
@pytest.mark.parametrize("topic", SAYING_SOMETHING_ELSE)
def test_every_verdict_of_an_earlier_release(topic: str) -> None:
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()), OTHER_RELEASE)
    now = [expected for _, expected in cases(VECTORS / topic)]
    with gzip.open(VECTORS / f"{topic}.expected-{OTHER_RELEASE}.jsonl.gz") as answered:
        then = list(map(json.loads, answered))

    assert now != then
    assert then == [settled(evaluator.evaluate(case)) for case, _ in cases(VECTORS / topic)]


def test_there_are_topics_of_which_an_earlier_release_says_something_else() -> None:
    assert {"balanced", "crowded", "device-classes"} <= set(SAYING_SOMETHING_ELSE)


@pytest.mark.parametrize("topic", generate.TOPICS)
def test_a_case_can_be_made_again(topic: str) -> None:
    """A change to the generator makes other cases: record the vectors anew, ``docs/conformance.md`` says how."""
    seed = json.loads((VECTORS / "provenance.json").read_text())["seed"]
    recorded = [case for case, _ in cases(VECTORS / topic)]

    assert recorded[:50] == list(generate.cases(topic, seed, range(50)))


@pytest.mark.parametrize("topic", HISTORIES)
def test_every_verdict_along_a_history(topic: str) -> None:
    """What is kept through hundreds of events gives what kube-scheduler says of the cluster as it is by then."""
    with gzip.open(VECTORS / f"{topic}.stories.jsonl.gz") as stories:
        told = [verdict for story in map(json.loads, stories) for verdict in replayed(story["config"], story["events"])]
    with gzip.open(VECTORS / f"{topic}.expected.jsonl.gz") as expected:
        for actual, verdict in zip(told, map(json.loads, expected), strict=True):
            assert verdict == json.loads(generate.line(actual)), verdict["name"]

    assert len(told) >= RECORDED


@pytest.mark.parametrize("topic", HISTORIES)
def test_a_history_can_be_made_again(topic: str) -> None:
    seed = json.loads((VECTORS / "provenance.json").read_text())["seed"]
    with gzip.open(VECTORS / f"{topic}.stories.jsonl.gz") as stories:
        assert next(stories) == generate.line(HISTORIES[topic](seed, 0).story())
