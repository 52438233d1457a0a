"""Generated cases of preemption beside a stock kube-scheduler: a sample of ``tests.conformance.preemption_cases``."""

from tests.conformance.preemption_cases import measure
from tests.controlplane.controlplane import ControlPlane

CASES = 12


def test_homeport_evicts_the_pods_that_the_in_tree_plugin_evicts(plane: ControlPlane) -> None:
    tally = measure(plane, CASES)

    assert [] == tally.wrong
    assert CASES == tally.cases
    assert tally.equal > CASES / 2
    assert min(tally.victims, tally.stock_victims) > CASES / 2
