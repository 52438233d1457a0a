"""Rules of the claims of a pod: what is told of those that are not there, and what a refusal rests on."""

from typing import Any

import pytest

from app.cache.cluster import Cluster
from app.framework.claims import (
    NO_CLAIMS,
    claim_not_found,
    claims_signature,
    class_not_found,
    is_for_pod,
    not_for_pod,
    volume_not_found,
)
from app.framework.resources import Mounts
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.persistent_volumes import decode_claim, decode_volume
from app.kube.storage_v1 import decode_class
from tests.builders import claim_object, class_object, controller, encoded, mounting, pod_object, volume_object

CORE = core_v1([Extra.VOLUMES])
BOUND, UNBOUND = claim_object(volume="pv-1", class_name="later"), claim_object(class_name="later")


def pod(*claims: str, ephemeral: list[str] | None = None, **fields: Any) -> Pod:
    return CORE.decode_pod(encoded(pod_object(more=mounting(*claims, ephemeral=ephemeral or []), **fields)))


def signed(found: Pod, *claims: Any, volumes: Any = (), classes: Any = ()) -> Any:
    picture = Cluster(CORE)
    for it in claims:
        picture.others.upsert(PERSISTENT_VOLUME_CLAIMS, decode_claim(encoded(it)))
    for it in volumes:
        picture.others.upsert(PERSISTENT_VOLUMES, decode_volume(encoded(it)))
    for it in classes:
        picture.others.upsert(STORAGE_CLASSES, decode_class(encoded(it)))
    return claims_signature(picture, found)


def test_what_is_missing_is_told_in_the_words_of_kube_scheduler() -> None:
    assert (
        'persistentvolumeclaim "a" not found',
        'persistentvolume "a" not found',
        'storageclass.storage.k8s.io "a" not found',
    ) == (claim_not_found("a"), volume_not_found("a"), class_not_found("a"))


def test_the_claim_of_an_ephemeral_volume_is_made_for_its_pod() -> None:
    found = pod(ephemeral=["scratch"])
    owner = {**controller("Pod", "web-1", api_version="v1"), "uid": found.uid}
    own, other = (decode_claim(encoded(claim_object(ownerReferences=it))) for it in ([owner], []))

    assert [True, False] == [is_for_pod(it, found) for it in (own, other)]
    assert [True, False] == [is_for_pod(it, Mounts.of(found)) for it in (own, other)]
    assert "PVC default/data was not created for pod default/web-1 (pod is not owner)" == not_for_pod(other, found)


def test_pods_without_volumes_are_one() -> None:
    assert signed(pod()) is NO_CLAIMS
    assert signed(pod("x" * (1 << 16))) is not NO_CLAIMS


def test_pods_of_one_workload_are_one_and_those_with_claims_of_their_own_are_not() -> None:
    shared = claim_object(volume="pv-1")

    assert signed(pod("data", uid="a"), shared) == signed(pod("data", uid="b"), shared)
    assert signed(pod(ephemeral=["v"], uid="a")) != signed(pod(ephemeral=["v"], uid="b"))
    assert signed(pod("data"), shared) != signed(pod("data", namespace="shop"), shared)


@pytest.mark.parametrize(
    "then",
    [
        {},
        {"claims": [UNBOUND]},
        {"claims": [claim_object(volume="pv-2", class_name="later")]},
        {"claims": [BOUND], "volumes": [volume_object(zone="a")]},
        {"claims": [BOUND], "classes": [class_object()]},
    ],
    ids=["no claim", "not bound", "another volume", "a volume with other labels", "a new class"],
)
def test_a_signature_moves_with_all_that_a_claim_leads_to(then: dict[str, Any]) -> None:
    before = signed(pod("data"), BOUND, volumes=[volume_object()])
    found = signed(pod("data"), *then.pop("claims", ()), **then)

    assert len({before, found}) == 2
