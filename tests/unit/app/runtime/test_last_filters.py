"""Last filters: asked once it is known which nodes pass, by searches alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.spec import Reads
from app.framework.status import SKIP, SUCCESS, Status, error, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.filters import FilterOutcome, Recheck
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.search import SearchResult
from app.runtime.slots import flaws
from tests.builders import make_pod
from tests.fakes import NO, NOT_ASKED, NOT_WANTED, CountsPods, FakePlugin, Prepares, Rejects, RejectsInBatch, Wants
from tests.unit.app.runtime.engine import POD, feasible, framework, info, nodes

ALL: Final = ("n1", "n2", "n3")
FULL: Final[Mapping[str, Status]] = {"n1": NO}
OTHER: Final = make_pod("other", priority=5)


class Skips(Wants, PreFilterPlugin):
    """Has nothing to say about the pod."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        return SKIP, None


def search(engine: Framework, *names: str) -> SearchResult:
    return engine.search.find_nodes_that_fit(POD, nodes(*names))


def both(engine: Framework, *names: str) -> Mapping[str, Status]:
    """What is rejected, as a search says and as all nodes judged afresh say."""
    found = search(engine, *names)
    rejected = found.rejected()
    assert FilterOutcome(SUCCESS, rejected) == feasible(engine, *names)
    assert [it for it in names if it not in rejected] == [*found.passed]
    return rejected


SAID: Final[dict[str, tuple[Sequence[FakePlugin], Mapping[str, Status]]]] = {
    "it passes": ([Wants("W", "n2")], {"n1": NOT_WANTED.by("W"), "n3": NOT_WANTED.by("W")}),
    "a later plugin rejects it": ([Wants("W", "n1"), Rejects("F", FULL)], {"n1": NO.by("F")}),
    "an earlier plugin rejects it": ([Rejects("F", FULL), Wants("W", "n1")], {"n1": NO.by("F")}),
    "a plugin rejects it in a batch": ([Wants("W", "n1"), RejectsInBatch("F", FULL)], {"n1": NO.by("F")}),
    "it was not asked about: what a filter says goes first": (
        [Wants("W", "n9"), Rejects("F", FULL)],
        {"n1": NO.by("F"), "n2": NOT_ASKED.by("W"), "n3": NOT_ASKED.by("W")},
    ),
    "it passes and another does not: what a filter says goes first": (
        [Wants("W", "n2"), Rejects("F", FULL)],
        {"n1": NO.by("F"), "n3": NOT_WANTED.by("W")},
    ),
    "a plugin's node set leaves it out": (
        [Prepares("P", names=["n2", "n3"]), Wants("W", "n1")],
        {"n1": unresolvable("node(s) didn't satisfy plugin(s) [P]")},
    ),
    "of two the first goes first": (
        [Wants("V", "n2"), Wants("W", "n3")],
        dict.fromkeys(("n1", "n3"), NOT_WANTED.by("V")),
    ),
    "the second is asked about what the first leaves": (
        [Wants("V", "n2"), Wants("W", "n9")],
        {"n1": NOT_WANTED.by("V"), "n2": NOT_ASKED.by("W"), "n3": NOT_WANTED.by("V")},
    ),
    "it skipped": ([Skips("W", "n2"), Rejects("F", FULL)], {"n1": NO.by("F")}),
}


@pytest.mark.parametrize(("plugins", "expected"), SAID.values(), ids=SAID)
@pytest.mark.parametrize("certain", [(), ("F",), ("W",), ("F", "W")], ids=lambda it: "kept: " + " ".join(it))
def test_what_is_said(plugins: Sequence[FakePlugin], expected: Mapping[str, Status], certain: Sequence[str]) -> None:
    engine = framework(*plugins, certain=certain)

    for _ in range(2):
        assert expected == both(engine, *ALL)


def test_it_is_asked_once_about_what_passes_of_all() -> None:
    calls: list[str] = []
    engine = framework(Wants("W", "n9", calls), Rejects("F", FULL), Prepares("P", names=["n1", "n2"]))

    found = search(engine, *ALL)
    found.rejected()

    assert ["W: n2 of n1 n2 n3"] == calls
    assert not found.lasts


def test_where_nothing_passes_nobody_asks_it() -> None:
    calls: list[str] = []
    engine = framework(Rejects("F", dict.fromkeys(ALL, NO)), Wants("W", "n1", calls))

    found = search(engine, *ALL)

    assert dict.fromkeys(ALL, NO.by("F")) == found.rejected() == feasible(engine, *ALL).rejected
    assert [] == calls
    assert found.lasts


def test_where_an_earlier_one_leaves_nothing_the_next_is_not_asked() -> None:
    calls: list[str] = []

    assert dict.fromkeys(ALL, NOT_ASKED.by("V")) == both(framework(Wants("V", "n9"), Wants("W", "n1", calls)), *ALL)
    assert [] == calls


def test_where_it_rejects_nothing_rejections_last() -> None:
    assert search(framework(Rejects("F", FULL), Wants("W", "n1")), *ALL).lasts


def test_names_of_no_node_are_not_shown_to_it() -> None:
    calls: list[str] = []
    engine = framework(Rejects("F", FULL), Wants("W", "n2", calls))
    known = nodes(*ALL)

    found = engine.search.find_nodes_that_fit(POD, Candidates(("n1", "gone", "n2"), known.info))

    assert ["n2"] == [*found.passed]
    assert ["W: n2 of n1 n2"] == calls


def test_nodes_that_are_judged_by_themselves_are_among_those_that_pass() -> None:
    calls: list[str] = []
    engine = framework(CountsPods("Room", 1), Wants("W", "n3", calls), nominated={"n1": [OTHER], "n2": [OTHER]})
    roomy = framework(CountsPods("Room", 9), Wants("W", "n1", calls), nominated={"n1": [OTHER]})

    assert {"n1": NO.by("Room"), "n2": NO.by("Room")} == both(engine, *ALL)
    assert {"n2": NOT_WANTED.by("W"), "n3": NOT_WANTED.by("W")} == both(roomy, *ALL)
    assert ["W: n3 of n1 n2 n3"] * 2 + ["W: n1 n2 n3 of n1 n2 n3"] * 2 == calls


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda it: it.filters.filter_node(CycleState(), POD, info("n1")), SUCCESS),
        (lambda it: it.at_bind.recheck(CycleState(), POD, info("n1"), [OTHER]), Recheck(SUCCESS, True)),
        (lambda it: it.filters.depends(POD, OTHER), False),
    ],
)
def test_who_asks_about_one_node_does_not_ask_it(ask: Callable[[Framework], object], expected: object) -> None:
    calls: list[str] = []

    assert expected == ask(framework(Wants("W", "n2", calls), certain=["W"]))
    assert [] == calls


def test_reasons_are_worked_out_when_they_are_read() -> None:
    read: list[str] = []

    class Lazy(FakePlugin, FilterPlugin):
        def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
            return SUCCESS

        def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
            def rejected() -> Mapping[str, Status]:
                read.append(self.name)
                return dict.fromkeys(passed[1:], NO)

            return FilterResult(passed[:1], rejected)

    found = search(framework(Lazy("L")), *ALL)
    assert ["n1"] == [*found.passed]
    assert [] == read

    assert dict.fromkeys(("n2", "n3"), NO.by("L")) == found.rejected() == found.rejected()
    assert ["L"] == read


def answering(found: Any) -> FakePlugin:
    """A last filter with this answer, whatever it is asked."""
    methods = {"filter": lambda *_: SUCCESS, "filter_last": lambda *_: found}
    made: FakePlugin = type("Bad", (FakePlugin, FilterPlugin), methods)("Bad")
    return made


WRONG_RESULT: Final = "returned a FilterResult, not "
LEFT: Final = "a FilterResult that passes or rejects each node that passed so far, and no other"


WRONG: Final[dict[str, tuple[Any, str]]] = {
    "nothing": (None, "returned None, not "),
    "names": (["n2"], "returned a list, not "),
    "a text": (FilterResult("n2", {"n3": NO}), WRONG_RESULT),
    "no names": (FilterResult(None, {}), WRONG_RESULT),  # type: ignore[arg-type]  # as a plugin may
    "one that a filter rejects": (FilterResult(["n1"], {"n2": NO, "n3": NO}), WRONG_RESULT),
    "one that a filter rejects, among others": (FilterResult(["n1", "n2"], {"n3": NO}), WRONG_RESULT),
    "more than were asked": (FilterResult(["n2", "n3", "n2"], {}), WRONG_RESULT),
    "one forgotten": (FilterResult(["n2"], {}), WRONG_RESULT),
    "one too many": (FilterResult(["n2"], {"n1": NO, "n3": NO}), WRONG_RESULT),
    "a fault as a reason": (FilterResult(["n2"], {"n3": error("broken")}), "broken"),
}


@pytest.mark.parametrize(("found", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("ask", [search, feasible], ids=["searched", "afresh"])
def test_an_answer_that_is_none_is_an_error(found: Any, said: str, ask: Callable[..., Any]) -> None:
    engine = framework(Rejects("F", FULL), answering(found))

    with pytest.raises(PluginError) as raised:
        ask(engine, *ALL).rejected()

    said += LEFT if said.endswith(" not ") else ""
    assert error(f'running "Bad" filter plugin: {said}', "Bad") == raised.value.status


def test_a_class_without_the_base_does_not_start() -> None:
    class Unnamed(FakePlugin):
        def filter_last(self) -> None:
            """Nobody would ever ask it."""

    assert ("has filter_last, and does not name FilterPlugin as a base",) == flaws(Unnamed, Reads.CLUSTER)


def test_it_sees_what_its_plugin_declares() -> None:
    seen: list[object] = []

    class Looks(Wants):
        def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
            seen.append(nodes.info("n1").pods)
            return FilterResult(passed, {})

    with pytest.raises(PluginError, match=r"declare Reads\.PODS_ON_NODE"):
        search(framework(Looks("W", ""), certain=["W"]), *ALL)

    search(framework(Looks("W", "")), *ALL)
    assert [{}] == seen
