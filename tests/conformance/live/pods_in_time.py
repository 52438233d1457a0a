"""Pods of a control plane as a watch shows them, and kubelets that report each bound pod as running and ready."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Final, Self

import httpx
import msgspec
from msgspec import Struct

from tests.controlplane.client import ApiError, Json
from tests.controlplane.controlplane import ControlPlane

PODS: Final = "/api/v1/namespaces/default/pods"
WRITERS: Final = 4
"""Threads that report pods."""


class LivePod(Struct, frozen=True):
    """Pod that is not being deleted. ``cost``: its deletion cost, empty without the annotation."""

    name: str
    uid: str
    labels: Mapping[str, str]
    node: str
    ready: bool
    cost: str


class LivePods:
    """Live pods by the label ``app``, from lists and watches in a thread. ``changes``: apps whose pods have changed.

    The API server ends the watch of a reader that falls behind; then the pods are listed again.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.changes: SimpleQueue[str] = SimpleQueue()
        self.failure = ""
        self._plane = plane
        self._by_app: dict[str, dict[str, LivePod]] = {}
        self._reported: set[str] = set()
        self._writers = ThreadPoolExecutor(WRITERS)
        self._http = httpx.Client(
            base_url=plane.server,
            headers={"Authorization": f"Bearer {plane.token}"},
            verify=False,  # loopback, and only a test
            timeout=httpx.Timeout(30, read=None),
            trust_env=False,
        )
        self._is_over = False
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._writers.shutdown(cancel_futures=True)
        self._http.close()

    def of(self, app: str) -> list[LivePod]:
        return list(self._by_app.get(app, {}).values())

    def _follow(self) -> None:
        while not self._is_over:
            try:
                listed = msgspec.json.decode(self._http.get(PODS).raise_for_status().content)
                self._replace(listed["items"])
                for event in self._events(listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    self._take(event["type"], event["object"])
            except Exception as error:  # noqa: BLE001  # whatever it is, the histories must not wait for ever
                self.failure = f"the pods cannot be followed: {error!r}"
                return

    def _events(self, version: str) -> Iterator[Json]:
        params = {"watch": "1", "resourceVersion": version}
        with self._http.stream("GET", PODS, params=params) as stream:
            for line in stream.raise_for_status().iter_lines():
                yield msgspec.json.decode(line)

    def _replace(self, pods: list[Json]) -> None:
        listed = {it["metadata"]["uid"] for it in pods}
        for app, known in self._by_app.items():
            for uid in known.keys() - listed:
                del known[uid]
                self.changes.put(app)
        for pod in pods:
            self._take("ADDED", pod)

    def _take(self, kind: str, pod: Json) -> None:
        self._store(kind, pod)
        self.changes.put(pod["metadata"]["labels"]["app"])

    def _store(self, kind: str, pod: Json) -> None:
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        pods = self._by_app.setdefault(metadata["labels"]["app"], {})
        if kind == "DELETED" or metadata.get("deletionTimestamp"):
            pods.pop(metadata["uid"], None)
            self._reported.discard(metadata["uid"])
            return
        conditions = {it["type"]: it["status"] for it in status.get("conditions", ())}
        pods[metadata["uid"]] = found = LivePod(
            metadata["name"],
            metadata["uid"],
            metadata["labels"],
            spec.get("nodeName", ""),
            conditions.get("Ready") == "True",
            metadata.get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost", ""),
        )
        if found.node and not found.ready and found.uid not in self._reported:
            self._reported.add(found.uid)
            self._writers.submit(self._report, found.name)

    def _report(self, name: str) -> None:
        """Report the pod as its kubelet would, unless it is gone."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        try:
            self._plane.client.patch_status("Pod", name, {"phase": "Running", "startTime": now, "conditions": [ready]})
        except Exception as error:  # noqa: BLE001  # a thread of the pool would keep it to itself
            if not isinstance(error, ApiError) or error.status != httpx.codes.NOT_FOUND:
                self.failure = f"{name} cannot be reported: {error!r}"
