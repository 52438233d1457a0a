"""What topic ``defaults`` of ``tests/conformance`` does not ask of default constraints: what is kept of selectors."""

from app.kube.core_v1 import Pod
from tests.builders import HOSTNAME, controller, make_node, make_pod, workload_object
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
HARD = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
BY_LIST = only(SPREAD, PodTopologySpread={"defaultingType": "List", "defaultConstraints": [HARD]})


def test_pods_of_one_label_set_and_different_owners_are_told_apart() -> None:
    nodes = (make_node("n1"), make_node("n2"), make_pod("peer", node="n1", labels=WEB))
    world = World(*nodes, workload_object("ReplicaSet", "web", {"matchLabels": WEB}), profile=BY_LIST)

    def feasible(kind: str) -> list[str]:
        pod: Pod = make_pod("pending", labels=WEB, owner=controller(kind, "web", api_version="apps/v1"))
        return [name for name, answer in world.filter(pod).items() if answer == "Success"]

    assert [["n2"], ["n1", "n2"]] == [feasible("ReplicaSet"), feasible("StatefulSet")]
