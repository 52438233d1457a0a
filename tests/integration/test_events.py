"""What people see with ``kubectl describe``: Events as the real API server takes and lists them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from app.controllers.spread_events import AGAIN_SECONDS, TICK_SECONDS
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.roles import Account, apply, printed
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_home_stories import HOME, boot, home_of, install_kubevirt, shut_down
from tests.integration.test_permissions import ELECTION, bind, configured, refused_on_zone_a, without
from tests.integration.test_spread_stories import WEB, make_zones

GROUP = "/apis/events.k8s.io/v1"
KUBECTL = "/api/v1/events?fieldSelector=reportingComponent%3Dhomeport.dev%2Fhomeport"


def told(client: Client, name: str) -> dict[str, Json]:
    """Homeport's Events about an object, by reason."""
    about = [it for it in client.request("GET", KUBECTL)["items"] if it["involvedObject"]["name"] == name]
    places = {it["reason"]: f"namespaces/{it['metadata']['namespace']}/events/{it['metadata']['name']}" for it in about}
    return {reason: client.request("GET", f"{GROUP}/{place}") for reason, place in places.items()}


def edit(client: Client, machine: str, home: str | None) -> None:
    """What a person does."""
    client.patch("VirtualMachine", machine, {"metadata": {"annotations": {HOME: home}}})


def shown(found: Json) -> tuple[Any, ...]:
    regarding = found["regarding"]
    return found["type"], regarding["kind"], regarding["name"], found.get("related", {}).get("kind", ""), found["note"]


def test_homes_nominations_and_the_leader_are_told_with_the_least_role(plane: ControlPlane, tmp_path: Path) -> None:
    """On the machine, the pod and the Lease. None is told of a refusal."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2, "zone-b": 1})
    machine = client.create(objects.virtual_machine("told01"))
    config = configured(
        tmp_path, smallestSample=1, leaderElection={**ELECTION, "resourceNamespace": "default", "resourceName": "told"}
    )
    account = Account(plane, "teller")
    apply(client, printed(config, "teller"))

    with Homeport(account.kubeconfig, tmp_path, [f"--config={config}"]) as homeport:
        client.wait_for(lambda: "LeaderElection" in told(client, "told"), what="the leader to be told")
        first = boot(client, machine, "first", scheduler_name="homeport")
        assert "" == bind(homeport, client.get("Pod", first), "zone-a-1")
        client.wait_for(lambda: home_of(client, "told01") == "zone-a-1", what="the home")
        edit(client, "told01", "zone-b-0")
        client.wait_for(lambda: "HomeMoved" in told(client, "told01"), what="the move to be told")
        edit(client, "told01", None)
        client.wait_for(lambda: "HomeGivenUp" in told(client, "told01"), what="the end of a home to be told")
        edit(client, "told01", "zone-z-9")
        client.wait_for(lambda: "HomeGiven" in told(client, "told01"), what="the new home to be told")
        shut_down(client, "told01", first)
        again = client.get("Pod", boot(client, machine, "again", scheduler_name="homeport"))
        client.wait_for(lambda: refused_on_zone_a(homeport, again), what="the pod to be refused")
        for _ in range(20):
            assert refused_on_zone_a(homeport, again)
        client.create(objects.pod("crowd", labels=WEB, node_name="zone-a-0"))
        spread = [objects.spread(WEB)]
        late = client.create(objects.pod("late", labels=WEB, scheduler_name="homeport", spread_constraints=spread))
        client.wait_for(
            lambda: refused_on_zone_a(homeport, late) and "NominatedUnshown" in told(client, "late"),
            what="the nomination",
        )
        holder = homeport.get("/api/v1/status")["leader"]
        client.wait_for(lambda: len(told(client, "told01")) == 5, what="all Events")
        client.wait_for(lambda: told(client, again["metadata"]["name"]), what="the pod to be told")
        found = told(client, "told01")
        led, lease, log = (
            told(client, "late")["NominatedUnshown"],
            told(client, "told")["LeaderElection"],
            homeport.log(),
        )

    assert {
        "HomeMade": ("Normal", "VirtualMachine", "told01", "Pod"),
        "HomeMoved": ("Normal", "VirtualMachine", "told01", "Node"),
        "HomeGivenUp": ("Normal", "VirtualMachine", "told01", "Node"),
        "HomeGiven": ("Normal", "VirtualMachine", "told01", "Node"),
        "HomeUnknown": ("Warning", "VirtualMachine", "told01", "Node"),
    } == {reason: shown(it)[:4] for reason, it in found.items()}
    assert found["HomeMade"]["regarding"]["uid"] == machine["metadata"]["uid"]
    assert ("Normal", "Pod", "late", "Node", "zone-b-0") == (*shown(led)[:4], led["related"]["name"])
    note = f"{holder['identity']} leads; it is reached at {holder['address']}"
    assert ("Normal", "Lease", "told", "", note) == shown(lease)
    assert "events are not written" not in log
    assert ["HomeGone"] == [*told(client, again["metadata"]["name"])]


def test_without_the_right_pods_are_bound_all_the_same(plane: ControlPlane, tmp_path: Path) -> None:
    """And it is said once."""
    client = plane.client
    install_kubevirt(client)
    make_zones(plane, {"zone-a": 2})
    config = configured(tmp_path)
    account = Account(plane, "silent")
    apply(client, without(printed(config, "silent"), "events"))

    with Homeport(account.kubeconfig, tmp_path, [f"--config={config}"]) as homeport:
        for number in range(3):
            machine = client.create(objects.virtual_machine(f"silent{number}"))
            pod = boot(client, machine, "first", scheduler_name="homeport")
            assert "" == bind(homeport, client.get("Pod", pod), "zone-a-1")
        client.wait_for(lambda: counted(homeport) == {"refused": 3}, what="three Events to be given up")
        log = homeport.log()

    assert 1 == log.count("events are not written")
    assert {} == told(client, "silent0")


def counted(homeport: Homeport) -> dict[str, int]:
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("homeport_events_total{")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.split()[-1])) for line in lines}


ALL_FILTERS = "complete"
WITH_REASON = "zone: zone-c 0, zone-a 1, zone-b 1; maxSkew 1; zone-c: Insufficient cpu"


@pytest.mark.parametrize(
    ("explain", "note"),
    [
        pytest.param("profile", WITH_REASON.removesuffix("; zone-c: Insufficient cpu"), id="the profile's filters"),
        pytest.param(ALL_FILTERS, WITH_REASON, id="all filters", marks=pytest.mark.long),
    ],
)
def test_what_spread_keeps_waiting_is_told_once_with_numbers(
    plane: ControlPlane, tmp_path: Path, explain: str, note: str
) -> None:
    """However often the scheduler asks again, and however the numbers change."""
    client = plane.client
    make_zones(plane, {"zone-a": 2, "zone-b": 1, "zone-c": 1}, cpu="4")
    for zone in "ab":
        client.create(objects.pod(f"runs-{zone}", labels=WEB, node_name=f"zone-{zone}-0"))
    client.create(objects.pod("fills-c", node_name="zone-c-0", requests={"cpu": "4"}))
    config = configured(tmp_path, explain=explain)
    account = Account(plane, "spreads")
    apply(client, printed(config, "spreads"))
    fields: dict[str, Any] = {"labels": WEB, "requests": {"cpu": "1"}, "spread_constraints": [objects.spread(WEB)]}

    with (
        Homeport(account.kubeconfig, tmp_path, [f"--config={config}"]) as homeport,
        start_scheduler(plane, homeport),
    ):
        client.create(objects.pod("stuck", **fields))
        client.create(objects.pod("elsewhere", node_selector={"disk": "none"}, **fields))
        client.wait_for(lambda: told(client, "stuck"), what="the waiting pod to be told")
        client.create(objects.pod("runs-more", labels=WEB, node_name="zone-b-0"))
        refused = homeport.outcomes("filter")["no_fit"]
        client.create(objects.pod("asks", **fields))
        client.wait_for(lambda: told(client, "asks"), what="a second waiting pod to be told")
        if explain == ALL_FILTERS:
            time.sleep(AGAIN_SECONDS + 2 * TICK_SECONDS)
        again = homeport.outcomes("filter")["no_fit"]
        about = [it for it in client.request("GET", KUBECTL)["items"] if it["reason"] == "SpreadBlocked"]
        found, later = told(client, "stuck"), told(client, "asks")

    assert ["SpreadBlocked"] == [*found]
    assert ("Normal", "Pod", "stuck", "", note) == shown(found["SpreadBlocked"])
    assert note.replace("zone-b 1", "zone-b 2") == later["SpreadBlocked"]["note"]
    assert (["asks", "stuck"], True) == (sorted(it["involvedObject"]["name"] for it in about), again > refused)
    assert [None, None] == [it.get("series") for it in (found["SpreadBlocked"], later["SpreadBlocked"])]
