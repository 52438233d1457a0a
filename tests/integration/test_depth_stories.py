"""Objects nested as deeply as the API server stores them stop nothing, while they are there and after."""

from __future__ import annotations

from typing import Final

import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_home_stories import StartHomeport, boot, home_of, install_kubevirt
from tests.integration.test_spread_stories import WEB, make_zones

DEPTHS: Final = (1_200, 9_000)
SPREAD: Final = [objects.spread(WEB)]


def assert_well(homeport: Homeport) -> None:
    """Ready, with sound books, and nothing left out."""
    assert HTTP.get(f"{homeport.url}/readyz").text == "ok\n"
    assert homeport.get("/api/v1/check") == {"consistent": True, "differences": []}
    feeds = homeport.get("/api/v1/status")["feeds"]
    assert [] == [name for it in feeds.values() for name in it["left_out"]]


def test_a_deep_pod_stops_nothing(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Told by the watch, found by the first list, bound, gone: others are bound throughout."""
    client = plane.client
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    homeport = start_homeport()

    with start_scheduler(plane, homeport):
        for levels in DEPTHS:
            client.create_deep(objects.pod(f"deep-{levels}", labels=WEB, gates=["wait"]), levels)
            assert client.depth_of("Pod", f"deep-{levels}") == levels
        client.create(objects.pod("beside", labels=WEB, spread_constraints=SPREAD))
        taken = {client.wait_bound("beside")}
        homeport.kill()
        homeport.start()
        client.create_deep(objects.pod("bound", labels=WEB, spread_constraints=SPREAD), DEPTHS[-1])
        taken.add(client.wait_bound("bound"))
        for levels in DEPTHS:
            client.delete("Pod", f"deep-{levels}")
        client.delete("Pod", "bound")
        client.create(objects.pod("after", labels=WEB, spread_constraints=SPREAD))
        assert client.wait_bound("after") in taken

    assert len(taken) == 2
    assert_well(homeport)


@pytest.mark.parametrize("levels", DEPTHS)
def test_deep_objects_of_other_kinds_are_read(plane: ControlPlane, start_homeport: StartHomeport, levels: int) -> None:
    """Pods go to a deep node, past a deep Service, and the home of a deep machine is written to it."""
    client = plane.client
    install_kubevirt(client)
    homeport = start_homeport()
    machine = client.create_deep(objects.virtual_machine("db01"), levels)
    client.create_deep(objects.service("web", WEB), levels)
    client.create_deep(objects.node("deep"), levels)
    client.patch_status("Node", "deep", objects.node("deep")["status"])
    for kind, name in (("Node", "deep"), ("Service", "web"), ("VirtualMachine", "db01")):
        assert client.depth_of(kind, name) == levels

    with start_scheduler(plane, homeport):
        client.create(objects.pod("web", labels=WEB))
        assert client.wait_bound("web") == "deep"
        homeport.kill()
        homeport.start()
        assert client.wait_bound(boot(client, machine, "first")) == "deep"
        client.wait_for(lambda: home_of(client, "db01") == "deep", what="the home to be on the machine")

    assert_well(homeport)
    client.delete("Service", "web")
