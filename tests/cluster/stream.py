"""Pods that come one after another while something breaks, and when each of them was bound.

They go to nodes that no kubelet runs, so that a machine of two cores has its time for what is measured: such a node is
an object whose Lease is renewed here, with the zone of a real one. What runs on the real nodes is Homeport.
"""

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Self

import httpx

from tests.cluster.cluster import SERVER, ZONES, Cluster
from tests.controlplane import objects

LABELS: Final = {"app": "stream"}
SPREAD: Final = objects.spread(LABELS)
FENCE: Final = "homeport.dev/unclear-bind"
_MARK: Final = {"homeport.test/kind": "object"}
_LEASES: Final = "kube-node-lease"
_RENEW_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
_LAST_SECONDS: Final = 90.0
Json = dict[str, Any]


class ObjectNodes:
    """Three nodes in the zones of the real ones, kept ready; gone after the `with` block."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is made yet."""
        self.zones = {f"object-{zone}": zone for zone in ZONES.values()}
        self._client = cluster.client
        self._cluster = cluster
        self._end = threading.Event()
        self._renewing = threading.Thread(target=self._renew_forever)

    def __enter__(self) -> Self:
        for name, zone in self.zones.items():
            taints = [objects.taint("homeport.test/object")]
            self._client.create_node(
                objects.node(name, zone=zone, labels=_MARK, taints=taints, pods="10000", cpu="999")
            )
        self._renew()
        self._renewing.start()
        for name in self.zones:
            self._client.wait_for(partial(self._is_clean, name), what=f"{name} to be ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._renewing.join()
        for name in self.zones:
            self._client.delete("Node", name)

    def _is_clean(self, name: str) -> bool:
        taints = self._client.get("Node", name)["spec"].get("taints", [])
        return not [taint for taint in taints if taint["key"].startswith("node.kubernetes.io/")]

    def _renew_forever(self) -> None:
        while not self._end.wait(_RENEW_SECONDS):
            self._renew()

    def _renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"leaseDurationSeconds": 40, "renewTime": now}
        for name in self.zones:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            lease["spec"] = {**spec, "holderIdentity": name}
            path = f"/apis/coordination.k8s.io/v1/namespaces/{_LEASES}/leases/{name}"
            self._client.request(
                "PATCH",
                path,
                json.dumps(lease),
                content_type="application/apply-patch+yaml",
                params={"fieldManager": "stream", "force": "true"},
            )


@dataclass(slots=True)
class Outcome:
    """What became of a stream. Times are seconds on one clock."""

    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, set[str]] = field(default_factory=dict)
    fenced: int = 0

    @property
    def lost(self) -> list[str]:
        """Pods that were never bound."""
        return sorted(set(self.created) - set(self.bound))

    @property
    def twice(self) -> list[str]:
        """Pods that were seen on two nodes."""
        return sorted(name for name, nodes in self.nodes.items() if len(nodes) > 1)

    def skew(self, zones: dict[str, str]) -> int:
        """Of the pods over the zones, at the end."""
        counts = Counter(zones[node] for nodes in self.nodes.values() for node in nodes)
        return max(counts.values()) - min(counts.get(zone, 0) for zone in zones.values())

    @property
    def standstill(self) -> float:
        """The longest time in which pods waited and none was bound."""
        longest, last = 0.0, min(self.created.values())
        for moment in sorted(self.bound.values()):
            since = min(at for other, at in self.created.items() if self.bound.get(other, moment) >= moment)
            longest = max(longest, moment - max(last, since))
            last = moment
        return longest


class Stream:
    """Creates pods of one schedulerName until `finish`, twenty a second; its watch notes when they are bound."""

    def __init__(self, cluster: Cluster, name: str, scheduler_name: str = "homeport") -> None:
        """`name` begins that of its namespace."""
        self.name = f"{name}-{secrets.token_hex(2)}"
        self.outcome = Outcome()
        self._cluster = cluster
        self._scheduler_name = scheduler_name
        self._end = threading.Event()
        self._watching = threading.Event()
        self._watched = threading.Thread(target=self._watch, daemon=True)
        self._creating = threading.Thread(target=self._create_forever)

    def __enter__(self) -> Self:
        metadata = {"name": self.name}
        self._cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self._cluster.client.wait_for(
            lambda: self._cluster.client.find("ServiceAccount", "default", self.name), what="its service account"
        )
        self._watched.start()
        self._watching.wait()
        self._creating.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._creating.join()
        self._cluster.kubectl(
            "delete", "pods", "--all", "--namespace", self.name, "--grace-period=0", "--force", "--wait=false"
        )
        self._cluster.kubectl("delete", "namespace", self.name, "--wait=false", "--ignore-not-found")

    def until_bound(self, more: int, timeout: float = _LAST_SECONDS) -> None:
        """Wait until so many more pods are bound."""
        wanted = len(self.outcome.bound) + more
        self._cluster.client.wait_for(
            lambda: len(self.outcome.bound) >= wanted, timeout, f"{more} more pods of {self.name} to be bound"
        )

    def finish(self) -> Outcome:
        """Create no more, wait for those that are there, and say what became of all."""
        self._end.set()
        self._creating.join()
        deadline = time.monotonic() + _LAST_SECONDS
        while self.outcome.lost and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        found = self._cluster.client.list("Pod", self.name)
        self.outcome.fenced = sum(FENCE in (pod["metadata"].get("annotations") or {}) for pod in found)
        return self.outcome

    def _create_forever(self) -> None:
        number = 0
        while not self._end.wait(_PAUSE_SECONDS):
            name = f"pod-{number}"
            pod = objects.pod(
                name,
                namespace=self.name,
                labels=LABELS,
                scheduler_name=self._scheduler_name,
                spread_constraints=[SPREAD],
                node_selector=_MARK,
                tolerations=[objects.toleration("homeport.test/object")],
            )
            self.outcome.created[name] = time.monotonic()
            self._cluster.client.create(pod)
            number += 1

    def _watch(self) -> None:
        path = f"{SERVER}/api/v1/namespaces/{self.name}/pods?watch=1"
        headers = {"Authorization": f"Bearer {self._cluster.token}"}
        with (
            httpx.Client(verify=False, trust_env=False, timeout=None) as http,
            http.stream("GET", path, headers=headers) as answer,
        ):
            self._watching.set()
            for line in self._lines(answer):
                event: Json = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._note(event["object"])

    def _lines(self, answer: httpx.Response) -> Iterator[str]:
        """Until the end of the stream, after which the API server may break it off."""
        try:
            yield from answer.iter_lines()
        except httpx.TransportError:
            if not self._end.is_set():
                raise

    def _note(self, pod: Json) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        if node:
            self.outcome.bound.setdefault(name, time.monotonic())
            self.outcome.nodes.setdefault(name, set()).add(node)


@contextmanager
def streaming(cluster: Cluster, name: str, scheduler_name: str = "homeport") -> Iterator[tuple[Stream, ObjectNodes]]:
    """A stream onto nodes of its own, once the first pods of it are bound."""
    with ObjectNodes(cluster) as nodes, Stream(cluster, name, scheduler_name) as stream:
        stream.until_bound(20)
        yield stream, nodes
