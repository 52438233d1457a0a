"""Rules of kinds: named by their API version and kind, and able to decode their objects."""

from typing import Any

import msgspec
import pytest

from app.kube.kinds import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Kind,
    owner_kind,
    partial_kind,
)
from app.kube.meta_v1 import decode_partial
from app.kube.projection import SCHEMAS
from tests.builders import encoded


@pytest.mark.parametrize("kind", SCHEMAS, ids=repr)
def test_null_is_absent_and_a_name_is_required(kind: Kind[Any]) -> None:
    """Null may stand for a section and for each field of one."""
    sections = {
        key: dict.fromkeys(SCHEMAS[kind][key]) for key in ("metadata", "spec", "status") if key in SCHEMAS[kind]
    }
    named = {"metadata": {"name": "a"}}
    found = kind.decode(encoded(named))
    null = {**sections, "metadata": {**sections["metadata"], "name": "a"}}

    assert [found, found] == [kind.decode(encoded(it)) for it in (dict.fromkeys(SCHEMAS[kind]) | named, null)]
    assert f"{kind.api_version} {kind.kind}" == repr(kind)
    with pytest.raises(msgspec.ValidationError, match=r"^metadata\.name: required$"):
        kind.decode(b'{"metadata": {}}')


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (PODS, "metadata.labels", {"x": 1}),
        (PODS, "metadata.annotations", {"homeport.dev/home": 1}),
        (PODS, "metadata.ownerReferences", {}),
        (PODS, "spec.affinity", []),
        (PODS, "spec.affinity.podAffinity", {"podAffinity": []}),
        (PODS, "spec.nodeSelector", {"disk": 1}),
        (PODS, "spec.tolerations", [1]),
        (PODS, "spec.topologySpreadConstraints", [{"labelSelector": {"matchLabels": 1}}]),
        (PODS, "spec.schedulingGates", [{"name": 7}]),
        (PODS, "spec.volumes", [{"name": 7, "persistentVolumeClaim": {}}]),
        (PODS, "spec.resourceClaims", [7]),
        (PODS, "spec.containers.resources", [{"resources": {"requests": {"cpu": "one"}}}]),
        (PODS, "spec.containers.ports", [{"ports": [{"hostPort": "80"}]}]),
        (PODS, "spec.containers.restartPolicyRules", [{"restartPolicyRules": [{"action": 7}]}]),
        (PODS, "status.conditions", {"PodScheduled": 1}),
        (PODS, "status.startTime", "2026-01-01T00:00:00"),
        (NODES, "spec.taints", {}),
        (NODES, "status.images", [{"names": ["a:1"], "sizeBytes": "large"}]),
        (NODES, "status.declaredFeatures", [7]),
        (NODES, "status.conditions", [{"type": 7}]),
        (NODES, "status.nodeInfo", {"systemUUID": []}),
        (NODES, "metadata.annotations", {"example.com/x": 7}),
        (SERVICES, "spec.selector", []),
        (REPLICA_SETS, "spec.selector", []),
        (POD_DISRUPTION_BUDGETS, "spec.selector", []),
        (POD_DISRUPTION_BUDGETS, "status.disruptedPods", ["web-1"]),
        (PERSISTENT_VOLUME_CLAIMS, "spec.selector", []),
        (PERSISTENT_VOLUME_CLAIMS, "metadata.annotations", {"pv.kubernetes.io/bind-completed": 7}),
        (PERSISTENT_VOLUMES, "spec.capacity", {"storage": "much"}),
    ],
)
def test_a_field_of_the_wrong_type_is_named(kind: Kind[Any], field: str, value: Any) -> None:
    """Though it is decoded apart from the rest."""
    section, name = field.split(".")[:2]
    given: Any = {"metadata": {"name": "a"}}
    given.setdefault(section, {})[name] = value

    with pytest.raises(msgspec.ValidationError) as raised:
        kind.decode(encoded(given))

    assert field in str(raised.value)


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
        pytest.param("v1", "PersistentVolumeClaim", False, id="a claim is read whole, for its volume"),
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
