"""A waiting pod is woken on a real kube-scheduler: by the smallest write that does it, and it alone."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from app.cache.cluster import Cluster
from app.kube.client import KubeClient
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.credentials import load
from app.kube.meta_v1 import ACTIVATED
from app.telemetry.background import Background
from app.writes.activator import ApiActivator
from tests.builders import encoded
from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.roles import Account
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_spread_stories import WEB, make_zones

StartHomeport = Callable[..., Homeport]


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """As somebody who may patch the status of pods and nothing else."""
    account = Account(plane, "waker")
    account.may([{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}])
    async with KubeClient(load(str(account.kubeconfig))) as client:
        yield client


def attempts(scheduler: Scheduler, name: str) -> int:
    """How often the scheduler has tried to place the pod."""
    return scheduler.log().count(f'"Attempting to schedule pod" pod="default/{name}"')


async def reached(plane: ControlPlane, scheduler: Scheduler, name: str, number: int) -> None:
    """Wait, while the activator writes, until the pod was tried so often."""
    await asyncio.to_thread(
        plane.client.wait_for, lambda: attempts(scheduler, name) >= number, what=f"attempt {number} of {name}"
    )


def waiting(client: Client, name: str) -> Pod:
    return decode_pod(encoded(client.get("Pod", name)))


async def test_only_the_pod_that_is_activated_is_tried_again(
    plane: ControlPlane, start_homeport: StartHomeport, client: KubeClient
) -> None:
    """Two pods wait for a second zone, which our filter refuses them for; nothing in the cluster moves."""
    make_zones(plane, {"zone-a": 2})
    plane.client.create(objects.pod("crowd", labels=WEB, node_name="zone-a-0"))
    homeport = start_homeport("--sampling-guard=false")
    cluster, background = Cluster(), Background()
    activator = ApiActivator(client, cluster)
    background.begin("activation", activator.run)
    tried: list[int] = []

    with start_scheduler(plane, homeport) as scheduler:
        for name in ("woken", "other"):
            spread = objects.spread(WEB, minDomains=2)
            plane.client.create(objects.pod(name, labels=WEB, spread_constraints=[spread]))
        for name in ("woken", "other"):  # the condition that the scheduler writes makes it try once more
            await reached(plane, scheduler, name, 2)
        cluster.upsert_pod(waiting(plane.client, "woken"))
        for number in range(3):
            activator(cluster.pods())
            activator(cluster.pods())
            await reached(plane, scheduler, "woken", 3 + number)
            tried.append(attempts(scheduler, "woken"))
        others = attempts(scheduler, "other")
    await background.stop()

    assert ([3, 4, 5], 2) == (tried, others)
    woken, other = (plane.client.get("Pod", name) for name in ("woken", "other"))
    assert ACTIVATED in woken["metadata"]["annotations"]
    assert ACTIVATED not in other["metadata"].get("annotations", {})
    assert "nominatedNodeName" not in woken["status"]
    assert {} == waiting(plane.client, "woken").annotations
