"""Changed features, and restart rules that are not read. All other rules: topics ``features``."""

from typing import Final

from app.kube.meta_v1 import LARGEST_PART
from tests.builders import container, node_object
from tests.harness import World, only

NAME: Final = "NodeDeclaredFeatures"
RESTART: Final = {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}
RESTARTING: Final = container(restartPolicyRules=[{"action": "Restart"}, {"action": "RestartAllContainers"}])


def world() -> World:
    return World(node_object("none"), node_object("restart", status=RESTART), profile=only(NAME))


def test_a_node_that_comes_to_declare_it_is_judged_again() -> None:
    found = world()
    pod = found.pod("pending", containers=[RESTARTING])
    assert ["restart"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)

    found.add(node_object("none", status=RESTART), node_object("restart"))
    assert ["none"] == list(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)


def test_rules_that_are_not_read_refuse_the_pod_everywhere() -> None:
    found = world()
    pod = found.pod("pending", containers=[container(restartPolicyRules=[{"action": "x" * LARGEST_PART}])])

    reason = "node(s) can't be judged: the pod's spec.containers.restartPolicyRules is longer than 64 KiB"
    assert {("UnschedulableAndUnresolvable", NAME, (reason,))} == set(found.filter(pod).values())
