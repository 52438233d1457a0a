"""Objects of a manifest that make no pods, but that filters read."""

from __future__ import annotations

import pytest

from app.kube.kinds import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, SERVICES
from app.whatif.simulated import TemplateError
from app.whatif.templates import pods_of
from tests.builders import JsonObject
from tests.unit.app.whatif.manifests import MOST, NOW, cluster_of, made


def claim(name: str = "data", **metadata: str) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"storageClassName": "fast"},
        "status": {"phase": "Bound"},
    }


def test_a_claim_is_in_its_namespace_or_that_of_the_request() -> None:
    changes = pods_of([claim(), claim(namespace="other")], cluster_of(), "team", MOST, NOW)

    assert [(PERSISTENT_VOLUME_CLAIMS, "team", "data"), (PERSISTENT_VOLUME_CLAIMS, "other", "data")] == [
        (kind, it.namespace, it.name) for kind, it in changes.objects
    ]


def test_a_claim_that_exists_stays_as_it_is() -> None:
    cluster = cluster_of()
    bound = PERSISTENT_VOLUME_CLAIMS.decode(
        b'{"metadata": {"name": "data", "namespace": "team", "uid": "1"}, "spec": {"volumeName": "pv-1"}}'
    )
    cluster.others.upsert(PERSISTENT_VOLUME_CLAIMS, bound)

    changes = pods_of([claim()], cluster, "team", MOST, NOW)

    note = "PersistentVolumeClaim/team/data exists, so it is used as it is now"
    assert ([], [note]) == (changes.objects, changes.notes)


def test_a_namespace_has_the_label_that_the_api_server_gives_it() -> None:
    changes = made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"team": "x"}}})

    assert [(NAMESPACES, {"team": "x", "kubernetes.io/metadata.name": "a"})] == [
        (kind, dict(it.labels)) for kind, it in changes.objects
    ]


def test_a_service_is_read_for_default_constraints() -> None:
    changes = made({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"selector": {"b": "c"}}})

    assert [SERVICES] == [kind for kind, _ in changes.objects]


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (claim(""), "metadata.name", "is missing"),
        (claim("Not A Name"), "metadata.name", "is not a valid name"),
        ({**claim(), "spec": 3}, "spec", "expected object, got int"),
        ({**claim(), "spec": {"storageClassName": 3}}, "spec.storageClassName", "expected str, got int"),
    ],
)
def test_mistakes_name_the_field(obj: JsonObject, field: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        made(obj)

    assert (field, message) == (error.value.field, error.value.message)
