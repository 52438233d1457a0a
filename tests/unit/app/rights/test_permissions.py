"""Every right is needed for something that Homeport does, and follows from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from app.framework.uses import Use
from app.kube.kinds import PODS, REPLICA_SETS, SERVICES, Kind, owner_kind, partial_kind
from app.rights.permissions import (
    EnabledFeatures,
    LeaseName,
    Permission,
    PermissionNeed,
    Rule,
    guessed_plural,
    is_known,
    may_be_absent,
    rules,
)

PICTURE = "the snapshot of the cluster, which every decision needs"
CORE = {
    "list, watch nodes, pods": (PICTURE,),
    "get pods": (
        "reading back a Binding with an unknown outcome, and a pod that the watch has not reported yet",
        "explaining why a node does not fit a pod",
    ),
    "create pods/binding": ("binding pods",),
}
GONE = "reading a node that seems to be gone: used by A"
FENCE = "fencing off a Binding that can still arrive, by the annotation homeport.dev/unclear-bind on its pod"
ACTIVATE = "making the scheduler retry a waiting pod for a plugin, by the annotation homeport.dev/activated"
GUARD = "nominating a pod that was refused on a whole sample of the nodes to another one (samplingGuard)"
RACKS: Kind[Any] = partial_kind("example.com/v1", "Rack")


def told(found: Sequence[Rule]) -> dict[str, tuple[str, ...]]:
    return {str(rule): rule.reasons for rule in found}


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        pytest.param(
            EnabledFeatures((), sampling_guard=False),
            {"patch pods/status": (FENCE, ACTIVATE)},
            id="nothing but binding",
        ),
        pytest.param(
            EnabledFeatures((), sampling_guard=True),
            {"patch pods/status": (FENCE, ACTIVATE, GUARD)},
            id="the sampling guard",
        ),
        pytest.param(
            EnabledFeatures((), sampling_guard=False, lease=LeaseName("ns", "lock")),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "get, watch, update leases.coordination.k8s.io lock in namespace ns": (
                    "holding the Lease that says which replica decides (leaderElection)",
                ),
                "create leases.coordination.k8s.io in namespace ns": (
                    "creating that Lease; a rule for create cannot be limited to a name",
                ),
            },
            id="replicas",
        ),
        pytest.param(
            EnabledFeatures((), sampling_guard=False, events=True),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "create, patch events.events.k8s.io": (
                    "recording Events about homes, nominations, leaders and waiting pods (events)",
                ),
            },
            id="events",
        ),
        pytest.param(
            EnabledFeatures(
                (Use("A", SERVICES), Use("B", SERVICES), Use("A", REPLICA_SETS), Use("A", SERVICES)), False
            ),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "list, watch services": (f"{PICTURE}: read by A, B",),
                "list, watch replicasets.apps": (f"{PICTURE}: read by A",),
            },
            id="kinds that plugins read, some of them twice",
        ),
        pytest.param(
            EnabledFeatures(
                (Use("A", RACKS, looks_up=True, writes="a mark"), Use("A", SERVICES, writes="a sign")), False
            ),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "get nodes": (GONE,),
                "list, watch racks.example.com": (f"{PICTURE}: read by A",),
                "get racks.example.com": ("reading an object that the watch has not reported yet: used by A",),
                "patch racks.example.com": ("writing a mark on these: A",),
                "list, watch services": (f"{PICTURE}: read by A",),
                "get, patch services": ("writing a sign on these: A",),
            },
            id="kinds that are looked up and written: after a conflict they are read",
        ),
        pytest.param(
            EnabledFeatures((Use("A", RACKS, writes="what it knows", whole=True),), False),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "list, watch racks.example.com": (f"{PICTURE}: read by A",),
                "get, create, patch, delete racks.example.com": ("writing what it knows on these: A",),
            },
            id="a kind of our own, of which objects are made and deleted",
        ),
        pytest.param(
            EnabledFeatures((Use("A", PODS, looks_up=True),), False),
            {
                "list, watch nodes": (PICTURE,),
                "get nodes": (GONE,),
                "list, watch pods": (PICTURE, f"{PICTURE}: read by A"),
                "get pods": (*CORE["get pods"], "reading an object that the watch has not reported yet: used by A"),
                "create pods/binding": CORE["create pods/binding"],
                "patch pods/status": (FENCE, ACTIVATE),
            },
            id="a right that is needed twice is granted once",
        ),
        pytest.param(
            EnabledFeatures((Use("A", SERVICES),), False, explained=(Use("B", SERVICES), Use("B", REPLICA_SETS))),
            {
                "patch pods/status": (FENCE, ACTIVATE),
                "list, watch services": (f"{PICTURE}: read by A",),
                "list, watch replicasets.apps": ("explain alone, no decision (explain: complete): read by B",),
            },
            id="kinds that only explain reads",
        ),
    ],
)
def test_the_rules_of_a_configuration(work: EnabledFeatures, expected: Mapping[str, tuple[str, ...]]) -> None:
    core = {} if "list, watch nodes" in expected else CORE

    assert {**core, **expected} == told(rules(work.needs({})))


def test_what_a_cluster_says_counts_more_than_a_guess() -> None:
    work = EnabledFeatures((Use("A", RACKS), Use("A", SERVICES)), sampling_guard=False)

    found = told(rules(work.needs({RACKS: "rackses"}, absent=[SERVICES])))

    assert {"list, watch rackses.example.com"} == set(found) - {*CORE, "patch pods/status"}


def test_each_right_is_in_one_rule_and_none_is_added() -> None:
    needs = [
        PermissionNeed(Permission(verb, "", resource, name=name), reason)
        for verb, resource, name, reason in (
            ("watch", "a", "", "x"),
            ("get", "a", "", "x"),
            ("get", "b", "", "x"),
            ("watch", "b", "", "x"),
            ("watch", "c", "", "x"),
            ("watch", "a", "n", "x"),
            ("get", "c", "", "y"),
        )
    ]

    granted = [
        Permission(verb, rule.group, resource, rule.namespace, rule.name)
        for rule in rules(needs)
        for verb in rule.verbs
        for resource in rule.resources
    ]
    assert sorted(map(str, {need.permission for need in needs})) == sorted(map(str, granted))
    assert ["get, watch a, b", "watch c", "watch a n", "get c"] == [str(rule) for rule in rules(needs)]


@pytest.mark.parametrize(
    ("api_version", "kind", "plural", "known", "may_be_missing"),
    [
        ("v1", "Service", "services", True, False),
        ("apps/v1", "StatefulSet", "statefulsets", True, False),
        ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", True, False),
        ("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances", True, True),
        ("example.com/v1", "Policy", "policies", False, True),
        ("example.com/v1", "Chassis", "chassises", False, True),
    ],
)
def test_plurals(api_version: str, kind: str, plural: str, known: bool, may_be_missing: bool) -> None:
    found = owner_kind(api_version, kind)

    assert (plural, known, may_be_missing) == (guessed_plural(found), is_known(found), may_be_absent(found))
