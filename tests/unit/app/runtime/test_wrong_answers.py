"""A plugin that answers what its extension point does not take is named in the Error, logged and counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.framework.background import at_once
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import PostFilterResult
from app.framework.score_classes import ScoreClasses
from app.framework.status import SKIP, SUCCESS, Code, Status, unschedulable
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from tests.builders import make_node, make_pod
from tests.fakes import NO, FakePlugin, bases_of
from tests.unit.app.runtime.engine import framework

POD: Final = make_pod("pending", priority=5)
OTHER: Final = make_pod("other", priority=9)
NODES: Final = Candidates.of({name: NodeInfo(make_node(name)) for name in ("n1", "n2")})
NODE: Final = NodeInfo(make_node("n1"))


# What a type checker would refuse, a plugin may do.
NO_CODE: Final = Status("no")  # type: ignore[arg-type]
NO_REASONS: Final = Status(Code.UNSCHEDULABLE, None)  # type: ignore[arg-type]
NO_NODES: Final = ScoreClasses(None, {})  # type: ignore[arg-type]


def plugin(**answers: Any) -> FakePlugin:
    """A plugin with these methods; each gives its answer to whatever it is asked."""

    def method(answer: Any) -> Callable[..., Any]:
        return lambda *_, **__: answer

    def later(answer: Any) -> Callable[..., Awaitable[Any]]:
        async def act(*_: Any, **__: Any) -> Any:
            return answer

        return act

    acting = ("pre_bind", "bind", "post_bind")
    methods = {name: later(it) if name in acting else method(it) for name, it in answers.items()}
    made: FakePlugin = type("Bad", (FakePlugin, *bases_of(answers)), methods)("Bad")
    return made


def returning(answer: object) -> Generator[None, Any, object]:
    """A generator that takes no step."""
    yield from ()
    return answer


def filtered(engine: Framework) -> object:
    return engine.filters.feasible(CycleState(), POD, NODES)


def searched(engine: Framework) -> object:
    return engine.search.find_nodes_that_fit(POD, NODES).rejected()


def rechecked(engine: Framework) -> object:
    return engine.at_bind.recheck(CycleState(), POD, NODE, [OTHER])


def scored(engine: Framework) -> object:
    return engine.scoring.score(CycleState(), POD, NODES)


def post_filtered(engine: Framework) -> object:
    return at_once(engine.post_filters.post_filter(CycleState(), POD, {"n1": unschedulable("no")}))


def added(engine: Framework) -> object:
    engine.filters.add_pods(CycleState(), POD, [OTHER], NODE)
    return None


def explained(engine: Framework) -> object:
    return engine.explain(POD, NODES)


def reserved(engine: Framework) -> object:
    return engine.binding.reserve(CycleState(), POD, "n1")


async def permitted(engine: Framework) -> object:
    return await engine.binding.permit(CycleState(), POD, "n1", limit=1.0)


async def pre_bound(engine: Framework) -> object:
    return await engine.binding.pre_bind(CycleState(), POD, "n1")


async def bound(engine: Framework) -> object:
    return await engine.binding.bind(CycleState(), POD, "n1")


async def answer(found: object) -> object:
    return await found if isinstance(found, Awaitable) else found


def wrong(found: str, wanted: str) -> str:
    return f"returned {found}, not {wanted}"


RESULT: Final = "a FilterResult of the nodes asked about"
BATCH: Final = {"filter": SUCCESS}
CERTAIN: Final = {"filter": SUCCESS, "depends_on": True}
FILTER: Final = 'running "Bad" filter plugin: '
SCORE: Final = 'running Score plugins: plugin "Bad" failed with: '


@pytest.mark.parametrize(
    ("answers", "ask", "said"),
    [
        pytest.param(
            {"pre_enqueue": None},
            lambda it: it.pre_enqueue(POD),
            'running PreEnqueue plugin "Bad": ' + wrong("None", "a Status"),
            id="preEnqueue",
        ),
        pytest.param(
            {"pre_filter": None},
            filtered,
            'running PreFilter plugin "Bad": ' + wrong("None", "(Status, node names)"),
            id="preFilter",
        ),
        pytest.param(
            {"pre_filter": SUCCESS},
            filtered,
            'running PreFilter plugin "Bad": ' + wrong("a Status", "(Status, node names)"),
            id="preFilter, half of it",
        ),
        pytest.param(
            {"pre_filter": (None, None)},
            filtered,
            'running PreFilter plugin "Bad": ' + wrong("None", "a Status"),
            id="preFilter, no status in it",
        ),
        pytest.param(
            {"pre_filter": (SUCCESS, ["n1"])},
            filtered,
            'running PreFilter plugin "Bad": ' + wrong("a list", "a set of node names"),
            id="preFilter, a list of names",
        ),
        pytest.param({"filter": None}, filtered, FILTER + wrong("None", "a Status"), id="filter"),
        pytest.param({"filter": True}, filtered, FILTER + wrong("True", "a Status"), id="filter, yes"),
        pytest.param({"filter": "no"}, filtered, FILTER + wrong("a str", "a Status"), id="filter, a reason"),
        pytest.param(
            {"filter": NO_CODE},
            filtered,
            FILTER + wrong("a Status whose code is a str", "a Status"),
            id="filter, no code",
        ),
        pytest.param(
            {"filter": NO_REASONS},
            filtered,
            FILTER + wrong("a Status whose reasons are no texts", "a Status"),
            id="filter, no reasons",
        ),
        pytest.param({"filter": None}, rechecked, FILTER + wrong("None", "a Status"), id="filter, for one node"),
        pytest.param(
            {**BATCH, "filter_nodes": None},
            filtered,
            FILTER + wrong("None", RESULT),
            id="filter in a batch",
        ),
        pytest.param(
            {**BATCH, "filter_nodes": FilterResult((), {"n1": None})},  # type: ignore[dict-item]
            filtered,
            FILTER + wrong("None", "a Status"),
            id="filter in a batch, no status",
        ),
        pytest.param(
            {**BATCH, "filter_nodes": FilterResult((), lambda: ["n1"])},  # type: ignore[arg-type, return-value]
            filtered,
            FILTER + wrong("a list", "a mapping of rejected nodes"),
            id="filter in a batch, no statuses",
        ),
        pytest.param(
            {**BATCH, "filter_nodes": {"n1": NO}}, searched, FILTER + wrong("a dict", RESULT), id="names, a mapping"
        ),
        pytest.param(
            {**BATCH, "filter_nodes": FilterResult("n1", {})},
            searched,
            FILTER + wrong("a FilterResult", RESULT),
            id="names, one text",
        ),
        pytest.param(
            {**BATCH, "filter_nodes": FilterResult(["n1", "n2", "n3"], {})},
            searched,
            FILTER + wrong("a FilterResult", RESULT),
            id="names, more than were asked about",
        ),
        pytest.param(
            {**BATCH, "filter_nodes": FilterResult(["n1"], {})},
            searched,
            FILTER + wrong("a FilterResult", "a FilterResult that passes or rejects each node"),
            id="names, one neither passed nor rejected",
        ),
        pytest.param(
            {**CERTAIN, "filter_certain": None}, rechecked, FILTER + wrong("None", "a Status"), id="filter, for certain"
        ),
        pytest.param(
            {"pre_filter": (SUCCESS, None), "add_pod": None, "remove_pod": None},
            added,
            'running AddPod on PreFilter plugin "Bad": ' + wrong("None", "a Status"),
            id="AddPod",
        ),
        pytest.param(
            {"post_filter": None},
            post_filtered,
            'running PostFilter plugin "Bad": ' + wrong("None", "a generator"),
            id="postFilter",
        ),
        pytest.param(
            {"post_filter": returning(("n1", SUCCESS))},
            post_filtered,
            'running PostFilter plugin "Bad": ' + wrong("a str", "a PostFilterResult"),
            id="postFilter, a name",
        ),
        pytest.param(
            {"pre_score": None, "score": 1},
            scored,
            'running PreScore plugin "Bad": ' + wrong("None", "a Status"),
            id="preScore",
        ),
        pytest.param({"score": None}, scored, 'plugin "Bad" returns a score that is no whole number', id="score"),
        pytest.param({"score": []}, scored, 'plugin "Bad" returns a score that is no whole number', id="score, a list"),
        pytest.param(
            {"score": 1, "score_nodes": None},
            scored,
            SCORE + wrong("None", "ScoreClasses"),
            id="score in a batch",
        ),
        pytest.param(
            {"score": 1, "score_nodes": NO_NODES},
            scored,
            SCORE + wrong("a ScoreClasses", "a score for each class of nodes: 'NoneType' object is not iterable"),
            id="score in a batch, no nodes",
        ),
        pytest.param(
            {"score": 1, "score_nodes": ScoreClasses([1], {1: 1}), "normalize": {}},
            scored,
            'plugin "Bad" did not score every node',
            id="score in a batch, too few",
        ),
        pytest.param(
            {"score": 1, "normalize": None},
            scored,
            'running Normalize on Score plugins: plugin "Bad" failed with: ' + wrong("None", "a mapping of scores"),
            id="normalizeScore",
        ),
        pytest.param(
            {"reserve": None, "unreserve": None},
            reserved,
            'running Reserve plugin "Bad": ' + wrong("None", "a Status"),
            id="reserve",
        ),
        pytest.param(
            {"permit": None},
            permitted,
            'running Permit plugin "Bad": ' + wrong("None", "(Status, seconds)"),
            id="permit",
        ),
        pytest.param(
            {"permit": (Status(Code.WAIT), None)},
            permitted,
            'running Permit plugin "Bad": ' + wrong("None", "seconds to wait"),
            id="permit, no time",
        ),
        pytest.param(
            {"permit": (Status(Code.WAIT), float("nan"))},
            permitted,
            'running Permit plugin "Bad": ' + wrong("nan", "seconds to wait"),
            id="permit, no number",
        ),
        pytest.param(
            {"pre_bind": None}, pre_bound, 'running PreBind plugin "Bad": ' + wrong("None", "a Status"), id="preBind"
        ),
        pytest.param({"bind": None}, bound, 'running Bind plugin "Bad": ' + wrong("None", "a Status"), id="bind"),
        pytest.param(
            {**BATCH, "explain": None},
            explained,
            'running Explain plugin "Bad": returned a NoneType, not an Explanation',
            id="explain",
        ),
        pytest.param(
            {**BATCH, "required_objects": [SUCCESS]},
            lambda it: it.required_objects(POD),
            'running RequiredObjects plugin "Bad": '
            "returned something else than triples of a kind, a namespace and a name",
            id="requiredObjects",
        ),
    ],
)
async def test_it_is_named(answers: dict[str, Any], ask: Callable[[Framework], Any], said: str) -> None:
    with capture_logs() as logs, pytest.raises(PluginError) as raised:
        await answer(ask(framework(plugin(**answers))))

    assert ("Bad", said) == (raised.value.status.plugin, raised.value.status.message)
    assert {"plugin fault"} >= {it["event"] for it in logs}


async def test_what_is_right_passes() -> None:
    good = plugin(
        pre_enqueue=SUCCESS,
        pre_filter=(SKIP, {"n1"}),
        filter=Status(Code.SUCCESS),
        post_filter=returning((PostFilterResult("n1"), SUCCESS)),
        pre_score=SKIP,
        reserve=SUCCESS,
        unreserve=None,
        permit=(SUCCESS, 0),
        pre_bind=SUCCESS,
        bind=SUCCESS,
    )
    engine = framework(good)

    assert SUCCESS == engine.pre_enqueue(POD)
    assert {} == engine.filters.feasible(CycleState(), POD, NODES).rejected
    assert (PostFilterResult("n1"), SUCCESS.by("Bad")) == post_filtered(engine)
    assert SUCCESS == reserved(engine)
    assert [SUCCESS, SUCCESS, SUCCESS.by("Bad")] == [await it(engine) for it in (permitted, pre_bound, bound)]
