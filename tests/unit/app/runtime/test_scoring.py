"""Rules of PreScore, Score and NormalizeScore."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.framework.cycle_state import CycleState
from app.framework.points import PreScorePlugin
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.framework.status import SKIP, Status, error
from app.runtime.guard import PluginError
from app.runtime.scoring import Scores
from app.telemetry.metrics import Metrics
from tests.fakes import (
    NO,
    FakePlugin,
    HalvesInBatch,
    ScoresAfter,
    ScoresHalved,
    ScoresInBatch,
    ScoresNodes,
)
from tests.unit.app.runtime.engine import NEVER, PENDING, POD, WAIT, framework, nodes

_NAMES = ["n1", "n2", "n3"]


def _sparse(others: Mapping[str, str]) -> ScoreClasses:
    return ScoreClasses(SparseClasses(_NAMES, "usual", others), {"usual": 3, "even": 3, "low": 1, "high": 4})


def totals(first: int, second: int) -> dict[str, int]:
    return {"n1": first, "n2": second}


SCORED: dict[str, tuple[Sequence[FakePlugin], Mapping[str, int], tuple[Any, Any, int]]] = {
    "without score plugins every node totals 1": ([], {}, ({}, totals(1, 1), 0)),
    "the weight multiplies the total alone": (
        [ScoresNodes("A", totals(3, 100))],
        {"A": 2},
        ({"A": totals(3, 100)}, totals(6, 200), 2),
    ),
    "totals add up, batch form or not": (
        [ScoresNodes("A", totals(1, 2)), ScoresInBatch("B", totals(10, 20))],
        {"A": 3},
        ({"A": totals(1, 2), "B": totals(10, 20)}, totals(13, 26), 4),
    ),
    "normalized": ([ScoresHalved("A", totals(200, 7))], {}, ({"A": totals(100, 3)}, totals(100, 3), 1)),
    "normalized in batch": ([HalvesInBatch("A", totals(200, 7))], {}, ({"A": totals(100, 3)}, totals(100, 3), 1)),
    "one gives all alike": (
        [ScoresNodes("A", totals(5, 5)), ScoresNodes("B", totals(1, 2))],
        {"A": 3},
        ({"A": totals(5, 5), "B": totals(1, 2)}, totals(16, 17), 4),
    ),
    "all give all alike": (
        [ScoresNodes("A", totals(5, 5)), ScoresNodes("B", totals(2, 2))],
        {"A": 3},
        ({"A": totals(5, 5), "B": totals(2, 2)}, totals(17, 17), 4),
    ),
    "a skip leaves out the weight, too": (
        [ScoresAfter("A", {}, SKIP), ScoresNodes("B", totals(1, 2))],
        {"A": 7},
        ({"B": totals(1, 2)}, totals(1, 2), 1),
    ),
    "if all skip, all total 0": ([ScoresAfter("A", {}, SKIP)], {}, ({}, totals(0, 0), 0)),
}


class TestScore:
    """Semantics §3.6."""

    @pytest.mark.parametrize(("plugins", "weights", "expected"), SCORED.values(), ids=SCORED)
    def test_scores_and_totals(
        self, plugins: Sequence[FakePlugin], weights: Mapping[str, int], expected: tuple[Any, Any, int]
    ) -> None:
        found = framework(*plugins, weights=weights).scoring.score(CycleState(), POD, nodes())

        assert expected == (found.by_plugin, found.totals, found.weight)

    @pytest.mark.parametrize("value", [-1, 101, -(2**63), 2**63])
    @pytest.mark.parametrize("form", [ScoresNodes, ScoresInBatch])
    def test_a_score_out_of_range_is_0_for_its_node_alone(self, form: type[ScoresNodes], value: int) -> None:
        good = ScoresNodes("B", {"n1": 3, "n2": 4, "n3": 5})
        metrics = Metrics()
        engine = framework(form("A", {"n1": 1, "n2": value, "n3": 7}), good, weights={"A": 2}, metrics=metrics)

        with capture_logs() as logs:
            scores = [engine.scoring.score(CycleState(), POD, nodes("n1", "n2", "n3")) for _ in range(2)]

        by_plugin = {"A": {"n1": 1, "n2": 0, "n3": 7}, "B": {"n1": 3, "n2": 4, "n3": 5}}
        sums = {"n1": 5, "n2": 4, "n3": 19}
        assert [(by_plugin, sums, {"A": value})] * 2 == [(it.by_plugin, it.totals, it.out_of_range) for it in scores]
        assert 2 == metrics.registry.get_sample_value("homeport_scores_out_of_range_total", {"plugin": "A"})
        line = {"event": "score out of range", "log_level": "warning", "plugin": "A", "pod": str(POD), "node": "n2"}
        assert [{**line, "score": value, "since_the_last_line": 0}] == logs

    @pytest.mark.parametrize("status", [error("broken"), NO, NEVER, WAIT, PENDING])
    def test_pre_score_may_only_skip(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            framework(ScoresAfter("A", {}, status)).scoring.score(CycleState(), POD, nodes())

        assert error(f'running PreScore plugin "A": {status.message}', "A") == raised.value.status

    def test_without_anybody_to_score_nobody_prepares(self) -> None:
        prepares = type("Prepares", (FakePlugin, PreScorePlugin), {"pre_score": lambda *_: error("broken")})("A")

        assert {"n1": 1} == framework(prepares).scoring.score(CycleState(), POD, nodes("n1")).totals

    def test_all_prepare_before_any_scores(self) -> None:
        one, other = ScoresAfter("A", {"n1": 1}), ScoresAfter("B", {"n1": 1})
        one.calls = other.calls = []

        framework(one, other).scoring.score(CycleState(), POD, nodes("n1"))

        assert ["A: pre_score n1", "B: pre_score n1", "A: score n1", "B: score n1"] == one.calls


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        pytest.param(ScoreClasses.by_value([1, 1, 1]), ["n1", "n2", "n3"], id="all alike"),
        pytest.param(ScoreClasses.by_value([-1, 5, 5]), ["n2", "n3"], id="some"),
        pytest.param(
            ScoreClasses(["a", "b", "c"], {"a": 7, "b": 2, "c": 7, "of none": 9}), ["n1", "n3"], id="by class"
        ),
        pytest.param(_sparse({"n2": "high"}), ["n2"], id="one that is not as most are"),
        pytest.param(_sparse({"n2": "low"}), ["n1", "n3"], id="most"),
        pytest.param(_sparse({"n2": "even"}), ["n1", "n2", "n3"], id="one of another class, and most"),
        pytest.param(_sparse({"n3": "low", "n1": "low", "n2": "low"}), ["n1", "n2", "n3"], id="none is as most are"),
    ],
)
def test_the_best_are_those_with_the_highest_sum(total: ScoreClasses, expected: list[str]) -> None:
    assert expected == Scores(_NAMES, {}, total, 1).best
