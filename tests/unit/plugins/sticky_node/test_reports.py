"""Homes as a person sees them: each once, with what is known of it.

Homes are counted by how their pods are.

Homes are counted by what their nodes are like; nodes by how many homes they keep from their pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Unpack

import pytest
from msgspec.structs import replace

from app.framework.explanation import Figure
from app.homes.protocol import Home, HomeOwner, Keeper, Policy, State, Whereabouts
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, NODES
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.plugin import StickyNode
from plugins.sticky_node.policy import Action, AppliedPolicy, Decision
from plugins.sticky_node.reports import MOST_NODES, NO_NAME, NO_NODE, OTHERS, STATES_OF_PODS, HomeDescription
from tests.api.virtual import virtual_time
from tests.builders import PodFields
from tests.unit.plugins.sticky_node.machines import (
    DATABASE,
    MACHINE,
    SET,
    Machines,
    launcher,
    make_node,
    make_pod,
    reference,
)
from tests.unit.plugins.sticky_node.test_reconciler import home_object, remember
from tests.unit.plugins.sticky_node.watched import Watched, at_home

DATABASES = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "policy": "hard"}]}
SETS = {"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]}
UNREACHABLE = "node.kubernetes.io/unreachable"


def member(name: str = "db-0", of: str = "db", **fields: Unpack[PodFields]) -> Pod:
    given: PodFields = {"owner": reference(DATABASE, of), **fields}
    return make_pod(name, **given)


def databases(home: str, *pods: Pod, **more: str) -> Machines:
    """A database with a home, or with none; ``more``: others, by name, with their homes."""
    machines = Machines(DATABASES)
    for name, node in {"db": home, **more}.items():
        machines.add(DATABASE, name, home=node)
    for pod in pods:
        machines.cluster.upsert_pod(pod)
    return machines


def listed(machines: Machines) -> list[Home]:
    return [it for it in machines.plugin.homes() if it is not None]


def only(machines: Machines) -> Home:
    (found,) = listed(machines)
    return found


def test_all_that_is_known_of_a_home() -> None:
    assert Home(
        HomeOwner("example.com/v1", "Database", "default", "db", "uid-Database-db"),
        "n1",
        State.USABLE,
        Whereabouts.AT_HOME,
        policy=Policy.HARD,
        policy_source="owners: Database",
        pod="db-0",
        pod_node="n1",
    ) == only(databases("n1", member(node="n1")))


@pytest.mark.parametrize(
    ("pods", "machine"),
    [
        pytest.param([], "idle", id="no pod"),
        pytest.param([member(node="n1")], "at_home", id="it runs there"),
        pytest.param([member(node="n2")], "elsewhere", id="it runs elsewhere"),
        pytest.param([member()], "waiting", id="it waits"),
        pytest.param([member(node="n1", terminating=True), member("db-1")], "waiting", id="the old one ends"),
        pytest.param([member(node="n2"), member("db-1", node="n1"), member("db-2")], "at_home", id="the best of three"),
        pytest.param([member(), member("db-1", node="n2")], "elsewhere", id="one waits, one runs elsewhere"),
        pytest.param([member(node="n1", of="other")], "idle", id="another owner's"),
        pytest.param([member(node="n1", phase="Succeeded")], "idle", id="it has finished"),
    ],
)
def test_where_its_pod_is(pods: list[Pod], machine: str) -> None:
    machines = databases("n1", *pods)

    assert machine == only(machines).machine
    assert {machine: 1} == counted(machines)


def test_of_what_cannot_be_read_nothing_is_known() -> None:
    """The policy is its namespace's, perhaps, and that cannot be read."""
    machines = Machines({"namespaces": [{"namespaceSelector": {"matchLabels": {"soft": "yes"}}, "policy": "soft"}]})
    machines.machine(home="n1")
    machines.cluster.mark_unreadable(NAMESPACES, ("", "default"), "odd")

    found = only(machines)
    assert ("n1", State.UNKNOWN, None, False) == (found.node, found.state, found.policy, found.is_away)


@pytest.mark.parametrize(
    ("unschedulable", "written", "since"),
    [
        pytest.param(True, "away 2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z", id="as it is written"),
        pytest.param(True, "", "", id="nobody has written it"),
        pytest.param(False, "away 2026-11-22T10:00:00Z", "", id="it is usable again"),
    ],
)
def test_since_when_it_is_away(unschedulable: bool, written: str, since: str) -> None:
    machines = Machines(DATABASES)
    timing = replace(machines.handle.timing, wall_clock=lambda: 1_800_000_000.0)
    machines.handle = replace(machines.handle, timing=timing)
    machines.restart()
    machines.cluster.upsert_node(make_node("n1", unschedulable=unschedulable))
    machines.change(DATABASE, {"homeport.dev/home": "n1", "homeport.dev/home-since": written})

    assert since == only(machines).since


def test_to_ask_begins_no_clock() -> None:
    machines = databases("n9", member())
    clocks = machines.plugin._listing._clocks

    assert [("", "gone")] * 2 == [(it.since, it.state) for it in (only(machines), only(machines))]
    assert [] == clocks.take_begun()


@pytest.mark.parametrize(
    ("home", "node", "told"),
    [
        pytest.param("n1", "n1", "", id="all is well"),
        pytest.param("n1", "n2", "its pod runs on n2", id="it runs elsewhere"),
        pytest.param("N 1", "n2", NO_NAME, id="no name of a node"),
    ],
)
def test_what_cannot_both_be(home: str, node: str, told: str) -> None:
    assert told == only(databases(home, member(node=node))).contradiction


def test_what_anybody_wrote_is_shown_in_bounds() -> None:
    assert f"'{'x' * 64}...'" == only(databases("x" * 250 + "/")).node


def test_an_owner_without_a_home_is_listed_for_its_pod() -> None:
    assert ("", "none", "elsewhere", "n2", "") == (
        (found := only(databases("", member(node="n2")))).node,
        found.state,
        found.machine,
        found.pod_node,
        found.contradiction,
    )
    assert [] == listed(databases(""))


def test_each_ordinal_has_a_home_of_its_own() -> None:
    machines = Machines(SETS)
    machines.change(SET, {"homeport.dev/home.0": "n1", "homeport.dev/home.10": "n2"})
    machines.cluster.upsert_pod(make_pod("db-10", owner=reference(SET), node="n2"))

    found = [(it.owner.slot, it.node, it.machine, it.pod) for it in listed(machines)]

    assert [("0", "n1", "idle", ""), ("10", "n2", "at_home", "db-10")] == found
    assert [Keeper("apps/v1", "StatefulSet", per_slot=True)] == list(machines.plugin.keepers())


def test_the_pod_where_kubevirt_has_the_machine_is_the_machine() -> None:
    """The other one is a migration's target, which goes home."""
    machines = Machines()
    machines.machine(home="n1", runs_on="n2")
    machines.cluster.upsert_pod(launcher("source", node="n2"))
    machines.cluster.upsert_pod(launcher("target", node="n1"))

    found = only(machines)
    assert ("elsewhere", "source", "its pod runs on n2") == (found.machine, found.pod, found.contradiction)


def test_a_machine_that_was_made_anew_lives_where_it_is_remembered_to() -> None:
    machines = Machines()
    machines.add(MACHINE)
    remember(machines, home_object(uid="uid-of-before", node="n2"))

    found = only(machines)
    assert ("db", "n2", "usable", "idle") == (found.owner.name, found.node, found.state, found.machine)


def test_of_ordinals_each_is_remembered_by_itself() -> None:
    machines = Machines(SETS)
    for slot, node in (("0", "n1"), ("1", "n2")):
        remember(machines, home_object(apiVersion="apps/v1", kind="StatefulSet", slot=slot, node=node))

    assert [("0", "n1"), ("1", "n2")] == sorted((it.owner.slot, it.node) for it in listed(machines))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(home_object(kind="Database"), id="of a kind that keeps none here"),
        pytest.param(home_object(slot="3"), id="with an ordinal, of a kind that has none"),
        pytest.param(home_object(name="d\x1b[2J"), id="of what no object is called"),
        pytest.param(home_object(node="Not A Node"), id="on what no node is called"),
        pytest.param({**home_object(), "metadata": {"name": "mine", "namespace": "default"}}, id="by another name"),
    ],
)
def test_a_home_that_no_owner_would_find_is_not_listed(found: Any) -> None:
    """Whoever may write Homes may write anything."""
    machines = Machines()
    remember(machines, found)

    assert [] == listed(machines)


ALWAYS = ("usable", "away", "leaving", "gone", "other_machine", "volume_elsewhere")


@pytest.mark.parametrize(
    ("policy", "states"),
    [
        pytest.param("hard", ALWAYS, id="hard: until it is released"),
        pytest.param("grace", ("usable", "away", "gone"), id="grace: where there is one"),
        pytest.param("soft", (), id="soft: never"),
        pytest.param("off", (), id="off: never"),
    ],
)
def test_a_home_holds_its_pod_where_the_table_lets_it_wait(policy: str, states: tuple[str, ...]) -> None:
    machines = databases("n1")
    applied = AppliedPolicy(Policy(policy), 300.0, "default")
    (kept,) = [it for it in machines.plugin._listing._scan() if it is not None]
    holds = machines.plugin._decider.holds

    assert states == tuple(it for it in ALWAYS if holds(kept.owner, "n1", applied, State(it)))
    assert not holds(kept.owner, "n1", applied, State.TARGET)
    assert not holds(kept.owner, "", applied, State.NONE)


def test_the_home_of_an_owner_that_is_gone_is_listed_while_it_is_remembered() -> None:
    machines = Machines()
    remember(machines, home_object(uid="uid-of-before", node="n2"))
    expected = Home(
        HomeOwner("kubevirt.io/v1", "VirtualMachine", "default", "db", "uid-of-before"),
        "n2",
        State.OWNER_GONE,
        Whereabouts.IDLE,
        policy=Policy.GRACE,
        policy_source="default",
        is_orphaned=True,
    )

    assert expected == only(machines)
    machines.node("n2", unschedulable=True)
    assert replace(expected, is_away=True, mark="cordoned") == only(machines)
    machines.cluster.delete_node("n2")
    assert replace(expected, mark="there is no such node") == only(machines)
    machines.node("n2")
    machines.add(MACHINE)
    assert ("usable", False) == (only(machines).state, only(machines).is_orphaned)


@pytest.mark.parametrize(
    ("seconds", "holds"), [pytest.param(299, True, id="not yet over"), pytest.param(300, False, id="over")]
)
def test_a_grace_holds_until_it_is_over(seconds: int, holds: bool) -> None:
    """As filter says of a pod that would come then."""
    machines = Machines({**DATABASES, "owners": [{**DATABASES["owners"][0], "policy": "grace"}], "gracePeriod": 300})
    machines.add(DATABASE, home="n1")
    machines.node("n1", unschedulable=True)
    machines.cluster.upsert_pod(running := member(node="n1"))
    decided(machines, member("db-new"))
    machines.wall_clock.now += seconds

    found = machines.plugin.home_of(running)
    assert [holds] * 2 == [only(machines).holds, found is not None and found.holds]
    assert holds is (decided(machines, member("db-new")).action is Action.WAIT)


@pytest.mark.parametrize(("when_gone", "holds"), [("wait", True), ("release", False)])
def test_a_hard_home_that_is_gone_holds_unless_it_is_released_then(when_gone: str, holds: bool) -> None:
    machines = Machines({**DATABASES, "whenGone": when_gone})
    machines.add(DATABASE, home="n9")
    machines.cluster.upsert_pod(member(node="n1"))

    assert holds is only(machines).holds
    assert holds is (decided(machines, member("db-new")).action is Action.WAIT)


def decided(machines: Machines, pod: Pod) -> Decision:
    """What filter goes by."""
    owner = machines.plugin._owners.of(pod)
    assert isinstance(owner, Owner)
    return machines.plugin._decision(owner, pod)


def test_each_pod_has_the_home_of_its_owner() -> None:
    machines = databases("n1", first := member("db-0", node="n1"), second := member("db-1", node="n2"))

    assert only(machines) == machines.plugin.home_of(first)
    assert ("n1", "db-1", "n2", "elsewhere") == (
        (found := machines.plugin.home_of(second)) and (found.node, found.pod, found.pod_node, found.machine)
    )
    assert machines.plugin.home_of(make_pod("web")) is None


def test_a_copied_home_is_none() -> None:
    """A clone has its source's annotations."""
    machines = Machines(DATABASES)
    machines.change(DATABASE, {"homeport.dev/home": "n1", "homeport.dev/home-owner": "uid-of-the-source n1"})
    machines.cluster.upsert_pod(member())

    assert ("", "none", "waiting") == ((found := only(machines)).node, found.state, found.machine)


def test_a_pod_of_another_scheduler_is_told_apart() -> None:
    """Another profile has the word on it."""
    machines = databases("n1", member(scheduler="other"))

    assert not only(machines).is_judged


def test_an_owner_that_cannot_be_read_any_more_hides_its_pod_alone() -> None:
    """It is known as it could be read last."""
    machines = databases("n1", member(node="n1"), member("two-0", "two", node="n2"), two="n2")
    machines.cluster.mark_unreadable(DATABASE, ("default", "db"), "too large")

    assert [("db", "idle"), ("two", "at_home")] == [(it.owner.name, it.machine) for it in listed(machines)]


@pytest.mark.parametrize(
    ("state", "away", "orphaned", "contradiction"),
    [
        (State.LEAVING, True, False, ""),
        (State.AWAY, True, False, ""),
        (State.GONE, False, True, ""),
        (State.OTHER_MACHINE, False, True, ""),
        (State.TARGET, False, False, ""),
        (State.VOLUME_ELSEWHERE, False, False, "its pod's volume is elsewhere: its cause"),
    ],
)
def test_what_follows_from_the_state_of_a_home(
    state: State, away: bool, orphaned: bool, contradiction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = databases("n1", member(node="n1"))
    told = HomeDescription(state, Policy.SOFT, "owner", "2026-11-22T10:00:00Z", "its cause", holds=False)
    asked: list[tuple[str, str, str]] = []

    def describe(owner: Owner, home: str, pod: Pod | None) -> HomeDescription:
        asked.append((owner.obj.name, home, pod.name if pod else ""))
        return told

    monkeypatch.setattr(machines.plugin._listing, "_describe", describe)
    found = only(machines)

    assert [("db", "n1", "db-0")] == asked
    assert told == (found.state, found.policy, found.policy_source, found.since, found.mark, found.holds)
    assert (away, orphaned, contradiction) == (found.is_away, found.is_orphaned, found.contradiction)


@pytest.mark.parametrize(
    ("steps", "total"),
    [
        pytest.param(lambda it: it.homes(), 400, id="homes listed, half of them of owners that are gone"),
        pytest.param(lambda it: it._pod_state_metrics.figures(), len(STATES_OF_PODS) + 1, id="homes by pod"),
        pytest.param(lambda it: it._node_state_metrics.figures(), None, id="homes by node"),
    ],
)
def test_others_get_their_turn(steps: Callable[[StickyNode], Iterable[object]], total: int | None) -> None:
    machines = Machines({"owners": [{**DATABASES["owners"][0], "remember": "name"}]})
    for number in range(200):
        machines.add(DATABASE, f"db{number}", home="n1")
        machines.cluster.upsert_pod(member(f"p-{number}", f"db{number}"))
        remember(machines, home_object(name=f"gone{number}", apiVersion="example.com/v1", kind="Database"))

    found = list(steps(machines.plugin))

    assert found.count(None) >= 4
    assert total in (None, len(found) - found.count(None))
    assert all(len(run) <= 64 for run in "".join("." if it is None else "h" for it in found[:200]).split("."))


NOW = datetime(2026, 11, 21, 10, 0, 30, tzinfo=UTC)
EARLY, LATE = "2026-11-21T10:00:00Z", "2026-11-21T10:00:20Z"


def counted(machines: Machines) -> dict[str, float]:
    """The states that some home is in."""
    found = [it for it in machines.plugin._pod_state_metrics.figures(NOW) if it is not None and it.name == "homes"]
    assert list(STATES_OF_PODS) == [it.labels["state"] for it in found]
    return {it.labels["state"]: it.value for it in found if it.value}


def longest(machines: Machines) -> float:
    (found,) = [
        it
        for it in machines.plugin._pod_state_metrics.figures(NOW)
        if it is not None and it.name == "homes_longest_wait_seconds"
    ]
    return found.value


def test_without_its_node_a_home_is_nothing_else() -> None:
    assert {"node_gone": 2} == counted(databases("n9", member(), one="n9"))


def test_a_node_that_cannot_be_read_is_not_gone() -> None:
    machines = databases("n9", member(), one="n9")
    machines.cluster.mark_unreadable(NODES, ("", "n9"), "odd")

    assert {"waiting": 1, "idle": 1} == counted(machines)


def test_an_owner_without_a_home_does_not_count() -> None:
    assert {} == counted(databases("", member(node="n1")))


async def test_what_could_not_be_written_is_unrecorded_until_it_is() -> None:
    machines = databases("")
    machines.writer.unwritable.add("db")
    await machines.bind(member(), "n1")
    assert {"unrecorded": 1} == counted(machines)

    machines.writer.unwritable.clear()
    await machines.repair()
    assert {"at_home": 1} == counted(machines)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [
        pytest.param([], 0, id="nobody waits"),
        pytest.param([member(created=LATE)], 10, id="one"),
        pytest.param([member(created=LATE), member("two-0", "two", created=EARLY)], 30, id="the oldest of two"),
        pytest.param([member(created=EARLY, node="n2"), member("db-1", created=EARLY)], 0, id="it runs elsewhere"),
        pytest.param([member(created=EARLY, node="n1")], 0, id="it runs"),
        pytest.param([member(created="2026-11-21T10:00:40Z")], 0, id="by a clock that is ahead"),
        pytest.param([member(created="2026-11-21T10:00:20")], 0, id="of no zone"),
        pytest.param([member(created="yesterday")], 0, id="no time"),
    ],
)
def test_the_longest_wait_is_that_of_the_oldest_pod(pods: list[Pod], seconds: float) -> None:
    assert seconds == longest(databases("n1", *pods, two="n1"))


def figures(machines: Watched, name: str) -> list[Figure]:
    return [it for it in machines.plugin.figures() if it is not None and it.name == name]


def counted_by_node_state(machines: Watched) -> dict[tuple[str, str], float]:
    """By node state and policy, where there are some."""
    found = figures(machines, "homes_by_node_state")
    assert 5 * len(Policy) == len(found)
    return {(it.labels["node_state"], it.labels["policy"]): it.value for it in found if it.value}


def unusable(machines: Watched) -> dict[str, float]:
    return {it.labels["node"]: it.value for it in figures(machines, "homes_unusable")}


@virtual_time
async def test_each_home_counts_once_by_its_node_and_its_policy() -> None:
    machines = Watched()
    machines.cordon("n1")
    machines.leaves("n2")
    for name, home, policy in (
        ("a", "n1", "hard"),
        ("b", "n1", "grace"),
        ("c", "n2", "soft"),
        ("d", "n3", "off"),
        ("e", "N 9", "grace"),
        ("f", "n3", "nonsense"),
    ):
        machines.machine(name, home=home, policy=policy)
    machines.machine("none")

    assert {
        ("away", "hard"): 1,
        ("away", "grace"): 1,
        ("leaving", "soft"): 1,
        ("usable", "off"): 1,
        ("gone", "grace"): 1,
        ("usable", "grace"): 1,
    } == counted_by_node_state(machines)
    assert {"n1": 2, "n2": 1, OTHERS: 0, NO_NODE: 1} == unusable(machines)


@virtual_time
async def test_nodes_are_bounded_and_what_a_tenant_wrote_is_no_label() -> None:
    machines = Watched()
    for number in range(MOST_NODES + 5):
        machines.cluster.upsert_node(make_node(f"node-{number:02}", unschedulable=True))
        for copy in range(2 if number < MOST_NODES else 1):
            machines.add(MACHINE, f"vm-{number}-{copy}", home=f"node-{number:02}")
        machines.add(MACHINE, f"lost-{number}", home=f"written-by-{number}")

    found = unusable(machines)

    assert {f"node-{number:02}" for number in range(MOST_NODES)} | {OTHERS, NO_NODE} == set(found)
    assert (5, MOST_NODES + 5) == (found[OTHERS], found[NO_NODE])


@virtual_time
async def test_without_any_home_there_is_nothing_by_name() -> None:
    assert {OTHERS: 0, NO_NODE: 0} == unusable(Watched())


@virtual_time
async def test_a_namespace_that_cannot_be_read_hides_its_homes() -> None:
    rule = {"namespaceSelector": {"matchLabels": {"homes": "on"}}, "policy": "hard"}
    machines = at_home({"namespaces": [rule]})
    machines.cluster.mark_unreadable(NAMESPACES, ("", "default"), "odd")

    assert {} == counted_by_node_state(machines)
