"""Rules of the engine as a whole: queue, PostFilter, what is looked up, times and figures."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.framework.background import run_to_end
from app.framework.cycle_state import CycleState
from app.framework.explanation import Explanation, Figure
from app.framework.node_info import Candidates
from app.framework.points import PostFilterResult
from app.framework.status import SKIP, SUCCESS, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES
from app.runtime.framework import INQUIRY_SECONDS, Framework
from app.runtime.guard import SAMPLE_EVERY, PluginError
from app.runtime.waiting import MAX_WAIT_SECONDS
from app.telemetry.metrics import Metrics
from tests.api.virtual import now, virtual_time
from tests.fakes import (
    NO,
    Acts,
    Gates,
    Helps,
    Misses,
    Permits,
    Prepares,
    Reserves,
    Sorts,
)
from tests.unit.app.runtime.engine import NEVER, PENDING, POD, WAIT, framework


class TestRequiredObjects:
    def test_plugins_name_what_they_need_and_is_not_there(self) -> None:
        engine = framework(Misses("A", SERVICES, ["x", "y"]), Prepares("B"), Misses("C", SERVICES, []))

        assert [(SERVICES, "default", "x"), (SERVICES, "default", "y")] == list(engine.required_objects(POD))


class TestQueue:
    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            ([SUCCESS, SUCCESS], SUCCESS, "AB"),
            ([SUCCESS, NO, NEVER], NO.by("B"), "AB"),
        ],
    )
    def test_gates(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Gates(name, status, calls) for name, status in zip("ABC", statuses, strict=False)))

        assert expected == engine.pre_enqueue(POD)
        assert [f"{name}: pre_enqueue" for name in asked] == calls

    def test_the_one_queue_sort_plugin_orders(self) -> None:
        engine = framework(Sorts("A"))

        assert [True, False] == [engine.less(POD, queued_at, POD, 2.0) for queued_at in (1.0, 3.0)]


class TestPostFilter:
    """Semantics §3.5."""

    @pytest.mark.parametrize(
        ("plugins", "expected", "asked"),
        [
            ([], (None, unschedulable()), ""),
            ([Helps("A", NO), Helps("B", SUCCESS, "n1"), Helps("C")], (PostFilterResult("n1"), SUCCESS.by("B")), "AB"),
            ([Helps("A", NEVER), Helps("B")], (None, NEVER.by("A")), "A"),
            (
                [Helps("A", NO, "n1"), Helps("B", unschedulable("nor I"), "")],
                (PostFilterResult(""), unschedulable("no", "nor I").by("A")),
                "AB",
            ),
            (
                [Helps("A", NO, "n1"), Helps("B", PENDING)],
                (PostFilterResult("n1"), unschedulable("no", "later").by("A")),
                "AB",
            ),
        ],
        ids=["nobody to ask", "the first that helps", "the first that knows that nobody can", "none", "no result"],
    )
    def test_what_can_be_done(
        self, plugins: Sequence[Helps], expected: tuple[PostFilterResult | None, Status], asked: str
    ) -> None:
        calls: list[str] = []
        for plugin in plugins:
            plugin.calls = calls

        assert expected == run_to_end(framework(*plugins).post_filters.post_filter(CycleState(), POD, {"n1": NO}))
        assert [f"{name}: post_filter" for name in asked] == calls

    @pytest.mark.parametrize("status", [error("broken"), WAIT, SKIP])
    def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            run_to_end(framework(Helps("A", status)).post_filters.post_filter(CycleState(), POD, {}))

        assert error(status.message, "A") == raised.value.status


class TestTimes:
    """What the extension points take is observed: of those that decide now and then, of those that act always."""

    @staticmethod
    def timed(engine: Framework) -> dict[tuple[str, str], int]:
        """How often, by point and status."""
        family = next(iter(engine._guard._metrics.point_duration.collect()))
        return {
            (it.labels["extension_point"], it.labels["status"]): int(it.value)
            for it in family.samples
            if it.name.endswith("_count") and it.value
        }

    def test_one_decision_in_so_many_is_timed(self) -> None:
        engine = framework(Prepares("A"))
        for _ in range(2 * SAMPLE_EVERY):
            engine.filters.pre_filter(CycleState(), POD)

        assert {("PreFilter", "Success"): 2} == self.timed(engine)

    def test_a_rejection_and_a_fault_are_told_by_their_status(self) -> None:
        rejecting, failing = framework(Prepares("A", NEVER)), framework(Prepares("A", error("broken")))
        for _ in range(SAMPLE_EVERY):
            rejecting.filters.pre_filter(CycleState(), POD)
            with pytest.raises(PluginError):
                failing.filters.pre_filter(CycleState(), POD)

        assert {("PreFilter", "UnschedulableAndUnresolvable"): 1} == self.timed(rejecting)
        assert {("PreFilter", "Error"): 1} == self.timed(failing)

    async def test_what_acts_is_always_timed(self) -> None:
        engine = framework(Reserves("R"), Acts("A"))

        engine.binding.reserve(CycleState(), POD, "n1")
        await engine.binding.permit(CycleState(), POD, "n1", limit=1)
        await engine.binding.pre_bind(CycleState(), POD, "n1")
        await engine.binding.bind(CycleState(), POD, "n1")
        await engine.binding.post_bind(CycleState(), POD, "n1")

        points = ("Reserve", "Permit", "PreBind", "Bind", "PostBind")
        assert dict.fromkeys(((point, "Success") for point in points), 1) == self.timed(engine)

    async def test_a_wait_at_permit_is_no_part_of_the_point_and_told_by_what_came_of_it(self) -> None:
        engine = framework(Permits("P", WAIT, 0.01))

        assert not (await engine.binding.permit(CycleState(), POD, "n1", limit=1)).is_success

        assert {("Permit", "Wait"): 1} == self.timed(engine)
        (family,) = engine._guard._metrics.permit_wait.collect()
        assert {"Unschedulable": 1} == {
            it.labels["result"]: int(it.value) for it in family.samples if it.name.endswith("_count")
        }

    def test_every_wait_has_a_bucket(self) -> None:
        metrics = Metrics()
        metrics.permit_wait.labels("Success").observe(MAX_WAIT_SECONDS)
        metrics.request_duration.labels("bind").observe(20 * 60.0)  # the longest bindTimeout

        for histogram in (metrics.permit_wait, metrics.request_duration):
            (family,) = histogram.collect()
            bounds = [it.labels["le"] for it in family.samples if it.name.endswith("_bucket") and it.value]
            assert ["+Inf"] != bounds

    def test_series_of_a_plugin_begin_at_zero(self) -> None:
        metrics = framework(Prepares("A"))._guard._metrics

        assert 0 == metrics.registry.get_sample_value(
            "homeport_plugin_faults_total", {"plugin": "A", "extension_point": "PreFilter"}
        )
        assert 0 == metrics.registry.get_sample_value(
            "homeport_plugin_execution_duration_seconds_count",
            {"plugin": "A", "extension_point": "PreFilter", "status": "Success"},
        )


class Tells(Sorts):
    """Has the figures it is given."""

    def __init__(self, name: str, *figures: Any) -> None:
        super().__init__(name)
        self._figures = figures

    def figures(self) -> Iterator[Any]:
        for it in self._figures:
            if isinstance(it, Exception):
                raise it
            yield it


MOONS = Figure("moons", "Moons.", 2, {"planet": "mars"})


class TestFigures:
    """Figures of plugins cannot break the metrics page."""

    def test_they_are_handed_on_step_by_step(self) -> None:
        assert [None, MOONS, None] == list(framework(Tells("A", None, MOONS, None)).figures())

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(LookupError("broken"), id="a fault"),
            pytest.param("moons", id="no figure"),
            pytest.param(Figure("Moons!", "Moons.", 2), id="no name of a metric"),
            pytest.param(Figure("moons", "Moons.", 2, {"a-planet": "mars"}), id="no name of a label"),
            pytest.param(Figure("moons", "Moons.", "two"), id="no number"),  # type: ignore[arg-type]
            pytest.param(Figure("moons", "Moons.", 2, {"planet": 4}), id="no text"),  # type: ignore[dict-item]
            pytest.param(Figure("moons", "Moons.", 2, {"planet": "\ud800"}), id="a value that is no Unicode"),
            pytest.param(Figure("moons", "\udfff", 2), id="a text that is none"),
            pytest.param(Figure("moons", "Moons.", 2, {"profile": "mars"}), id="the label that is ours"),
            pytest.param(Figure("moons", "Moons.", 10**400), id="more than a float can be"),
        ],
    )
    def test_what_is_none_is_a_fault_and_left_out(self, wrong: object) -> None:
        engine = framework(Tells("A", MOONS, wrong, MOONS), Tells("B", MOONS))

        with capture_logs() as logs:
            assert [MOONS, MOONS] == list(engine.figures())

        assert [("plugin fault", "A", "Figures")] == [(it["event"], it["plugin"], it["point"]) for it in logs]


class Later(Gates):
    """Takes its time, and then answers or fails."""

    def __init__(self, name: str, answer: Any, seconds: float = 0.0) -> None:
        super().__init__(name, SUCCESS)
        self.answer = answer
        self.seconds = seconds

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        return Explanation(unblock=("at once",), later=self._later)

    async def _later(self, feasible: Collection[str]) -> Explanation:
        await asyncio.sleep(self.seconds)
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: Explanation = Explanation(unblock=tuple(feasible)) if self.answer is None else self.answer
        return answer


class TestExplainLater:
    @virtual_time
    async def test_what_takes_too_long_or_fails_is_left_out(self) -> None:
        engine = framework(
            Later("A", None, 2.0),
            Later("B", RuntimeError("broken")),
            Later("C", None, INQUIRY_SECONDS + 1),
            Later("D", "no explanation"),
            Gates("E", SUCCESS),
            Later("F", None),
        )
        began = now()

        found = await engine.explain_later(engine.explain(POD, Candidates.of({})), ["n1"])

        first, both = Explanation(unblock=("at once",)), Explanation(unblock=("at once", "n1"))
        assert {"A": both, "B": first, "C": first, "D": first, "F": both} == found
        assert began + INQUIRY_SECONDS == now()
