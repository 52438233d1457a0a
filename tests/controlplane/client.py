"""A small synchronous client of the API server, for tests that play kubelet, controllers and users.

Resources are addressed by kind, name and namespace; the namespace of a kind without namespaces is ignored.
"""

import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

import httpx

Json: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Json]
Patch: TypeAlias = Literal["merge", "strategic", "json"]
Found = TypeVar("Found")

POLL_SECONDS: Final = 0.05
RBAC: Final = "rbac.authorization.k8s.io/v1"
SYSTEM_PREFIX: Final = "system-"
_INTO: Final = '{"f:deep":'
_DEEP: Final = re.compile(f"(?:{re.escape(_INTO)})+{{}}")
STORAGE_IS_MADE: Final = "storage is (re)initializing"


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the API server keeps the objects of a kind."""

    api_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, or with a name of one object or its subresource."""
        root = "api" if "/" not in self.api_version else "apis"
        parts = [root, self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, self.plural, *filter(None, (name, subresource))])


RESOURCES: Final[Mapping[str, Resource]] = {
    "Chassis": Resource("example.com/v1", "chassis"),
    "ClusterRole": Resource(RBAC, "clusterroles", namespaced=False),
    "ClusterRoleBinding": Resource(RBAC, "clusterrolebindings", namespaced=False),
    "ConfigMap": Resource("v1", "configmaps"),
    "CustomResourceDefinition": Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "DaemonSet": Resource("apps/v1", "daemonsets"),
    "Deployment": Resource("apps/v1", "deployments"),
    "Event": Resource("v1", "events"),
    "Home": Resource("homeport.dev/v1alpha1", "homes"),
    "Job": Resource("batch/v1", "jobs"),
    "LeaderWorkerSet": Resource("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    "Lease": Resource("coordination.k8s.io/v1", "leases"),
    "Namespace": Resource("v1", "namespaces", namespaced=False),
    "Node": Resource("v1", "nodes", namespaced=False),
    "PersistentVolume": Resource("v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "PodDisruptionBudget": Resource("policy/v1", "poddisruptionbudgets"),
    "PriorityClass": Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "ReplicaSet": Resource("apps/v1", "replicasets"),
    "ReplicationController": Resource("v1", "replicationcontrollers"),
    "Role": Resource(RBAC, "roles"),
    "RoleBinding": Resource(RBAC, "rolebindings"),
    "Secret": Resource("v1", "secrets"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StatefulSet": Resource("apps/v1", "statefulsets"),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses", namespaced=False),
    "VirtualMachine": Resource("kubevirt.io/v1", "virtualmachines"),
    "VirtualMachineInstance": Resource("kubevirt.io/v1", "virtualmachineinstances"),
}

CLEARED: Final = (
    "Pod",
    "ReplicaSet",
    "Deployment",
    "StatefulSet",
    "Job",
    "LeaderWorkerSet",
    "PodDisruptionBudget",
    "VirtualMachineInstance",
    "VirtualMachine",
    "ConfigMap",
    "Secret",
    "Lease",
    "Node",
    "PriorityClass",
    "Event",
)
"""What tests leave behind: see `Client.clear`."""


class ApiError(Exception):
    """The API server refused; the message carries what was asked and the body of the answer."""

    def __init__(self, answer: httpx.Response) -> None:
        asked = f"{answer.request.method} {answer.request.url.raw_path.decode()}"
        super().__init__(f"{asked} answered {answer.status_code}: {answer.text}")
        self.status = answer.status_code


class Client:
    """Speaks JSON to one API server as one user, and raises `ApiError` for every refusal."""

    def __init__(self, server: str, token: str, ca_file: Path) -> None:
        self._http = httpx.Client(
            base_url=server,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            verify=ssl.create_default_context(cafile=str(ca_file)),
            timeout=30,
            trust_env=False,
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def change_token(self, token: str) -> None:
        """Be somebody else from now on, or the same one with a new token."""
        self._http.headers["Authorization"] = f"Bearer {token}"

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """Any request, a text as it is; the decoded answer."""
        content = body if isinstance(body, str) else None if body is None else json.dumps(body)
        asked = self._http.build_request(
            method, path, content=content, headers={"Content-Type": content_type}, params=params
        )
        answer = self.wait_for(lambda: self._send(asked), what=f"the storage of {path}")
        if answer.is_error:
            raise ApiError(answer)
        return _decoded(answer.text)

    def get(self, kind: str, name: str, namespace: str = "default") -> Json:
        """One object; `ApiError` with status 404 when there is none."""
        return self.request("GET", _resource(kind).path(namespace, name))

    def find(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        """One object, or None when there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Objects:
        """The objects of a kind, of all namespaces unless one is named, under label and field selectors."""
        params = {"labelSelector": labels, "fieldSelector": fields}
        answer = self.request("GET", _resource(kind).path(namespace), params=params)
        items: Objects = answer["items"]
        return items

    def create(self, thing: Json) -> Json:
        """Create an object in the namespace its metadata names, `default` when it names none."""
        namespace = thing["metadata"].get("namespace", "default")
        return self.request("POST", _resource(thing["kind"]).path(namespace), thing)

    def create_deep(self, thing: Json, levels: int) -> Json:
        """Create an object of which somebody claims to manage a field that lies so many levels deep."""
        entry = {"manager": "deep", "operation": "Update", "apiVersion": thing["apiVersion"], "fieldsType": "FieldsV1"}
        claimed = {**thing["metadata"], "managedFields": [{**entry, "fieldsV1": "DEEP"}]}
        body = json.dumps({**thing, "metadata": claimed}).replace('"DEEP"', _INTO * levels + "{}" + "}" * levels)
        path = _resource(thing["kind"]).path(thing["metadata"].get("namespace", "default"))
        return self.request("POST", path, body)

    def depth_of(self, kind: str, name: str, namespace: str = "default") -> int:
        """How many levels the API server has stored of what `create_deep` claimed."""
        return self._http.get(_resource(kind).path(namespace, name)).text.count(_INTO)

    def patch(
        self,
        kind: str,
        name: str,
        change: object,
        namespace: str = "default",
        *,
        how: Patch = "merge",
        subresource: str = "",
    ) -> Json:
        """Patch an object; custom resources know no strategic patch."""
        media = {
            "merge": "application/merge-patch+json",
            "strategic": "application/strategic-merge-patch+json",
            "json": "application/json-patch+json",
        }
        path = _resource(kind).path(namespace, name, subresource)
        return self.request("PATCH", path, change, content_type=media[how])

    def patch_status(self, kind: str, name: str, status: Json, namespace: str = "default") -> Json:
        """Merge into the status of an object, as kubelet and controllers do."""
        return self.patch(kind, name, {"status": status}, namespace, subresource="status")

    def delete(self, kind: str, name: str, namespace: str = "default", *, grace_seconds: int = 0) -> Json:
        """Delete an object; pods on a node stay, terminating, for ever with a grace period: there is no kubelet."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace_seconds}
        return self.request("DELETE", _resource(kind).path(namespace, name), body)

    def bind(self, pod: str, node: str, namespace: str = "default") -> Json:
        """Place a pod as a scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return self.request("POST", _resource("Pod").path(namespace, pod, "binding"), body)

    def create_node(self, node: Json) -> Json:
        """Create a node, then set its status, as a kubelet does that registers first and reports later."""
        created = self.create(node)
        return self.patch_status("Node", created["metadata"]["name"], node.get("status", {}))

    def install(self, definition: Json) -> None:
        """Create a CustomResourceDefinition unless it is there, and wait until its resources are served."""
        name = definition["metadata"]["name"]
        if self.find("CustomResourceDefinition", name) is None:
            self.create(definition)
        self.wait_for(lambda: self._served(name), what=f"{name} to be established")

    def set_phase(self, pod: str, phase: str, namespace: str = "default") -> Json:
        """Report a pod as kubelet would: `Running` is also ready, any other phase is not."""
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        return self.patch_status("Pod", pod, {"phase": phase, "conditions": [ready]}, namespace)

    def node_of(self, pod: str, namespace: str = "default") -> str:
        """The node a pod is bound to, empty while it is not."""
        node: str = self.get("Pod", pod, namespace)["spec"].get("nodeName", "")
        return node

    def wait_bound(self, pod: str, namespace: str = "default", timeout: float = 30) -> str:
        """Wait until a pod is bound and return its node; the error of one that is not tells its events."""
        try:
            return self.wait_for(lambda: self.node_of(pod, namespace), timeout, f"{namespace}/{pod} to be bound")
        except TimeoutError as error:
            told = [f"{event['reason']}: {event['message']}" for event in self.events(pod, namespace)]
            raise TimeoutError("\n".join([str(error), *told])) from None

    def events(self, pod: str, namespace: str = "default") -> Objects:
        """The events about a pod, oldest first, in the shape of core/v1: `reason`, `message`, `type`."""
        told = self.list("Event", namespace, fields=f"involvedObject.kind=Pod,involvedObject.name={pod}")
        return sorted(told, key=lambda event: str(event["eventTime"] or event["metadata"]["creationTimestamp"]))

    def wait_for(
        self, predicate: Callable[[], Found | None], timeout: float = 30, what: str = "the condition"
    ) -> Found:
        """Poll until `predicate()` is true-ish and return it; `TimeoutError` naming `what` after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            if found := predicate():
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:g} s for {what}")
            time.sleep(POLL_SECONDS)

    def clear(self) -> None:
        """Remove what tests created, for the next test on the same control plane; definitions and namespaces stay."""
        for kind in CLEARED:
            self._clear(kind)

    def _clear(self, kind: str) -> None:
        try:
            left = [item["metadata"] for item in self.list(kind)]
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise
            return
        for namespace, name in _ours(left):
            self._delete_if_there(kind, name, namespace)

    def _delete_if_there(self, kind: str, name: str, namespace: str) -> None:
        try:
            self.delete(kind, name, namespace)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    def _served(self, definition: str) -> bool:
        found = self.get("CustomResourceDefinition", definition)
        conditions = found["status"].get("conditions") or []
        established = [condition["status"] for condition in conditions if condition["type"] == "Established"]
        return established == ["True"] and self._lists(found["spec"]["names"]["kind"])

    def _lists(self, kind: str) -> bool:
        try:
            self.list(kind)
        except ApiError:
            return False
        return True

    def _send(self, asked: httpx.Request) -> httpx.Response | None:
        """None for the moment in which a new or changed definition has its storage made; client-go asks again too."""
        answer = self._http.send(asked)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS and STORAGE_IS_MADE in answer.text:
            return None
        return answer


def _decoded(text: str) -> Json:
    """Without what `create_deep` put into it: `json` does not go so deep."""
    for deep in reversed(list(_DEEP.finditer(text))):
        levels = deep.group().count(_INTO)
        text = f"{text[: deep.start()]}{{}}{text[deep.end() + levels :]}"
    decoded: Json = json.loads(text)
    return decoded


def _resource(kind: str) -> Resource:
    try:
        return RESOURCES[kind]
    except KeyError:
        raise LookupError(f"add {kind} to RESOURCES in {__name__}") from None


def _ours(found: Iterable[Json]) -> list[tuple[str, str]]:
    """Namespace and name of what is not the API server's own, which it would only make again."""
    named = ((metadata.get("namespace", ""), metadata["name"]) for metadata in found)
    return [
        (space, name) for space, name in named if not name.startswith(SYSTEM_PREFIX) and not space.startswith("kube-")
    ]
