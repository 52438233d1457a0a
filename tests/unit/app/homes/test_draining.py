"""What a drain would mean: what all that would go need adds up, and policies say who goes when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Unpack

import pytest

from app.feeds.saved import NullReader
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs
from app.framework.status import SUCCESS, Status
from app.homes import evictions, placing
from app.homes.draining import DrainVerb, PlannedDrain
from app.homes.evictions import DrainOutcome, Restart, restart_condition
from app.homes.lists import HomeLists
from app.homes.placing import NO_PROFILE, OUT_OF_TIME
from app.homes.protocol import Home, HomeOwner, Policy, State, Whereabouts
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.memory.expected_binds import ExpectedBinds
from app.runtime.guard import Guard, plugin_error
from app.runtime.scoring import Scores
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.outcome import VerbFailure
from plugins.sticky_node.pods import MIGRATION_JOB
from tests.builders import JsonObject, PodFields, container, controller, node_object, pod_object
from tests.fakes import NO, WANTS, FromSpec, Soft, spec_of
from tests.harness import World, only
from tests.unit.plugins.sticky_node.machines import DATABASE, Machines, launcher
from tests.unit.plugins.sticky_node.test_reports import DATABASES, databases, member

COMPLETE: Final[JsonObject] = {"preset": "complete"}
FULL: Final = "NodeResourcesFit: Insufficient cpu"
SPREAD: Final = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
]
FILTERS: Final = ("NodeResourcesFit", "PodTopologySpread")


def node(name: str, cpu: int, **status: str) -> JsonObject:
    return node_object(name, status={"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110", **status}})


def pod(name: str, cpu: int = 4, **fields: Unpack[PodFields]) -> JsonObject:
    """On the node that is drained, unless something else is said."""
    given: PodFields = {
        "node": "n1",
        "containers": [container(requests={"cpu": str(cpu)})],
        "owner": controller("VirtualMachineInstance", name, api_version="kubevirt.io/v1"),
        **fields,
    }
    return pod_object(name, **given)


def home(name: str, node: str = "n1", policy: str = "soft", state: str = "usable", **more: Any) -> Home:
    """Of a machine whose pod has its name and is on n1."""
    owner = HomeOwner("kubevirt.io/v1", "VirtualMachine", "default", name, f"uid-{name}")
    given = {"pod": name, "pod_node": "n1", "holds": policy not in ("soft", "off"), **more}
    return Home(owner, node, State(state), Whereabouts.AT_HOME, policy=Policy(policy) if policy else None, **given)


class Given(HomeLists):
    """Lists these homes; those of one pod are asked of its profile's plugins."""

    def __init__(self, homes: Iterable[Home | None]) -> None:
        super().__init__((), Guard(Metrics()))
        self._homes = homes

    def homes(self) -> Iterator[Home | None]:
        yield from self._homes


def verb(
    world: World, homes: Iterable[Home | None] = (), *others: World, clock: Callable[[], float] | None = None
) -> DrainVerb:
    """``others`` bring profiles of their own."""
    due = ExpectedBinds(world.clock, wait_seconds=0, observe=lambda _: None)
    profiles = {it.framework.scheduler_name: it.framework for it in (*others, world)}
    context = VerbContext(world.cluster, profiles, NullReader(), str, due)
    return DrainVerb(context, Given(homes), every_filter=FILTERS, clock=clock or world.clock)


async def planned(world: World, *homes: Home | None, node: str = "n1") -> PlannedDrain:
    return await verb(world, homes).plan(node)


def complete(*objects: JsonObject) -> World:
    return World(*objects, profile=COMPLETE)


def becomes(plan: PlannedDrain) -> list[tuple[str, str]]:
    return [(it.pod, it.then) for it in (*plan.homes, *plan.others)]


def one(plan: PlannedDrain, pod: str) -> DrainOutcome:
    (found,) = [it for it in (*plan.homes, *plan.others) if it.pod == pod]
    return found


class TestRoom:
    async def test_what_they_need_adds_up(self) -> None:
        """Each alone would find a place on n2; together the third does not."""
        world = complete(node("n1", 64), node("n2", 8), node("n3", 2), *(pod(f"db-{it}") for it in range(3)))

        plan = await planned(world, *(home(f"db-{it}") for it in range(3)))

        assert [
            ("db-0", "starts on n2"),
            ("db-1", "starts on n2"),
            ("db-2", "waits: the others take its room"),
        ] == becomes(plan)
        assert DrainOutcome(
            "default",
            "db-2",
            home("db-2"),
            "waits: the others take its room",
            (),
            fits_alone=True,
            why=f"2 of 2: {FULL}",
        ) == one(plan, "db-2")
        assert (("n2",), 1, "n2", True) == (
            (first := one(plan, "db-0")).nodes,
            first.count,
            first.goes_to,
            first.fits_alone,
        )

    async def test_a_hard_spread_counts_who_was_placed_before(self) -> None:
        """And not where they are now: n1 is empty by then, and still a domain."""
        spread: PodFields = {"labels": {"app": "db"}, "spread": SPREAD}
        world = complete(*(node(it, 64) for it in ("n1", "n2", "n3")), *(pod(f"db-{it}", **spread) for it in range(3)))

        plan = await planned(world, *(home(f"db-{it}") for it in range(3)))

        assert [("n2", "n3"), ("n3",), ()] == [it.nodes for it in plan.homes]
        assert "waits: the others take its room" == plan.homes[2].then

    async def test_who_fits_nowhere_would_not_alone_either(self) -> None:
        world = complete(node("n1", 64), node("n2", 8), pod("db", 4), pod("huge", 16))

        plan = await planned(world, home("db"), home("huge"))

        assert ("waits: no other node takes it", False) == ((it := one(plan, "huge")).then, it.fits_alone)

    async def test_the_node_itself_is_never_named_whatever_room_it_has_then(self) -> None:
        world = complete(node("n1", 64), pod("db"))

        assert [("db", "waits: no other node takes it")] == becomes(await planned(world, home("db")))

    async def test_nothing_is_kept_of_it(self) -> None:
        world = complete(node("n1", 64), node("n2", 8), *(pod(f"db-{it}") for it in range(3)))
        plans = [await planned(world, *(home(f"db-{it}") for it in range(3))) for _ in range(2)]

        assert plans[0] == plans[1]
        assert ["n1"] * 3 == [it.node_name for it in world.cluster.pods()]
        assert {""} >= {*world.framework.checking()}
        assert [3, 0] == [len(world.cluster.nodes[it].pods) for it in ("n1", "n2")]


class TestOrder:
    async def test_higher_priority_first_then_the_older(self) -> None:
        world = complete(
            node("n1", 64),
            node("n2", 8),
            pod("low", created="2026-01-01T00:00:00Z"),
            pod("young", priority=5, created="2026-01-03T00:00:00Z"),
            pod("old", priority=5, created="2026-01-02T00:00:00Z"),
        )

        plan = await planned(world, *(home(it) for it in ("low", "young", "old")))

        assert ["old", "young", "low"] == [it.pod for it in plan.homes]
        assert ["n2", "n2", ""] == [it.goes_to for it in plan.homes]

    async def test_who_waits_for_a_grace_comes_after_all_that_go_at_once(self) -> None:
        world = complete(node("n1", 64), node("n2", 8), pod("later", priority=9), pod("now-1"), pod("now-2"))

        plan = await planned(world, home("later", policy="grace"), home("now-1"), home("now-2"))

        assert [
            ("now-1", "starts on n2"),
            ("now-2", "starts on n2"),
            ("later", "waits for n1, and after its grace: the others take its room"),
        ] == becomes(plan)

    async def test_who_waits_for_good_takes_no_room(self) -> None:
        world = complete(node("n1", 64), node("n2", 4), pod("held", priority=9), pod("later"))

        plan = await planned(world, home("held", policy="hard"), home("later", policy="grace"))

        assert [("later", "waits for n1; after its grace starts on n2"), ("held", "waits for n1")] == becomes(plan)
        assert ("", "n1", ()) == ((it := one(plan, "held")).goes_to, it.waits_for, it.nodes)

    async def test_pods_without_a_home_take_room_too(self) -> None:
        """Those of a DaemonSet and static ones stay; one without a controller goes, and does not come back."""
        world = complete(
            node("n1", 64),
            node("n2", 8),
            pod("db"),
            pod("web", priority=5, owner=controller("ReplicaSet", "web")),
            pod("batch", priority=1, owner=controller("Job", "batch", api_version="batch/v1")),
            pod("agent", priority=9, owner=controller("DaemonSet", "agent")),
            pod("static", priority=9, owner=controller("Node", "n1", api_version="v1")),
            pod("going", priority=9, terminating=True, owner=controller("ReplicaSet", "web")),
            {**pod("lone", priority=9), "metadata": {"name": "lone", "namespace": "default", "uid": "uid-lone"}},
        )

        plan = await planned(world, home("db"))

        assert [
            ("db", "waits: the others take its room"),
            ("web", "starts on n2"),
            ("batch", "starts on n2"),
        ] == becomes(plan)
        assert (1, ["web", "batch"]) == (plan.lost, [it.pod for it in plan.others])


class TestHomes:
    async def test_guests_go_home_as_far_as_there_is_room(self) -> None:
        """A hard one waits for its home then, one with a grace goes elsewhere after it, a soft one at once."""
        world = complete(
            node("n1", 64),
            node("home", 4),
            node("n3", 64),
            pod("first", priority=9),
            *(pod(it) for it in ("hard", "grace", "soft")),
        )
        homes = [home(it, "home", "hard" if it == "first" else it) for it in ("first", "hard", "grace", "soft")]

        plan = await planned(world, *homes)

        assert [
            ("first", "goes home to home"),
            ("soft", "starts on n3"),
            ("grace", "waits for home; after its grace starts on n3"),
            ("hard", f"waits for home, which does not take it: 1 of 1: {FULL}"),
        ] == becomes(plan)
        assert ["", "", "home", "home"] == [it.waits_for for it in plan.homes]
        assert ("n3",) == one(plan, "hard").nodes, "what a release would open"

    async def test_a_soft_guest_tries_its_home_first(self) -> None:
        world = complete(node("n1", 64), node("n2", 64), node("small", 4), pod("db"))

        assert [("db", "goes home to small")] == becomes(await planned(world, home("db", "small", "soft")))

    @pytest.mark.parametrize(
        "found",
        [
            pytest.param(home("db", "small", "off"), id="nobody looks at it"),
            pytest.param(home("db", "small", "soft", is_away=True), id="it takes no pods"),
            pytest.param(home("db", "small", "grace", "volume_elsewhere", holds=False), id="it cannot reach a volume"),
        ],
    )
    async def test_one_that_may_not_go_to_its_home_does_not_try_it(self, found: Home) -> None:
        world = complete(node("n1", 64), node("n2", 64), node("small", 4), pod("db"))

        assert [("db", "starts on n2")] == becomes(await planned(world, found))

    async def test_one_that_waits_for_its_home_there_is_judged_as_one_that_runs(self) -> None:
        world = complete(node("n1", 64), node("n2", 4), pod("db", node="", nominated="n1"))

        plan = await planned(world, home("db", policy="grace", pod_node=""))

        assert [("db", "waits for n1; after its grace starts on n2")] == becomes(plan)

    async def test_who_does_not_run_there_goes_nowhere_and_is_not_judged(self) -> None:
        world = complete(node("n1", 64), node("n2", 64), pod("away", node="n2"))
        idle = {"pod": "", "pod_node": ""}
        homes = [
            home("away", pod_node="n2"),
            *(home(it, policy=it, **idle) for it in ("hard", "grace", "soft")),
            home("lost", policy="hard", state="owner_gone", is_orphaned=True, **idle),
        ]

        plan = await planned(world, *homes)

        assert [
            ("away", "away", "stays on n2"),
            ("hard", "", "waits for n1"),
            ("grace", "", "waits for n1; elsewhere after its grace"),
            ("soft", "", "starts elsewhere"),
            ("lost", "", "its owner is gone"),
        ] == [(it.home.owner.name, it.pod, it.then) for it in plan.homes if it.home]
        assert [(None, True)] * 5 == [(it.nodes, it.is_judged) for it in plan.homes]

    async def test_homes_of_other_nodes_are_not_told_of(self) -> None:
        world = complete(node("n1", 64), node("n2", 64))

        plan = await planned(world, None, home("db", "n2", pod="", pod_node=""), None)

        assert {*FILTERS} <= {*plan.counted}
        assert PlannedDrain("n1", True, "", "complete", plan.counted, [], [], []) == plan

    async def test_of_several_profiles_the_one_that_judges_the_pod_has_the_word(self) -> None:
        world = complete(node("n1", 64), node("n2", 64), pod("db"))
        found = [home("db", policy="hard", is_judged=False), home("db", policy="soft"), home("db", policy="hard")]

        assert [("db", "starts on n2")] == becomes(await planned(world, *found))

    async def test_a_node_that_is_gone_may_still_be_waited_for(self) -> None:
        world = complete(node("n2", 64), pod("db", node=""))

        plan = await planned(world, home("db", policy="hard", state="gone", is_orphaned=True, pod_node=""))

        assert (False, [("db", "waits for n1")]) == (plan.is_known, becomes(plan))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(home("db", policy="hard"), Restart.HELD, id="hard"),
        pytest.param(home("db", policy="grace"), Restart.GRACE, id="grace"),
        pytest.param(
            home("db", policy="grace", state="away", is_away=True), Restart.GRACE, id="grace, and away already"
        ),
        pytest.param(home("db", policy="grace", holds=False), Restart.FREE, id="a grace that is none, or over"),
        pytest.param(home("db", policy="soft"), Restart.FREE, id="soft"),
        pytest.param(home("db", policy="off"), Restart.FREE, id="off"),
        pytest.param(home("db", "n2", "hard"), Restart.HELD_HOME, id="a hard guest"),
        pytest.param(home("db", "n2", "grace"), Restart.HOME, id="a guest"),
        pytest.param(home("db", "n2", "soft"), Restart.FREE, id="a soft guest"),
        pytest.param(home("db", "n2", "grace", is_away=True), Restart.GRACE, id="its home is away"),
        pytest.param(home("db", "n2", "hard", is_orphaned=True), Restart.HELD, id="hard, and its home is gone"),
        pytest.param(home("db", "n2", "soft", is_orphaned=True), Restart.FREE, id="soft, and its home is gone"),
        pytest.param(home("db", "", "hard", "none"), Restart.FREE, id="it has no home"),
        pytest.param(home("db", "n2", "hard", holds=False), Restart.FREE, id="hard, and let go"),
        pytest.param(
            home("db", "n2", "hard", "volume_elsewhere"), Restart.HELD, id="hard, and its volume is elsewhere"
        ),
        pytest.param(home("db", policy="", state="unknown"), Restart.HELD, id="what cannot be read is strict"),
    ],
)
def test_when_a_pod_may_start_again(found: Home, expected: Restart) -> None:
    assert expected is restart_condition(found, "n1")


class TestSharedHomes:
    """The list has a home once, with one pod: what filter says of the others counts too."""

    async def test_each_pod_of_the_node_waits_for_the_home(self) -> None:
        machines = databases("n1", *(member(f"db-{it}", node="n1") for it in range(3)))

        plan = await shared(machines).plan("n1")

        assert {"db-0": "waits for n1", "db-1": "waits for n1", "db-2": "waits for n1"} == dict(becomes(plan))
        assert (3, []) == (len(plan.homes), plan.others)

    async def test_one_beside_its_home_goes_there(self) -> None:
        """Its home and the pod that got furthest are on another node: no home of this one is listed."""
        machines = databases("n2", member("db-0", node="n2"), member("db-1", node="n1"))

        assert [("db-1", "goes home to n2")] == becomes(await shared(machines).plan("n1"))

    async def test_the_target_of_a_migration_is_free_beside_its_source(self) -> None:
        machines = Machines({"policy": "hard"})
        machines.machine(home="n1")
        for number, labels in enumerate(({}, {MIGRATION_JOB: "job"})):
            machines.cluster.upsert_pod(launcher(f"launcher-{number}", node="n1", labels=labels))

        plan = await shared(machines, {"policy": "hard"}).plan("n1")

        assert {"launcher-0": "waits for n1", "launcher-1": "starts on n2"} == dict(becomes(plan))


def shared(machines: Machines, args: JsonObject = DATABASES) -> DrainVerb:
    profile = {"pluginConfig": [{"name": "StickyNode", "args": args}]}
    return verb(
        world := World(profile=profile, cluster=machines.cluster),
        HomeLists([world.framework], Guard(Metrics())).homes(),
    )


class TestRules:
    async def test_a_delegated_profile_says_what_it_did_not_count(self) -> None:
        """And spreads who fits anywhere over the nodes with the fewest pods, for want of better."""
        world = World(*(node(it, 1) for it in ("n1", "n2", "n3")), *(pod(f"db-{it}") for it in range(4)))

        plan = await planned(world, *(home(f"db-{it}") for it in range(4)))

        assert ("delegated", ["PodTopologySpread"], ["NodeResourcesFit"]) == (
            plan.preset,
            plan.counted,
            plan.not_counted,
        )
        assert ["n2", "n3", "n2", "n3"] == [it.goes_to for it in plan.homes]

    async def test_what_only_bind_asks_counts_there_too(self) -> None:
        world = World(node("n1", 64), node("n2", 4), pod("a"), pod("b"), profile={"bindRecheck": ["NodeResourcesFit"]})

        plan = await planned(world, home("a"), home("b"))

        assert ({*FILTERS}, []) == ({*plan.counted}, plan.not_counted)
        assert [("a", "starts on n2"), ("b", "waits: the others take its room")] == becomes(plan)

    async def test_who_is_of_no_profile_is_not_judged(self) -> None:
        world = complete(node("n1", 64), node("n2", 64), pod("db", scheduler="other"))

        (found,) = (await planned(world, home("db"))).homes

        assert (NO_PROFILE, False, None) == (found.then, found.is_judged, found.nodes)

    async def test_a_complete_profile_judges_for_those_that_are_not(self) -> None:
        """As far as one is served: what a kube-scheduler of its own filters by is asked of it here."""
        world = complete(node("n1", 64), node("n2", 4), pod("a", scheduler="own"), pod("b", scheduler="own"))
        own = World(cluster=world.cluster, profile={"schedulerName": "own"})

        plan = await verb(world, [home("a"), home("b")], own).plan("n1")

        assert ("default-scheduler", "complete") == (plan.profile, plan.preset)
        assert [("a", "starts on n2"), ("b", "waits: the others take its room")] == becomes(plan)

    async def test_a_fault_names_the_plugin(self) -> None:
        world = World(node("n1", 1), node("n2", 1), pod("db"), profile=only("Broken"), specs=[spec_of(Broken)])

        (found,) = (await planned(world, home("db"))).homes

        told = 'not judged: running "Broken" filter plugin: a screw is loose'
        assert (told, False, None) == (found.then, found.is_judged, found.nodes)

    @pytest.mark.parametrize("policy", ["soft", "grace", "hard"])
    async def test_a_fault_about_one_is_no_word_on_the_others(self, policy: str) -> None:
        claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "odd"}}]
        odd = pod("odd", priority=9)
        odd["spec"]["volumes"] = claim
        world = complete(node("n1", 64), node("n2", 64), pod("db"), odd)
        world.cluster.mark_unreadable(PERSISTENT_VOLUME_CLAIMS, ("default", "odd"), "too large")

        plan = await planned(world, home("odd", policy=policy), home("db"))

        assert [("db", True), ("odd", False)] == [(it.pod, it.is_judged) for it in plan.homes]
        assert "starts on n2" == plan.homes[0].then
        assert ("not judged: ", True) == (plan.homes[1].then[:12], "default/odd cannot be read" in plan.homes[1].then)

    async def test_a_home_that_cannot_be_read_is_no_word_on_others(self) -> None:
        machines = databases("n1", member("db-0", node="n1"))
        machines.add(DATABASE, "odd")
        machines.cluster.upsert_pod(member("odd-0", "odd", node="n1"))
        machines.cluster.mark_unreadable(DATABASE, ("default", "odd"), "too large")

        plan = await shared(machines).plan("n1")

        assert {"db-0": "waits for n1"} == dict(becomes(plan)[:1])
        assert ("odd-0", False) == (plan.others[0].pod, plan.others[0].is_judged)
        assert "cannot be read" in plan.others[0].then

    async def test_half_a_list_of_homes_is_a_fault(self) -> None:
        def homes() -> Iterator[Home]:
            yield home("db")
            raise plugin_error("Village", "Homes", "a screw is loose")

        world = complete(node("n1", 64))
        found = verb(world, homes())

        with pytest.raises(VerbFailure, match="Village") as failed:
            await found.plan("n1")
        assert "fault" == failed.value.outcome


class Broken(FromSpec, FilterPlugin):
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        raise ZeroDivisionError("a screw is loose")


class Sizes(FromSpec, FilterPlugin):
    """Refuses n3. ``asked``: about how many nodes at a time."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self.asked: list[int] = []

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return NO if node.name == "n3" else SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        self.asked.append(len(nodes))
        passed = [it for it in nodes.names if it != "n3"]
        return FilterResult(passed, dict.fromkeys({*nodes.names}.difference(passed), NO))


class TestBounds:
    async def test_nobody_is_judged_once_the_time_is_over(self) -> None:
        world = complete(node("n1", 64), node("n2", 64), *(pod(it) for it in ("a", "b", "c")))
        ticks = iter([0.0, 1.0, 7.9, 8.1])
        homes = [home("a"), home("b", policy="grace"), home("c", policy="hard")]

        plan = await verb(world, homes, clock=lambda: next(ticks)).plan("n1")

        assert [("a", "starts on n2"), ("b", "waits for n1; after its grace starts on n2"), ("c", OUT_OF_TIME)] == (
            becomes(plan)
        )
        assert [True, True, False] == [it.is_judged for it in plan.homes]

    async def test_so_many_homes_are_told_of_and_the_rest_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evictions, "MOST_HOMES", 2)
        world = complete(node("n1", 64))

        plan = await planned(world, *(home(f"db-{it}", pod="", pod_node="") for it in range(5)))

        assert (2, 3) == (len(plan.homes), plan.more)

    async def test_homes_beyond_count_once_and_their_pods_are_no_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many profiles list them. Their pods leave, and nobody is told where to."""
        monkeypatch.setattr(evictions, "MOST_HOMES", 1)
        names = ("a", "b", "c")
        world = complete(node("n1", 64), node("n2", 64), *(pod(it) for it in names), pod("web"))

        plan = await planned(world, *(home(it) for it in (*names, *names)))

        assert (["a"], 2, ["web"]) == ([it.pod for it in plan.homes], plan.more, [it.pod for it in plan.others])

    async def test_nor_are_the_other_pods_of_shared_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evictions, "MOST_HOMES", 1)
        machines = databases("n1", member("db-0", node="n1"))
        machines.add(DATABASE, "two", home="n1")
        for it in range(3):
            machines.cluster.upsert_pod(member(f"two-{it}", "two", node="n1"))

        plan = await shared(machines).plan("n1")

        assert (["db-0"], 1, []) == ([it.pod for it in plan.homes], plan.more, plan.others)

    async def test_so_many_other_pods_are_judged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evictions, "MOST_PODS", 1)
        owner = controller("ReplicaSet", "web")
        world = complete(node("n1", 64), node("n2", 64), *(pod(f"web-{it}", owner=owner) for it in range(3)))

        plan = await planned(world)

        assert (["starts on n2"], 2) == ([it.then for it in plan.others], plan.more_others)

    async def test_so_many_nodes_are_named_and_all_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evictions, "MOST_NAMES", 3)
        world = complete(node("n1", 64), *(node(f"n{it}", 64) for it in range(2, 12)), pod("db"))

        (found,) = (await planned(world, home("db"))).homes

        assert (3, 10) == (len(found.nodes or ()), found.count)

    async def test_nodes_are_judged_in_steps_and_none_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placing, "_A_STEP", 2)
        world = complete(*(node(f"n{it}", 64) for it in range(1, 9)), pod("db"))

        (found,) = (await planned(world, home("db"))).homes

        assert {f"n{it}" for it in range(2, 9)} == {*(found.nodes or ())}

    async def test_so_many_of_those_that_pass_are_scored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those with the fewest pods, and all that pass are told of. n5 has two pods, n2 to n4 one each."""
        monkeypatch.setattr(placing, "_MOST_SCORED", 3)
        monkeypatch.setattr(placing, "_A_STEP", 2)
        there = [pod(f"there-{it}", 1, node=f"n{it}") for it in (2, 3, 4, 5)]
        world = complete(
            *(node(f"n{it}", 64) for it in range(1, 8)), *there, pod("more", 1, node="n5"), pod("db", node="n1")
        )
        scored: list[list[str]] = []
        score = world.framework.scoring.score

        def noted(state: CycleState, pod: Pod, nodes: Candidates) -> Scores:
            scored.append([*nodes.names])
            return score(state, pod, nodes)

        monkeypatch.setattr(world.framework.scoring, "score", noted)
        (found,) = (await planned(world, home("db"))).homes

        assert [["n6", "n7", "n2"]] == scored
        assert (6, "n6") == (found.count, found.goes_to)

    async def test_beside_last_filters_nodes_are_judged_in_steps_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last ones go by all that passed."""
        monkeypatch.setattr(placing, "_A_STEP", 2)
        names = [f"n{it}" for it in range(2, 9)]
        specs = [spec_of(it) for it in (Sizes, Soft)]
        objects = [*(node(it, 64) for it in ("n1", *names)), pod("db", labels={WANTS: "n7"}), pod("any")]
        world = World(*objects, profile=only("Sizes", "Soft"), specs=specs)

        plan = await planned(world, home("db"), home("any"))

        sizes, last = (world.framework.plugins[it] for it in ("Sizes", "Soft"))
        assert {1, 2} == {*sizes.asked}
        left = [it for it in names if it != "n3"]
        assert [left, left] == last.asked
        assert {"db": ("n7",), "any": tuple(left)} == {it.pod: it.nodes for it in plan.homes}
        assert ("n7", "5 of 7: Soft: another one will do") == ((it := one(plan, "db")).goes_to, it.why)

    async def test_the_cluster_may_change_between_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A node goes before anybody is scored on it, and a pod before it is placed."""
        world = complete(node("n1", 64), node("n2", 64), node("n3", 64), pod("a"), pod("b"))
        events = iter(
            [lambda: None, lambda: world.cluster.delete_node("n2"), lambda: world.cluster.delete_pod(("default", "b"))]
        )
        monkeypatch.setattr(placing, "yield_to_loop", _doing(events))

        plan = await planned(world, home("a"), home("b"))

        assert [("a", "n3"), ("b", "n3")] == [(it.pod, it.goes_to) for it in plan.homes]


def _doing(events: Iterator[Callable[[], object]]) -> Callable[[], Any]:
    async def turn() -> None:
        next(events, lambda: None)()

    return turn
