"""An API server asked about objects of any kind, as the chart makes them."""

import ssl
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.controlplane.client import STORAGE_IS_MADE, Json
from tests.controlplane.controlplane import ControlPlane

RESTRICTED: Final = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
_WARNING: Final = "Warning"
_STORAGE_SECONDS: Final = 30.0


class Cluster:
    """Finds where objects are by discovery, and hears the warnings that come with an answer."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._http = httpx.Client(
            base_url=plane.server,
            headers={"Authorization": f"Bearer {plane.token}"},
            verify=ssl.create_default_context(cafile=str(plane.ca_file)),
            timeout=30,
            trust_env=False,
        )
        self._resources: dict[str, list[Json]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def wait_for(self, definitions: Iterable[Json]) -> None:
        """Until objects of these are served."""
        for it in definitions:
            spec = it["spec"]
            path = f"/apis/{spec['group']}/v1/{spec['names']['plural']}"
            self.plane.client.wait_for(lambda path=path: self._http.get(path).is_success, what=path)  # type: ignore[misc]

    def make_namespace(self, name: str) -> None:
        """A namespace that admits nothing less than restricted pods, and warns of them."""
        if self.plane.client.find("Namespace", name) is None:
            metadata = {"name": name, "labels": RESTRICTED}
            self.plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def would_create(self, thing: Json) -> list[str]:
        """Warnings of a creation that does not happen; raises `httpx.HTTPStatusError` where it is refused.

        No field may be unknown or stand twice.
        """
        asked = {"dryRun": "All", "fieldValidation": "Strict"}
        answer = self._http.post(self._collection(thing), json=thing, params=asked)
        assert answer.is_success, f"{thing['kind']} {thing['metadata']['name']}: {answer.text}"
        return answer.headers.get_list(_WARNING)

    def find(self, thing: Json) -> Json | None:
        """What is stored under the kind, the namespace and the name of an object, if anything is."""
        answer = self._http.get(f"{self._collection(thing)}/{thing['metadata']['name']}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: Json = answer.raise_for_status().json()
        return found

    def replace(self, thing: Json) -> Json:
        """Write an object over the one that is there, as its owner in the cluster would."""
        path = f"{self._collection(thing)}/{thing['metadata']['name']}"
        found: Json = self._http.put(path, json=thing).raise_for_status().json()
        return found

    def everything(self, namespace: str) -> list[tuple[str, str]]:
        """Kind and name of whatever is in a namespace."""
        found = []
        for version in self._versions():
            for resource in self._served(version):
                if resource["namespaced"] and "list" in resource["verbs"]:
                    path = f"{_root(version)}/namespaces/{namespace}/{resource['name']}"
                    items: list[Json] = self._listed(path)["items"]
                    found += [(str(resource["kind"]), str(it["metadata"]["name"])) for it in items]
        return found

    def _listed(self, path: str) -> Json:
        """Asked again for the moment in which a new or changed definition has its storage made, as client-go does."""
        until = time.monotonic() + _STORAGE_SECONDS
        while True:
            answer = self._http.get(path)
            is_early = answer.status_code == httpx.codes.TOO_MANY_REQUESTS and STORAGE_IS_MADE in answer.text
            if not is_early or time.monotonic() > until:
                found: Json = answer.raise_for_status().json()
                return found
            time.sleep(0.1)

    def _versions(self) -> list[str]:
        groups = self._http.get("/apis").raise_for_status().json()["groups"]
        return ["v1", *(str(it["preferredVersion"]["groupVersion"]) for it in groups)]

    def _served(self, version: str) -> list[Json]:
        if version not in self._resources:
            self._resources[version] = self._http.get(_root(version)).raise_for_status().json()["resources"]
        return self._resources[version]

    def _collection(self, thing: Json) -> str:
        version, kind = thing["apiVersion"], thing["kind"]
        (resource,) = [it for it in self._served(version) if it["kind"] == kind and "/" not in it["name"]]
        metadata: dict[str, Any] = thing["metadata"]
        where = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
        return f"{_root(version)}{where}/{resource['name']}"


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
