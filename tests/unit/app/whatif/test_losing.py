"""Loss of a zone: the three variants, the field that helps, and the copy is restored after each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from app.kube.kinds import owner_kind
from app.verbs.outcome import VerbFailure
from app.whatif.budget import Budget
from app.whatif.losing import LossRequest, Steps, lost
from app.whatif.scratch import ScratchCluster
from tests.api.village import machine
from tests.builders import ZONE, JsonObject, constraint, controller, encoded, mounting, toleration
from tests.builders import claim_object as claim
from tests.builders import volume_object as volume
from tests.unit.app.whatif.scratches import node, pod, scratch_of

WEB: Final = {"app": "web"}
VARIANTS: Final = ("gone", "tainted", "full")
ZONES: Final = [node(f"{zone}1", zone=zone) for zone in "abc"]
NOT_READY: Final = {**toleration("node.kubernetes.io/unreachable", effect="NoExecute"), "tolerationSeconds": 300}


def web(name: str, where: str, **fields: Any) -> JsonObject:
    """A pod of ReplicaSet web on a node."""
    fields = {"labels": WEB, "owner": controller("ReplicaSet", "web"), "tolerations": [NOT_READY], **fields}
    return pod(name, node=where, **fields)


def replicas(**fields: Any) -> list[JsonObject]:
    return [web(f"web-{zone}", f"{zone}1", **fields) for zone in "abc"]


def lose(scratch: ScratchCluster, value: str | None = "c", key: str = ZONE) -> Mapping[str, Any]:
    return ended(lost(scratch, LossRequest(key, value), Budget(None)))


def ended(steps: Steps) -> Mapping[str, Any]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Mapping[str, Any] = end.value
            return answer


def row(scratch: ScratchCluster, name: str = "web") -> Mapping[str, Any]:
    """What is said of one workload when zone c is lost."""
    (domain,) = lose(scratch)["domains"]
    (found,) = (it for it in domain["workloads"] if it["name"] == name)
    return dict(found)


def numbers(outcome: Mapping[str, Any]) -> tuple[int, int, int]:
    return outcome["lost"], outcome["placed"], outcome["waiting"]


def change(outcome: Mapping[str, Any]) -> tuple[str, str, int] | None:
    found = outcome["change"]
    return None if found is None else (found.field.rpartition(".")[2], found.value, found.waiting)


def test_the_three_variants_differ() -> None:
    """A zone that is gone does not count. A tainted zone and a full zone count, and their minimum of 0 pods stays."""
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, app="web")])))

    assert 3 == found["running"]
    assert {"gone": (1, 1, 0), "tainted": (1, 0, 1), "full": (1, 0, 1)} == {it: numbers(found[it]) for it in VARIANTS}
    assert [("PodTopologySpread", 2)] == [(it["plugin"], it["count"]) for it in found["tainted"]["reasons"]]


def test_the_field_that_helps_differs_too() -> None:
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, app="web")])))

    assert {
        "gone": None,
        "tainted": ("nodeTaintsPolicy", "Honor", 0),
        "full": ("maxSkew", "2", 0),
    } == {it: change(found[it]) for it in VARIANTS}


def test_fewer_zones_than_min_domains() -> None:
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, min_domains=3, app="web")])))

    assert (1, 0, 1) == numbers(found["gone"])
    assert ("minDomains", "none", 0) == change(found["gone"])


def test_required_anti_affinity() -> None:
    """The pods that stay have the rule too, so it is changed in all of them."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": WEB}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    found = row(scratch_of(*ZONES, *replicas(affinity=apart)))

    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}
    assert ("podAntiAffinity", "preferred instead of required", 0) == change(found["gone"])


def test_a_request_that_fits_nowhere() -> None:
    found = row(scratch_of(*ZONES, *(web(f"web-{zone}", f"{zone}1", cpu="3") for zone in "abc")))

    assert (1, 0, 1) == numbers(found["full"])
    assert ("cpu", "1 instead of 3", 0) == change(found["full"])


def test_pods_that_need_the_zone() -> None:
    found = row(scratch_of(*ZONES, *replicas(node_selector={ZONE: "c"})))

    assert ("spec.nodeSelector and required node affinity", "none", 0) == (
        found["gone"]["change"].field,
        found["gone"]["change"].value,
        found["gone"]["change"].waiting,
    )


def test_a_field_is_named_only_if_it_helps() -> None:
    """The zone's pod fits nowhere else, whatever its constraint says."""
    full = [pod(f"full-{zone}", node=f"{zone}1", cpu="4") for zone in "ab"]

    found = row(scratch_of(*ZONES, *full, web("web-c", "c1", spread=[constraint(ZONE, app="web")])))

    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}
    assert dict.fromkeys(VARIANTS) == {it: change(found[it]) for it in VARIANTS}


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
    """The machine's home is in the lost zone. Also where the zone is only full, the machine does not fit on it."""
    virtual, instance, launcher = machine("db", "c1", node="c1")
    virtual["metadata"]["annotations"]["homeport.dev/policy"] = policy
    scratch = scratch_of(*ZONES, launcher)
    for found in (virtual, instance):
        kind = owner_kind(found["apiVersion"], found["kind"])
        scratch.cluster.others.upsert(kind, kind.decode(encoded(found)))

    found = row(scratch, "db")

    assert "VirtualMachine" == found["kind"]
    assert dict.fromkeys(VARIANTS, outcome) == {it: numbers(found[it]) for it in VARIANTS}
    assert dict.fromkeys(VARIANTS, after_grace) == {it: found[it]["afterGrace"] for it in VARIANTS}
    change_of = {it: found[it]["change"] for it in VARIANTS}
    assert dict.fromkeys(VARIANTS, helps) == {name: it and it.value for name, it in change_of.items()}


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


def test_victims_of_preemption_are_counted() -> None:
    """A pod of the zone takes the room of another workload, whose pod comes back and waits."""
    low = pod("low-a", node="a1", cpu="4", owner=controller("ReplicaSet", "low"))
    nodes = [node("a1", zone="a"), node("c1", zone="c")]

    scratch = scratch_of(*nodes, low, web("web-c", "c1", cpu="4", priority=10))

    assert (1, 1, 0) == numbers(row(scratch)["gone"])
    outcome = row(scratch, "low")["gone"]
    assert (0, 1, 0, 1) == (outcome["lost"], outcome["evicted"], outcome["placed"], outcome["waiting"])


def test_all_zones_worst_first() -> None:
    """Zone b has two of the pods, and no other zone has room for them."""
    small = [node("a1", zone="a", cpu="1"), node("b1", zone="b", cpu="2"), node("c1", zone="c", cpu="1")]
    pods = [web(f"web-{number}", where) for number, where in enumerate(("a1", "b1", "b1", "c1"))]

    domains = lose(scratch_of(*small, *pods), value=None)["domains"]

    assert [("b", 2), ("a", 1), ("c", 1)] == [(it["value"], it["gone"]["waiting"]) for it in domains]
    assert ["web"] == [it["name"] for it in domains[0]["workloads"]]


def test_without_time_the_rest_is_left_out() -> None:
    steps = lost(scratch_of(*ZONES, *replicas()), LossRequest(ZONE, "c"), Budget(0.0, iter(range(100)).__next__))

    (domain,) = ended(steps)["domains"]
    assert [None, None, None] == [domain[it] for it in VARIANTS]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        pytest.param(
            "topology.kubernetes.io/zones",
            None,
            'no node has the label "topology.kubernetes.io/zones"; did you mean label topology.kubernetes.io/zone?',
            id="key",
        ),
        pytest.param(
            ZONE,
            "eu-1d",
            'no node has the label "topology.kubernetes.io/zone=eu-1d"; did you mean eu-1b or eu-1a?',
            id="value",
        ),
    ],
)
def test_what_no_node_has(key: str, value: str | None, message: str) -> None:
    with pytest.raises(VerbFailure) as failed:
        lose(scratch_of(*(node(f"n{zone}", zone=f"eu-1{zone}") for zone in "ab")), value, key)

    assert ("nothing_to_do", message) == (failed.value.outcome, failed.value.message)
