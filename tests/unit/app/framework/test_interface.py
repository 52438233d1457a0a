"""Rules of the contract itself: which nodes an inclusion admits, how arguments are read, how a plugin is built."""

import time
from typing import Any

import pytest
from pydantic import ValidationError

from app.framework.interface import ALL_NODES, Inclusion, Reads, Timing
from app.kube.kinds import SERVICES
from app.kube.taints import Toleration
from tests.builders import expression, make_node, make_pod, required_affinity, taint, term, toleration
from tests.fakes import Alpha, NoArgs, SizeArgs, spec_of
from tests.harness import WALL_CLOCK, World

TAINTED = make_node("n1", labels={"disk": "ssd"}, taints=[taint("dedicated")])
ON_SSD = make_pod(affinity=required_affinity(term(expression("disk", "In", "ssd")))).spec.affinity
ON_HDD = make_pod(node_selector={"disk": "hdd"}).spec.affinity
TOLERANT = make_pod(tolerations=[toleration("dedicated")]).spec.tolerations


@pytest.mark.parametrize(
    ("inclusion", "expected"),
    [
        pytest.param(ALL_NODES, True, id="no policy excludes nothing"),
        pytest.param(Inclusion(affinity=ON_SSD), True, id="affinity: the node matches"),
        pytest.param(Inclusion(affinity=ON_HDD), False, id="affinity: the node does not match"),
        pytest.param(Inclusion(tolerations=TOLERANT), True, id="taints: tolerated"),
        pytest.param(Inclusion(tolerations=()), False, id="taints: no toleration at all is a policy too"),
        pytest.param(Inclusion(tolerations=(Toleration("other", "Exists"),)), False, id="taints: not tolerated"),
        pytest.param(Inclusion(ON_SSD, ()), False, id="both must admit the node"),
    ],
)
def test_an_inclusion_admits_nodes(inclusion: Inclusion, expected: bool) -> None:
    assert expected is inclusion.admits(TAINTED)


def test_an_unschedulable_node_is_excluded_by_its_taint_alone() -> None:
    assert Inclusion(tolerations=()).admits(make_node(unschedulable=True))


def test_arguments_carry_kind_and_version_as_in_a_scheduler_configuration() -> None:
    given = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "SizeArgs", "size": 3}

    assert given == SizeArgs.model_validate(given).model_dump()


@pytest.mark.parametrize(
    "given", [pytest.param({"sise": 1}, id="an unknown field"), pytest.param({"size": "big"}, id="a wrong type")]
)
def test_arguments_are_refused_as_a_whole(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SizeArgs.model_validate(given)


def test_arguments_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SizeArgs().size = 2  # type: ignore[misc]  # that is the rule


def test_the_wall_clock_is_the_machines_and_in_a_world_the_tests() -> None:
    """The other one never goes back, and says nothing of the time of day."""
    world = World()
    handle = world.handle

    assert time.time is Timing().wall_clock
    assert WALL_CLOCK == handle.timing.wall_clock()
    world.wall_clock.now += 60.0
    assert (WALL_CLOCK + 60.0, 0.0) == (handle.timing.wall_clock(), handle.timing.clock())


def test_a_spec_builds_its_plugin_from_arguments_and_handle() -> None:
    handle = World().handle
    spec = spec_of(Alpha, SizeArgs, kinds=lambda args: (SERVICES,) * args.size)

    built: Any = spec.build(SizeArgs(size=2), handle)

    assert (SizeArgs(size=2), handle) == (built.args, built.handle)
    assert (SERVICES, SERVICES) == spec.needs(SizeArgs(size=2)).kinds
    assert "PluginSpec('Alpha')" == repr(spec)


def test_a_spec_reads_the_cluster_and_no_further_kinds_unless_it_says_otherwise() -> None:
    spec = spec_of(Alpha)

    assert (Reads.CLUSTER, None, ()) == (spec.reads, spec.parts, spec.needs(NoArgs()).kinds)
