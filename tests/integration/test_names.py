"""What a stranger or a tenant writes for a name never becomes another path at the API server."""

from collections.abc import Callable
from typing import Any

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport
from tests.integration.test_home_stories import install_kubevirt

StartHomeport = Callable[..., Homeport]
NO_OWNER = "homeport: no longer possible: node(s) can't be judged before the pod's owner is known"


def test_only_names_are_bound_and_only_by_their_uid(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Each of these was asked of the API server, or bound, before names were looked at."""
    plane.client.create_node(objects.node("node-a"))
    homeport = start_homeport()
    uid = plane.client.create(objects.pod("web"))["metadata"]["uid"]
    good = {"PodName": "web", "PodNamespace": "default", "PodUID": uid, "Node": "node-a"}
    forged = {
        "PodUID is empty": {"PodUID": ""},
        "PodNamespace is '..', which cannot be a name": {"PodNamespace": ".."},
        "PodNamespace is 'kube-system/pods', which cannot be a name": {"PodNamespace": "kube-system/pods"},
        "PodName is '../../nodes/node-a', which cannot be a name": {"PodName": "../../nodes/node-a"},
        "PodName is '%2e%2e', which cannot be a name": {"PodName": "%2e%2e"},
        "Node is '.', which cannot be a name": {"Node": "."},
    }

    for said, fields in forged.items():
        assert {"Error": f"homeport: malformed bind request: {said}"} == bind(homeport, {**good, **fields})
    assert {"Error": "homeport: the pod was replaced by another of the same name"} == bind(
        homeport, {**good, "PodUID": "another"}
    )
    assert not plane.client.node_of("web")
    assert {"Error": ""} == bind(homeport, good)


def test_an_owner_of_no_name_is_not_looked_for(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """The API server stores any text as the name of an owner, and takes ``%2F`` in a path for a slash."""
    install_kubevirt(plane.client)
    plane.client.create_node(objects.node("node-a"))
    homeport = start_homeport()

    for number, name in enumerate(("..", "../../../../../api/v1/namespaces/default/pods/web-0", "x" * 100_000)):
        pod = objects.pod(f"web-{number}")
        owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": "u"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        uid = plane.client.create(pod)["metadata"]["uid"]
        found = {"PodName": f"web-{number}", "PodNamespace": "default", "PodUID": uid, "Node": "node-a"}
        assert {"Error": NO_OWNER} == bind(homeport, found)
    assert {"consistent": True, "differences": []} == homeport.get("/api/v1/check")
    assert "" == homeport.get("/api/v1/status")["problem"]


def bind(homeport: Homeport, body: dict[str, str]) -> Any:
    return HTTP.post(f"{homeport.url}/bind", json=body, timeout=10).raise_for_status().json()
