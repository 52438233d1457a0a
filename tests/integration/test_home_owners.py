"""Homes of what is made anew by its controllers: ordinals of sets and pools, indexes of Jobs.

The test plays the controllers, in their order of writes. Homes are crowded meanwhile: but for Homeport, all would go
elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_home_identity import (
    install_memory,
    remembered,
    running,
    wait_home,
)
from tests.integration.test_home_stories import HOME, install_kubevirt, shut_down
from tests.integration.test_home_trust import often
from tests.integration.test_spread_stories import make_zones, wait_all_bound

StartHomeport = Callable[..., Homeport]

SETS: Final = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
INDEX: Final = "batch.kubernetes.io/job-completion-index"


def crowd(client: Client, nodes: Iterable[str]) -> None:
    """Half of each of these nodes is taken from now on."""
    for node in nodes:
        client.create(objects.pod(f"crowd-{node}", node_name=node, requests={"cpu": "8"}))


def homes_on(client: Client, kind: str, name: str) -> dict[str, str]:
    """By slot, as they stand on the owner."""
    found = client.get(kind, name)["metadata"].get("annotations", {})
    return {key.removeprefix(f"{HOME}."): value for key, value in found.items() if key.startswith(f"{HOME}.")}


def wait_homes(client: Client, kind: str, name: str, homes: Mapping[str, str]) -> None:
    client.wait_for(lambda: homes_on(client, kind, name) == homes, what=f"the homes of {kind} {name} to be {homes}")


# ordinals


def stateful_set(name: str, replicas: int, owners: Iterable[Json] = ()) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
    metadata = {"name": name, "ownerReferences": list(owners)}
    spec = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}
    return {**SETS, "metadata": metadata, "spec": spec}


def member(client: Client, owner: Json, ordinal: int, labels: Mapping[str, str] | None = None) -> str:
    """The pod of an ordinal. Returns its name."""
    name = f"{owner['metadata']['name']}-{ordinal}"
    own = {"apps.kubernetes.io/pod-index": str(ordinal), "statefulset.kubernetes.io/pod-name": name}
    made = objects.pod(
        name, labels={**own, **(labels or {})}, owners=[objects.owner_reference(owner)], requests={"cpu": "1"}
    )
    return str(client.create(made)["metadata"]["name"])


def test_ordinals_of_a_set_keep_their_homes_when_it_is_scaled_and_when_it_is_made_anew(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Down to one pod and up again; then the set itself is deleted, with all that stood on it."""
    client = plane.client
    install_memory(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    owner = client.create(stateful_set("db", 3))

    with start_scheduler(plane, start_homeport(often(tmp_path, owners=[{**SETS, "perOrdinal": True}]))):
        pods = [member(client, owner, number) for number in range(3)]
        bound = wait_all_bound(plane, pods)
        homes = {str(number): bound[pod] for number, pod in enumerate(pods)}
        wait_homes(client, "StatefulSet", "db", homes)

        for pod in pods[:0:-1]:
            client.delete("Pod", pod)
        crowd(client, {bound[pod] for pod in pods[1:]})
        assert bound == wait_all_bound(plane, [pods[0], *(member(client, owner, number) for number in (1, 2))])
        wait_homes(client, "StatefulSet", "db", homes)

        client.wait_for(lambda: homes_remembered(client, "StatefulSet", "db") == homes, what="them to be remembered")
        client.delete("StatefulSet", "db")
        for pod in pods:
            client.delete("Pod", pod)
        anew = client.create(stateful_set("db", 3))
        assert bound == wait_all_bound(plane, [member(client, anew, number) for number in range(3)])
        wait_homes(client, "StatefulSet", "db", homes)


def homes_remembered(client: Client, kind: str, name: str) -> dict[str, str]:
    """Slots of an owner, and the nodes that are remembered of them."""
    every = [it["spec"] for it in client.list("Home", "default")]
    of_it = [it for it in every if (it["owner"]["kind"], it["owner"]["name"]) == (kind, name)]
    return {it["owner"].get("slot", ""): it["node"] for it in of_it}


def test_machines_of_a_pool_keep_their_homes_when_it_is_scaled(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """KubeVirt deletes the machines of a pool, and reuses the ordinals that are free, the lowest first."""
    client = plane.client
    install_kubevirt(client)
    install_memory(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    names = [f"pool-{number}" for number in range(3)]

    def created(name: str) -> Json:
        return client.create(objects.virtual_machine(name, labels={"kubevirt.io/vmpool": "pool"}))

    with start_scheduler(plane, start_homeport(often(tmp_path))):
        started = {name: running(client, created(name), "first") for name in names}
        homes = {name: node for name, (_, node) in started.items()}
        client.wait_for(lambda: homes.items() <= remembered(client).items(), what="the homes to be remembered")

        for name in names[:0:-1]:
            client.delete("VirtualMachine", name)
            shut_down(client, name, started[name][0])
        crowd(client, {homes[name] for name in names[1:]})
        again = {name: running(client, created(name), "second")[1] for name in names[1:]}

        assert {name: homes[name] for name in names[1:]} == again
        for name, home in homes.items():
            wait_home(client, name, home)


# indexes and groups


def test_a_failed_index_of_a_job_comes_back_to_its_node(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """In a pod of another name. The failed pod is still there, as the Job controller leaves it."""
    client = plane.client
    make_zones(plane, {"zone-a": 2, "zone-b": 2}, cpu="16")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}}
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": template}
    job = client.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})

    def created(index: int, suffix: str) -> str:
        found = objects.pod(
            f"train-{index}-{suffix}",
            labels={INDEX: str(index), "batch.kubernetes.io/job-name": "train"},
            annotations={INDEX: str(index)},
            owners=[objects.owner_reference(job)],
            requests={"cpu": "1"},
            restartPolicy="Never",
        )
        return str(client.create(found)["metadata"]["name"])

    rule = {"apiVersion": "batch/v1", "kind": "Job", "perOrdinal": True}
    with start_scheduler(plane, start_homeport(often(tmp_path, owners=[rule]))):
        pods = [created(index, "first") for index in range(3)]
        bound = wait_all_bound(plane, pods)
        homes = {str(index): bound[pod] for index, pod in enumerate(pods)}
        wait_homes(client, "Job", "train", homes)

        client.set_phase(pods[1], "Failed")
        crowd(client, {bound[pods[1]]})
        assert homes["1"] == client.wait_bound(created(1, "second"))
        wait_homes(client, "Job", "train", homes)
