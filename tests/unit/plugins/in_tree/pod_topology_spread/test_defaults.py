"""Rules of default constraints: whose pods have them, and with which selector (semantics §2.7)."""

from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES
from tests.builders import (
    HOSTNAME,
    JsonObject,
    controller,
    make_node,
    make_pod,
    make_service,
    service_object,
    workload_object,
)
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
HARD = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
BY_LIST = only(SPREAD, PodTopologySpread={"defaultingType": "List", "defaultConstraints": [HARD]})
FREE = ["n1", "n2"]
SPREAD_OUT = ["n2"]


def world(*objects: JsonObject, profile: JsonObject = BY_LIST) -> World:
    """Two nodes; the first runs one pod of the app."""
    return World(make_node("n1"), make_node("n2"), peer(), *objects, profile=profile)


def peer(**labels: str) -> Pod:
    return make_pod("peer", node="n1", labels={**WEB, **labels})


def feasible(found: World, pod: Pod) -> list[str]:
    return [name for name, answer in found.filter(pod).items() if answer == "Success"]


def of(kind: str, *, api_version: str = "apps/v1", controls: bool = True, **labels: str) -> Pod:
    owner = controller(kind, "web", api_version=api_version, controls=controls)
    return make_pod("pending", labels={**WEB, **labels}, owner=owner)


PLAIN = make_pod("pending", labels=WEB)


def test_what_is_remembered_ends_with_the_next_change_of_a_service() -> None:
    found = world()
    assert FREE == feasible(found, PLAIN)

    found.add(service_object("web", WEB))
    assert SPREAD_OUT == feasible(found, PLAIN)

    found.cluster.others.upsert(SERVICES, make_service("web", {"app": "db"}))
    assert FREE == feasible(found, PLAIN)

    found.cluster.others.upsert(SERVICES, make_service("web", WEB))
    assert SPREAD_OUT == feasible(found, PLAIN)

    found.cluster.others.delete(SERVICES, ("default", "web"))
    assert FREE == feasible(found, PLAIN)


def test_what_is_remembered_ends_with_the_next_change_of_a_controller() -> None:
    found = world()
    pod = of("ReplicaSet")
    assert FREE == feasible(found, pod)

    found.add(workload_object("ReplicaSet", "web", {"matchLabels": WEB}))

    assert SPREAD_OUT == feasible(found, pod)


def test_pods_of_one_label_set_and_different_owners_are_told_apart() -> None:
    found = world(workload_object("ReplicaSet", "web", {"matchLabels": WEB}))

    assert [SPREAD_OUT, FREE] == [feasible(found, of("ReplicaSet")), feasible(found, of("StatefulSet"))]
