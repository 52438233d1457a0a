"""Rules of ReplicaSets and StatefulSets: the selector is what is read of them."""

import pytest

from app.kube.apps_v1 import Workload, decode_workload
from app.kube.meta_v1 import OwnerReference
from app.kube.selectors import EVERYTHING, IN, NOT_IN, Requirement, Selector
from tests.builders import JsonObject, controller, encoded, expression, workload_object


def test_a_workload_is_reduced_to_its_selector_and_who_owns_it() -> None:
    given = workload_object(
        "ReplicaSet",
        "web-7c5",
        {"matchLabels": {"app": "web"}, "matchExpressions": [expression("tier", "NotIn", "db")]},
        namespace="shop",
        resource_version="9",
    )
    given["metadata"]["annotations"] = {"homeport.dev/home": "n1", "deployment.kubernetes.io/revision": "1"}
    given["metadata"]["ownerReferences"] = [controller("Deployment", "web")]

    found = decode_workload(encoded(given))

    expected = Workload(
        namespace="shop",
        name="web-7c5",
        uid="uid-shop-web-7c5",
        resource_version="9",
        annotations={"homeport.dev/home": "n1"},
        owner=OwnerReference("Deployment", "web", "apps/v1", "uid-web", True),
        selector=Selector((Requirement("app", IN, ("web",)), Requirement("tier", NOT_IN, ("db",)))),
    )
    assert expected == found
    assert ("shop", "web-7c5") == found.key


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(None, None, id="no spec"),
        pytest.param({}, None, id="no selector"),
        pytest.param({"selector": {}}, EVERYTHING, id="an empty selector"),
        pytest.param(
            {"selector": {"matchExpressions": [expression("app", "Is")]}}, None, id="a selector that cannot be parsed"
        ),
    ],
)
def test_the_selector_may_be_missing(spec: JsonObject | None, expected: Selector | None) -> None:
    assert expected == decode_workload(encoded({"metadata": {"name": "web"}, "spec": spec})).selector
