"""Which pods are lost in each variant, and which of them come back elsewhere."""

from __future__ import annotations

import pytest

from app.kube.kinds import owner_kind
from tests.api.village import machine
from tests.builders import JsonObject, controller, encoded, mounting, toleration
from tests.builders import claim_object as claim
from tests.builders import volume_object as volume
from tests.unit.app.whatif.losses import (
    NOT_READY,
    VARIANTS,
    ZONES,
    change,
    lose,
    numbers,
    row,
    web,
)
from tests.unit.app.whatif.scratches import pod, scratch_of


def test_a_volume_ties_a_pod_to_the_zone() -> None:
    objects = [claim(volume="pv-1"), volume(claim="data", zone="c"), web("web-c", "c1", more=mounting("data"))]

    found = row(scratch_of(*ZONES, web("web-a", "a1"), *objects))

    assert 1 == found["tiedByVolume"]
    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}
    assert None is change(found["gone"])


def test_pods_that_nothing_creates_again() -> None:
    """Daemon pods stay on a tainted node. A pod without a controller is evicted."""
    daemon = pod("agent-c", node="c1", owner=controller("DaemonSet", "agent"))
    scratch = scratch_of(*ZONES, daemon, pod("bare", node="c1"))

    agent, bare = row(scratch, "agent"), row(scratch, "bare")

    assert {"gone": (1, 1), "tainted": (0, 0), "full": (1, 1)} == {
        it: (agent[it]["lost"], agent[it]["notRecreated"]) for it in VARIANTS
    }
    assert dict.fromkeys(VARIANTS, (1, 1)) == {it: (bare[it]["lost"], bare[it]["notRecreated"]) for it in VARIANTS}


@pytest.mark.parametrize(
    ("policy", "outcome", "after_grace", "helps"),
    [
        pytest.param("hard", (1, 0, 1), 0, "grace", id="hard: waits for its home"),
        pytest.param("grace", (1, 1, 0), 1, None, id="grace: starts elsewhere later"),
        pytest.param("soft", (1, 1, 0), 0, None, id="soft: starts elsewhere at once"),
        pytest.param("off", (1, 1, 0), 0, None, id="off: has no home"),
    ],
)
def test_the_policy_of_a_home_decides(
    policy: str, outcome: tuple[int, int, int], after_grace: int, helps: str | None
) -> None:
    """The machine's home is in the lost zone. Also where the zone is only full, the machine does not fit on it.

    On an unreachable node, its launcher stays Terminating, so KubeVirt makes no other one.
    """
    virtual, instance, launcher = machine("db", "c1", node="c1")
    virtual["metadata"]["annotations"]["homeport.dev/policy"] = policy
    scratch = scratch_of(*ZONES, launcher)
    for found in (virtual, instance):
        kind = owner_kind(found["apiVersion"], found["kind"])
        scratch.cluster.others.upsert(kind, kind.decode(encoded(found)))

    outcomes = row(scratch, "db")

    assert "VirtualMachine" == outcomes["kind"]
    expected = {**dict.fromkeys(VARIANTS, outcome), "tainted": (1, 0, 0)}
    assert expected == {it: numbers(outcomes[it]) for it in VARIANTS}
    assert 1 == outcomes["tainted"]["notEnded"]
    assert {**dict.fromkeys(VARIANTS, after_grace), "tainted": 0} == {it: outcomes[it]["afterGrace"] for it in VARIANTS}
    change_of = {it: outcomes[it]["change"] for it in VARIANTS}
    helping = {name: it and it.value for name, it in change_of.items()}
    assert {**dict.fromkeys(VARIANTS, helps), "tainted": None} == helping


@pytest.mark.parametrize("kind", ["StatefulSet", "VirtualMachineInstance"])
def test_a_controller_that_waits_for_the_old_pod_creates_none_on_tainted_nodes(kind: str) -> None:
    found = row(scratch_of(*ZONES, web("web-c", "c1", owner=controller(kind, "web"))))

    assert {"gone": (1, 1, 0), "tainted": (1, 0, 0), "full": (1, 1, 0)} == {it: numbers(found[it]) for it in VARIANTS}
    assert [0, 1, 0] == [found[it]["notEnded"] for it in VARIANTS]


def test_no_pod_starts_on_a_lost_node_even_if_it_tolerates_the_taints() -> None:
    tolerations = [toleration(effect="NoSchedule"), NOT_READY]
    full = [pod(f"full-{it}", cpu="4", node=f"{it}1", owner=controller("ReplicaSet", "full")) for it in "ab"]

    found = row(scratch_of(*ZONES, *full, web("web-c", "c1", cpu="1", tolerations=tolerations)))

    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}


def test_nothing_is_evicted_if_no_node_would_be_ready() -> None:
    (domain,) = lose(scratch_of(ZONES[2], web("web-c", "c1")))["domains"]

    assert (True, 0, 1) == (domain["evictsNothing"], domain["tainted"]["lost"], domain["full"]["lost"])


def test_static_pods_belong_to_their_node() -> None:
    mirror = pod("etcd-c1", node="c1", owner=controller("Node", "c1", api_version="v1"))

    (domain,) = lose(scratch_of(*ZONES, mirror))["domains"]

    assert (1, 1, []) == (domain["pods"], domain["staticPods"], domain["workloads"])


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        pytest.param([], False, id="not tolerated"),
        pytest.param([NOT_READY], False, id="for 300 s"),
        pytest.param([toleration("node.kubernetes.io/unreachable", effect="NoExecute")], True, id="forever"),
        pytest.param([toleration(effect="NoExecute"), NOT_READY], True, id="the first that matches decides"),
        pytest.param([toleration("node.kubernetes.io/unreachable", effect="NoSchedule")], False, id="another effect"),
    ],
)
def test_pods_that_tolerate_the_taint_stay(tolerations: list[JsonObject], stays: bool) -> None:
    found = row(scratch_of(*ZONES, web("web-c", "c1", tolerations=tolerations)))

    assert (1, 0 if stays else 1) == (found["gone"]["lost"], found["tainted"]["lost"])
