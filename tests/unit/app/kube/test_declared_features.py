"""Rules of declared features: what a pod needs, and what of a node's list counts."""

from typing import Any

import pytest
from msgspec import Raw

from app.kube.declared_features import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_HOST_NETWORK,
    declared_features_of,
    needed_features,
)
from app.kube.meta_v1 import LARGEST_PART, Oversized
from tests.builders import encoded

RESTART = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
RESTART_ALL = {"action": "RestartAllContainers"}
FIRST = "ExtendWebSocketsToKubelet"


@pytest.mark.parametrize(
    ("rules", "host_network", "host_users", "expected"),
    [
        pytest.param([None, None], False, True, set(), id="nothing"),
        pytest.param([[RESTART], []], False, True, set(), id="a rule of another action"),
        pytest.param([None, [RESTART, RESTART_ALL]], False, True, {RESTART_ALL_CONTAINERS}, id="all restart"),
        pytest.param([], True, True, set(), id="the host's network and users"),
        pytest.param([], True, False, {USER_NAMESPACES_HOST_NETWORK}, id="the host's network, users of its own"),
        pytest.param(
            [[RESTART_ALL]], True, False, {RESTART_ALL_CONTAINERS, USER_NAMESPACES_HOST_NETWORK}, id="both features"
        ),
    ],
)
def test_what_a_pod_needs(rules: list[Any], host_network: bool, host_users: bool, expected: set[str]) -> None:
    raw = [Raw() if it is None else Raw(encoded(it)) for it in rules]

    assert expected == needed_features(raw, host_network=host_network, host_users=host_users)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        pytest.param([FIRST, RESTART_ALL_CONTAINERS, "Zebra"], {"R"}, id="among others"),
        pytest.param(["AAA", "Q", RESTART_ALL_CONTAINERS], {"R"}, id="after unknown ones"),
        pytest.param([USER_NAMESPACES_HOST_NETWORK, RESTART_ALL_CONTAINERS], {"U"}, id="one that comes too late"),
        pytest.param([RESTART_ALL_CONTAINERS, RESTART_ALL_CONTAINERS, FIRST], {"R"}, id="twice, and one too late"),
        pytest.param(["Zebra", RESTART_ALL_CONTAINERS], set(), id="behind the last"),
    ],
)
def test_a_list_of_a_node_counts_as_far_as_it_is_in_order(declared: list[str] | None, expected: set[str]) -> None:
    assert expected == {it[0] for it in declared_features_of(Raw(encoded(declared)))}


def test_what_is_too_long_is_not_read() -> None:
    with pytest.raises(Oversized, match="restartPolicyRules"):
        needed_features([Raw(b" " * (LARGEST_PART + 1))], host_network=False, host_users=True)
    with pytest.raises(Oversized, match="declaredFeatures"):
        declared_features_of(Raw(b" " * (LARGEST_PART + 1)))
