"""Rules that compare a pod template with a cluster: each finds the mistake, and nothing in its sound twin."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.lint.placement import most_replicas
from app.lint.rules import Severity
from tests.builders import (
    HOSTNAME,
    ZONE,
    JsonObject,
    claim_object,
    constraint,
    expression,
    mounting,
    node_object,
    pod_object,
    required_affinity,
    taint,
    term,
    toleration,
    volume_object,
)
from tests.harness import World, only
from tests.unit.app.lint.examples import WEB, cluster_of, ids, linted, workload

RACK = "example.com/rack"
GPU = taint("example.com/gpu")
REVISION = ["pod-template-hash"]
ZONES = [node_object(f"n{it}", zone=it) for it in "abc"]


def hard(key: str = ZONE, **more: Any) -> JsonObject:
    return constraint(key, match_label_keys=REVISION, app="web", **more)


def test_a_key_that_no_node_has() -> None:
    cluster = cluster_of(*ZONES)
    found = linted([workload(hard(RACK), constraint(f"{RACK}s", soft=True, app="web"))], cluster).findings

    assert [("unknown-key", Severity.ERROR), ("unknown-key", Severity.WARNING)] == [
        (it.id, it.severity) for it in found
    ]
    assert [] == ids([workload(hard())], cluster)


def test_a_large_cluster() -> None:
    """Counts of many nodes are computed in steps."""
    nodes = [node_object(f"n{number}", zone=f"z{number % 3}") for number in range(1500)]
    both = [hard(min_domains=4), hard(RACK)]

    assert ["min-domains", "unknown-key"] == ids([workload(*both)], cluster_of(*nodes))


IN_A = required_affinity(term(expression(ZONE, "In", "a")))


@pytest.mark.parametrize(
    ("spread", "spec", "message"),
    [
        (hard(min_domains=4), {}, "minDomains is 4, and the cluster has 3 domains"),
        (hard(min_domains=2), {"affinity": IN_A}, "minDomains is 2, and of 3 domains the pods can use 1"),
        (hard(min_domains=2, affinity_policy="Ignore"), {"affinity": IN_A}, ""),
        (hard(min_domains=3), {}, ""),
        (hard(), {"affinity": required_affinity(term(expression(ZONE, "In", "x")))}, ""),
        (hard(), {}, ""),
    ],
)
def test_min_domains_above_the_domains(spread: JsonObject, spec: JsonObject, message: str) -> None:
    found = linted([workload(spread, kind="StatefulSet", **spec)], cluster_of(*ZONES)).findings

    assert bool(message) == bool(found)
    assert all((it.id, message in it.message) == ("min-domains", True) for it in found)


def test_min_domains_that_honours_taints() -> None:
    cluster = cluster_of(*ZONES, node_object("d", zone="d", taints=[GPU]))

    assert ["min-domains"] == ids([workload(hard(min_domains=4, taints_policy="Honor"))], cluster)
    tolerating = workload(hard(min_domains=4, taints_policy="Honor"), tolerations=[toleration(GPU["key"])])
    assert [] == ids([tolerating], cluster)


TAINTED = [*ZONES, node_object("d", zone="d", taints=[GPU])]


def test_tainted_domains_hold_the_minimum() -> None:
    found = linted([workload(hard(), replicas=4)], cluster_of(*TAINTED)).findings

    assert [] == ids([workload(hard(), replicas=3)], cluster_of(*TAINTED))
    assert [("tainted-domains", Severity.ERROR)] == [(it.id, it.severity) for it in found]
    assert f"the taint example.com/gpu of {ZONE} d" in found[0].message
    assert "at most 3 pods fit" in found[0].message


@pytest.mark.parametrize(
    ("objects", "obj"),
    [
        (TAINTED, workload(hard(taints_policy="Honor"))),
        (TAINTED, workload(hard(), tolerations=[toleration(GPU["key"])])),
        (TAINTED, workload(constraint(soft=True, app="web"))),
        (TAINTED, workload(hard(), affinity=required_affinity(term(expression(ZONE, "NotIn", "d"))))),
        ([*TAINTED, node_object("e", zone="d")], workload(hard())),
        ([*TAINTED, pod_object("web-0", labels=WEB, node="d")], workload(hard())),
        ([*ZONES, node_object("d", zone="d", taints=[taint("node.kubernetes.io/not-ready")])], workload(hard())),
    ],
    ids=["honoured", "tolerated", "soft", "not counted", "another node", "has a pod", "for a while"],
)
def test_tainted_domains_without_harm(objects: list[JsonObject], obj: JsonObject) -> None:
    assert [] == ids([{**obj, "spec": {**obj["spec"], "replicas": 4}}], cluster_of(*objects))


def test_what_lint_says_of_taints_is_what_the_plugin_does() -> None:
    """The scheduler's rule lets one pod into each zone, and no fourth, as the finding claims."""
    assert 3 == placed(World(*TAINTED, profile=only("PodTopologySpread", "TaintToleration")), [hard()])


HOSTS = [
    node_object(f"{zone}{number}", zone=zone)
    for zone, hosts in (("a", 3), ("b", 3), ("c", 1))
    for number in range(hosts)
]


def test_zone_and_host_allow_few() -> None:
    both = (hard(), hard(HOSTNAME))
    found = linted([workload(*both, replicas=6)], cluster_of(*HOSTS)).findings

    assert ["zone-and-host"] == [it.id for it in found]
    assert "at most 5 pods fit, and there are 6 replicas" in found[0].message
    assert "(a 3, b 3, c 1)" in found[0].message
    assert [] == ids([workload(*both, replicas=5)], cluster_of(*HOSTS))
    assert [] == ids([workload(*both, replicas=6)], cluster_of(*HOSTS[:6]))
    assert [] == ids([workload(hard(), constraint(HOSTNAME, soft=True, app="web"), replicas=6)], cluster_of(*HOSTS))


def placed(world: World, spread: list[JsonObject], most: int = 15) -> int:
    """How many pods the plugin lets in, each on the emptiest of the domains and hosts that it allows."""
    zones: Counter[str] = Counter()
    hosts: Counter[str] = Counter()
    for number in range(most):
        pod = world.pod(f"web-{number}", labels=WEB, spread=spread)
        fits = [name for name, answer in world.filter(pod).items() if answer == "Success"]
        if not fits:
            return number
        labels = {name: world.cluster.nodes[name].node.labels for name in fits}
        best = min(fits, key=lambda name: (zones[labels[name][ZONE]], hosts[name], name))
        zones[labels[best][ZONE]] += 1
        hosts[best] += 1
        world.add(pod_object(f"web-{number}", labels=WEB, spread=spread, node=best))
    return most


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_the_bound_of_zone_and_host_is_that_of_the_plugin(sizes: list[int], skew: int, host_skew: int) -> None:
    nodes = [node_object(f"z{zone}-{host}", zone=f"z{zone}") for zone, size in enumerate(sizes) for host in range(size)]
    spread = [hard(skew=skew), hard(HOSTNAME, skew=host_skew)]
    world = World(*nodes, profile=only("PodTopologySpread"))

    bound = most_replicas({f"z{zone}": size for zone, size in enumerate(sizes)}, skew, host_skew, 15)

    assert placed(world, spread) == min(15, bound)


@pytest.mark.parametrize(
    ("sizes", "skew", "expected"),
    [((2, 2), 1, 2**31 - 1), ((2, 3), 2**31 - 1, 2**31 - 1), ((1, 2), 10, 32), ((), 1, 2**31 - 1)],
)
def test_many_replicas_take_no_longer(sizes: tuple[int, ...], skew: int, expected: int) -> None:
    bound = most_replicas({f"z{zone}": size for zone, size in enumerate(sizes)}, skew, 1, 2**31 - 1)

    assert expected == min(bound, 2**31 - 1)


def volumes(*zones: str) -> list[JsonObject]:
    """Claims of the ordinals of StatefulSet web, with volumes in these zones; ``?`` is not bound yet."""
    objects = []
    for ordinal, zone in enumerate(zones):
        claim = f"data-web-{ordinal}"
        if zone == "?":
            objects.append(claim_object(claim))
        else:
            objects += [
                claim_object(claim, volume=f"pv-{ordinal}"),
                volume_object(f"pv-{ordinal}", claim=claim, zone=zone),
            ]
    return objects


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        ("aab", ["volume-zone"]),
        ("abc", []),
        ("aa?", ["volume-zone"]),
        ("aa??", []),
        ("aabbcc", []),
        ("aaab??", ["volume-zone"]),
        ("???", []),
    ],
)
def test_volumes_of_ordinals(zones: str, expected: list[str]) -> None:
    more = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}
    obj = workload(hard(), kind="StatefulSet", replicas=len(zones), more=more)

    assert expected == ids([obj], cluster_of(*ZONES, *volumes(*zones)))


def test_a_shared_volume() -> None:
    cluster = cluster_of(*ZONES, claim_object("shared", volume="pv"), volume_object("pv", claim="shared", zone="b"))
    using = mounting("shared")

    found = linted([workload(hard(), replicas=2, **using)], cluster).findings
    assert ["volume-zone"] == [it.id for it in found]
    assert "(a 0, b 2, c 0)" in found[0].message
    assert [] == ids([workload(hard(), replicas=1, **using)], cluster)
    assert [] == ids([workload(constraint(soft=True, app="web"), replicas=2, **using)], cluster)


def test_a_scheduler_that_nobody_is() -> None:
    served = pod_object("other", scheduler="batch", node="na")

    assert ["unknown-scheduler"] == ids([workload(schedulerName="batch")], cluster_of(*ZONES))
    assert [] == ids([workload(schedulerName="batch")], cluster_of(*ZONES, served))
    assert [] == ids([workload()], cluster_of(*ZONES))


def test_pods_of_a_daemon_set_have_their_nodes() -> None:
    assert [] == ids([workload(hard(RACK), kind="DaemonSet")], cluster_of(*ZONES))
