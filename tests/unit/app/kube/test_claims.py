"""What a pod says of devices."""

from typing import Any, Final

import pytest

from app.kube.claims import MOST_CLAIMS, ContainerRequests, PodClaim, PodClaims, is_device_resource
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from tests.builders import encoded, pod_object

CORE: Final = core_v1({Extra.CLAIMS})


def claims_of(status: Any = None, **spec: Any) -> PodClaims:
    return CORE.decode_pod(encoded(pod_object(more=spec, status=status or {}))).spec.claims


def asking(**resources: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": resources}}


def test_a_claim_is_named_or_made_of_a_template() -> None:
    named = [
        {"name": "a", "resourceClaimName": "mine"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "c", "resourceClaimTemplateName": "t"},
        {"name": "d", "resourceClaimTemplateName": "t"},
    ]
    statuses = [{"name": "c", "resourceClaimName": "made"}, {"name": "d"}]

    assert (
        PodClaim("a", claim="mine"),
        PodClaim("b", template="t"),
        PodClaim("c", template="t", status=True, generated="made"),
        PodClaim("d", template="t", status=True),
    ) == claims_of({"resourceClaimStatuses": statuses}, resourceClaims=named).claims


def test_containers_that_ask_for_what_could_be_an_extended_resource() -> None:
    found = claims_of(
        initContainers=[
            asking(**{"example.com/gpu": "1"}),
            {**asking(**{"example.com/gpu": "2", "cpu": "1"}), "restartPolicy": "Always"},
        ],
        containers=[asking(cpu="1"), asking(**{"a.kubernetes.io/x": "1", "example.com/gpu": "1500m", "x.com/y": "3"})],
    )

    assert (
        ContainerRequests(0, False, (("example.com/gpu", 1, 0),)),
        ContainerRequests(1, True, (("example.com/gpu", 2, 1),)),
        ContainerRequests(3, True, (("x.com/y", 3, 2),)),
    ) == found.containers


def test_a_pod_of_too_many_claims_is_read_without_them() -> None:
    named = [{"name": f"c{it}", "resourceClaimName": "mine"} for it in range(MOST_CLAIMS + 1)]
    pod = CORE.decode_pod(encoded(pod_object(more={"resourceClaims": named})))

    assert not pod.spec.claims.wants_devices
    assert ("spec.resourceClaims",) == pod.spec.oversized
    assert MOST_CLAIMS == len(claims_of(resourceClaims=named[1:]).claims)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("example.com/gpu", True, id="of somebody"),
        pytest.param("requests.example.com/gpu", False, id="of a quota"),
        pytest.param("a.kubernetes.io/x", False, id="of Kubernetes"),
        pytest.param("deviceclass.resource.kubernetes.io/gpu", True, id="a class by its name"),
    ],
)
def test_a_class_could_stand_behind(name: str, expected: bool) -> None:
    assert expected is is_device_resource(name)
