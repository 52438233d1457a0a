"""Rules of counts: which nodes an inclusion admits."""

from __future__ import annotations

import pytest

from app.framework.counts import ALL_NODES, Inclusion
from app.kube.taints import Toleration
from tests.builders import expression, make_node, make_pod, required_affinity, taint, term, toleration

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
