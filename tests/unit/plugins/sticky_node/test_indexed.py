"""Pods that their controllers tell apart by an index, and KubeVirt's pods beside the launcher."""

from __future__ import annotations

import pytest

from app.kube.core_v1 import Pod
from app.kube.kinds import owner_kind
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.owners import Owners
from plugins.sticky_node.plugin import REASON_OWNER_UNKNOWN
from tests.builders import JsonObject, controller
from tests.unit.plugins.sticky_node.machines import DATABASE, INSTANCE, LWS, NODES, SET, Machines, launcher, reference

ALL = list(NODES)
JOBS: JsonObject = {"owners": [{"apiVersion": "batch/v1", "kind": "Job", "perOrdinal": True}]}
JOB = owner_kind("batch/v1", "Job")
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        pytest.param({INDEX: "3"}, ["n3"], id="index 3"),
        pytest.param({INDEX: "1"}, ALL, id="an index without a home"),
        pytest.param({INDEX: "x"}, ALL, id="no number"),
        pytest.param({INDEX: ""}, ALL, id="none"),
        pytest.param({}, ALL, id="a job that is not indexed"),
    ],
)
def test_each_index_of_a_job_has_a_home_of_its_own(labels: dict[str, str], allowed: list[str]) -> None:
    """Whatever its pods are called: a pod that failed has a successor of another name."""
    machines = Machines(JOBS)
    machines.add(JOB, **{"home.3": "n3", "home": "n2"})

    for name in ("db-3-x7k2p", "db-3-9wq4z"):
        assert allowed == machines.allowed(launcher(name, labels=labels, owner=reference(JOB)))


GROUPS: JsonObject = {
    "owners": [
        {
            "apiVersion": LWS.api_version,
            "kind": LWS.kind,
            "perOrdinal": True,
            "through": [{"apiVersion": "apps/v1", "kind": "StatefulSet"}],
        }
    ]
}
LEADER: JsonObject = {**controller("Pod", "db-0", api_version="v1"), "uid": "uid-leader"}


def member(name: str, group: str = "0", worker: str = "0", *, of: str = "db", owned_by: str = "db") -> Pod:
    """A pod of a LeaderWorkerSet, in one of its StatefulSets."""
    own = {"name": of, "group-index": group, "worker-index": worker}
    labels = {f"leaderworkerset.sigs.k8s.io/{key}": value for key, value in own.items()}
    return launcher(name, labels=labels, owner=reference(SET, owned_by))


@pytest.mark.parametrize(
    ("pod", "allowed"),
    [
        pytest.param(member("db-0"), ["n1"], id="a leader"),
        pytest.param(member("db-0-2", worker="2", owned_by="db-0"), ["n2"], id="a worker"),
        pytest.param(member("db-0-1", worker="1", owned_by="db-0"), ALL, id="a worker without a home"),
        pytest.param(member("db-0-3", worker="2", owned_by="db-0"), ALL, id="a name that is another's"),
        pytest.param(member("db-1", worker="0"), ALL, id="a leader that is another's"),
        pytest.param(member("db-0", group="x"), ALL, id="a group that is none"),
        pytest.param(member("db-0-2", worker="x", owned_by="db-0"), ALL, id="a worker that is none"),
        pytest.param(launcher("db-0", owner=reference(SET)), ALL, id="no labels: a plain set's pod"),
        pytest.param(member("db-0-2", worker="2", owned_by="evil"), ALL, id="in somebody else's set"),
        pytest.param(
            member("mail-0-2", worker="2", of="mail", owned_by="db-0"), ALL, id="a leader that is not its own"
        ),
    ],
)
def test_each_pod_of_a_leader_worker_set_has_a_home_of_its_own(pod: Pod, allowed: list[str]) -> None:
    """Workers refer to a set whose controller is their leader, a pod: from there their label leads on."""
    machines = Machines(GROUPS)
    machines.add(LWS, **{"home.0-0": "n1", "home.0-2": "n2"})
    machines.add_owned(SET, reference(LWS))
    machines.add_owned(SET, LEADER, "db-0")
    machines.add_owned(SET, LEADER, "evil")

    assert allowed == machines.allowed(pod)


def test_a_worker_waits_for_its_leader_worker_set() -> None:
    machines = Machines(GROUPS)
    machines.add_owned(SET, LEADER, "db-0")
    worker = member("db-0-2", worker="2", owned_by="db-0")

    assert [(LWS, "default", "db")] == list(machines.plugin.required_objects(worker))
    assert REASON_OWNER_UNKNOWN == machines.allowed(worker)


SETS_TOO: JsonObject = {"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]}
SIDE_BY_SIDE: JsonObject = {"owners": [*SETS_TOO["owners"], *GROUPS["owners"]]}


@pytest.mark.parametrize(
    ("pod", "kept_by"),
    [
        pytest.param(member("db-0"), "LeaderWorkerSet default/db, ordinal 0-0", id="a leader"),
        pytest.param(
            member("db-0-2", worker="2", owned_by="db-0"), "LeaderWorkerSet default/db, ordinal 0-2", id="a worker"
        ),
        pytest.param(
            launcher("mail-1", owner=reference(SET, "mail")), "StatefulSet default/mail, ordinal 1", id="bare"
        ),
        pytest.param(
            launcher("pg-1", owner=reference(SET, "pg")), "StatefulSet default/pg, ordinal 1", id="of another kind's"
        ),
        pytest.param(launcher("db-0", owner=reference(SET)), None, id="in a group's set, and not of the group"),
        pytest.param(member("x", group="x", worker="x"), None, id="of no number"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_longest_way_that_leads_somewhere_counts(pod: Pod, kept_by: str | None, *, turned: bool) -> None:
    """A set that a LeaderWorkerSet owns keeps nothing itself, in whatever order the rules are."""
    rules = SIDE_BY_SIDE["owners"][:: -1 if turned else 1]
    machines = Machines({"owners": rules})
    machines.add(LWS)
    machines.add_owned(SET, reference(LWS))
    machines.add_owned(SET, LEADER, "db-0")
    machines.add(SET, "mail")
    machines.add_owned(SET, reference(DATABASE, "pg"), "pg")

    found = Owners(StickyNodeArgs.model_validate({"owners": rules}).owners, machines.cluster).of(pod)

    assert (kept_by is None, kept_by or "None") == (found is None, str(found))


def test_a_set_whose_group_is_not_there_yet_keeps_nothing_meanwhile() -> None:
    machines = Machines(SIDE_BY_SIDE)
    machines.add_owned(SET, reference(LWS))
    leader = member("db-0")

    assert [(LWS, "default", "db")] == list(machines.plugin.required_objects(leader))
    assert REASON_OWNER_UNKNOWN == machines.allowed(leader)
    machines.add(LWS, **{"home.0-0": "n3"})
    assert ["n3"] == machines.allowed(leader)


async def test_a_home_is_written_where_the_longest_way_leads() -> None:
    machines = Machines(SIDE_BY_SIDE)
    machines.add(LWS)
    machines.add_owned(SET, reference(LWS))
    machines.add(SET, "mail")

    await machines.bind(member("db-0"), "n2")
    await machines.bind(launcher("mail-0", owner=reference(SET, "mail")), "n3")

    assert "n2" == machines.annotations(LWS)["homeport.dev/home.0-0"]
    assert {} == machines.annotations(SET)
    assert "n3" == machines.annotations(SET, "mail")["homeport.dev/home.0"]


def test_an_object_on_the_way_to_another_may_keep_homes_itself() -> None:
    """A machine without a VirtualMachine: its instance keeps the home, as long as it is there."""
    instance = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}
    machine = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "through": [instance]}
    machines = Machines({"owners": [instance, machine]})
    machines.machine(home="n2")
    machines.add(INSTANCE, "alone", home="n3")

    assert ["n2"] == machines.allowed(launcher())
    assert ["n3"] == machines.allowed(launcher(machine="alone"))


def test_a_machines_temporary_launcher_counts() -> None:
    """Its node decides where the volume is made, so it makes the home."""
    machines = Machines()
    machines.machine()
    temporary = launcher("temporary", annotations={"kubevirt.io/ephemeral-provisioning": "true"})
    machines.reserve(temporary, "n2")

    assert ["n2"] == machines.allowed(launcher("real"))


def test_a_pod_that_attaches_a_volume_follows_its_launcher_and_has_no_home() -> None:
    machines = Machines()
    machines.machine(home="n2")
    attaching = launcher("hp-volume-x", owner={**controller("Pod", "launcher", api_version="v1"), "uid": "launcher"})

    assert (ALL, []) == (machines.allowed(attaching), list(machines.plugin.required_objects(attaching)))


def test_a_leader_worker_set_may_be_on_the_way_to_another_owner() -> None:
    through = [{"apiVersion": "apps/v1", "kind": "StatefulSet"}, {"apiVersion": LWS.api_version, "kind": LWS.kind}]
    machines = Machines({"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "through": through}]})
    machines.add(DATABASE, "fleet", home="n2")
    machines.add_owned(LWS, reference(DATABASE, "fleet"))
    machines.add_owned(SET, LEADER, "db-0")

    assert ["n2"] == machines.allowed(member("db-0-1", worker="1", owned_by="db-0"))
