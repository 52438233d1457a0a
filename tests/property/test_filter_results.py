"""prioritize right after its filter answers from what filter read; whatever happens between, as if it had not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.feeds.saved import NullReader
from app.kube.core_decoding import decode_node, decode_pod
from app.memory import filter_results
from app.memory.expected_binds import ExpectedBinds
from app.memory.filter_results import FilterResultCache
from app.memory.picks import Picks
from app.memory.refusal_cache import RefusalCache
from app.verbs.context import VerbContext
from app.verbs.filter import FilterVerb
from app.verbs.prioritize import PrioritizeVerb
from app.wire.extender_v1 import split_args
from tests import strategies
from tests.builders import JsonObject, constraint, encoded, node_object, pod_object
from tests.filtering import Tally, request
from tests.harness import World

EVENTS = ("node gone", "node new", "node changed", "pod placed", "nothing", "asked again", "other names")


class Verbs:
    """filter with a memory, and prioritize with the same one and with none."""

    def __init__(self, world: World, *, lean: bool) -> None:
        self.world = world
        due = ExpectedBinds(world.clock, wait_seconds=0, observe=lambda _: None)
        framework = world.framework
        context = VerbContext(world.cluster, {framework.scheduler_name: framework}, NullReader(), str, due)
        refusals = RefusalCache(world.cluster, remembered=Tally(), computed=Tally())
        self.handed = FilterResultCache()
        picks = Picks(made=Tally(), failed=Tally())
        self.filter = FilterVerb(context, refusals, self.handed, lambda *_: None, picks, lean=lean)
        self.prioritize = PrioritizeVerb(context, self.handed, lean=lean)
        self.afresh = PrioritizeVerb(context, FilterResultCache(), lean=lean)


def answer(verb: Any, body: bytes) -> Any:
    """What a call says that waits for nobody, though it may let others have their turn."""
    call = verb(body)
    try:
        while True:
            assert call.send(None) is None
    except StopIteration as done:
        return msgspec.json.decode(done.value.body)


def happens(world: World, event: str, pod: JsonObject) -> None:
    nodes = list(world.cluster.nodes)
    if event == "node gone" and nodes:
        world.cluster.delete_node(nodes[0])
    elif event == "node new":
        world.cluster.upsert_node(decode_node(encoded(node_object("n-new", zone="a"))))
    elif event == "node changed" and nodes:
        world.cluster.upsert_node(decode_node(encoded(node_object(nodes[-1], zone="changed"))))
    elif event == "pod placed" and nodes:
        placed = pod_object("placed", labels=pod["metadata"].get("labels"), node=nodes[0])
        world.cluster.upsert_pod(decode_pod(encoded(placed)))


@settings(derandomize=True, max_examples=strategies.examples(300))
@given(strategies.clusters(), strategies.pending_pods, st.booleans(), st.sampled_from(EVENTS), st.booleans())
def test_the_answer_is_the_one_without_a_memory(
    objects: list[JsonObject], pod: JsonObject, lean: bool, event: str, twice: bool
) -> None:
    world = World(*objects)
    verbs = Verbs(world, lean=lean)
    names = [*world.cluster.nodes, "no-node"]
    if twice:
        names += names
    passed: Sequence[str] = answer(verbs.filter, request(pod, names))["NodeNames"] or ()
    happens(world, event, pod)
    if event == "asked again":
        passed = answer(verbs.filter, request(pod, names))["NodeNames"] or ()
    if event == "other names":
        passed = list(reversed(passed))

    body = request(pod, passed)

    assert answer(verbs.afresh, body) == answer(verbs.prioritize, body)
    assert answer(verbs.afresh, body) == answer(verbs.prioritize, body)


SOFT = constraint("zone", app="web", soft=True)
ONE, OTHER = pod_object("one", labels={"app": "web"}, spread=[SOFT]), pod_object("other")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(b',"Pod":%(other)b,"NodeNames":["n1","n2"]}', id="another pod after the names"),
        pytest.param(b',"NodeNames":["n1","n2"]}', id="the names twice"),
        pytest.param(b',"zzz":["q","n1"]}', id="something else after the names"),
        pytest.param(b',"NodeNames":null,"Nodes":{"items":[%(ghost)b]},"zzz":["q"]}', id="whole nodes after the names"),
    ],
)
def test_a_request_that_goes_on_after_the_names_is_not_remembered(odd: bytes) -> None:
    """The last of two keys counts, so what precedes the names does not say which pod it is."""
    peer = pod_object("peer", labels={"app": "web"}, node="n1")
    world = World(node_object("n1", zone="a"), node_object("n2", zone="b"), peer)
    verbs, names = Verbs(world, lean=False), ["n1", "n2"]
    plain = request(ONE, names)
    rest = odd % {b"other": encoded(OTHER), b"ghost": encoded(node_object("ghost"))}
    answer(verbs.filter, plain[:-1] + rest)

    for asked in (plain, request(ONE, ["ghost"])):
        assert answer(verbs.afresh, asked) == answer(verbs.prioritize, asked)


def test_as_much_is_remembered_as_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(node_object("n1", zone="a"), node_object("n2", zone="b"))
    verbs, names = Verbs(world, lean=False), ["n1", "n2"]
    bodies = [request(pod_object(f"pod-{number}"), names) for number in range(100)]
    for body in bodies:
        answer(verbs.filter, body)
    taken = [verbs.handed.take(split_args(body)) is not None for body in bodies]
    assert [False] * 36 + [True] * 64 == taken

    monkeypatch.setattr(filter_results, "_MOST_BYTES", 2 * len(bodies[0]))
    for body in bodies:
        answer(verbs.filter, body)
    assert 2 == sum(verbs.handed.take(split_args(body)) is not None for body in bodies)
    answer(verbs.filter, request(ONE, ["n1"]))
    assert verbs.handed.take(split_args(request(ONE, ["n1"]))) is None
