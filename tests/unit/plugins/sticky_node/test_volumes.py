"""From where the bound volumes of a pod can be used, and of what nothing can be said."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.cache.cluster import Cluster
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from app.kube.volumes import MOST_VOLUMES
from plugins.sticky_node.volumes import HOSTNAME, Volumes
from tests.builders import (
    JsonObject,
    claim_object,
    encoded,
    expression,
    make_node,
    mounting,
    term,
    volume_object,
)
from tests.unit.plugins.sticky_node.machines import launcher

NODE: Final = make_node("n1", zone="z1")
POD: Final = launcher(more=mounting("data"))


def affinity(*terms: JsonObject, **more: Any) -> JsonObject:
    """``more`` of a volume."""
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}, **more}


class World:
    """A picture with claims and volumes."""

    def __init__(self, *found: JsonObject) -> None:
        self.cluster = Cluster()
        self.volumes = Volumes(self.cluster)
        self.add(*found)

    def add(self, *found: JsonObject) -> None:
        for it in found:
            kind = PERSISTENT_VOLUMES if it["kind"] == "PersistentVolume" else PERSISTENT_VOLUME_CLAIMS
            self.cluster.others.upsert(kind, kind.decode(encoded(it)))

    def unreached(self, pod: Any = POD, node: Any = NODE) -> str:
        found = self.volumes.unreached(pod, node)
        return "" if found is None else found.volume


BOUND: Final = claim_object(volume="pv-1")
AWAY: Final = volume_object(claim="data", zone="z2")


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([BOUND, AWAY], "pv-1", id="its zone is another"),
        pytest.param([BOUND, volume_object(claim="data", zone="z1")], "", id="its zone is the node's"),
        pytest.param([BOUND, volume_object(claim="data")], "", id="it can be used from anywhere"),
        pytest.param([BOUND], "", id="there is no such volume"),
        pytest.param([AWAY], "", id="there is no such claim"),
        pytest.param([claim_object(), AWAY], "", id="the claim is not bound"),
        pytest.param(
            [claim_object(more={"volumeName": "pv-1"}), AWAY], "", id="the claim names it, and is not bound to it yet"
        ),
        pytest.param(
            [
                BOUND,
                volume_object(claim="data", more=affinity(term(expression("zone", "In", "z2")), term()) | {"csi": {}}),
            ],
            "pv-1",
            id="a term that matches nothing",
        ),
        pytest.param(
            [BOUND, volume_object(claim="data", more=affinity(term(fields=[expression("metadata.name", "In", "n9")])))],
            "",
            id="kube-scheduler does not look at names",
        ),
    ],
)
def test_a_bound_volume_has_its_place(objects: list[JsonObject], expected: str) -> None:
    assert expected == World(*objects).unreached()


def test_the_first_of_several_is_told() -> None:
    claims = [claim_object(it, volume=f"pv-{it}") for it in "abc"]
    volumes = [
        volume_object(f"pv-{it}", claim=it, zone=zone) for it, zone in zip("abc", ("z1", "z3", "z2"), strict=True)
    ]
    world = World(*claims, *volumes)

    assert "pv-b" == world.unreached(launcher(more=mounting("a", "b", "c")))
    assert "pv-c" == world.unreached(launcher(more=mounting("c", "b", "a")))
    assert "" == world.unreached(launcher(more=mounting("a")))


def test_the_claim_of_an_ephemeral_volume_is_that_of_its_pod() -> None:
    world = World(claim_object("launcher-scratch", volume="pv-1"), volume_object(claim="launcher-scratch", zone="z2"))

    assert "pv-1" == world.unreached(launcher(more=mounting(ephemeral=["scratch"])))
    assert "" == world.unreached(launcher("other", more=mounting(ephemeral=["scratch"])))


@pytest.mark.parametrize(
    ("kind", "key"), [(PERSISTENT_VOLUME_CLAIMS, ("default", "data")), (PERSISTENT_VOLUMES, ("", "pv-1"))]
)
def test_of_what_cannot_be_read_nothing_is_said(kind: Any, key: tuple[str, str]) -> None:
    world = World(BOUND, AWAY)
    world.cluster.leave_out(kind, key, "too long")

    assert "" == world.unreached()


def test_of_a_pod_with_too_many_volumes_nothing_is_said() -> None:
    names = ["data", *map(str, range(MOST_VOLUMES))]

    assert "" == World(BOUND, AWAY).unreached(launcher(more=mounting(*names)))


@pytest.mark.parametrize(
    ("csi", "in_tree", "expected"),
    [
        pytest.param("z1", "z2", "", id="by the CSI driver's word"),
        pytest.param("z2", "z1", "", id="by the in-tree driver's word"),
        pytest.param("z2", "z2", "pv-1", id="by neither"),
    ],
)
def test_a_volume_of_an_in_tree_driver_may_be_one_of_a_csi_driver(csi: str, in_tree: str, expected: str) -> None:
    """Which of both a node says for itself, and nobody asks it here."""
    labels = {"topology.gke.io/zone": csi, "topology.kubernetes.io/zone": in_tree}
    requirements = [expression("topology.kubernetes.io/zone", "In", "z1")]
    world = World(
        BOUND,
        volume_object(
            claim="data",
            more=affinity(term(*requirements), gcePersistentDisk={"pdName": "disk"}),
            labels={"topology.kubernetes.io/zone": "z1"},
        ),
    )

    assert expected == world.unreached(node=make_node("n1", labels=labels))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([term(expression(HOSTNAME, "In", "n2"))], "pv-1", id="the host of another"),
        pytest.param([term(expression(HOSTNAME, "In", "n2", "n1.example.com"))], "", id="its own among others"),
        pytest.param([term(expression(HOSTNAME, "In", "n1"))], "", id="its name without the domain"),
        pytest.param([term(expression("zone", "In", "z2"))], "", id="a zone: nobody knows where it was"),
        pytest.param(
            [term(expression(HOSTNAME, "In", "n2")), term(expression("zone", "In", "z2"))], "", id="one of two terms"
        ),
        pytest.param(
            [term(expression(HOSTNAME, "In", "n2"), expression("zone", "In", "z2"))], "pv-1", id="both in one term"
        ),
        pytest.param([term(expression(HOSTNAME, "NotIn", "n1"))], "", id="what it must not be"),
        pytest.param([], "", id="no term, which no node meets"),
    ],
)
def test_of_a_node_that_is_gone_the_name_is_all_there_is(terms: list[JsonObject], expected: str) -> None:
    world = World(BOUND, volume_object(claim="data", more=affinity(*terms, csi={"driver": "d", "volumeHandle": "h"})))

    assert expected == world.unreached(node="n1.example.com")


def test_a_label_may_be_longer_than_the_name() -> None:
    more = affinity(term(expression(HOSTNAME, "In", "n1.example.com")), csi={"driver": "d", "volumeHandle": "h"})
    world = World(BOUND, volume_object(claim="data", more=more))

    assert ["", "pv-1"] == [world.unreached(node=it) for it in ("n1", "n2")]


def test_matchers_are_bounded() -> None:
    world = World()
    for number in range(4200):
        claim, volume = f"c{number}", f"pv-{number}"
        world.add(claim_object(claim, volume=volume), volume_object(volume, claim=claim, zone=f"z{number}"))
        world.unreached(launcher(more=mounting(claim)))

    assert 0 < len(world.volumes._matchers) <= 4096
