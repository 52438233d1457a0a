"""Rules of kinds: named by their API version and kind, and able to decode their objects."""

from typing import Any

import pytest

from app.kube.kinds import (
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
    owner_kind,
    partial_kind,
)
from app.kube.meta_v1 import decode_partial
from tests.builders import JsonObject, encoded, node_object, pod_object, service_object, workload_object


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        pytest.param(PODS, pod_object("a"), id="Pod"),
        pytest.param(NODES, node_object("a"), id="Node"),
        pytest.param(SERVICES, service_object("a"), id="Service"),
        pytest.param(
            REPLICATION_CONTROLLERS, service_object("a", kind="ReplicationController"), id="ReplicationController"
        ),
        pytest.param(REPLICA_SETS, workload_object("ReplicaSet", "a"), id="ReplicaSet"),
        pytest.param(STATEFUL_SETS, workload_object("StatefulSet", "a"), id="StatefulSet"),
    ],
)
def test_a_kind_decodes_the_objects_that_carry_its_name(kind: Kind[Any], given: JsonObject) -> None:
    assert (given["apiVersion"], given["kind"]) == (kind.api_version, kind.kind)
    assert "a" == kind.decode(encoded(given)).name
    assert f"{kind.api_version} {kind.kind}" == repr(kind)
    assert not kind.metadata_only


def test_kinds_are_equal_by_name() -> None:
    """A plugin may name a kind that another plugin, or the picture, has named already."""
    again: Kind[Any] = Kind("v1", "Pod", decode_partial)

    assert {again} == {PODS}
    assert {PODS} != {NODES}
    assert PODS != "v1 Pod"


@pytest.mark.parametrize(
    ("api_version", "kind", "metadata_only"),
    [
        pytest.param("apps/v1", "ReplicaSet", False, id="one we know is read whole"),
        pytest.param("apps/v1", "StatefulSet", False, id="the other one we know"),
        pytest.param("v1", "PersistentVolumeClaim", False, id="a claim is read whole, for its volume"),
        pytest.param("kubevirt.io/v1", "VirtualMachineInstance", False, id="of an instance we read where it runs"),
        pytest.param("kubevirt.io/v1", "VirtualMachine", True, id="a custom resource is read by metadata"),
        pytest.param("apps/v1beta1", "ReplicaSet", True, id="an API version we do not know is a stranger"),
    ],
)
def test_an_owner_can_be_of_any_kind(api_version: str, kind: str, metadata_only: bool) -> None:
    found = owner_kind(api_version, kind)

    assert (api_version, kind, metadata_only) == (found.api_version, found.kind, found.metadata_only)


def test_a_partial_kind_reads_metadata_alone() -> None:
    found = partial_kind("example.com/v1", "Thing").decode(b'{"metadata": {"name": "a"}, "spec": 1}')

    assert ("", "a") == found.key
