"""How it is about a home, by its node: every mark, and which counts first."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.framework.objects import Unreadable
from app.homes.protocol import State
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from plugins.sticky_node import home_state
from plugins.sticky_node.args import MAINTENANCE, StickyNodeArgs
from plugins.sticky_node.home_state import (
    AWAY_TAINTS,
    LEAVING_TAINTS,
    SCHEDULABLE,
    HomeState,
    HomeStates,
    node_annotations,
)
from plugins.sticky_node.owners import Owner, Owners
from plugins.sticky_node.pods import MIGRATION_JOB
from tests.builders import JsonObject, claim_object, encoded, make_node, mounting, taint, toleration, volume_object
from tests.unit.plugins.sticky_node.machines import MACHINE, SET, Machines, launcher, reference

USABLE: Final = HomeState(State.USABLE)
TO_ALL: Final = toleration()
READY: Final = {"type": "Ready", "status": "True"}
NOT_READY: Final = {"type": "Ready", "status": "False"}
SILENT: Final = {"type": "Ready", "status": "Unknown"}
MACHINES: Final = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
OWNERS: Final = {"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]}


class World:
    """A machine whose home is n1, and a node of that name."""

    def __init__(self, args: JsonObject | None = None, **annotations: str) -> None:
        self.machines = Machines(args)
        self.machines.machine(home="n1", home_owner="uid-VirtualMachine-db n1", **annotations)
        self.home_states = HomeStates(StickyNodeArgs.model_validate(args or {}), self.machines.handle)
        self._owners = Owners(StickyNodeArgs().owners, self.machines.cluster)

    def node(self, **fields: Any) -> None:
        self.machines.node("n1", **fields)

    def gone(self) -> None:
        self.machines.cluster.delete_node("n1")

    @property
    def owner(self) -> Owner:
        found = self._owners.of(launcher())
        assert isinstance(found, Owner)
        return found

    @property
    def home_state(self) -> HomeState:
        """By the node alone; of a pod that tolerates nothing it is the same."""
        found = self.home_states.of_node("n1", self.owner)
        assert found == self.of(launcher())
        return found

    def of(self, pod: Pod) -> HomeState:
        return self.home_states.of("n1", self.owner, pod)


def ready(condition: JsonObject = READY, *more: str) -> JsonObject:
    return {"conditions": [condition, *({"type": it, "status": "True"} for it in more)]}


class TestTheNode:
    def test_one_that_is_well_is_usable(self) -> None:
        world = World()
        world.node(status=ready(), taints=[taint("example.com/dedicated")], labels={SCHEDULABLE: "true"})

        assert USABLE == world.home_state

    def test_one_that_nobody_has_said_anything_of_is_usable(self) -> None:
        """As in a saved cluster. A node that comes is tainted until it is ready."""
        assert USABLE == World().home_state

    @pytest.mark.parametrize("key", AWAY_TAINTS)
    @pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
    def test_a_taint_that_says_away(self, key: str, effect: str) -> None:
        world = World()
        world.node(taints=[taint("first"), taint(key, effect, "whatever")])

        assert HomeState(State.AWAY, f"taint {key}") == world.home_state

    @pytest.mark.parametrize("key", LEAVING_TAINTS)
    def test_a_taint_that_says_leaving(self, key: str) -> None:
        world = World()
        world.node(taints=[taint("first"), taint(key, value="1767225600")])

        assert HomeState(State.LEAVING, f"taint {key}") == world.home_state

    @pytest.mark.parametrize("key", [*AWAY_TAINTS, *LEAVING_TAINTS, "medik8s.io/drain"])
    def test_a_taint_that_keeps_nobody_out_says_nothing(self, key: str) -> None:
        world = World()
        world.node(taints=[taint(key, "PreferNoSchedule")])

        assert USABLE == world.home_state

    @pytest.mark.parametrize(
        ("fields", "mark"),
        [
            pytest.param({"unschedulable": True}, "cordoned", id="a cordon"),
            pytest.param({"status": ready(NOT_READY)}, "Ready is False", id="not ready, and nobody taints"),
            pytest.param({"status": ready(SILENT)}, "Ready is Unknown", id="not heard of, and nobody taints"),
            pytest.param({"status": ready(READY, "MemoryPressure")}, "MemoryPressure", id="memory"),
            pytest.param({"status": ready(READY, "DiskPressure")}, "DiskPressure", id="disk"),
            pytest.param({"status": ready(READY, "PIDPressure")}, "PIDPressure", id="processes"),
            pytest.param({"status": ready(READY, "NetworkUnavailable")}, "NetworkUnavailable", id="network"),
            pytest.param({"labels": {SCHEDULABLE: "false"}}, f"label {SCHEDULABLE}=false", id="KubeVirt's own label"),
        ],
    )
    def test_what_says_away(self, fields: JsonObject, mark: str) -> None:
        world = World()
        world.node(**fields)

        assert HomeState(State.AWAY, mark) == world.home_state

    def test_one_that_is_being_deleted_is_leaving(self) -> None:
        world = World()
        world.node(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

        assert HomeState(State.LEAVING, "being deleted") == world.home_state

    def test_one_that_is_not_there_is_gone(self) -> None:
        world = World()
        world.gone()

        assert HomeState(State.GONE, "there is no such node") == world.home_state

    def test_one_that_cannot_be_read_is_there_and_takes_no_pods(self) -> None:
        """Nothing is bound to it, whatever is known of a form of before."""
        world = World()
        for _ in range(2):
            world.machines.cluster.mark_unreadable(NODES, ("", "n1"), "metadata.labels: too long")
            assert HomeState(State.AWAY, "the node cannot be read") == world.home_state
            world.gone()


class TestOrder:
    """The first row of the table that applies counts."""

    def test_leaving_before_away(self) -> None:
        world = World()
        world.node(
            unschedulable=True,
            taints=[taint("node.kubernetes.io/unschedulable"), taint("karpenter.sh/disrupted")],
            status=ready(NOT_READY),
        )

        assert HomeState(State.LEAVING, "taint karpenter.sh/disrupted") == world.home_state

    def test_another_machine_before_leaving(self) -> None:
        world = World({"identity": "machine"}, home_machine="a")
        world.node(taints=[taint("karpenter.sh/disrupted")], status={"nodeInfo": {"systemUUID": "b"}})

        assert State.OTHER_MACHINE is world.home_state.state


class TestMaintenance:
    @pytest.mark.parametrize(
        ("annotation", "value"),
        [
            pytest.param("weave.works/kured-reboot-in-progress", "2026-01-01T00:00:00Z", id="kured"),
            pytest.param("machineconfiguration.openshift.io/state", "Working", id="OpenShift"),
            pytest.param("harvesterhci.io/maintain-status", "running", id="Harvester"),
        ],
    )
    def test_annotations_that_are_known(self, annotation: str, value: str) -> None:
        world = World()
        world.node(metadata={"annotations": {annotation: value}})

        assert HomeState(State.AWAY, f"annotation {annotation}") == world.home_state

    @pytest.mark.parametrize("key", ["medik8s.io/drain", "kubevirt.io/drain"])
    def test_taints_that_are_known(self, key: str) -> None:
        world = World()
        world.node(taints=[taint(key)])

        assert HomeState(State.AWAY, f"taint {key}") == world.home_state

    def test_a_mark_with_another_value_says_nothing(self) -> None:
        world = World()
        world.node(metadata={"annotations": {"machineconfiguration.openshift.io/state": "Done"}})

        assert USABLE == world.home_state

    @pytest.mark.parametrize(
        ("fields", "mark"),
        [
            pytest.param({"taints": [taint("a", value="1")]}, "taint a", id="a taint"),
            pytest.param({"taints": [taint("a", value="2")]}, "taint a", id="a taint with another value"),
            pytest.param({"taints": [taint("a", value="3")]}, "", id="a taint with none of them"),
            pytest.param({"labels": {"b": "yes"}}, "label b", id="a label"),
            pytest.param({"labels": {"b": "no"}}, "", id="a label with another value"),
            pytest.param({"metadata": {"annotations": {"c": ""}}}, "annotation c", id="an annotation"),
            pytest.param({"taints": [taint("medik8s.io/drain")]}, "", id="the known ones are replaced"),
            pytest.param(
                {"taints": [taint("node.kubernetes.io/unreachable", "NoExecute")]},
                "taint node.kubernetes.io/unreachable",
                id="what Kubernetes says cannot be",
            ),
        ],
    )
    def test_what_is_configured(self, fields: JsonObject, mark: str) -> None:
        marks = [
            {"taint": "a", "value": "1"},
            {"taint": "a", "value": "2"},
            {"label": "b", "value": "yes"},
            {"annotation": "c"},
            {"taint": "node.kubernetes.io/unreachable", "value": "never"},
        ]
        world = World({"maintenance": marks})
        world.node(**fields)

        assert (HomeState(State.AWAY, mark) if mark else USABLE) == world.home_state

    def test_annotations_that_are_marks_are_kept_of_nodes(self) -> None:
        assert {it.annotation for it in MAINTENANCE if it.annotation} == node_annotations(StickyNodeArgs())
        assert {"c"} == node_annotations(
            StickyNodeArgs.model_validate({"maintenance": [{"annotation": "c"}, {"taint": "t"}]})
        )


class TestKubeVirt:
    @pytest.mark.parametrize(
        ("rule", "owner", "expected"),
        [
            pytest.param({**MACHINES}, reference(MACHINE), State.AWAY, id="a machine without an instance"),
            pytest.param(OWNERS["owners"][0], {**reference(SET), "name": "web"}, State.USABLE, id="another owner"),
        ],
    )
    def test_its_label_counts_for_its_owners_alone(self, rule: JsonObject, owner: JsonObject, expected: State) -> None:
        machines = Machines({"owners": [rule]})
        machines.add(MACHINE)
        machines.add(SET, "web")
        machines.node("n1", labels={SCHEDULABLE: "false"})
        args = StickyNodeArgs.model_validate({"owners": [rule]})
        pod = launcher("web-0", owner={**owner, "uid": f"uid-{owner['kind']}-{owner['name']}"})
        found = Owners(args.owners, machines.cluster).of(pod)
        assert isinstance(found, Owner)

        home_states = HomeStates(args, machines.handle)
        assert expected is home_states.of_node("n1", found).state is home_states.of("n1", found, pod).state

    def test_the_target_of_a_migration_is_told_by_its_label(self) -> None:
        """Wherever the home is, and whatever it is about its volumes."""
        world = World()
        world.gone()

        assert HomeState(State.TARGET, f"label {MIGRATION_JOB}") == world.of(launcher(labels={MIGRATION_JOB: "uid"}))

    def test_the_label_on_a_pod_of_others_says_nothing(self) -> None:
        machines = Machines(OWNERS)
        machines.add(SET, "web")
        args = StickyNodeArgs.model_validate(OWNERS)
        pod = launcher("web-0", owner=reference(SET, "web"), labels={MIGRATION_JOB: "uid"})
        found = Owners(args.owners, machines.cluster).of(pod)
        assert isinstance(found, Owner)

        assert USABLE == HomeStates(args, machines.handle).of("n1", found, pod)


class TestIdentity:
    @pytest.mark.parametrize(
        ("recorded", "now", "expected"),
        [
            pytest.param("4C4C-1", "4c4c-1", State.USABLE, id="the same in other letters"),
            pytest.param("4c4c-1", "4c4c-2", State.OTHER_MACHINE, id="another"),
            pytest.param("", "4c4c-2", State.USABLE, id="none recorded"),
            pytest.param("4c4c-1", "", State.USABLE, id="none there"),
        ],
    )
    def test_machines_are_compared_where_both_are_known(self, recorded: str, now: str, expected: State) -> None:
        world = World({"identity": "machine"}, home_machine=recorded)
        world.node(status={"nodeInfo": {"systemUUID": now}})

        assert expected is world.home_state.state

    def test_by_name_any_machine_is_the_home(self) -> None:
        world = World(home_machine="4c4c-1")
        world.node(status={"nodeInfo": {"systemUUID": "4c4c-2"}})

        assert USABLE == world.home_state


class TestTolerations:
    """kube-scheduler lets such a pod in; the home is away for all others nevertheless."""

    @pytest.mark.parametrize(
        ("fields", "tolerated", "expected"),
        [
            pytest.param({"unschedulable": True}, toleration(AWAY_TAINTS[0]), State.USABLE, id="a cordon"),
            pytest.param({"unschedulable": True}, TO_ALL, State.USABLE, id="all"),
            pytest.param({"unschedulable": True}, toleration("other"), State.AWAY, id="something else"),
            pytest.param(
                {"unschedulable": True}, toleration(AWAY_TAINTS[0], effect="NoExecute"), State.AWAY, id="another effect"
            ),
            pytest.param(
                {"taints": [taint("medik8s.io/drain")]}, toleration("medik8s.io/drain"), State.USABLE, id="maintenance"
            ),
            pytest.param(
                {"status": ready(READY, "MemoryPressure")},
                toleration("node.kubernetes.io/memory-pressure"),
                State.USABLE,
                id="pressure by its taint",
            ),
            pytest.param(
                {"status": ready(NOT_READY)},
                toleration("node.kubernetes.io/not-ready"),
                State.USABLE,
                id="a kubelet that says it is not ready",
            ),
            pytest.param(
                {"status": ready(NOT_READY)},
                toleration("node.kubernetes.io/not-ready", effect="NoExecute"),
                State.AWAY,
                id="what every pod is given for a while",
            ),
            pytest.param({"status": ready(SILENT)}, TO_ALL, State.AWAY, id="a kubelet that is not heard of"),
            pytest.param(
                {"unschedulable": True, "status": ready(READY, "DiskPressure")},
                toleration(AWAY_TAINTS[0]),
                State.AWAY,
                id="one of two",
            ),
            pytest.param({"taints": [taint("karpenter.sh/disrupted")]}, TO_ALL, State.LEAVING, id="an end"),
            pytest.param({"labels": {SCHEDULABLE: "false"}}, TO_ALL, State.AWAY, id="what is no taint"),
            pytest.param(
                {"metadata": {"annotations": {"harvesterhci.io/maintain-status": ""}}}, TO_ALL, State.AWAY, id="a mark"
            ),
        ],
    )
    def test_what_a_pod_tolerates_does_not_count(
        self, fields: JsonObject, tolerated: JsonObject, expected: State
    ) -> None:
        world = World()
        world.node(**fields)

        assert expected is world.of(launcher(tolerations=[tolerated])).state
        assert USABLE != world.home_states.of_node("n1", world.owner)


class TestNodesThatChange:
    """Of one with which nothing is wrong that is kept."""

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({"unschedulable": True}, id="a cordon"),
            pytest.param({"taints": [taint("node.kubernetes.io/unreachable")]}, id="a taint"),
            pytest.param({"labels": {SCHEDULABLE: "false"}}, id="a label"),
            pytest.param({"status": ready(SILENT)}, id="a condition"),
            pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, id="its end"),
            pytest.param({"metadata": {"annotations": {"harvesterhci.io/maintain-status": ""}}}, id="a mark"),
        ],
    )
    def test_it_is_judged_anew(self, fields: JsonObject) -> None:
        world = World()
        assert USABLE == world.home_states.of_node("n1", world.owner)
        world.node(**fields)
        assert USABLE != world.home_states.of_node("n1", world.owner)
        world.node()
        assert USABLE == world.home_states.of_node("n1", world.owner)

    def test_a_node_that_is_away_for_machines_alone(self) -> None:
        world = World()
        world.node(labels={SCHEDULABLE: "false"})
        other = Owner(SET, world.owner.obj, "", world.owner.obj)

        assert USABLE == world.home_states.of_node("n1", other)
        assert USABLE != world.home_states.of_node("n1", world.owner)

    def test_no_more_are_kept_than_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(home_state, "_MOST_USABLE", 2)
        world = World()
        for name in ("n1", "n2", "n3"):
            assert USABLE == world.home_states.of_node(name, world.owner)

        assert ["n3"] == [*world.home_states._usable]


class TestVolumes:
    @pytest.mark.parametrize(
        ("zone", "expected"), [("z1", USABLE), ("z2", HomeState(State.VOLUME_ELSEWHERE, "SAID")), ("", USABLE)]
    )
    def test_one_that_cannot_be_used_from_home_is_elsewhere(self, zone: str, expected: HomeState) -> None:
        world = World()
        world.node(zone="z1")
        world.machines.cluster.others.upsert(*_claim())
        world.machines.cluster.others.upsert(*_volume(zone))
        said = "PersistentVolumeClaim data is bound to PersistentVolume pv-1"
        pod = launcher(more=mounting("data"))

        assert HomeState(expected.state, expected.mark.replace("SAID", said)) == world.of(pod)
        assert [zone in ("z1", ""), zone in ("z2", "")] == [
            world.home_states.reaches_volumes(pod, make_node(zone=it)) for it in ("z1", "z2")
        ]

    def test_it_counts_before_what_is_wrong_with_the_node(self) -> None:
        world = World({"identity": "machine"}, home_machine="a")
        world.node(zone="z1", unschedulable=True, status={"nodeInfo": {"systemUUID": "b"}})
        world.machines.cluster.others.upsert(*_claim())
        world.machines.cluster.others.upsert(*_volume("z2"))

        assert State.VOLUME_ELSEWHERE is world.of(launcher(more=mounting("data"))).state

    def test_of_a_node_that_cannot_be_read_nothing_is_said_of_volumes(self) -> None:
        world = World()
        world.machines.cluster.others.upsert(*_claim())
        world.machines.cluster.others.upsert(*_volume("z2"))
        world.machines.cluster.mark_unreadable(NODES, ("", "n1"), "too long")

        assert State.AWAY is world.of(launcher(more=mounting("data"))).state
        with pytest.raises(Unreadable):
            world.machines.handle.nodes.get("n1")


def _claim() -> tuple[Any, Any]:
    return PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUME_CLAIMS.decode(encoded(claim_object(volume="pv-1")))


def _volume(zone: str = "z2") -> tuple[Any, Any]:
    return PERSISTENT_VOLUMES, PERSISTENT_VOLUMES.decode(encoded(volume_object(claim="data", zone=zone)))
