"""More host ports than are read. All other rules: topic ``ports`` of ``tests/conformance``."""

from plugins.in_tree.node_ports import REASON_UNREAD
from tests.builders import container, node_object, pod_object
from tests.harness import World, only


def test_who_has_too_many_ports_is_refused_everywhere() -> None:
    world = World(node_object("n1"), profile=only("NodePorts"))
    many = [{"containerPort": 80, "hostPort": number, "protocol": "TCP"} for number in range(1, 258)]
    pending = world.pod(pod_object("pending", containers=[container(ports=many)]))

    assert {"n1": ("UnschedulableAndUnresolvable", "NodePorts", (REASON_UNREAD,))} == world.filter(pending)
