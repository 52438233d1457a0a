"""The fake API server of the other tests answers as a real one does, where those tests rest on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from app.kube.api_errors import ApiError
from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credentials import load
from tests.apiserver import ApiServer, client_of
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane

PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WATCHED_SECONDS = 6
ENDS_SECONDS = 3
"""Longer than the API server takes to tell of what has happened, and too short for a bookmark: it ends before one."""


class Story:
    """What is said about one thing after another. ``delete_lease``: how somebody does it."""

    def __init__(self, client: KubeClient, delete_lease: Callable[[str], object]) -> None:
        self.client = client
        self.delete_lease = delete_lease
        self.told: dict[str, Any] = {}

    async def tell(self, what: str, call: Awaitable[bytes]) -> Json:
        """Carry it out; what came back."""
        try:
            found: Json = json.loads(await call)
        except ApiError as refused:
            says_which = refused.message if refused.reason == "Invalid" else ""
            self.told[what] = (refused.status, refused.reason, says_which)
            return {}
        self.told[what] = found["kind"]
        return found

    async def make(self, what: str, found: Json, namespace: str = "default") -> Json:
        return await self.tell(what, self.client.post(PODS.path(namespace), found))

    async def patch(self, what: str, metadata: Json, subresource: str = "status") -> Json:
        body = {"metadata": metadata, "status": {"nominatedNodeName": "node-a"}, "spec": {"nodeName": "node-b"}}
        return await self.tell(what, self.client.patch(PODS, "default", "web", body, subresource=subresource))

    async def bind(self, what: str, **metadata: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "web", "namespace": "default", **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
        }
        await self.tell(what, self.client.post(PODS.path("default", "web", "binding"), body))

    async def lease(self, what: str, method: str, holder: str, **metadata: str) -> Json:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": "default", **metadata},
            "spec": {"holderIdentity": holder},
        }
        if method == "POST":
            return await self.tell(what, self.client.post(LEASES.path("default"), body))
        return await self.tell(what, self.client.put(LEASES.path("default", metadata["name"]), body))

    async def page(self, what: str, continue_: str = "") -> Json:
        found = await self.tell(what, self.client.list_page(PODS, limit=1, continue_=continue_))
        names = [it["metadata"]["name"] for it in found["items"]]
        self.told[what] = (names, bool(found["metadata"].get("continue")))
        metadata: Json = found["metadata"]
        return metadata

    async def watch(self, what: str, resource: Resource, version: str, seconds: int) -> None:
        """Types and names of what is said, each bookmark but the first left out."""
        said: list[tuple[Any, ...]] = []
        try:
            async with self.client.watch(resource, resource_version=version, timeout_seconds=seconds) as lines:
                async for line in lines:
                    event = json.loads(line)
                    found = event["object"]
                    told = found["code"] if event["type"] == "ERROR" else found["metadata"].get("name", "")
                    said.append((event["type"], told))
        except ApiError as refused:
            said.append((refused.status, refused.reason))
        self.told[what] = list(dict.fromkeys(said))


async def pods(story: Story) -> str:
    """A pod's life; the version that it had first."""
    web = await story.make("a pod is made", objects.pod("web"))
    await story.make("it is made again", objects.pod("web"))
    await story.make("one is made where there is no namespace", objects.pod("web", namespace="nowhere"), "nowhere")
    first, uid = web["metadata"]["resourceVersion"], web["metadata"]["uid"]
    await story.tell("one that is not there is read", story.client.get(PODS, "default", "nobody"))
    await story.tell("one that is not there is patched", story.client.patch(PODS, "default", "nobody", {}))

    second = await story.patch("its status", {"uid": uid, "resourceVersion": first, "annotations": {"a": "b"}})
    story.told["what a patch of its status takes"] = (
        second["metadata"]["annotations"],
        second["status"]["nominatedNodeName"],
        second["spec"].get("nodeName"),
        second["metadata"]["resourceVersion"] != first,
    )
    await story.patch("from a version of before", {"resourceVersion": first})
    await story.patch("of another UID", {"uid": "another"})
    await story.patch("of both", {"uid": "another", "resourceVersion": first})
    await story.patch("its status as it is", {"annotations": {"a": "b"}})
    same = json.loads(await story.client.get(PODS, "default", "web"))
    story.told["the version of what was not changed"] = same["metadata"] == second["metadata"]
    body = {"metadata": {"annotations": {"a": None, "c": "d"}}, "status": {"nominatedNodeName": "node-c"}}
    third = await story.tell("itself", story.client.patch(PODS, "default", "web", body))
    story.told["what a patch takes"] = (third["metadata"]["annotations"], third["status"]["nominatedNodeName"])

    await story.bind("bound from a version of before", resourceVersion=first)
    await story.bind("bound as another", uid="another")
    await story.bind("bound", uid=uid, resourceVersion=third["metadata"]["resourceVersion"])
    await story.bind("bound again")
    bound = json.loads(await story.client.get(PODS, "default", "web"))
    story.told["where it is"] = bound["spec"]["nodeName"]
    return str(first)


async def leases(story: Story) -> str:
    """One is made, written and deleted; the version that it had first."""
    made = await story.lease("a lease", "POST", "me", name="lock")
    await story.lease("it is made again (lease)", "POST", "me", name="lock")
    metadata = {"name": "lock", "resourceVersion": made["metadata"]["resourceVersion"]}
    same = await story.lease("written as it is", "PUT", "me", **{**made["metadata"], **metadata})
    story.told["its version"] = same["metadata"]["resourceVersion"] == metadata["resourceVersion"]
    await story.lease("written", "PUT", "you", **metadata)
    await story.lease("written from a version of before", "PUT", "him", **metadata)
    await story.lease("written as another", "PUT", "him", name="lock", uid="another")
    await story.lease("one that is not there", "PUT", "me", **{**metadata, "name": "none"})
    story.delete_lease("lock")
    return str(metadata["resourceVersion"])


async def questions(story: Story) -> None:
    """What somebody may do, and what is served."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    }
    asked = await story.tell("a review", story.client.post(REVIEWS, review))
    story.told["a review"] = asked["status"]["allowed"]
    story.told["served"] = [await story.client.resolve(*it) for it in (("v1", "Pod"), ("example.com/v9", "Nothing"))]


async def pages(story: Story) -> None:
    """All pages are of the version of the first."""
    await story.make("a second pod", objects.pod("x"))
    first = await story.page("the first page")
    await story.make("another pod meanwhile", objects.pod("zzz"))
    following = await story.page("the next page", first["continue"])
    story.told["of one version"] = first["resourceVersion"] == following["resourceVersion"]


async def tell(story: Story) -> dict[str, Any]:
    """All that, and what watches tell of it."""
    of_pods, of_leases = await pods(story), await leases(story)
    await questions(story)
    await pages(story)
    listed = json.loads(await story.client.list_page(SERVICES))["metadata"]["resourceVersion"]
    await story.make("pods go on", objects.pod("later"))
    await story.client.list_page(SERVICES)
    await asyncio.gather(
        story.watch("what happened to pods", PODS, of_pods, ENDS_SECONDS),
        story.watch("what happened to a lease", LEASES, of_leases, ENDS_SECONDS),
        story.watch("too long ago", PODS, "1", ENDS_SECONDS),
        story.watch("no version", PODS, "x", ENDS_SECONDS),
        story.watch("nothing happened to services, but versions went on", SERVICES, listed, WATCHED_SECONDS),
    )
    return story.told


async def test_the_fake_one_answers_as_the_real_one(plane: ControlPlane) -> None:
    """Of a real one that has been started anew: its watches know nothing of before."""
    plane.restart_apiserver()
    fake = ApiServer()
    fake.missing_namespaces = {"nowhere"}
    async with client_of(fake) as ours, KubeClient(load(str(plane.kubeconfig))) as theirs:
        answers = await asyncio.gather(
            tell(Story(ours, lambda name: fake.delete("coordination.k8s.io/v1 Lease", ("default", name)))),
            tell(Story(theirs, lambda name: plane.client.delete("Lease", name))),
        )

    assert answers[1] == answers[0]
