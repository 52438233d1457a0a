"""Homes that LeaderWorkerSets and PersistentVolumeClaims keep, with the rights that Homeport asks for and no others.

The test plays the controllers: it makes and deletes sets and pods as they do, and binds claims to volumes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account, apply, printed
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_events import told
from tests.integration.test_home_stories import HOME
from tests.integration.test_home_trust import lines
from tests.integration.test_permissions import configured
from tests.integration.test_spread_stories import make_zones

StartWith = Callable[..., Homeport]

LWS: Final = "leaderworkerset.x-k8s.io"
LABEL: Final = "leaderworkerset.sigs.k8s.io"
SETS: Final = {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}
GROUPS: Final = {
    "apiVersion": f"{LWS}/v1",
    "kind": "LeaderWorkerSet",
    "perOrdinal": True,
    "through": [{"apiVersion": "apps/v1", "kind": "StatefulSet"}],
}
KEPT: Final = {"example.com/home": "kept"}
CLAIMS: Final = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "selector": {"matchLabels": KEPT}}


@pytest.fixture
def start_with(plane: ControlPlane, tmp_path: Path) -> Iterator[StartWith]:
    """Starts a Homeport with these rules, and with the rights that are printed for them."""
    started: list[Homeport] = []

    def start(*owners: Json) -> Homeport:
        config = configured(
            tmp_path, profiles=[{"pluginConfig": [{"name": "StickyNode", "args": {"owners": list(owners)}}]}]
        )
        account = Account(plane, "keeper")
        apply(plane.client, printed(config, "keeper"))
        homeport = Homeport(account.kubeconfig, tmp_path, [f"--config={config}"])
        started.append(homeport)
        homeport.start()
        return homeport

    yield start
    for homeport in started:
        homeport.__exit__(None, None, None)


@pytest.fixture
def client(plane: ControlPlane) -> Iterator[Client]:
    """Claims and volumes are protected by finalizers, which nobody else takes away here."""
    yield plane.client
    plane.client.clear()
    for kind, namespace in (("PersistentVolumeClaim", "default"), ("PersistentVolume", "")):
        for it in plane.client.list(kind, namespace):
            name = it["metadata"]["name"]
            plane.client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace)
            if plane.client.find(kind, name, namespace) is not None:
                plane.client.delete(kind, name, namespace)


def written(client: Client, kind: str, name: str) -> dict[str, str]:
    """What stands of homes on an object: the nodes, by ordinal."""
    found = client.get(kind, name)["metadata"].get("annotations", {})
    return {key.removeprefix(HOME): found[key] for key in found if key == HOME or key.startswith(f"{HOME}.")}


def wait_written(client: Client, kind: str, name: str, expected: dict[str, str]) -> None:
    client.wait_for(lambda: written(client, kind, name) == expected, what=f"{expected} on {kind} {name}")


def crowd(client: Client, *nodes: str) -> None:
    """Any other node is emptier."""
    for node in set(nodes):
        for number in range(8):
            client.create(objects.pod(f"crowd-{node}-{number}", node_name=node, requests={"cpu": "1"}))


class Group:
    """A LeaderWorkerSet of one group of two, as its controllers make it."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        whole = {"apiVersion": f"{LWS}/v1", "kind": "LeaderWorkerSet", "metadata": {"name": name}, "spec": {}}
        self._leaders = client.create(
            objects.stateful_set(name, owners=[objects.owner_reference(client.create(whole))])
        )

    def start(self) -> tuple[str, str]:
        """The leader, its set of workers, and the worker; returns the nodes of both."""
        leader = self._client.create(self._pod(f"{self._name}-0", "0", self._leaders))
        node = self._client.wait_bound(leader["metadata"]["name"])
        workers = objects.stateful_set(f"{self._name}-0", owners=[objects.owner_reference(leader)])
        self._client.create(self._pod(f"{self._name}-0-1", "1", self._client.create(workers)))
        return node, self._client.wait_bound(f"{self._name}-0-1")

    def stop(self) -> None:
        """What follows a leader goes with it."""
        self._client.delete("Pod", f"{self._name}-0-1")
        self._client.delete("StatefulSet", f"{self._name}-0")
        self._client.delete("Pod", f"{self._name}-0")

    def _pod(self, name: str, worker: str, owner: Json) -> Json:
        labels = {f"{LABEL}/name": self._name, f"{LABEL}/group-index": "0", f"{LABEL}/worker-index": worker}
        return objects.pod(name, labels=labels, owners=[objects.owner_reference(owner)])


def test_a_leader_worker_set_and_a_stateful_set_keep_homes_beside_each_other(
    plane: ControlPlane, client: Client, start_with: StartWith
) -> None:
    """The pods of both are in StatefulSets: those of a LeaderWorkerSet have their homes on it, all others on theirs."""
    client.install(objects.definition("LeaderWorkerSet", "leaderworkersets", group=LWS))
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    plain = client.create(objects.stateful_set("db"))
    member = objects.pod("db-0", owners=[objects.owner_reference(plain)])
    homeport = start_with(SETS, GROUPS)
    group = Group(client, "model")

    with start_scheduler(plane, homeport):
        leader, worker = group.start()
        client.create(member)
        alone = client.wait_bound("db-0")
        wait_written(client, "LeaderWorkerSet", "model", {".0-0": leader, ".0-1": worker})
        wait_written(client, "StatefulSet", "db", {".0": alone})
        assert [{}, {}] == [written(client, "StatefulSet", name) for name in ("model", "model-0")]

        group.stop()
        client.delete("Pod", "db-0")
        crowd(client, leader, worker, alone)
        assert (leader, worker) == group.start()
        client.create(member)
        assert alone == client.wait_bound("db-0")
        assert [{}, {}] == [written(client, "StatefulSet", name) for name in ("model", "model-0")]


def use(client: Client, pod: str, claim: str, **fields: Any) -> str:
    """A pod that mounts a claim; returns its node once it is bound."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    client.create(objects.pod(pod, volumes=volumes, **fields))
    return client.wait_bound(pod)


def add_claim(client: Client, name: str, labels: dict[str, str]) -> None:
    for it in objects.bound_claim(name, labels=labels):
        client.create(it)


def test_whatever_uses_a_claim_comes_back_to_where_it_was_used(
    plane: ControlPlane, client: Client, start_with: StartWith
) -> None:
    """By the same name or another, until a person releases it; a claim that nobody marked keeps nothing."""
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    add_claim(client, "data", KEPT)
    add_claim(client, "plain", {})
    homeport = start_with(CLAIMS)

    with start_scheduler(plane, homeport):
        home = use(client, "web-1", "data")
        wait_written(client, "PersistentVolumeClaim", "data", {"": home})
        client.wait_for(lambda: "HomeMade" in told(client, "data"), what="an Event on the claim")
        crowd(client, home)
        client.delete("Pod", "web-1")
        assert home == use(client, "web-1", "data")
        client.delete("Pod", "web-1")
        assert home == use(client, "of-another-name", "data")
        assert home != use(client, "free", "plain")
        (listed,) = homeport.get("/api/v1/homes")["items"]
        kept_by, where = listed["owner"], (listed["node"], listed["machine"], listed["pod"])
        assert ("PersistentVolumeClaim", "data") == (kept_by["kind"], kept_by["name"])
        assert (home, "at_home", "of-another-name") == where

        client.delete("Pod", "of-another-name")
        client.patch("PersistentVolumeClaim", "data", {"metadata": {"annotations": {HOME: None}}})
        client.wait_for(lambda: lines(homeport, "home given up"), what="the release to be known")
        new = use(client, "web-2", "data")
        assert new != home
        wait_written(client, "PersistentVolumeClaim", "data", {"": new})

    assert {} == written(client, "PersistentVolumeClaim", "plain")
    assert [] == homeport.get("/api/v1/status")["permissions"]["missing"]
    assert {"consistent": True, "differences": []} == homeport.get("/api/v1/check")
