"""A plugin that answers what its extension point does not take is named in the Error, logged and counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.framework.background import run_to_end
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import PostFilterResult
from app.framework.score_classes import ScoreClasses
from app.framework.status import SKIP, SUCCESS, Code, Status, unschedulable
from app.runtime.framework import Framework
from app.runtime.guard import PluginError, plugin_error
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
LISTED: Final = FilterResult((), lambda: ["n1"])  # type: ignore[arg-type, return-value]
WAIT: Final = Status(Code.WAIT)


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


POST_FILTERS: Final = {"post_filter": returning(("n1", SUCCESS))}


def filtered(engine: Framework) -> object:
    return engine.filters.feasible(CycleState(), POD, NODES)


def searched(engine: Framework) -> object:
    return engine.search.find_nodes_that_fit(POD, NODES).rejected()


def rechecked(engine: Framework) -> object:
    return engine.at_bind.recheck(CycleState(), POD, NODE, [OTHER])


def scored(engine: Framework) -> object:
    return engine.scoring.score(CycleState(), POD, NODES)


def post_filtered(engine: Framework) -> object:
    return run_to_end(engine.post_filters.post_filter(CycleState(), POD, {"n1": unschedulable("no")}))


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


RESULT: Final = "a FilterResult of the given nodes"
EACH: Final = "a FilterResult that passes or rejects each node"
PAIR: Final = "(Status, node names)"
UNTEXTED: Final = "a Status whose reasons are not strings"
CLASSES: Final = "a score for each class of nodes: 'NoneType' object is not iterable"
CERTAIN: Final = {"filter": SUCCESS, "depends_on": True}
EXTENDED: Final = {"pre_filter": (SUCCESS, None), "add_pod": None, "remove_pod": None}
TOO_FEW: Final = {"score": 1, "score_nodes": ScoreClasses([1], {1: 1}), "normalize": {}}
NO_SCORE: Final = 'plugin "Bad" returns a score that is not an integer'
TRIPLES: Final = "returned something other than tuples of a kind, a namespace and a name"


def batch(result: Any) -> dict[str, Any]:
    return {"filter": SUCCESS, "filter_nodes": result}


WRONG: Final[dict[str, tuple[dict[str, Any], Callable[[Framework], Any], str, str, str]]] = {
    "preEnqueue": ({"pre_enqueue": None}, lambda it: it.pre_enqueue(POD), "PreEnqueue", "None", "a Status"),
    "preFilter": ({"pre_filter": None}, filtered, "PreFilter", "None", PAIR),
    "preFilter, half of it": ({"pre_filter": SUCCESS}, filtered, "PreFilter", "a Status", PAIR),
    "preFilter, no status in it": ({"pre_filter": (None, None)}, filtered, "PreFilter", "None", "a Status"),
    "preFilter, a list": ({"pre_filter": (SUCCESS, ["n1"])}, filtered, "PreFilter", "a list", "a set of node names"),
    "filter": ({"filter": None}, filtered, "Filter", "None", "a Status"),
    "filter, yes": ({"filter": True}, filtered, "Filter", "True", "a Status"),
    "filter, a reason": ({"filter": "no"}, filtered, "Filter", "a str", "a Status"),
    "filter, no code": ({"filter": NO_CODE}, filtered, "Filter", "a Status whose code is a str", "a Status"),
    "filter, no reasons": (
        {"filter": NO_REASONS},
        filtered,
        "Filter",
        "a Status whose reasons are not strings",
        "a Status",
    ),
    "filter, one node": ({"filter": None}, rechecked, "Filter", "None", "a Status"),
    "batch": (batch(None), filtered, "Filter", "None", RESULT),
    "batch, no status": (batch(FilterResult((), {"n1": None})), filtered, "Filter", "None", "a Status"),  # type: ignore[dict-item]
    "batch, no statuses": (batch(LISTED), filtered, "Filter", "a list", "a mapping of rejected nodes"),
    "batch, a mapping": (batch({"n1": NO}), searched, "Filter", "a dict", RESULT),
    "batch, one text": (batch(FilterResult("n1", {})), searched, "Filter", "a FilterResult", RESULT),
    "batch, too many": (batch(FilterResult(["n1", "n2", "n3"], {})), searched, "Filter", "a FilterResult", RESULT),
    "batch, one forgotten": (batch(FilterResult(["n1"], {})), searched, "Filter", "a FilterResult", EACH),
    "filter, for certain": ({**CERTAIN, "filter_certain": None}, rechecked, "Filter", "None", "a Status"),
    "AddPod": (EXTENDED, added, "PreFilterExtensionAddPod", "None", "a Status"),
    "postFilter": ({"post_filter": None}, post_filtered, "PostFilter", "None", "a generator"),
    "postFilter, a name": (POST_FILTERS, post_filtered, "PostFilter", "a str", "a PostFilterResult"),
    "preScore": ({"pre_score": None, "score": 1}, scored, "PreScore", "None", "a Status"),
    "score in a batch": ({"score": 1, "score_nodes": None}, scored, "Score", "None", "ScoreClasses"),
    "score, no nodes": ({"score": 1, "score_nodes": NO_NODES}, scored, "Score", "a ScoreClasses", CLASSES),
    "normalizeScore": ({"score": 1, "normalize": None}, scored, "NormalizeScore", "None", "a mapping of scores"),
    "reserve": ({"reserve": None, "unreserve": None}, reserved, "Reserve", "None", "a Status"),
    "permit": ({"permit": None}, permitted, "Permit", "None", "(Status, seconds)"),
    "permit, no time": ({"permit": (WAIT, None)}, permitted, "Permit", "None", "seconds to wait"),
    "permit, no number": ({"permit": (WAIT, float("nan"))}, permitted, "Permit", "nan", "seconds to wait"),
    "preBind": ({"pre_bind": None}, pre_bound, "PreBind", "None", "a Status"),
    "bind": ({"bind": None}, bound, "Bind", "None", "a Status"),
    "explain": ({"filter": SUCCESS, "explain": None}, explained, "Explain", "a NoneType", "an Explanation"),
}


@pytest.mark.parametrize(("answers", "ask", "point", "found", "wanted"), WRONG.values(), ids=WRONG)
async def test_it_is_named(
    answers: dict[str, Any], ask: Callable[[Framework], Any], point: str, found: str, wanted: str
) -> None:
    with capture_logs() as logs, pytest.raises(PluginError) as raised:
        await answer(ask(framework(plugin(**answers))))

    assert plugin_error("Bad", point, f"returned {found}, not {wanted}").status == raised.value.status
    assert ["plugin fault"] == [it["event"] for it in logs]


@pytest.mark.parametrize(
    ("answers", "ask", "said"),
    [
        ({"score": None}, scored, NO_SCORE),
        ({"score": []}, scored, NO_SCORE),
        (TOO_FEW, scored, 'plugin "Bad" did not score every node'),
        ({"required_objects": [SUCCESS]}, lambda it: it.required_objects(POD), TRIPLES),
    ],
)
async def test_other_mistakes_are_described(
    answers: dict[str, Any], ask: Callable[[Framework], Any], said: str
) -> None:
    with pytest.raises(PluginError, match=f"{said}$") as raised:
        ask(framework(plugin(filter=SUCCESS, **answers)))

    assert "Bad" == raised.value.status.plugin


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
