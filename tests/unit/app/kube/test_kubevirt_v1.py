"""Rules of VirtualMachineInstances: who owns it and where it runs is what is read of them."""

from __future__ import annotations

import pytest

from app.kube.kubevirt_v1 import VirtualMachineInstance, decode_instance
from app.kube.meta_v1 import OwnerReference
from tests.builders import JsonObject, controller, encoded

METADATA = {"name": "db", "namespace": "shop", "uid": "u-1", "resourceVersion": "9"}


def test_an_instance_is_reduced_to_its_owner_and_its_node() -> None:
    owner = controller("VirtualMachine", "db", api_version="kubevirt.io/v1")
    annotations = {"homeport.dev/home": "n1", "kubevirt.io/latest-observed-api-version": "v1"}
    found = decode_instance(
        encoded(
            {
                "metadata": {**METADATA, "annotations": annotations, "ownerReferences": [owner]},
                "spec": {"domain": {}},
                "status": {
                    "nodeName": "n2",
                    "phase": "Running",
                    "migrationState": {"sourceNode": "n1", "targetNode": "n2", "completed": True},
                },
            }
        )
    )

    assert ("shop", "db") == found.key
    assert (
        VirtualMachineInstance(
            namespace="shop",
            name="db",
            uid="u-1",
            resource_version="9",
            annotations={"homeport.dev/home": "n1"},
            owner=OwnerReference("VirtualMachine", "db", "kubevirt.io/v1", "uid-db", True),
            node_name="n2",
            moved_from="n1",
            moved_to="n2",
        )
        == found
    )


@pytest.mark.parametrize("status", [None, {}, {"nodeName": None}, {"nodeName": ""}])
def test_one_that_does_not_run_yet_is_on_no_node(status: JsonObject | None) -> None:
    assert "" == decode_instance(encoded({"metadata": METADATA, "status": status})).node_name


@pytest.mark.parametrize("migration", [None, {}, {"sourceNode": None, "targetNode": ""}])
def test_one_that_never_migrated_has_moved_nowhere(migration: JsonObject | None) -> None:
    found = decode_instance(encoded({"metadata": METADATA, "status": {"migrationState": migration}}))

    assert ("", "") == (found.moved_from, found.moved_to)
