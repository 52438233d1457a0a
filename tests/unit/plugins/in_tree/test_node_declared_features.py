"""Rules of NodeDeclaredFeatures."""

from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from plugins.in_tree.node_declared_features import NodeDeclaredFeatures, NodeDeclaredFeaturesArgs
from tests.builders import JsonObject, container, node_object
from tests.harness import Answer, World, only

NAME: Final = "NodeDeclaredFeatures"
RESTART: Final = "RestartAllContainersOnContainerExits"
NETWORK: Final = "UserNamespacesHostNetworkSupport"
RESTARTING: Final = container(restartPolicyRules=[{"action": "Restart"}, {"action": "RestartAllContainers"}])


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


LACKING: Final = refused("node(s) didn't match Pod's required features")


def world(profile: JsonObject | None = None) -> World:
    return World(
        node_object("none"),
        node_object("restart", status={"declaredFeatures": [RESTART]}),
        node_object("both", status={"declaredFeatures": ["A", RESTART, NETWORK, "Z"]}),
        profile=profile or only(NAME),
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, ["Success"] * 3, id="nothing"),
        pytest.param({"containers": [container(), RESTARTING]}, [LACKING, "Success", "Success"], id="a container"),
        pytest.param(
            {"more": {"initContainers": [RESTARTING]}}, [LACKING, "Success", "Success"], id="an init container"
        ),
        pytest.param(
            {"more": {"hostNetwork": True, "hostUsers": False}}, [LACKING, LACKING, "Success"], id="host network"
        ),
        pytest.param({"more": {"hostNetwork": True}}, ["Success"] * 3, id="the host's users, as it is by default"),
        pytest.param(
            {"containers": [RESTARTING], "more": {"hostNetwork": True, "hostUsers": False}},
            [LACKING, LACKING, "Success"],
            id="both",
        ),
    ],
)
def test_a_node_must_declare_all_that_the_pod_needs(fields: Any, expected: list[Answer]) -> None:
    found = world()

    assert NodeDeclaredFeaturesArgs() == NodeDeclaredFeaturesArgs.model_validate({})
    assert isinstance(found.framework.plugins[NAME], NodeDeclaredFeatures)
    assert expected == list(found.filter(found.pod("pending", **fields)).values())


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


def test_without_prefilter_it_fails_in_the_words_of_kube_scheduler() -> None:
    profile = only(NAME)
    profile["plugins"]["preFilter"] = {"disabled": [{"name": NAME}]}
    found = world(profile)

    with pytest.raises(PluginError) as raised:
        found.framework.filters.feasible(CycleState(), found.pod("pending"), found.candidates())

    assert (
        'running "NodeDeclaredFeatures" filter plugin: '
        'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found'
    ) == raised.value.status.message
