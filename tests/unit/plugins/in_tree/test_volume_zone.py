"""Rules of VolumeZone."""

from typing import Any, Final

import pytest

from app.kube.csi_migration import BETA_ZONE, REGION
from plugins.in_tree.volume_zone import VolumeZone, VolumeZoneArgs
from tests.builders import ZONE, JsonObject, claim_object, class_object, mounting, node_object, volume_object
from tests.harness import Answer, World, only

NAME: Final = "VolumeZone"


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


def world(*objects: JsonObject) -> World:
    nodes = (
        node_object("a", labels={ZONE: "a", REGION: "r"}),
        node_object("b", labels={ZONE: "b", REGION: "r"}),
        node_object("old", labels={BETA_ZONE: "a"}),
        node_object("bare"),
    )
    return World(*nodes, *objects, profile=only(NAME))


def judged(*objects: JsonObject, claims: tuple[str, ...] = ("data",), **more: Any) -> dict[str, Answer]:
    found = world(*objects)
    return found.filter(found.pod(more=mounting(*claims, **more)))


def bound(**labels: str) -> tuple[JsonObject, JsonObject]:
    return claim_object(volume="pv-1"), volume_object(claim="data", labels=labels)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param([claim_object(volume="pv-1")], 'persistentvolume "pv-1" not found', id="no volume"),
        pytest.param(
            [claim_object()],
            "PersistentVolumeClaim had no pv name and storageClass name",
            id="neither bound nor of a class",
        ),
        pytest.param(
            [claim_object(class_name="x")], 'storageclass.storage.k8s.io "x" not found', id="a class that is not there"
        ),
        pytest.param(
            [claim_object(class_name="later"), class_object(mode=None)],
            'VolumeBindingMode not set for StorageClass "later"',
            id="a class without a mode",
        ),
        pytest.param(
            [claim_object(class_name="later"), class_object(mode="Immediate")],
            "PersistentVolume had no name",
            id="not bound yet",
        ),
    ],
)
def test_no_node_will_do(objects: list[JsonObject], reason: str) -> None:
    assert {refused(reason)} == set(judged(*objects).values())


def test_a_claim_needs_a_name_and_volumes_that_can_be_read() -> None:
    assert {refused("PersistentVolumeClaim had no name")} == set(judged(claims=("",)).values())
    assert {refused("node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB")} == set(
        judged(claims=("x" * 70_000,)).values()
    )


def test_no_other_pod_matters_and_a_refusal_stands_as_long_as_what_it_rests_on() -> None:
    found = world(*bound(**{ZONE: "a"}))
    plugin = found.framework.plugins[NAME]
    pod, plain = found.pod(more=mounting("data")), found.pod("plain")
    before = plugin.signature(pod)

    assert isinstance(plugin, VolumeZone)
    assert VolumeZoneArgs() == VolumeZoneArgs.model_validate({})
    assert not plugin.depends_on(pod, pod)
    assert plugin.signature(plain) == plugin.signature(found.pod("other"))
    found.add(claim_object("another"))
    assert before == plugin.signature(pod)
    found.add({**volume_object(claim="data", labels={ZONE: "b"}, resourceVersion="2")})
    assert before != plugin.signature(pod)
