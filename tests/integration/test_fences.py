"""The fence on a real API server: an annotation through ``pods/status`` moves the version, and that is all it takes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from app.kube.api_errors import ApiError
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.credentials import load
from app.writes.api_writes import binding
from app.writes.read_back import FENCE, fence_off
from tests.builders import encoded
from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """As somebody who may patch the status of pods and bind them, and nothing else."""
    rule = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
    bind = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    account = Account(plane, "fencer")
    account.may([rule, bind])
    async with KubeClient(load(str(account.kubeconfig))) as client:
        yield client


def waiting(client: Client, name: str) -> Pod:
    return decode_pod(encoded(client.create(objects.pod(name, scheduler_name="homeport"))))


async def status_of(call: Any) -> int:
    with pytest.raises(ApiError) as refused:
        await call
    return refused.value.status


async def test_a_fence_is_stored_and_a_late_binding_meets_a_conflict(plane: ControlPlane, client: KubeClient) -> None:
    """UID and version are preconditions. What was decided on the fenced pod goes through."""
    plane.client.create_node(objects.node("node-a"))
    before = waiting(plane.client, "web")
    plane.client.delete("Pod", "web")
    decided = waiting(plane.client, "web")

    fenced = decode_pod(await fence_off(client, decided))
    stored = plane.client.get("Pod", "web")["metadata"]
    path = PODS.path("default", "web", "binding")
    refused = {
        "a version of before": await status_of(fence_off(client, decided)),
        "a pod of before": await status_of(fence_off(client, before)),
        "another UID": await status_of(fence_off(client, replace(fenced, uid=before.uid))),
        "a late Binding": await status_of(client.post(path, binding(decided, "node-a", {}))),
        "the pod itself": await status_of(client.patch(PODS, "default", "web", {"metadata": {"labels": {"a": "b"}}})),
    }
    unbound = plane.client.node_of("web")
    await client.post(path, binding(fenced, "node-a", {}))

    assert ({FENCE: decided.resource_version}, fenced.resource_version) == (
        stored["annotations"],
        stored["resourceVersion"],
    )
    assert int(fenced.resource_version) > int(decided.resource_version)
    assert {
        "a version of before": 409,
        "a pod of before": 409,
        "another UID": 422,
        "a late Binding": 409,
        "the pod itself": 403,
    } == refused
    assert ("", "node-a") == (unbound, plane.client.node_of("web"))
