"""Which refusals are answered from memory, and what makes a pod be judged anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Unpack

import pytest

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs, PluginSpec
from app.framework.status import Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.kinds import partial_kind
from app.memory.recent_refusals import NO_PLUGIN
from app.verbs.outcome import VerbFailure
from tests.builders import JsonObject, NodeFields, constraint, controller, encoded, make_pod, node_object, pod_object
from tests.filtering import Filter
from tests.harness import World

FULL: Final = "node(s) didn't match pod topology spread constraints"
UNKNOWN: Final = "node(s) were not known to Homeport yet"
AWAY: Final = "node(s) were not the pod's home"
DATABASES: Final = partial_kind("example.com/v1", "Database")
STICKY: Final[JsonObject] = {
    "pluginConfig": [
        {
            "name": "StickyNode",
            "args": {"policy": "hard", "owners": [{"apiVersion": "example.com/v1", "kind": "Database"}]},
        }
    ]
}
NAMES: Final = ("a1", "a2", "b1")


def waiting(name: str = "late", **fields: Any) -> JsonObject:
    """Refused in every zone with a pod, as long as there is none without: it wants three zones."""
    return pod_object(name, labels={"app": "web"}, spread=[constraint(min_domains=3, app="web")], **fields)


def node(name: str, **fields: Unpack[NodeFields]) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Node", **node_object(name, **fields)}


def crowded() -> World:
    """Two zones, two pods in the first and one in the second."""
    nodes = [node(name, zone=name[0]) for name in NAMES]
    pods = [make_pod(f"on-{name}", labels={"app": "web"}, node=name) for name in NAMES]
    return World(*nodes, *pods, profile=STICKY)


def bind_elsewhere(world: World) -> None:
    world.add(make_pod("other", labels={"app": "db"}, node="a1"))


def bind_of_a_peer(world: World) -> None:
    """One more where there are too many already: the limit and the domains above it stay."""
    world.add(make_pod("peer", labels={"app": "web"}, node="a1"))


def heartbeat(world: World) -> None:
    world.add(node("a1", zone="a", resource_version="2", labels={"example.com/beat": "1"}))


def failed_bind(world: World) -> None:
    world.cluster.assume(make_pod("peer", labels={"app": "web"}), "b1")
    world.cluster.forget("uid-default-peer")


@pytest.mark.parametrize("event", [bind_elsewhere, bind_of_a_peer, heartbeat, failed_bind])
def test_what_does_not_matter_leaves_it_standing(event: Callable[[World], None]) -> None:
    world = crowded()
    asking = Filter(world)
    first = asking.refused(waiting(), NAMES)

    event(world)

    assert first == dict.fromkeys(NAMES, FULL) == asking.refused(waiting(), NAMES)
    assert (1, 1) == (asking.computed.count, asking.remembered.count)


def last_of_a_zone_goes(world: World) -> None:
    world.cluster.delete_pod(("default", "on-b1"))


def third_zone_comes(world: World) -> None:
    world.add(node("c1", zone="c"))


def node_changes_its_zone(world: World) -> None:
    world.add(node("a2", zone="c", resource_version="2"))


def node_goes(world: World) -> None:
    world.cluster.delete_node("a2")


@pytest.mark.parametrize("event", [last_of_a_zone_goes, third_zone_comes, node_changes_its_zone, node_goes])
def test_what_matters_has_it_judged_anew(event: Callable[[World], None]) -> None:
    world = crowded()
    asking = Filter(world)
    asking.refused(waiting(), NAMES)

    event(world)

    assert Filter(world).answer(waiting(), NAMES) == asking.answer(waiting(), NAMES)
    assert 0 == asking.remembered.count


def test_a_bind_in_flight_that_fails_opens_its_place_again() -> None:
    world = World(node("a1", zone="a"), node("b1", zone="b"), make_pod("p", labels={"app": "web"}, node="a1"))
    asking, pod = Filter(world), pod_object("late", labels={"app": "web"}, spread=[constraint(app="web")])
    world.cluster.assume(make_pod("peer", labels={"app": "web"}), "a1")
    world.cluster.assume(make_pod("peer-2", labels={"app": "web"}), "b1")
    assert {"a1": FULL} == asking.refused(pod, ["a1"]) == asking.refused(pod, ["a1"])

    world.cluster.forget("uid-default-peer")

    assert ["a1"] == asking.answer(pod, ["a1"])["NodeNames"]
    assert 1 == asking.remembered.count


def test_any_order_is_answered_and_another_window_is_added() -> None:
    asking = Filter(crowded())
    asking.refused(waiting(), ["a1", "a2"])
    asking.refused(waiting(), ["b1"])

    assert dict.fromkeys(NAMES, FULL) == asking.refused(waiting(), ["b1", "a2", "a1"])
    assert (2, 1) == (asking.computed.count, asking.remembered.count)


def test_names_that_the_picture_does_not_have_are_refused_until_they_come() -> None:
    world = crowded()
    asking = Filter(world)
    for _ in range(2):
        assert {"a1": FULL, "c1": UNKNOWN} == asking.refused(waiting(), ["a1", "c1"])
    world.add(node("c1", zone="c"))

    assert ["c1"] == asking.answer(waiting(), ["a1", "c1"])["NodeNames"]
    assert 1 == asking.remembered.count


def test_an_empty_node_that_moves_to_an_open_zone_is_open() -> None:
    """No count changes, and no domain comes to be above the limit."""
    world = crowded()
    world.add(node("c1", zone="c"), node("a3", zone="a"))
    asking = Filter(world)
    for _ in range(2):
        assert dict.fromkeys(["a1", "a3"], FULL) == asking.refused(waiting(), ["a1", "a3"])
    assert 1 == asking.remembered.count

    world.add(node("a3", zone="c", resource_version="2"))

    assert ["a3"] == asking.answer(waiting(), ["a1", "a3"])["NodeNames"]


def test_replicas_share_a_verdict() -> None:
    world = crowded()
    asking = Filter(world)
    asking.refused(waiting("late-1"), NAMES)
    asking.refused(waiting("late-2"), NAMES[:1])

    asking.refused(waiting("late-2"), NAMES)

    assert (2, 1) == (asking.computed.count, asking.remembered.count)


def test_a_home_is_all_that_matters_to_the_pods_of_an_owner() -> None:
    world = crowded()
    asking = Filter(world)
    pod = owned("db", "b1", world)

    assert {"a1": AWAY, "a2": AWAY} == asking.refused(pod, ["a1", "a2"]) == asking.refused(pod, ["a2", "a1"])
    bind_of_a_peer(world)
    assert {"a1": AWAY, "a2": AWAY} == asking.refused(pod, ["a1", "a2"])
    assert (1, 2) == (asking.computed.count, asking.remembered.count)

    owned("db", "a2", world)

    assert ["a2"] == asking.answer(pod, ["a1", "a2"])["NodeNames"]


def test_an_owner_that_is_missing_is_looked_for_each_time() -> None:
    asking = Filter(crowded())
    pod = pod_object("db-1", owner=controller("Database", "db", api_version="example.com/v1"))

    for _ in range(2):
        asking.refused(pod, NAMES)

    assert (2, 0) == (asking.computed.count, asking.remembered.count)


def test_a_pod_that_is_nominated_itself_is_judged_without_itself_each_time() -> None:
    world = crowded()
    world.add({**waiting(nominated="b1")})
    asking = Filter(world)

    for _ in range(2):
        assert dict.fromkeys(NAMES, FULL) == asking.refused(waiting(), NAMES)

    assert 0 == asking.remembered.count


def test_a_nominated_pod_that_matters_has_it_judged_anew_after_any_event() -> None:
    world = crowded()
    world.add(make_pod("preemptor", labels={"app": "web"}, nominated="b1", priority=10))
    asking = Filter(world)
    for _ in range(2):
        asking.refused(waiting(), NAMES)
    assert 1 == asking.remembered.count

    bind_elsewhere(world)
    asking.refused(waiting(), NAMES)

    assert (2, 1) == (asking.computed.count, asking.remembered.count)


class Unsaying(FilterPlugin):
    """Says no, and does not say what that rests on."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        pass

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return unresolvable("never")


UNSAYING: Final = PluginSpec("Unsaying", PluginArgs, Unsaying)


def test_with_a_plugin_that_has_no_stamp_nothing_is_remembered() -> None:
    world = World(
        *(node_object(name) for name in NAMES),
        specs=[UNSAYING],
        profile={"plugins": {"multiPoint": {"enabled": [{"name": "Unsaying"}]}}},
    )
    asking = Filter(world)

    for _ in range(2):
        assert dict.fromkeys(NAMES, "never") == asking.refused(pod_object("late"), NAMES)

    assert (2, 0) == (asking.computed.count, asking.remembered.count)


def test_a_picture_that_is_too_old_fails_the_remembered_too() -> None:
    asking = Filter(crowded())
    asking.refused(waiting(), NAMES)
    asking.problem = "nothing heard"

    with pytest.raises(VerbFailure, match="nothing heard"):
        asking.refused(waiting(), NAMES)


async def test_a_bind_that_is_due_and_matters_is_waited_for() -> None:
    asking = Filter(crowded(), due_wait=1.0)
    asking.refused(waiting(), NAMES)
    asking.due.expect(make_pod("stranger", labels={"app": "db"}))
    asking.refused(waiting(), NAMES)
    asking.due.expect(make_pod("peer", labels={"app": "web"}))

    with pytest.raises(AssertionError, match="waits"):
        asking.refused(waiting(), NAMES)

    assert 1 == asking.remembered.count


def owned(name: str, home: str, world: World) -> JsonObject:
    """A pod of an owner with that home."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {"homeport.dev/home": home}}
    world.cluster.others.upsert(DATABASES, DATABASES.decode(encoded({"metadata": metadata})))
    return pod_object(f"of-{name}", owner=controller("Database", name, api_version="example.com/v1"))


@pytest.mark.parametrize("limit", ["most_verdict_bytes", "most_pod_bytes"])
def test_what_was_used_last_is_kept_as_far_as_there_is_room(limit: str) -> None:
    """Three verdicts of three names each, or three pods; room for two of them."""
    world = crowded()
    pods = [owned(name, f"away-{name}", world) for name in "xyz"]
    room = 4500 if limit == "most_verdict_bytes" else int(2.5 * len(encoded(pods[0])))
    asking = Filter(world, **dict[str, Any]({limit: room}))

    seen = []
    for number in (0, 1, 0, 2, 2, 0, 1):
        asking.refused(pods[number], NAMES)
        seen.append(asking.remembered.count)

    assert [0, 0, 1, 1, 2, 3, 3] == seen


@pytest.mark.parametrize(("room", "remembered"), [(1_000, 0), (2_800, 0), (30_000, 2)])
def test_with_room_for_some_of_its_reasons_a_refusal_is_computed_each_time(room: int, remembered: int) -> None:
    """One plugin rejects three nodes, and the fourth is none."""
    asking = Filter(crowded(), most_verdict_bytes=room)
    expected = {**dict.fromkeys(NAMES, FULL), "gone": UNKNOWN}

    assert [expected] * 3 == [asking.refused(waiting(), [*NAMES, "gone"]) for _ in range(3)]
    assert remembered == asking.remembered.count


def test_what_a_refusal_rests_on_is_weighed_too() -> None:
    """It is made of what tenants write: a home's name here."""
    world = crowded()
    pods = [owned(name, f"away-{name}" + "x" * 900, world) for name in "xyz"]
    asking = Filter(world, most_verdict_bytes=3500)
    for number in (0, 1, 0):
        asking.refused(pods[number], NAMES)

    assert 0 == asking.remembered.count


def test_the_answer_is_byte_for_byte_the_computed_one() -> None:
    world = crowded()
    asking, names = Filter(world), ["b1", "a2", "a1"]

    assert asking.raw(waiting(), names) == asking.raw(waiting(), names) == Filter(world).raw(waiting(), names)
    assert 1 == asking.remembered.count


@pytest.mark.parametrize(
    "spelled",
    [
        lambda body: body.replace(b'"b1"', b'"b\\u0031"'),
        lambda body: body + b"\n",
        lambda body: body.replace(b'","', b'", "'),
        lambda body: body.replace(b"NodeNames", b"nodeNames"),
    ],
)
def test_other_spellings_are_answered_alike(spelled: Callable[[bytes], bytes]) -> None:
    asking = Filter(crowded())

    for _ in range(2):
        assert dict.fromkeys(NAMES, FULL) == asking.refused(waiting(), NAMES, spelled)


def test_every_refusal_is_told_with_who_refused_and_why_remembered_or_not() -> None:
    told: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []
    world = crowded()
    verb = Filter(world, refused=lambda pod, profile, causes: told.append((pod.name, profile, causes)))

    for _ in range(2):
        assert {"a1": FULL, "b1": FULL, "x9": UNKNOWN} == verb.refused(waiting(), ["a1", "b1", "x9"])

    assert (1, 1) == (verb.computed.count, verb.remembered.count)
    causes = (("PodTopologySpread", FULL), (NO_PLUGIN, UNKNOWN))
    assert [("late", "default-scheduler", causes)] * 2 == told


def test_a_pod_that_fits_is_not_told() -> None:
    told: list[object] = []
    verb = Filter(crowded(), refused=lambda *it: told.append(it))

    assert {} == verb.refused(pod_object("any"), NAMES)
    assert [] == told
