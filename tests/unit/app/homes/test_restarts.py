"""When pods can start again if a node accepts no pods, by the homes there and their policies."""

from __future__ import annotations

from typing import Any

import pytest

from app.homes.protocol import Home, HomeOwner, Policy, State, Whereabouts
from app.homes.restarts import Restart, homes_of_node, restart_condition, without_pod_there


def home(name: str, node: str = "n1", policy: str = "soft", state: str = "usable", **more: Any) -> Home:
    """Return the home of a machine. Its pod has the same name and is on n1."""
    owner = HomeOwner("kubevirt.io/v1", "VirtualMachine", "default", name, f"uid-{name}")
    given = {"pod": name, "pod_node": "n1", "holds": policy not in ("soft", "off"), **more}
    return Home(owner, node, State(state), Whereabouts.AT_HOME, policy=Policy(policy) if policy else None, **given)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(home("db", policy="hard"), Restart.HELD, id="hard"),
        pytest.param(home("db", policy="grace"), Restart.GRACE, id="grace"),
        pytest.param(
            home("db", policy="grace", state="away", is_away=True), Restart.GRACE, id="grace, and away already"
        ),
        pytest.param(home("db", policy="grace", holds=False), Restart.FREE, id="a grace that is none, or over"),
        pytest.param(home("db", policy="soft"), Restart.FREE, id="soft"),
        pytest.param(home("db", policy="off"), Restart.FREE, id="off"),
        pytest.param(home("db", "n2", "hard"), Restart.HELD_HOME, id="a hard guest"),
        pytest.param(home("db", "n2", "grace"), Restart.HOME, id="a guest"),
        pytest.param(home("db", "n2", "soft"), Restart.FREE, id="a soft guest"),
        pytest.param(home("db", "n2", "grace", is_away=True), Restart.GRACE, id="its home is away"),
        pytest.param(home("db", "n2", "hard", is_orphaned=True), Restart.HELD, id="hard, and its home is gone"),
        pytest.param(home("db", "n2", "soft", is_orphaned=True), Restart.FREE, id="soft, and its home is gone"),
        pytest.param(home("db", "", "hard", "none"), Restart.FREE, id="it has no home"),
        pytest.param(home("db", "n2", "hard", holds=False), Restart.FREE, id="hard, and let go"),
        pytest.param(
            home("db", "n2", "hard", "volume_elsewhere"), Restart.HELD, id="hard, and its volume is elsewhere"
        ),
        pytest.param(home("db", policy="", state="unknown"), Restart.HELD, id="what cannot be read is strict"),
    ],
)
def test_when_a_pod_may_start_again(found: Home, expected: Restart) -> None:
    assert expected is restart_condition(found, "n1")


IDLE = {"pod": "", "pod_node": ""}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(home("db", policy="hard", pod_node="n2"), "stays on n2", id="its pod is elsewhere"),
        pytest.param(home("db", policy="hard", **IDLE), "waits for n1", id="hard"),
        pytest.param(home("db", policy="grace", **IDLE), "waits for n1; elsewhere after its grace", id="grace"),
        pytest.param(home("db", policy="soft", **IDLE), "starts elsewhere", id="soft"),
        pytest.param(home("db", "n2", "hard", **IDLE), "goes home to n2", id="another home"),
        pytest.param(
            home("db", policy="hard", state="owner_gone", is_orphaned=True, **IDLE), "its owner is gone", id="no owner"
        ),
    ],
)
def test_homes_without_a_pod_there(found: Home, expected: str) -> None:
    assert expected == without_pod_there(found, "n1")


def test_of_several_profiles_the_one_that_schedules_the_pod_takes_precedence() -> None:
    found = [home("db", policy="hard", is_judged=False), None, home("db", policy="soft"), home("db", policy="hard")]

    assert [home("db", policy="soft")] == homes_of_node(found, "n1")


def test_homes_of_a_node_and_of_its_pods() -> None:
    here, guest = home("here", **IDLE), home("guest", "n2")
    others = [home("far", "n2", **IDLE), home("away", "n3", pod_node="n2")]

    assert [here, guest] == homes_of_node([here, *others, guest], "n1")
