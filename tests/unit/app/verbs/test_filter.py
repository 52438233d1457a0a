"""Filter: what is answered, what is never asked of a plugin, and what a failure is told as. The forms: tests/api."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from itertools import combinations
from typing import Any, Final

import pytest

from app.feeds.stores import store_for
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin
from app.framework.status import Status
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES as NODE_KIND
from app.verbs.filter_answer import random_sample, randomly_rotated
from app.verbs.outcome import VerbFailure
from app.wire.extender_v1 import split_args
from tests.api.small import FOREIGN, NAMES, NEW, NODES, PODS, TOO_MANY, UNKNOWN_NODE, by_name, by_object, filtered
from tests.builders import JsonObject, encoded, make_pod, node_object, pod_object
from tests.fakes import FromSpec, spec_of
from tests.filtering import Filter
from tests.harness import World, only

UNREADABLE = "node(s) could not be read by Homeport"
BODY = encoded(by_name())


class Fails(FromSpec, FilterPlugin):
    """Filter that has a fault."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        raise ZeroDivisionError("a screw is loose")


def world(*objects: JsonObject, plugin: type[FromSpec] | None = None) -> World:
    """The small cluster; with a plugin, that one alone judges."""
    if plugin is None:
        return World(*NODES, *PODS, *objects)
    return World(*NODES, *PODS, *objects, profile=only(plugin.__name__), specs=[spec_of(plugin)])


async def ask(asked: Filter, request: JsonObject) -> tuple[Any, str]:
    """The answer, read, and its outcome."""
    answer = await asked.verb(encoded(request))
    body = answer.body
    return json.loads(body if isinstance(body, bytes) else b"".join(map(bytes, body.pieces))), answer.outcome


@pytest.fixture
def asked() -> Filter:
    return Filter(world())


@pytest.mark.parametrize(
    ("request_", "answer", "outcome"),
    [
        pytest.param(by_name(), filtered(["n2", "n3"], {"n1": TOO_MANY}), "feasible", id="the reasons of the others"),
        pytest.param(
            by_name(names=["n3", "n9", "n2"]),
            filtered(["n3", "n2"], {"n9": UNKNOWN_NODE}),
            "feasible",
            id="in the order asked",
        ),
        pytest.param(
            by_name(names=["n1", "n9"]), filtered([], {"n1": TOO_MANY, "n9": UNKNOWN_NODE}), "no_fit", id="none"
        ),
        pytest.param(by_name(names=[]), filtered([]), "nothing_to_do", id="nothing asked"),
        pytest.param(
            by_object(nodes=NODES[:2]), filtered(None, {"n1": TOO_MANY}, nodes=[NODES[1]]), "feasible", id="whole"
        ),
        pytest.param(by_name(FOREIGN, ["n9"]), filtered(["n9"]), "nothing_to_do", id="a pod of no profile passes"),
    ],
)
async def test_what_is_answered(asked: Filter, request_: JsonObject, answer: JsonObject, outcome: str) -> None:
    assert (answer, outcome) == await ask(asked, request_)


async def test_a_pod_is_not_its_own_peer() -> None:
    """It may stand in the picture already, nominated or assumed; the answer is that of one that does not."""
    there = Filter(world(pod_object("web-new", labels={"app": "web"}, node="n2")))

    assert (filtered(["n2", "n3"], {"n1": TOO_MANY}), "feasible") == await ask(there, by_name())


async def test_a_node_that_is_left_out_is_refused_and_no_plugin_is_asked_about_it() -> None:
    found = world(plugin=Fails)
    store_for(found.cluster, NODE_KIND).mark_unreadable(("", "n1"), "odd")

    assert (filtered([], {"n1": UNREADABLE}), "no_fit") == await ask(Filter(found), by_name(names=["n1"]))


async def test_a_whole_node_is_judged_by_what_was_sent_and_sent_back_as_it_came(asked: Filter) -> None:
    moved = node_object("n2", zone="z1", resource_version="9")
    fresh = {**node_object("n9", zone="z9"), "status": {"unknown": ["to", "us"]}}

    assert (filtered(None, {"n2": TOO_MANY}, nodes=[fresh]), "feasible") == await ask(
        asked, by_object(nodes=[moved, fresh])
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b'{"Pod":5}', "homeport: malformed filter request: ", id="no pod"),
        pytest.param(
            encoded(by_object(nodes=[{"metadata": {"name": 5}}])),
            "homeport: malformed filter request: Nodes.items: ",
            id="a whole node that makes no sense",
        ),
    ],
)
async def test_what_cannot_be_read_is_told(asked: Filter, body: bytes, said: str) -> None:
    with pytest.raises(VerbFailure) as failed:
        await asked.verb(body)

    assert ("bad_request", said) == (failed.value.outcome, failed.value.message[: len(said)])


class TestWithoutAPicture:
    async def test_nor_is_what_is_remembered_repeated(self, asked: Filter) -> None:
        await ask(asked, by_name(names=["n1"]))
        asked.problem = "nothing heard of v1 Pod"

        with pytest.raises(VerbFailure, match="nothing heard"):
            await ask(asked, by_name(names=["n1"]))


class TestRemembering:
    async def test_a_refusal_of_all_nodes_is(self, asked: Filter) -> None:
        first = await ask(asked, by_name(names=["n1"]))

        assert first == await ask(asked, by_name(names=["n1"]))
        assert (1, 1) == (asked.computed.count, asked.remembered.count)


class TestBindsToCome:
    @pytest.fixture
    def asked(self) -> Filter:
        return Filter(world(), due_wait=1.0)

    async def test_a_pod_that_got_nodes_is_expected_to_be_bound(self, asked: Filter) -> None:
        """Whoever asks next and depends on it may wait for that."""
        next_one = make_pod("web-next", labels={"app": "web"}, spread=NEW["spec"]["topologySpreadConstraints"])
        depends = asked.framework.filters.depends
        assert not asked.due.expects(depends, next_one)

        await ask(asked, by_name())

        assert asked.due.expects(depends, next_one)
        assert not asked.due.expects(depends, decode_pod(encoded(NEW)))

    @pytest.mark.parametrize(
        "request_",
        [
            pytest.param(by_name(names=["n1"]), id="without a node"),
            pytest.param(by_name(FOREIGN), id="of no profile"),
            pytest.param(by_name(names=[]), id="about which nothing was asked"),
        ],
    )
    async def test_one(self, asked: Filter, request_: JsonObject) -> None:
        """Such a one is not."""
        await ask(asked, request_)

        assert not asked.due.expects(lambda *_: True, make_pod("any"))


@pytest.mark.parametrize("items", [[], ["n1"], NAMES])
def test_a_lot_only_turns_and_flips(items: list[str]) -> None:
    turned = {(*items[start:], *items[:start]) for start in range(len(items) or 1)}
    orders = turned | {it[::-1] for it in turned}

    found = {tuple(randomly_rotated(items)) for _ in range(50 * len(orders))}

    assert orders == found


@pytest.mark.parametrize("kept", ["", "n2", "n9"])
def test_of_some_each_set_is_as_likely_as_any_other_and_any_of_them_comes_first(kept: str) -> None:
    """Over 4,000 draws by a fixed seed: each of 10 pairs, or of the 4 with a node that is kept, within a fifth."""
    names = ["n0", "n1", "n2", "n3", "n4"]
    random.seed(16)
    drawn = [tuple(random_sample(names, 2, kept)) for _ in range(4000)]
    sets = Counter(map(frozenset, drawn))
    first = Counter(it[0] for it in drawn)

    possible = {frozenset(it) for it in combinations(names, 2) if kept not in names or kept in it}
    assert possible == sets.keys()
    assert all(abs(count * len(possible) / 4000 - 1) < 0.25 for count in sets.values()), sets
    assert set(names) == first.keys()


MOST: Final = 100
MANY: Final = [f"n{number}" for number in range(150)]
PREFERS: Final = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}


class TestAtMost:
    """Below /lean and on 150 nodes, where the profile says ``atMost: 100``."""

    @pytest.fixture
    def crowd(self) -> World:
        return World(*(node_object(name, zone=f"z{name[-1]}") for name in MANY), profile={"atMost": MOST})

    @pytest.fixture
    def asked(self, crowd: World) -> Filter:
        return Filter(crowd, lean=True)

    async def test_of_more_so_many_are_answered_and_nothing_is_said_of_the_others(self, asked: Filter) -> None:
        answer, outcome = await ask(asked, by_name(names=MANY))

        assert (filtered(answer["NodeNames"]), "feasible") == (answer, outcome)
        assert MOST == len(set(answer["NodeNames"])) == len(answer["NodeNames"])
        assert set(answer["NodeNames"]) < set(MANY)

    async def test_of_so_many_or_fewer_all_are(self, asked: Filter) -> None:
        answer, _ = await ask(asked, by_name(names=MANY[:MOST]))

        assert sorted(MANY[:MOST]) == sorted(answer["NodeNames"])

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(pod_object("wishes", affinity=PREFERS), id="of a node"),
            pytest.param(
                pod_object("wishes", affinity={"podAntiAffinity": PREFERS["nodeAffinity"]}), id="of its neighbours"
            ),
        ],
    )
    async def test_all_are_for_a_pod_that_prefers_some(self, asked: Filter, pod: JsonObject) -> None:
        assert len(MANY) == len((await ask(asked, by_name(pod, MANY)))[0]["NodeNames"])

    async def test_a_node_that_the_pod_is_nominated_to_is_always_among_them(self, asked: Filter) -> None:
        nominated = by_name(pod_object("soon", nominated="n42"), MANY)
        answers = [(await ask(asked, nominated))[0]["NodeNames"] for _ in range(40)]

        assert {(True, MOST)} == {("n42" in it, len(set(it))) for it in answers}

    async def test_what_was_answered_is_what_prioritize_is_expected_to_ask(self, asked: Filter) -> None:
        told = (await ask(asked, by_name(names=MANY)))[0]["NodeNames"]
        kept = asked.results.take(split_args(encoded(by_name(names=told))))

        assert kept is not None
        assert told == list(kept.names)

    async def test_whole_nodes_are_not_left_out(self, asked: Filter) -> None:
        nodes = [node_object(name) for name in MANY]

        assert len(MANY) == len((await ask(asked, by_object(nodes=nodes)))[0]["Nodes"]["items"])


def roomy(name: str, cpu: str = "8", pods: str = "110", **fields: Any) -> JsonObject:
    """A node with room."""
    room = {"cpu": cpu, "memory": "64Gi", "pods": pods}
    return node_object(name, status={"capacity": room, "allocatable": room}, **fields)


ASKS: Final[list[JsonObject]] = [
    {"name": "main", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "1"}}}
]


class TestPicking:
    """Below /lean, where the profile says ``pick: true``."""

    def asking(self, *objects: JsonObject, lean: bool = True, due_wait: float = 0.0) -> Filter:
        return Filter(World(*objects, profile={"preset": "complete", "pick": True}), lean=lean, due_wait=due_wait)

    def pod(self, name: str = "web-new", **fields: Any) -> JsonObject:
        return pod_object(name, containers=ASKS, **fields)

    @pytest.fixture
    def asked(self) -> Filter:
        """The third node has most room, the others are alike, and a fourth one is cordoned."""
        return self.asking(roomy("n1"), roomy("n2"), roomy("n3", cpu="64"), roomy("n4", cpu="640", unschedulable=True))

    async def test_the_best_node_that_passes_is_the_answer(self, asked: Filter) -> None:
        request = by_name(self.pod(), ["n1", "n2", "n3", "n4"])

        assert (filtered(["n3"]), "feasible") == await ask(asked, request)
        assert (1, 0) == (asked.picked.count, asked.failed.count)

    async def test_a_single_one_is_nobody_s_pick(self, asked: Filter) -> None:
        assert (filtered(["n1"]), "feasible") == await ask(asked, by_name(self.pod(), ["n1", "n4", "n1"]))
        assert 0 == asked.picked.count

    async def test_a_whole_node_is_sent_back_as_it_came(self, asked: Filter) -> None:
        nodes = [roomy("n1"), roomy("n9", cpu="128", resource_version="9")]

        assert (filtered(None, nodes=[nodes[1]]), "feasible") == await ask(asked, by_object(self.pod(), nodes))

    async def test_in_full_all_that_pass_are_answered(self) -> None:
        asked = self.asking(roomy("n1"), roomy("n2", cpu="64"), lean=False)

        assert (filtered(["n1", "n2"]), "feasible") == await ask(asked, by_name(self.pod(), ["n1", "n2"]))

    async def test_a_pod_that_is_asked_about_again_had_a_pick_that_failed(self, asked: Filter) -> None:
        """Not while nothing at all has changed."""
        request = by_name(self.pod(), ["n1", "n2"])
        first = await ask(asked, request)
        assert first == await ask(asked, request)
        assert (1, 0) == (asked.picked.count, asked.failed.count)

        asked.world.add(roomy("n5"))
        await ask(asked, request)
        assert (2, 1) == (asked.picked.count, asked.failed.count)

        asked.world.cluster.delete_node("n1")
        asked.world.cluster.delete_node("n2")
        await ask(asked, request)
        assert (2, 2) == (asked.picked.count, asked.failed.count)

    async def test_every_bind_that_is_due_is_waited_for(self) -> None:
        """A pod takes room of its node, whatever its labels."""
        asked = self.asking(roomy("n1"), roomy("n2"), due_wait=1.0)
        first = (await ask(asked, by_name(self.pod("web-a"), ["n1", "n2"])))[0]["NodeNames"]
        second = asyncio.create_task(ask(asked, by_name(self.pod("web-b"), ["n1", "n2"])))
        await asyncio.sleep(0)
        assert not second.done()

        asked.world.add(self.pod("web-a", node=first[0]))
        asked.due.arrived("uid-default-web-a")

        assert {"n1", "n2"} == {*first, *(await second)[0]["NodeNames"]}
