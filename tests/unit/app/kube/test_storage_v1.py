"""Rules of the objects of storage.k8s.io: what of them decides."""

from typing import Any

import msgspec
import pytest

from app.kube.selectors import EVERYTHING
from app.kube.storage_v1 import (
    CSIDriver,
    VolumeAttachment,
    decode_attachment,
    decode_capacity,
    decode_class,
    decode_csi_driver,
    decode_csi_node,
)
from tests.builders import ZONE, class_object, csi_node_object, encoded, storage_object

API = "storage.k8s.io/v1"


def storage_class(*terms: dict[str, list[str]], **fields: Any) -> Any:
    topologies = [{"matchLabelExpressions": [{"key": key, "values": it[key]} for key in it]} for it in terms]
    return decode_class(encoded(class_object(allowedTopologies=topologies, **fields)))


def capacity(**fields: Any) -> Any:
    return decode_capacity(encoded(storage_object(API, "CSIStorageCapacity", "c", namespace="kube-system", **fields)))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([], ["a", "b", ""], id="no term"),
        pytest.param([{ZONE: ["a", "c"]}], ["a"], id="zones"),
        pytest.param([{ZONE: ["a"]}, {ZONE: ["b"]}], ["a", "b"], id="one of two terms"),
        pytest.param([{ZONE: ["a"], "disk": ["ssd"]}], [], id="both labels of a term"),
        pytest.param([{}], [], id="an empty term"),
        pytest.param([{"-": ["a"]}, {ZONE: ["b"]}], ["b"], id="a term that makes no sense"),
        pytest.param([{ZONE: []}], [], id="a term without values"),
    ],
)
def test_a_class_is_for_some_nodes(terms: list[dict[str, list[str]]], expected: list[str]) -> None:
    found = storage_class(*terms)

    assert expected == [zone for zone in ("a", "b", "") if found.allows({ZONE: zone} if zone else {})]


def test_a_class_may_not_say_when_its_claims_are_bound() -> None:
    assert (None, "WaitForFirstConsumer") == (storage_class(mode=None).binding_mode, storage_class().binding_mode)


def test_a_node_tells_of_limits_and_of_drivers_that_were_migrated() -> None:
    found = decode_csi_node(encoded(csi_node_object(a_b=3, c=None, migrated="x,y,")))

    assert ({"a.b": 3}, frozenset({"x", "y"})) == (dict(found.limits), found.migrated)
    bare = decode_csi_node(encoded(storage_object(API, "CSINode", "n1", annotations={"other": "1"})))
    assert ({}, frozenset()) == (dict(bare.limits), bare.migrated)


def test_a_driver_tells_of_capacity_or_does_not() -> None:
    specs: list[Any] = [None, {}, {"storageCapacity": None}, {"storageCapacity": True}]
    found = [decode_csi_driver(encoded(storage_object(API, "CSIDriver", "d", spec=it))) for it in specs]

    assert [False, False, False, True] == [it.storage_capacity for it in found]
    assert CSIDriver("d", "uid-d", storage_capacity=True) == found[3]


def test_an_attachment_is_of_a_volume_and_a_node() -> None:
    spec = {"attacher": "a", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}
    specs: list[Any] = [spec, {"source": {}}, None]
    found = [decode_attachment(encoded(storage_object(API, "VolumeAttachment", "v", spec=it))) for it in specs]

    assert VolumeAttachment("v", "uid-v", "a", "n1", "pv-1") == found[0]
    assert [("", None)] * 2 == [(it.attacher, it.volume_name) for it in found[1:]]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, None, id="nothing is known"),
        pytest.param({"capacity": "1Ki"}, 1024, id="what is left"),
        pytest.param({"capacity": "1Ki", "maximumVolumeSize": "1"}, 1, id="the largest volume, if that is known"),
    ],
)
def test_there_is_room_for_a_volume_of_some_size(fields: dict[str, Any], expected: int | None) -> None:
    assert expected == capacity(**fields).limit


def test_there_is_room_for_some_nodes() -> None:
    zonal = capacity(nodeTopology={"matchLabels": {ZONE: "a"}}).topology

    assert (True, False) == (zonal.matches({ZONE: "a"}), zonal.matches({}))
    assert [None, None, EVERYTHING] == [
        capacity(nodeTopology=it).topology for it in (None, {"matchLabels": {"-": ""}}, {})
    ]


def test_a_size_that_is_too_long_is_told_by_its_field() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^capacity: a quantity that is too long"):
        capacity(capacity="1" * 65)
