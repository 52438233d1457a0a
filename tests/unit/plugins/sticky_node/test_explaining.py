"""What a person is told of a home, also as data, and what would unblock a pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from app.framework.explanation import Explanation, HomeFacts, HomeKeeper, Table
from app.framework.handle import NOT_KNOWN, NodeVerdict
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from tests.unit.plugins.sticky_node.machines import (
    Machines,
    launcher,
    make_pod,
)


def at_once(machines: Machines, pod: Pod) -> Explanation:
    """What is explained to a person, without what takes time."""
    return replace(machines.plugin.explain(pod, Candidates.of(machines.nodes)), later=None, home=None)


HEAD = ("kept by", "node", "policy", "state", "what happens", "grace", "recorded", "made by")
KEEPER = "VirtualMachine default/db"
AWAY = "its node is there and takes no pods now"
GONE = "there is no such node"
WAITS = "the pod waits"
USABLE = ("its node takes pods", "only home passes", "")
BEGINS, ENDS = "1970-01-01T00:00:00Z", "1970-01-01T00:15:00Z"
MOVE = f"set or remove homeport.dev/home on {KEEPER}"


def home(
    node: str,
    *,
    recorded: bool,
    made_by: str = "",
    policy: str = "grace (default)",
    told: tuple[str, str, str] = USABLE,
) -> tuple[Table, ...]:
    return (Table("home", HEAD, ((KEEPER, node, policy, *told, recorded, made_by),)),)


def under_way(machines: Machines) -> None:
    machines.machine()
    machines.reserve(launcher("first"), "n1")


@pytest.mark.parametrize(
    ("there", "pod", "expected"),
    [
        pytest.param(lambda _: None, make_pod(), Explanation(), id="a pod without a home of any kind"),
        pytest.param(
            lambda _: None,
            launcher(),
            Explanation(
                unblock=(
                    "the pod's owner VirtualMachineInstance default/db is not in the snapshot: it must exist first",
                )
            ),
            id="an owner that is not there",
        ),
        pytest.param(
            lambda machines: machines.machine(),
            launcher(),
            Explanation(home("none yet: the first bind makes it", recorded=False, told=("none", "all pass", ""))),
            id="no home yet",
        ),
        pytest.param(
            lambda machines: machines.machine(home="n2"),
            launcher(),
            Explanation(home("n2", recorded=True)),
            id="a home",
        ),
        pytest.param(
            under_way,
            launcher(),
            Explanation(home("n1", recorded=False, made_by="default/first, which is being bound to n1")),
            id="a home that is being made",
        ),
        pytest.param(
            lambda machines: machines.machine(home="n9"),
            launcher(),
            Explanation(
                home("n9", recorded=True, told=(GONE, WAITS, f"since {BEGINS}, until {ENDS}")),
                (
                    f"node n9 is not there: bring it back, or set or remove homeport.dev/home on {KEEPER}",
                    f"wait until {ENDS}",
                ),
            ),
            id="a home that is gone, in its grace",
        ),
        pytest.param(
            lambda machines: machines.machine(home="n9", policy="hard"),
            launcher(),
            Explanation(
                home("n9", recorded=True, policy="hard (owner)", told=(GONE, WAITS, "")),
                (f"node n9 is not there: bring it back, or set or remove homeport.dev/home on {KEEPER}",),
            ),
            id="a hard home that is gone",
        ),
        pytest.param(
            lambda machines: (machines.machine(home="n2"), machines.node("n2", unschedulable=True)),
            launcher(annotations={"homeport.dev/policy": "hard"}),
            Explanation(
                home("n2", recorded=True, policy="hard (pod)", told=(f"{AWAY}: cordoned", WAITS, "")),
                (f"node n2 takes no pods: cordoned: let it take them, or set or remove homeport.dev/home on {KEEPER}",),
            ),
            id="a hard home that is away",
        ),
        pytest.param(
            lambda machines: machines.machine(home="n2", policy="off"),
            launcher(),
            Explanation(home("n2", recorded=True, policy="off (owner)", told=("none", "all pass", ""))),
            id="a home that does not count",
        ),
    ],
)
def test_an_explanation(there: Callable[[Machines], None], pod: Pod, expected: Explanation) -> None:
    machines = Machines()
    there(machines)

    assert expected == at_once(machines, pod)


async def test_a_home_that_could_not_be_recorded() -> None:
    """It holds all the same: the same story as filter tells."""
    machines = Machines()
    machines.machine()
    machines.writer.unwritable = {"db"}
    await machines.bind(launcher("first"), "n1")

    assert ["n1"] == machines.allowed(launcher())
    expected = home("n1", recorded=False, made_by="default/first on n1, not recorded: forbidden")
    assert Explanation(expected) == at_once(machines, launcher())

    machines.writer.unwritable = set()
    await machines.repair()
    assert Explanation(home("n1", recorded=True)) == at_once(machines, launcher())


CURES = (
    "node n2 is the home, and does not take the pod: remove the cause: {}",
    f"move the home or release it: {MOVE}",
    f"let the pod go elsewhere while its home does not take it: set homeport.dev/policy=soft on {KEEPER}",
)
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "lastTransitionTime": BEGINS}


def asked(said: str, unasked: str = "") -> tuple[Table, ...]:
    return (
        Table(
            "asked of the home", ("node", "in-tree filters refuse it for", "not asked here"), (("n2", said, unasked),)
        ),
    )


def cures(said: str) -> tuple[str, ...]:
    return tuple(it.format(said) for it in CURES)


@pytest.mark.parametrize(
    ("annotations", "pod", "feasible", "verdict", "expected"),
    [
        pytest.param(
            {"home": "n2"},
            launcher(),
            ["n2"],
            NodeVerdict(("Insufficient cpu", "Too many pods"), ("InterPodAffinity",)),
            Explanation(
                asked("Insufficient cpu, Too many pods", "InterPodAffinity"), cures("Insufficient cpu, Too many pods")
            ),
            id="in-tree filters refuse it",
        ),
        pytest.param(
            {"home": "n2", "policy": "hard"},
            launcher(status={"conditions": [UNSCHEDULABLE]}),
            ["n2"],
            NodeVerdict((), ("InterPodAffinity", "VolumeZone")),
            Explanation(asked("nothing that is known here", "InterPodAffinity, VolumeZone")),
            id="the scheduler has found no node, and it is not known why",
        ),
        pytest.param(
            {"home": "n2"},
            launcher(),
            ["n2"],
            NodeVerdict((), ("InterPodAffinity", "VolumeZone")),
            Explanation(),
            id="nothing is known",
        ),
        pytest.param(
            {"home": "n2"},
            launcher(),
            [],
            NOT_KNOWN,
            Explanation((), cures("other plugins refuse the pod there")),
            id="another plugin of the profile refuses it",
        ),
        pytest.param(
            {"home": "n2"},
            launcher(status={"conditions": [UNSCHEDULABLE]}),
            [],
            NOT_KNOWN,
            Explanation((), (*cures("other plugins refuse the pod there"), f"wait until {ENDS}")),
            id="in its grace",
        ),
        pytest.param({"home": "n2", "policy": "soft"}, launcher(), [], NOT_KNOWN, Explanation(), id="a soft home"),
        pytest.param({"home": "n9"}, launcher(), [], NOT_KNOWN, Explanation(), id="a home that is gone"),
        pytest.param({}, launcher(), ["n1"], NOT_KNOWN, Explanation(), id="no home"),
        pytest.param({"home": "n2"}, launcher(node="n2"), ["n2"], NOT_KNOWN, Explanation(), id="a pod that has a node"),
        pytest.param({"home": "n2"}, make_pod(), ["n2"], NOT_KNOWN, Explanation(), id="a pod without an owner"),
    ],
)
async def test_what_is_found_out_beside_it(
    annotations: dict[str, str], pod: Pod, feasible: list[str], verdict: NodeVerdict, expected: Explanation
) -> None:
    machines = Machines()
    machines.machine("db", **annotations)

    async def why(pod: Pod, node_name: str) -> NodeVerdict:
        assert "n2" == node_name
        return verdict

    machines.handle = replace(machines.handle, profile=replace(machines.handle.profile, why=why))
    machines.restart()

    later = machines.plugin.explain(pod, Candidates.of(machines.nodes)).later
    assert expected == (Explanation() if later is None else await later(feasible))


OWNER = HomeKeeper("kubevirt.io/v1", "VirtualMachine", "default", "db", "uid-VirtualMachine-db", "")


def facts(**fields: Any) -> HomeFacts:
    """Facts about a usable home on n2, but for ``fields``."""
    usual: dict[str, Any] = {
        "owner": OWNER,
        "annotation": "homeport.dev/home",
        "node": "n2",
        "state": "usable",
        "policy": "grace",
        "policy_source": "default",
        "effect": "only home passes",
    }
    return HomeFacts(**usual | fields)


@pytest.mark.parametrize(
    ("there", "pod", "expected"),
    [
        pytest.param(lambda _: None, make_pod(), None, id="a pod without a home of any kind"),
        pytest.param(lambda _: None, launcher(), None, id="an owner that is not there"),
        pytest.param(
            lambda machines: machines.machine(),
            launcher(),
            facts(node="", state="none", effect="all pass", recorded=False),
            id="no home yet",
        ),
        pytest.param(lambda machines: machines.machine(home="n2"), launcher(), facts(), id="a home"),
        pytest.param(under_way, launcher(), facts(node="n1", recorded=False), id="a home that is being made"),
        pytest.param(
            lambda machines: machines.machine(home="n9"),
            launcher(),
            facts(
                node="n9",
                state="gone",
                cause="there is no such node",
                effect=WAITS,
                waits=True,
                since=BEGINS,
                until=ENDS,
            ),
            id="a home that is gone, in its grace",
        ),
        pytest.param(
            lambda machines: (machines.machine(home="n2"), machines.node("n2", unschedulable=True)),
            launcher(annotations={"homeport.dev/policy": "hard"}),
            facts(state="away", cause="cordoned", policy="hard", policy_source="pod", effect=WAITS, waits=True),
            id="a hard home that is away",
        ),
        pytest.param(
            lambda machines: machines.machine(home="no node\x1b"),
            launcher(),
            facts(
                node=r"'no node\x1b'",
                state="gone",
                cause="there is no such node",
                effect=WAITS,
                waits=True,
                since=BEGINS,
                until=ENDS,
            ),
            id="an annotation that is no name",
        ),
    ],
)
def test_a_home_as_data(there: Callable[[Machines], None], pod: Pod, expected: HomeFacts | None) -> None:
    machines = Machines()
    there(machines)

    assert expected == machines.plugin.explain(pod, Candidates.of(machines.nodes)).home
