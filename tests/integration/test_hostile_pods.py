"""Pods as large as the API server stores them: refused with a reason or placed, and nobody else waits for them."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.load import hostile
from tests.load.usage import peak_megabytes, resident_megabytes

StartHomeport = Callable[..., Homeport]

WEB = {"app": "web"}
LONG = "node(s) can't be judged: the pod's {} is longer than 64 KiB"
REFUSED = {
    "4,500 constraints": "spec.topologySpreadConstraints",
    "1,500 constraints, large selectors": "spec.topologySpreadConstraints",
    "20,000 values": "spec.topologySpreadConstraints",
    "20,000 requirements": "spec.topologySpreadConstraints",
    "20,000 nodeSelectorTerms": "spec.affinity",
    "50,000 tolerations": "spec.tolerations",
    "60,000 labels": "metadata.labels",
}
PLACED = ("20,000 nodeSelectorTerms, no constraint", "60,000 labels, no constraint", "20,000 ownerReferences")


def name_of(shape: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", shape.lower())


def stored(shape: str) -> objects.Json:
    """The pod of this shape, on a node of its own choice."""
    made = hostile.stored()[shape]()
    plain = objects.pod(name_of(shape), labels=made["metadata"]["labels"])
    references = [it for it in made["metadata"]["ownerReferences"] if it["kind"] == "ConfigMap"]
    kept = ("affinity", "tolerations", "topologySpreadConstraints")
    return {
        **plain,
        "metadata": {**plain["metadata"], "ownerReferences": references},
        "spec": {**plain["spec"], **{part: made["spec"][part] for part in kept if part in made["spec"]}},
    }


def says(plane: ControlPlane, pod: str, reason: str) -> bool:
    """Whether an event of the pod has this reason."""
    return any(reason in event["message"] for event in plane.client.events(pod))


@pytest.mark.long
def test_one_pod_of_each_shape_and_a_decent_one(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """A cluster with all of them: those we cannot judge say why, the others are placed, and so is the last to come."""
    for number in range(3):
        plane.client.create_node(objects.node(f"node-{number}", zone=f"zone-{number}"))
    homeport = start_homeport()

    with start_scheduler(plane, homeport):
        for shape in (*REFUSED, *PLACED):
            plane.client.create(stored(shape))
        plane.client.create(objects.pod("decent", labels=WEB, spread_constraints=[objects.spread(WEB)]))
        plane.client.wait_bound("decent", timeout=10)
        for shape in PLACED:
            plane.client.wait_bound(name_of(shape))
        for shape, part in REFUSED.items():
            told = partial(says, plane, name_of(shape), LONG.format(part))
            plane.client.wait_for(told, what=f"{shape} to be refused for its {part}")

    assert homeport.alive
    assert homeport.get("/api/v1/check") == {"consistent": True, "differences": []}


@pytest.mark.long
def test_a_restart_among_the_largest_pods_takes_little_more_memory(
    plane: ControlPlane, start_homeport: StartHomeport
) -> None:
    """70 pods of 1.38 MB, which is 97 MB of JSON: a start takes 1.5 times the memory at rest plus 64 MB at most."""
    large = objects.pod("large")
    large["spec"]["containers"][0]["args"] = ["x" * 1_380_000]
    for number in range(70):
        plane.client.create({**large, "metadata": {**large["metadata"], "name": f"large-{number}"}})
    homeport = start_homeport()

    assert homeport.get("/api/v1/status")["feeds"]["v1 Pod"]["objects"] == 70
    assert peak_megabytes(homeport.pid) <= 1.5 * resident_megabytes(homeport.pid) + 64
