"""What a person is told of a home, and what would unblock a pod."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.framework.interface import Explanation, Table
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from tests.builders import make_pod
from tests.unit.plugins.sticky_node.machines import Machines, launcher

HEAD = ("kept by", "node", "recorded", "made by")
KEEPER = "VirtualMachine default/db"


def home(node: str, *, recorded: bool, made_by: str = "") -> tuple[Table, ...]:
    return (Table("home", HEAD, ((KEEPER, node, recorded, made_by),)),)


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
                    "the pod's owner VirtualMachineInstance default/db is not in the picture: it must exist first",
                )
            ),
            id="an owner that is not there",
        ),
        pytest.param(
            lambda machines: machines.machine(),
            launcher(),
            Explanation(home("none yet: the first bind makes it", recorded=False)),
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
                home("n9", recorded=True),
                (f"node n9 is not there: bring it back, or set or remove homeport.dev/home on {KEEPER}",),
            ),
            id="a home that is gone",
        ),
    ],
)
def test_an_explanation(there: Callable[[Machines], None], pod: Pod, expected: Explanation) -> None:
    machines = Machines()
    there(machines)

    assert expected == machines.plugin.explain(pod, Candidates.of(machines.nodes))


async def test_a_home_that_could_not_be_recorded() -> None:
    """It holds all the same: the same story as filter tells."""
    machines = Machines()
    machines.machine()
    machines.writer.unwritable = {"db"}
    await machines.bind(launcher("first"), "n1")
    nodes = Candidates.of(machines.nodes)

    assert ["n1"] == machines.allowed(launcher())
    expected = home("n1", recorded=False, made_by="default/first on n1, not recorded: forbidden")
    assert Explanation(expected) == machines.plugin.explain(launcher(), nodes)

    machines.writer.unwritable = set()
    await machines.plugin.repair()
    assert Explanation(home("n1", recorded=True)) == machines.plugin.explain(launcher(), nodes)
