"""Parts of a pod that are too long look empty: who refuses for that never signs such a pod as it does one without them.

What was refused once is refused again to every pod of the signature, by each plugin that has one: a remembered refusal
of the one pod would otherwise be that of the other.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.framework.points import FilterPlugin
from app.kube.core_v1 import Pod
from app.runtime.slots import declares
from plugins import SHIPPED
from tests.builders import PodFields, constraint, container, node_object, pod_object
from tests.harness import World, only

LONG: Final = "x" * (65 << 10)
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS: Final[Any] = [{"matchExpressions": [{"key": LONG, "operator": "Exists"}]}]
LONG_TERM: Final[Any] = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": LONG}}}
HOST_PORT: Final[Any] = {"containerPort": 80, "hostPort": 80, "name": LONG}

SPREAD: Final = constraint(app="web") | {"nodeTaintsPolicy": "Honor"}

LONG_PARTS: Final[dict[str, PodFields]] = {
    "metadata.labels": {"labels": {"app": LONG}},
    "spec.nodeSelector": {"node_selector": {"disk": LONG}},
    "spec.affinity": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": TERMS}}}},
    "spec.affinity.podAffinity": {"affinity": {"podAntiAffinity": {REQUIRED: [LONG_TERM]}}},
    "spec.tolerations": {"tolerations": [{"key": LONG}]},
    "spec.topologySpreadConstraints": {"spread": [constraint(app=LONG)]},
    "spec.containers.ports": {"containers": [container(ports=[HOST_PORT])]},
    "spec.containers.resources": {"containers": [container(requests={LONG: "1"})]},
    "spec.containers.restartPolicyRules": {"containers": [container(restartPolicyRules=[{"action": LONG}])]},
    "spec.volumes": {"more": {"volumes": [{"name": LONG, "persistentVolumeClaim": {"claimName": "c"}}]}},
    "spec.resourceClaims": {"more": {"resourceClaims": [{"name": LONG, "resourceClaimName": "c"}]}},
}

REFUSED: Final = {
    "DynamicResources": {"spec.resourceClaims"},
    "InterPodAffinity": {"metadata.labels", "spec.affinity", "spec.affinity.podAffinity"},
    "NodeAffinity": {"spec.affinity", "spec.nodeSelector"},
    "NodeDeclaredFeatures": {"spec.containers.restartPolicyRules"},
    "NodePorts": {"spec.containers.ports"},
    "NodeResourcesFit": {"spec.containers.resources"},
    "NodeUnschedulable": {"spec.tolerations"},
    "NodeVolumeLimits": {"spec.volumes"},
    "PodTopologySpread": {
        "metadata.labels",
        "spec.affinity",
        "spec.nodeSelector",
        "spec.tolerations",
        "spec.topologySpreadConstraints",
    },
    "TaintToleration": {"spec.tolerations"},
    "VolumeBinding": {"spec.volumes"},
    "VolumeRestrictions": {"spec.volumes"},
    "VolumeZone": {"spec.volumes"},
}
"""By plugin, what it refuses for its length; the others refuse nothing for that."""


JUDGING: Final = [it for it in SHIPPED if declares(it.plugin, FilterPlugin)]
NODES: Final = (
    node_object("n1", zone="z1", taints=[{"key": "spot", "effect": "NoSchedule"}]),
    node_object("n2", zone="z2", unschedulable=True),
)


def pod_with(world: World, fields: PodFields) -> Pod:
    """One pod, but for these fields: its constraint makes PodTopologySpread read whom it admits."""
    both: PodFields = {"spread": [SPREAD], **fields}
    return world.pod(pod_object("web", **both))


def world_of(plugin: str) -> World:
    return World(*NODES, profile=only(plugin))


def refused(world: World, pod: Pod) -> bool:
    return "can't be judged" in str(world.filter(pod))


@pytest.mark.parametrize("spec", JUDGING, ids=lambda spec: spec.name)
def test_who_refuses_a_part_for_its_length_does_not_sign_the_pod_as_one_without(spec: Any) -> None:
    world = world_of(spec.name)
    plain = pod_with(world, {})
    found = set()
    for field, fields in LONG_PARTS.items():
        long = pod_with(world, fields)
        if field in long.spec.oversized and refused(world, long):
            found.add(field)
            same = world.framework.search.signatures(plain).items() & world.framework.search.signatures(long).items()
            assert not same, f"{spec.name} signs a pod with a long {field} as one without"

    assert REFUSED.get(spec.name, set()) == found


@pytest.mark.parametrize("field", LONG_PARTS)
def test_a_long_part_is_long_to_some_plugin(field: str) -> None:
    assert any(field in pod_with(world_of(it.name), LONG_PARTS[field]).spec.oversized for it in JUDGING)
