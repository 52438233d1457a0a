"""Where the scenarios take place: a control plane, nodes in zones, an observer, and pods that come and go in crowds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import yaml

from tests.chaos.checker import Json, Kind
from tests.chaos.observer import Observer
from tests.controlplane import objects
from tests.controlplane.client import ApiError
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import Homeport, scheduler_config

ZONES: Final = ("zone-a", "zone-b", "zone-c")
PODS_PATH: Final = "/api/v1/namespaces/default/pods"
HOMES: Final = Path(__file__).parents[2] / "helm" / "homeport" / "crds" / "homes.yaml"
CLIENT: Final = {"qps": 5000, "burst": 10000}
"""kube-scheduler's own throttle is not what is measured."""

_CONCURRENCY: Final = 8
_GONE_SECONDS: Final = 60.0
_NOT_FOUND: Final = 404

Item = TypeVar("Item")


class Arena:
    """A control plane of its own with ``nodes`` nodes, as many in each zone. ``plane``: one that is not started yet.

    ``cpu``: of each node; all else is there in plenty. ``spec``: fields of the nodes' spec by zone.
    """

    def __init__(
        self,
        nodes: int,
        kinds: Iterable[Kind] = ("Node", "Pod"),
        plane: ControlPlane | None = None,
        *,
        cpu: str = "640",
        spec: Mapping[str, Json] = {},
    ) -> None:
        self._cpu = cpu
        self._spec = spec
        self.folder = Path(tempfile.mkdtemp(prefix="homeport-chaos-"))
        self._cleanup = ExitStack()
        self._cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._kinds = tuple(kinds)
        self.nodes = [f"{ZONES[number % len(ZONES)]}-{number}" for number in range(nodes)]
        self.plane = plane or ControlPlane()

    def __enter__(self) -> Self:
        try:
            self._cleanup.enter_context(self.plane)
            self._pool = self._cleanup.enter_context(ThreadPoolExecutor(_CONCURRENCY))
            if "VirtualMachine" in self._kinds:
                for definition in objects.kubevirt_definitions():
                    self.plane.client.install(definition)
            if "Home" in self._kinds:
                self.plane.client.install(yaml.safe_load(HOMES.read_text()))
            self.each(self._create_node, self.nodes)
            self.observer = self._cleanup.enter_context(Observer(self.plane, self._kinds))
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _create_node(self, name: str) -> None:
        zone = name.rpartition("-")[0]
        node = objects.node(name, zone=zone, cpu=self._cpu, memory="2560Gi", pods="1000")
        node["spec"] = {**node.get("spec", {}), **self._spec.get(zone, {})}
        node["status"]["nodeInfo"] = {"systemUUID": f"machine-of-{name}"}
        self.plane.client.create_node(node)

    def each(self, act: Callable[[Item], object], items: Iterable[Item]) -> None:
        """Several at once; the first failure is raised."""
        for _ in self._pool.map(act, items):
            pass

    def homeport(
        self,
        scheduler_names: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        *,
        kubeconfig: Path | None = None,
        module: str = "homeport",
        environment: Mapping[str, str] | None = None,
        log_level: str = "warning",
    ) -> Homeport:
        """Start a Homeport that has a profile for each of these names, or none for any; ended with the arena."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        config = folder / "homeport.yaml"
        profiles = [{"schedulerName": name} for name in scheduler_names]
        kind = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
        named = {"profiles": profiles} if profiles else {}
        config.write_text(yaml.safe_dump({**kind, **named, **(settings or {})}))
        flags = [f"--config={config}", f"--log-level={log_level}"]
        started = Homeport(kubeconfig or self.plane.kubeconfig, folder, flags, module, environment)
        return self._cleanup.enter_context(started)

    def scheduler(self, name: str, homeport: Homeport | None, **fields: object) -> Scheduler:
        """A stock kube-scheduler for the pods of this name; without a Homeport the in-tree plugin spreads them."""
        config: dict[str, Any] = {"profiles": [{}]} if homeport is None else dict(scheduler_config(homeport))
        config["profiles"][0]["schedulerName"] = name
        started = self.plane.start_scheduler({**config, "clientConnection": CLIENT, **fields})
        return self._cleanup.enter_context(started)

    def create(self, pods: Iterable[Json]) -> None:
        """Create them, some at once."""
        self.each(self.plane.client.create, pods)

    def delete(self, names: Iterable[str]) -> None:
        """Delete pods by name; those that are gone already are as wanted."""
        self.each(self._delete, names)

    def _delete(self, name: str) -> None:
        try:
            self.plane.client.delete("Pod", name)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    def clear(self) -> None:
        """Delete every pod and wait until the observer has seen them go."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self.plane.client.request("DELETE", PODS_PATH, options)
        if not self.observer.settle(lambda pods: not pods, _GONE_SECONDS):
            raise TimeoutError(f"{len(self.observer.pods())} pods did not go")


def all_bound(pods: Sequence[Json]) -> bool:
    """Whether every pod has a node."""
    return all(pod["spec"].get("nodeName") for pod in pods)
