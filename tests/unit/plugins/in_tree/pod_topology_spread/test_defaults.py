"""Rules of default constraints: whose pods have them, and with which selector (semantics §2.7)."""

from collections.abc import Sequence

import pytest

from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES
from tests.builders import (
    HOSTNAME,
    JsonObject,
    constraint,
    controller,
    expression,
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


@pytest.mark.parametrize(
    ("objects", "pod", "expected"),
    [
        pytest.param([], PLAIN, FREE, id="nothing selects a bare pod"),
        pytest.param([service_object("web", WEB)], PLAIN, SPREAD_OUT, id="a Service that selects it"),
        pytest.param([service_object("web", {"app": "db"})], PLAIN, FREE, id="a Service that does not"),
        pytest.param([service_object("web", WEB, namespace="shop")], PLAIN, FREE, id="a Service next door"),
        pytest.param([service_object("web", None)], PLAIN, FREE, id="a Service without a selector"),
        pytest.param([service_object("web", {})], PLAIN, FREE, id="a Service with an empty selector"),
        pytest.param(
            [service_object("a", WEB), service_object("b", {"tier": "front"})],
            make_pod("pending", labels={**WEB, "tier": "front"}),
            FREE,
            id="two Services: their selectors are merged, and the peer has only one of the labels",
        ),
        pytest.param(
            [workload_object("ReplicaSet", "web", {"matchLabels": WEB})], of("ReplicaSet"), SPREAD_OUT, id="ReplicaSet"
        ),
        pytest.param(
            [workload_object("ReplicaSet", "web", {"matchExpressions": [expression("app", "NotIn", "db")]})],
            of("ReplicaSet"),
            SPREAD_OUT,
            id="ReplicaSet with expressions",
        ),
        pytest.param(
            [workload_object("StatefulSet", "web", {"matchLabels": WEB})],
            of("StatefulSet"),
            SPREAD_OUT,
            id="StatefulSet",
        ),
        pytest.param(
            [service_object("web", WEB, kind="ReplicationController")],
            of("ReplicationController", api_version="v1"),
            SPREAD_OUT,
            id="ReplicationController",
        ),
        pytest.param(
            [service_object("a", {"rev": "1"}), service_object("web", {"rev": "2"}, kind="ReplicationController")],
            of("ReplicationController", api_version="v1", rev="1"),
            FREE,
            id="a ReplicationController's pair replaces a Service's: the peer has no rev",
        ),
        pytest.param(
            [service_object("a", WEB), workload_object("ReplicaSet", "web", {"matchLabels": {"rev": "1"}})],
            of("ReplicaSet", rev="1"),
            FREE,
            id="a ReplicaSet's requirements are added to a Service's: the peer has no rev",
        ),
        pytest.param([], of("ReplicaSet"), FREE, id="an owner that is gone"),
        pytest.param([workload_object("ReplicaSet", "web", None)], of("ReplicaSet"), FREE, id="a null selector"),
        pytest.param([workload_object("ReplicaSet", "web", {})], of("ReplicaSet"), FREE, id="an empty selector"),
        pytest.param(
            [workload_object("ReplicaSet", "web", {"matchLabels": WEB})],
            of("ReplicaSet", controls=False),
            FREE,
            id="an owner that is not the controller",
        ),
        pytest.param(
            [workload_object("ReplicaSet", "web", {"matchLabels": WEB})], of("Job"), FREE, id="a Job of the same name"
        ),
        pytest.param(
            [workload_object("ReplicaSet", "web", {"matchLabels": WEB})],
            of("ReplicaSet", api_version="example.com/v1"),
            FREE,
            id="somebody else's ReplicaSet",
        ),
        pytest.param(
            [service_object("web", WEB)],
            make_pod("pending", labels=WEB, spread=[constraint(HOSTNAME, soft=True, app="web")]),
            FREE,
            id="a pod with any constraint of its own, even a soft one, has no defaults",
        ),
    ],
)
def test_whose_pods_have_defaults(objects: Sequence[JsonObject], pod: Pod, expected: list[str]) -> None:
    assert expected == feasible(world(*objects), pod)


@pytest.mark.parametrize(
    ("profile", "scored"),
    [
        pytest.param(only(SPREAD), True, id="the system defaults are soft"),
        pytest.param(BY_LIST, False, id="a list of hard ones scores nothing"),
        pytest.param(only(SPREAD, PodTopologySpread={"defaultingType": "List"}), False, id="an empty list: none"),
    ],
)
def test_which_defaults_score(profile: JsonObject, scored: bool) -> None:
    assert scored is (SPREAD in world(service_object("web", WEB), profile=profile).score(PLAIN))


def test_the_system_defaults_filter_nothing() -> None:
    assert FREE == feasible(world(service_object("web", WEB), profile=only(SPREAD)), PLAIN)


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
