"""Rules of NodePorts."""

from typing import Final

import pytest

from plugins.in_tree.node_ports import REASON_UNREAD, NodePorts, NodePortsArgs
from tests.builders import JsonObject, container, node_object, pod_object
from tests.harness import Answer, World, only

PORTS: Final = "NodePorts"
TAKEN: Final = ("Unschedulable", PORTS, ("node(s) didn't have free ports for the requested pod ports",))
UNREAD: Final = ("UnschedulableAndUnresolvable", PORTS, (REASON_UNREAD,))


def port(number: int, protocol: str = "TCP", ip: str = "") -> JsonObject:
    return {"containerPort": 80, "hostPort": number, "protocol": protocol, **({"hostIP": ip} if ip else {})}


def world(*taken: JsonObject, profile: JsonObject | None = None) -> World:
    running = pod_object("running", node="n1", containers=[container(ports=list(taken))])
    return World(node_object("n1"), node_object("free"), running, profile=profile or only(PORTS))


@pytest.mark.parametrize(
    ("taken", "wanted", "expected"),
    [
        pytest.param(port(80), port(80), TAKEN, id="the same port"),
        pytest.param(port(80), port(81), "Success", id="another port"),
        pytest.param(port(80), port(80, "UDP"), "Success", id="another protocol"),
        pytest.param(port(80, ip="10.0.0.1"), port(80, ip="10.0.0.2"), "Success", id="another address"),
        pytest.param(port(80, ip="10.0.0.1"), port(80), TAKEN, id="all addresses include that one"),
        pytest.param(port(80), port(80, ip="10.0.0.1"), TAKEN, id="that one is among all addresses"),
        pytest.param(port(80), {"containerPort": 80}, "Success", id="a port within the pod"),
    ],
)
def test_a_host_port_is_taken_once(taken: JsonObject, wanted: JsonObject, expected: Answer) -> None:
    found = world(taken)

    assert NodePortsArgs() == NodePortsArgs.model_validate({})
    assert isinstance(found.framework.plugins[PORTS], NodePorts)
    pending = found.pod(pod_object("pending", containers=[container(ports=[wanted])]))
    assert {"n1": expected, "free": "Success"} == found.filter(pending)


def test_who_has_too_many_ports_is_refused_everywhere() -> None:
    found = world()
    many = [port(number) for number in range(1, 258)]

    assert {"n1": UNREAD, "free": UNREAD} == found.filter(
        found.pod(pod_object("pending", containers=[container(ports=many)]))
    )
