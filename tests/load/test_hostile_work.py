"""The work that one pod makes grows with what it asks for and not faster, and comes in short pieces.

Counted in instructions like ``test_work``; ``python -m tests.load.hostile`` has milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

from app.cache import counters
from app.cache.counters import run_prepared
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.pod_decoding import MOST_CONSTRAINTS
from tests.load import cluster, hostile
from tests.load.shop import Json, Shop, app, asked, constraint, node, pod
from tests.load.test_work import instructions

NODES = 300
SIZES = (MOST_CONSTRAINTS // 4, MOST_CONSTRAINTS // 2, MOST_CONSTRAINTS)
A_PIECE = 50_000
"""Instructions: about a millisecond."""
A_LITTLE = 2_000


def labelled(number: int, flavour: str = "a") -> Json:
    made = cluster.node(number)
    made["metadata"]["labels"].update({f"shared-{it}": f"v{number % 7}-{flavour}" for it in range(MOST_CONSTRAINTS)})
    return made


@pytest.fixture
def shop() -> Shop:
    shop = Shop(NODES, pods=600)
    hostile.labelled_nodes(shop, MOST_CONSTRAINTS)
    return shop


def waiting(count: int, *, hard: bool = True, **fields: object) -> Json:
    """A pod with so many constraints. No two calls of it share anything."""
    spread = [constraint(f"shared-{it}", app(7), hard=hard, nodeTaintsPolicy="Honor") for it in range(count)]
    return hostile.base(topologySpreadConstraints=spread, **fields)


def tolerating(count: int) -> Json:
    return waiting(count, tolerations=[{"key": f"only-{count}", "operator": "Exists"}])


def grows_linearly(work: list[int]) -> bool:
    """Twice as much takes twice the work at most, and not four times."""
    return all(twice <= 2.3 * once + A_LITTLE for once, twice in pairwise(work))


def test_a_call_for_the_first_time() -> None:
    work = []
    for count in SIZES:
        shop = Shop(NODES, pods=0)
        hostile.labelled_nodes(shop, MOST_CONSTRAINTS)
        body = asked(tolerating(count), shop.names()[:100])
        work.append(instructions(partial(shop.call, "filter", body)))

    assert grows_linearly(work), work


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("hard", [True, False])
def test_a_call_again(shop: Shop, verb: str, hard: bool) -> None:
    names = shop.names()[:100]
    work = []
    for count in SIZES:
        body = asked(waiting(count, hard=hard), names)
        shop.call(verb, body)  # type: ignore[arg-type]
        work.append(instructions(partial(shop.call, verb, body)))  # type: ignore[arg-type]

    assert grows_linearly(work), work


def test_a_node_that_changes_its_labels(shop: Shop) -> None:
    work = []
    for count in SIZES:
        fresh = Shop(NODES, pods=0)
        hostile.labelled_nodes(fresh, MOST_CONSTRAINTS)
        fresh.filter(pod(waiting(count)), fresh.sample())
        changed = node(labelled(5))
        work.append(instructions(partial(fresh.picture.upsert_node, changed)))

    assert grows_linearly(work), work


def test_who_is_eligible_is_asked_once_a_node_for_all_constraints_of_a_pod(shop: Shop) -> None:
    shop.filter(pod(tolerating(MOST_CONSTRAINTS)), shop.sample())

    sizes = [len(it.topologies) for it in shop.picture.counts._eligibilities.values() if it.inclusion.tolerations]

    assert [MOST_CONSTRAINTS] == sizes


SHAPES = {name: shape for name, shape in hostile.judged(MOST_CONSTRAINTS).items() if "soft" not in name}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_piece_of_what_is_counted_first_is_short(shop: Shop, shape: str) -> None:
    found = pod(SHAPES[shape]())
    names = shop.sample()
    longest = 0
    for steps in preparing(shop, found, names):
        ended = False
        while not ended:
            taken, ended = piece(steps)
            longest = max(longest, taken)

    assert longest <= A_PIECE


def preparing(shop: Shop, found: Pod, names: list[str]) -> Iterator[Iterator[None]]:
    while True:
        try:
            shop.framework.filters.feasible(CycleState(), found, shop._candidates(names))
        except Unprepared as missing:
            yield missing.steps
        else:
            return


def piece(steps: Iterator[None]) -> tuple[int, bool]:
    """The instructions of one more piece, and whether it was the last."""
    told: list[object] = []
    taken = instructions(lambda: told.append(next(steps, "ended")))
    return taken, told == ["ended"]


@pytest.mark.parametrize("shape", hostile.stored())
def test_what_is_too_long_is_no_work_at_all(shop: Shop, shape: str) -> None:
    """A pod of 1.4 MB is read and judged for what a small one takes: the long part is left alone."""
    raw = json.dumps(hostile.stored()[shape]()).encode()
    names = shop.names()
    small = hostile.base(topologySpreadConstraints=[hostile.one()])
    for warm in (pod(small), decode_pod(raw)):
        shop.filter(warm, names)
        shop.score(warm, names)

    def work() -> None:
        found = decode_pod(raw)
        shop.filter(found, names)
        shop.score(found, names)

    assert instructions(work) <= A_PIECE


def test_kept_counts_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1 << 20
    monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
    for level in ("_MOST_SELECTION_BYTES", "_MOST_TOPOLOGY_BYTES", "_MOST_DOMAINS_BYTES"):
        monkeypatch.setattr(counters, level, most)
    shop = Shop(NODES, pods=600)

    for number in range(300):
        term = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}
        made = hostile.base(affinity=hostile.required([term]), topologySpreadConstraints=[hostile.one()])
        made["metadata"]["namespace"] = f"team-{number % 20}"
        shop.filter(pod(made), shop.sample())

    kept = shop.picture.counts.statistics()
    assert all(level["bytes"] <= most for level in kept.values()), kept
    assert 10 <= kept["topology"]["entries"] < 60
    assert [] == shop.picture.check()


def test_counts_that_grow_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What weighs little when it is asked for first may count a thousand nodes later."""
    most = 100_000
    monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
    monkeypatch.setattr(counters, "_WEIGH_EVERY", 100)
    monkeypatch.setattr(counters, "_MOST_SELECTION_BYTES", most)
    shop = Shop(NODES, pods=0)
    for number in range(20):
        selector = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}
        run_prepared(
            partial(shop.filter, pod(hostile.base(topologySpreadConstraints=[hostile.one(selector)])), ["node-00001"])
        )
    before = shop.picture.counts.statistics()["selection"]["entries"]

    for number in range(NODES):
        bound = cluster.pod(7 + number * cluster.WORKLOADS, NODES)
        bound["spec"]["nodeName"] = cluster.node_name(number)
        shop.picture.upsert_pod(pod(json.loads(json.dumps(bound))))

    found = shop.picture.counts.statistics()["selection"]
    assert (20, True) == (before, found["bytes"] <= most and found["entries"] < 20)
    assert [] == shop.picture.check()
