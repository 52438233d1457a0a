"""A machine whose home takes no pods waits and is told so; what lets it go wakes it.

kube-scheduler looks at such a pod again after five minutes: whoever is bound here before was woken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_events import told
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt, shut_down
from tests.integration.test_spread_stories import make_zones

StartHomeport = Callable[..., Homeport]
SINCE = "homeport.dev/home-since"
AWAY = "node(s) were refused, because the pod's home takes no pods now"
GRACE = "node(s) were refused, because the grace period of the pod's home is not over"


def configured(folder: Path, **args: Any) -> str:
    """The flag for arguments of StickyNode."""
    settings = folder / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    profile = {"pluginConfig": [{"name": "StickyNode", "args": args}]}
    settings.write_text(json.dumps({**head, "profiles": [profile]}))
    return f"--config={settings}"


def cordon(client: Client, node: str, *, cordoned: bool = True) -> None:
    client.patch("Node", node, {"spec": {"unschedulable": cordoned or None}}, namespace="")


def annotate(client: Client, machine: str, home: str | None) -> None:
    """What a person does."""
    client.patch("VirtualMachine", machine, {"metadata": {"annotations": {HOME: home}}})


def since(client: Client, machine: str) -> str:
    return str(client.get("VirtualMachine", machine)["metadata"].get("annotations", {}).get(SINCE, ""))


def refused(client: Client, pod: str, reason: str) -> bool:
    """Whether the scheduler says so of the pod."""
    conditions = client.get("Pod", pod)["status"].get("conditions", [])
    return any(it["type"] == "PodScheduled" and reason in it.get("message", "") for it in conditions)


def waits(client: Client, name: str, reason: str) -> tuple[str, str]:
    """A machine that lived somewhere, whose node is cordoned while it is down. Its home, and its pod, which waits."""
    machine = client.create(objects.virtual_machine(name))
    first = boot(client, machine, "first")
    home = client.wait_bound(first)
    client.wait_for(lambda: home_of(client, name) == home, what="the home to be on the machine")
    shut_down(client, name, first)
    cordon(client, home)
    client.wait_for(lambda: since(client, name), what="the time to be on the machine")
    second = boot(client, machine, "second")
    client.wait_for(lambda: refused(client, second, reason), what="the pod to be refused")
    return home, second


def test_a_machine_waits_for_a_cordoned_home_and_goes_there_once_it_can(
    plane: ControlPlane, start_homeport: StartHomeport
) -> None:
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2})

    with start_scheduler(plane, start_homeport()):
        home, pod = waits(client, "wait01", GRACE)
        state, time, node = since(client, "wait01").split(" ")
        assert ("away", home, True) == (state, node, datetime.fromisoformat(time).tzinfo is not None)
        client.wait_for(lambda: "HomeAway" in told(client, pod), what="the pod to be told")
        cordon(client, home, cordoned=False)
        assert home == client.wait_bound(pod)
        client.wait_for(lambda: since(client, "wait01") == "", what="the time to be removed")
        client.wait_for(lambda: "HomeReturned" in told(client, "wait01"), what="the machine to be told")

    of_machine, of_pod = told(client, "wait01"), told(client, pod)
    assert {"HomeMade", "HomeAway", "HomeReturned"} == of_machine.keys()
    assert f"the home {home} is away (cordoned)" == of_machine["HomeAway"]["note"]
    assert of_pod["HomeAway"]["note"].startswith(f"the pod waits: the home {home} is away (cordoned); from 20")


@pytest.mark.parametrize("to", ["another", None])
def test_a_machine_whose_home_is_moved_or_released_is_woken(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path, to: str | None
) -> None:
    """The scheduler knows nothing of machines: of all that it watches nothing changes."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 2, "zone-b": 2})

    with start_scheduler(plane, start_homeport(configured(tmp_path, policy="hard"))):
        home, pod = waits(client, "move01", AWAY)
        other = next(it for it in zones if it != home)
        annotate(client, "move01", other if to else None)
        bound = client.wait_bound(pod)
        client.wait_for(lambda: since(client, "move01") == "", what="the time to be removed")

    assert bound != home
    assert to is None or bound == other


def test_a_machine_starts_elsewhere_once_its_grace_is_over(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """Nothing happens at that moment. A restart of Homeport in between changes nothing about when it is."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 2})
    homeport = start_homeport(configured(tmp_path, policy="grace", gracePeriod="12s"))

    with start_scheduler(plane, homeport):
        home, pod = waits(client, "over01", GRACE)
        began = since(client, "over01")
        homeport.kill()
        homeport.start()
        assert home != client.wait_bound(pod)
        client.wait_for(lambda: "GraceOver" in told(client, "over01"), what="the machine to be told")
        log = homeport.log()

    assert began.startswith("away ")
    assert "grace over" in log
    assert f"since {began.split(' ')[1]}: the grace is over" in told(client, "over01")["GraceOver"]["note"]
