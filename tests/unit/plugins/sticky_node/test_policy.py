"""The word nearest to a machine says which policy holds.

Every cell of the table, as filter and a bind go by it, for each of the three policies; and what ends a grace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.homes.protocol import Policy, State
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from app.kube.services import decode_namespace
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.plugin import REFUSALS, StickyNode
from plugins.sticky_node.pods import MIGRATION_JOB
from plugins.sticky_node.policy import TABLE, Action, AppliedPolicy, Policies, Reason, kinds_of_policies, unknown_policy
from tests.builders import (
    JsonObject,
    PodFields,
    claim_object,
    encoded,
    expression,
    mounting,
    taint,
    term,
    volume_object,
)
from tests.unit.plugins.sticky_node.machines import NODES, Machines, launcher

MACHINES: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "through": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}],
}
OF_NAMESPACES: list[JsonObject] = [
    {"namespaceSelector": {"matchLabels": {"team": "a"}}, "policy": "soft", "gracePeriod": "1h"},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}, "policy": "hard"},
]


class World:
    """One machine, whose namespace has labels."""

    def __init__(self, args: JsonObject, labels: Mapping[str, str] | None = None, **annotations: str) -> None:
        self.machines = Machines(args)
        self.machines.machine(**annotations)
        parsed = StickyNodeArgs.model_validate(args)
        self.policies = Policies(parsed, self.machines.cluster)
        self._owners = Owners(parsed.owners, self.machines.cluster)
        self._version = 0
        self.label(labels or {})

    def label(self, labels: Mapping[str, str]) -> None:
        self._version += 1
        metadata = {"name": "default", "resourceVersion": str(self._version), "labels": labels}
        self.machines.cluster.others.upsert(NAMESPACES, decode_namespace(encoded({"metadata": metadata})))

    @property
    def owner(self) -> Owner:
        found = self._owners.of(launcher())
        assert isinstance(found, Owner)
        return found

    def of(self, pod_says: str = "") -> AppliedPolicy:
        said = {"homeport.dev/policy": pod_says} if pod_says else {}
        return self.policies.of(self.owner, launcher(annotations=said))


def test_without_any_word_the_default_holds() -> None:
    assert AppliedPolicy(Policy.GRACE, 900.0, "default") == World({}).of()
    assert AppliedPolicy(Policy.HARD, 60.0, "default") == World({"policy": "hard", "gracePeriod": "1m"}).of()


EVERY: JsonObject = {
    "policy": "off",
    "owners": [{**MACHINES, "policy": "hard"}],
    "namespaces": [{"namespaceSelector": {}, "policy": "grace", "gracePeriod": "10m"}],
}


@pytest.mark.parametrize(
    ("args", "pod_says", "owner_says", "expected"),
    [
        pytest.param(EVERY, "soft", "off", AppliedPolicy(Policy.OFF, 900.0, "owner"), id="the owner's annotation"),
        pytest.param(EVERY, "soft", "", AppliedPolicy(Policy.SOFT, 900.0, "pod"), id="the template's"),
        pytest.param(EVERY, "", "", AppliedPolicy(Policy.GRACE, 600.0, "namespaces[0]"), id="the namespace's"),
        pytest.param(
            {**EVERY, "namespaces": []},
            "",
            "",
            AppliedPolicy(Policy.HARD, 900.0, "owners: VirtualMachine"),
            id="the kind's",
        ),
        pytest.param({"policy": "off"}, "", "", AppliedPolicy(Policy.OFF, 900.0, "default"), id="the arguments'"),
    ],
)
def test_the_nearest_word_counts(args: JsonObject, pod_says: str, owner_says: str, expected: AppliedPolicy) -> None:
    annotations = {"policy": owner_says} if owner_says else {}
    assert expected == World(args, None, **annotations).of(pod_says)


def test_what_names_no_policy_is_passed_over_and_told() -> None:
    world = World({}, policy="sfot")

    assert AppliedPolicy(Policy.SOFT, 900.0, "pod") == world.of("soft")
    assert AppliedPolicy(Policy.GRACE, 900.0, "default") == world.of("Hard")
    assert "sfot" == unknown_policy(world.owner)
    assert "" == unknown_policy(World({}, policy="hard").owner)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"team": "a"}, AppliedPolicy(Policy.SOFT, 3600.0, "namespaces[0]"), id="the first that matches"),
        pytest.param({"team": "b"}, AppliedPolicy(Policy.HARD, 900.0, "namespaces[1]"), id="the second"),
        pytest.param({}, AppliedPolicy(Policy.GRACE, 900.0, "default"), id="none"),
    ],
)
def test_namespaces_are_told_apart_by_their_labels(labels: Mapping[str, str], expected: AppliedPolicy) -> None:
    assert expected == World({"namespaces": OF_NAMESPACES}, labels).of()


def test_a_namespace_that_is_labelled_anew_has_its_policy_at_once() -> None:
    world = World({"namespaces": OF_NAMESPACES}, {"team": "b"})
    assert Policy.HARD is world.of().policy

    world.label({"team": "a"})
    assert Policy.SOFT is world.of().policy
    assert not world.policies.is_off(world.owner)


def test_namespaces_are_read_only_where_a_rule_needs_them() -> None:
    assert [()] == [tuple(kinds_of_policies(StickyNodeArgs()))]
    assert (NAMESPACES,) == kinds_of_policies(StickyNodeArgs.model_validate({"namespaces": OF_NAMESPACES}))


HOME: Final = "n1"
OTHERS: Final = ("n2", "n3")
GRACE: Final = 900.0
SINCE: Final = "1970-01-01T00:00:00Z"
POLICIES: Final = (Policy.HARD, Policy.SOFT, Policy.GRACE)
Nothing = Callable[[Machines], object]
NO_POD: Final[PodFields] = {}


def volume_on(machines: Machines, node: str) -> None:
    """The pod's claim is bound to a volume that this node alone reaches."""
    required = {"nodeSelectorTerms": [term(expression("kubernetes.io/hostname", "In", node))]}
    volume = volume_object("disk", more={"nodeAffinity": {"required": required}})
    others = machines.cluster.others
    others.upsert(PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUME_CLAIMS.decode(encoded(claim_object(volume="disk"))))
    others.upsert(PERSISTENT_VOLUMES, PERSISTENT_VOLUMES.decode(encoded(volume)))


def other_machine(machines: Machines) -> None:
    machines.machine(home=HOME, home_owner=f"uid-VirtualMachine-db {HOME}", home_machine="a")
    machines.node(HOME, status={"nodeInfo": {"systemUUID": "b"}})


def leaving(machines: Machines) -> None:
    machines.machine(home=HOME)
    machines.node(HOME, taints=[taint("karpenter.sh/disrupted")])


def away(machines: Machines) -> None:
    machines.machine(home=HOME)
    machines.node(HOME, unschedulable=True)


def gone(machines: Machines) -> None:
    machines.machine(home=HOME)
    machines.cluster.delete_node(HOME)


SCENES: Final[dict[State, tuple[Nothing, PodFields]]] = {
    State.NONE: (lambda it: it.machine(), NO_POD),
    State.TARGET: (lambda it: it.machine(home=HOME), {"labels": {MIGRATION_JOB: "uid"}}),
    State.GONE: (gone, NO_POD),
    State.OTHER_MACHINE: (other_machine, NO_POD),
    State.LEAVING: (leaving, NO_POD),
    State.AWAY: (away, NO_POD),
    State.USABLE: (lambda it: it.machine(home=HOME), NO_POD),
}


class Scene:
    """A machine in a state, with a policy."""

    def __init__(self, state: State, policy: Policy, **args: JsonObject | str | bool) -> None:
        self.machines = Machines({"policy": policy.value, "identity": "machine", **args})
        arrange, self._fields = SCENES[state]
        arrange(self.machines)

    @property
    def plugin(self) -> StickyNode:
        return self.machines.plugin

    def pod(self, **more: object) -> Pod:
        fields: PodFields = {**self._fields, **more}  # type: ignore[typeddict-item]
        return launcher(**fields)

    def passed(self, pod: Pod | None = None, *asked: str) -> tuple[str, ...]:
        """The nodes of a search that are left, by filter and by the last filter."""
        nodes = self.machines.nodes
        names = [it for it in asked or NODES if it in nodes]
        state, pod = CycleState(), self.pod() if pod is None else pod
        status, _ = self.plugin.pre_filter(state, pod)
        if status.is_skip:
            return tuple(names)
        among = Candidates(names, nodes.__getitem__)
        found = self.plugin.filter_nodes(state, pod, among)
        refused = dict(found.rejected())
        one_by_one = {it: self.plugin.filter(state, pod, nodes[it]) for it in names}
        assert refused == {it: status for it, status in one_by_one.items() if not status.is_success}
        if not found.passed:
            assert set(refused) == set(names)
            return ()
        last = self.plugin.filter_last(state, pod, among, found.passed)
        assert {*last.passed, *last.rejected()} == {*found.passed}
        return tuple(last.passed)

    def reasons(self) -> set[str]:
        state, pod = CycleState(), self.pod()
        self.plugin.pre_filter(state, pod)
        return {self.plugin.filter(state, pod, it).message for it in self.machines.nodes.values()} - {""}

    async def home_after_bind(self, node: str) -> str:
        await self.machines.bind(self.pod(), node)
        return self.machines.annotations().get("homeport.dev/home", "")


def expected(action: Action, names: tuple[str, ...]) -> tuple[str, ...]:
    """What passes of the nodes that are there and asked about."""
    home = {
        Action.ALL: names,
        Action.NOT_HOME: tuple(it for it in names if it != HOME),
        Action.HOME: tuple(it for it in names if it == HOME),
        Action.TRY_HOME: tuple(it for it in names if it == HOME) or names,
        Action.WAIT: (),
    }
    return home[action]


CELLS: Final = [
    pytest.param(state, policy, id=f"{state.value}, {policy.value}")
    for state in TABLE
    if state is not State.VOLUME_ELSEWHERE
    for policy in POLICIES
]


@pytest.mark.parametrize(("state", "policy"), CELLS)
class TestCells:
    def test_what_passes(self, state: State, policy: Policy) -> None:
        scene, cell = Scene(state, policy), TABLE[state][policy]
        there = tuple(it for it in NODES if it in scene.machines.nodes)

        assert expected(cell.action, there) == scene.passed()
        if cell.action in (Action.WAIT, Action.HOME):
            assert {cell.reason.value} == scene.reasons()

    def test_what_passes_once_the_grace_is_over(self, state: State, policy: Policy) -> None:
        scene, cell = Scene(state, policy), TABLE[state][policy]
        pod = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": SINCE}]}}
        there = tuple(it for it in NODES if it in scene.machines.nodes)
        scene.passed(scene.pod(**pod))

        scene.machines.wall_clock.now += GRACE - 1
        assert expected(cell.action, there) == scene.passed(scene.pod(**pod))
        scene.machines.wall_clock.now += 1
        assert expected(cell.then or cell.action, there) == scene.passed(scene.pod(**pod))

    async def test_what_a_bind_elsewhere_makes_of_the_home(self, state: State, policy: Policy) -> None:
        """Where the table lets it go there. The target of a migration makes none."""
        scene, cell = Scene(state, policy), TABLE[state][policy]
        if cell.action in (Action.WAIT, Action.HOME):
            assert "n2" not in scene.passed()
            return
        assert (HOME if state is State.TARGET else "n2") == await scene.home_after_bind("n2")

    async def test_with_failback_a_home_that_is_passed_over_stays(self, state: State, policy: Policy) -> None:
        scene, cell = Scene(state, policy, failback=True), TABLE[state][policy]
        if cell.action in (Action.WAIT, Action.HOME):
            return
        assert ("n2" if state is State.NONE else HOME) == await scene.home_after_bind("n2")


@pytest.mark.parametrize("state", [it.values[0] for it in CELLS[:: len(POLICIES)]])
class TestOff:
    def test_all_pass(self, state: State) -> None:
        scene = Scene(state, Policy.OFF)
        assert tuple(scene.machines.nodes) == scene.passed()

    async def test_a_bind_makes_no_home(self, state: State) -> None:
        there = "" if state is State.NONE else HOME
        assert there == await Scene(state, Policy.OFF).home_after_bind("n2")


class TestGone:
    def test_a_hard_home_may_be_released_by_that(self) -> None:
        assert OTHERS == Scene(State.GONE, Policy.HARD, whenGone="release").passed()

    async def test_and_the_next_bind_makes_another(self) -> None:
        scene = Scene(State.GONE, Policy.HARD, whenGone="release", failback=True)
        assert "n2" == await scene.home_after_bind("n2")


class TestIdentity:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_by_name_another_machine_is_the_home_all_the_same(self, policy: Policy) -> None:
        assert (HOME,) == Scene(State.OTHER_MACHINE, policy, identity="name").passed()


class TestSoftHomesThatWereNotAskedAbout:
    def test_the_pod_is_refused_until_time_ends_that(self) -> None:
        scene = Scene(State.USABLE, Policy.SOFT)

        assert () == scene.passed(None, *OTHERS)
        scene.machines.clock.now += 0.9
        assert () == scene.passed(None, *OTHERS)
        scene.machines.clock.now += 0.2
        assert OTHERS == scene.passed(None, *OTHERS)
        assert (HOME,) == scene.passed(), "the home is tried first again where it is asked about"

    def test_or_until_the_scheduler_asks_about_others_while_it_is_nominated(self) -> None:
        """An in-tree filter has refused the home."""
        scene = Scene(State.USABLE, Policy.SOFT)

        assert () == scene.passed(None, *OTHERS)
        assert OTHERS == scene.passed(scene.pod(nominated=HOME), *OTHERS)
        assert OTHERS == scene.passed(None, *OTHERS)

    def test_not_in_a_request_that_is_no_sample(self) -> None:
        """Another filter has refused the home: nothing would come of a try."""
        scene = Scene(State.USABLE, Policy.SOFT)
        handle = scene.machines.handle
        profile = replace(handle.profile, is_sample=lambda names: names != len(OTHERS))
        scene.machines.handle = replace(handle, profile=profile)
        scene.machines.restart()

        assert OTHERS == scene.passed(None, *OTHERS)
        assert (HOME,) == scene.passed()

    def test_once_a_pod_and_a_home(self) -> None:
        scene = Scene(State.USABLE, Policy.SOFT)
        scene.passed(None, *OTHERS)
        scene.machines.clock.now += 2

        scene.machines.machine(home="n3")
        assert () == scene.passed(None, "n2")
        scene.machines.machine(home=HOME)
        assert () == scene.passed(scene.pod(uid="another"), *OTHERS)

    def test_not_after_a_bind_at_home_that_failed(self) -> None:
        scene = Scene(State.USABLE, Policy.SOFT)
        pod = scene.pod()
        scene.plugin.unreserve(CycleState(), pod, HOME)

        assert NODES == scene.passed(pod)
        assert scene.plugin.pre_score(CycleState(), pod, Candidates.of(scene.machines.nodes)).is_skip
        assert (HOME,) == scene.passed(scene.pod(uid="another"))

    def test_the_score_says_the_same_to_who_did_not_filter(self) -> None:
        scene = Scene(State.USABLE, Policy.SOFT)
        state, pod = CycleState(), scene.pod()
        nodes = Candidates.of(scene.machines.nodes)

        assert scene.plugin.pre_score(state, pod, nodes).is_success
        assert [100, 0, 0] == scene.plugin.score_nodes(state, pod, nodes).each()
        assert scene.plugin.pre_score(state, pod, nodes.without({HOME})).is_skip

    def test_a_hard_home_has_no_score(self) -> None:
        scene = Scene(State.USABLE, Policy.HARD)
        assert scene.plugin.pre_score(CycleState(), scene.pod(), Candidates.of(scene.machines.nodes)).is_skip


class TestVolumeElsewhere:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_the_nodes_of_the_volume_pass_where_a_home_may_give_way(self, policy: Policy) -> None:
        scene = Scene(State.USABLE, policy)
        volume_on(scene.machines, "n3")
        pod = scene.pod(more=mounting("data"))

        assert (() if policy is Policy.HARD else ("n3",)) == scene.passed(pod)
        state = CycleState()
        scene.plugin.pre_filter(state, pod)
        assert REFUSALS[Reason.NOT_HOME] == scene.plugin.filter(state, pod, scene.machines.nodes["n2"])
        assert scene.plugin.signature(pod) is None or policy is Policy.HARD


class TestSignature:
    def test_it_moves_with_all_that_the_answer_rests_on(self) -> None:
        """Pods are asked again where time, the home's node or a word for another policy changes what passes."""
        scene = Scene(State.USABLE, Policy.GRACE)
        machines = scene.machines
        changes: list[Callable[[], None]] = [
            lambda: machines.node(HOME, unschedulable=True),
            partial(setattr, machines.wall_clock, "now", GRACE + 1),
            partial(machines.machine, home="n2"),
            partial(machines.machine, home="n2", policy="soft"),
            machines.machine,
        ]
        seen = [scene.plugin.signature(scene.pod())]
        for change in changes:
            change()
            seen.append(scene.plugin.signature(scene.pod()))

        assert len(seen) == len(set(seen))
