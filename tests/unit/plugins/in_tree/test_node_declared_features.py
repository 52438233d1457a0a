"""Rules of NodeDeclaredFeatures."""

from typing import Any, Final

from app.kube.meta_v1 import LARGEST_PART
from tests.builders import JsonObject, container, node_object
from tests.harness import Answer, World, only

NAME: Final = "NodeDeclaredFeatures"
RESTART: Final = "RestartAllContainersOnContainerExits"
NETWORK: Final = "UserNamespacesHostNetworkSupport"
RESTARTING: Final = container(restartPolicyRules=[{"action": "Restart"}, {"action": "RestartAllContainers"}])


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


def world(profile: JsonObject | None = None) -> World:
    return World(
        node_object("none"),
        node_object("restart", status={"declaredFeatures": [RESTART]}),
        node_object("both", status={"declaredFeatures": ["A", RESTART, NETWORK, "Z"]}),
        profile=profile or only(NAME),
    )


def test_a_node_that_comes_to_declare_it_is_judged_again() -> None:
    found = world()
    pod = found.pod("pending", containers=[RESTARTING])
    assert ["restart", "both"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)

    found.add(node_object("none", status={"declaredFeatures": [RESTART]}), node_object("restart"))

    assert ["none", "both"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)


def test_rules_that_are_not_read_refuse_the_pod_everywhere() -> None:
    found = world()
    pod = found.pod("pending", containers=[container(restartPolicyRules=[{"action": "x" * LARGEST_PART}])])

    assert refused(
        "node(s) can't be judged: the pod's spec.containers.restartPolicyRules is longer than 64 KiB"
    ) == _answer(found.verdict(pod).pre_filter)


def _answer(status: Any) -> Answer:
    return (status.code.word, status.plugin, status.reasons)
