"""A stock kube-scheduler that is answered fewer names than pass: a lot of them, or the best one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, SCHEDULER_CONFIG, Homeport, extender, scheduler_config
from tests.integration.test_lean_answers import SCORES
from tests.integration.test_spread_stories import WEB, wait_all_bound

StartHomeport = Callable[..., Homeport]

COMPLETE: Final = SCHEDULER_CONFIG.with_name("complete.yaml")
PICK: Final = {"preset": "complete", "pick": True}
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REFUSED_ONCE: Final = "not this time"


@pytest.fixture
def start(plane: ControlPlane, start_homeport: StartHomeport) -> StartHomeport:
    """Starts a Homeport with these words in its one profile, and with further flags."""

    def started(profile: Mapping[str, Any], *flags: str) -> Homeport:
        head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
        config = plane.folder / "fewer.yaml"
        config.write_text(yaml.safe_dump({**head, "profiles": [{"schedulerName": "default-scheduler", **profile}]}))
        return start_homeport(f"--config={config}", *flags)

    return started


def picks(homeport: Homeport) -> tuple[int, int]:
    """Made, and failed."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    counted = dict(line.split(" ") for line in text.splitlines() if "_picks_total" in line and line[0] != "#")
    made, failed = (int(float(counted[f"homeport_{name}_total"])) for name in ("picks", "failed_picks"))
    return made, failed


def chi_square(found: Mapping[str, int], among: Sequence[str]) -> float:
    """How far from even."""
    each = sum(found.values()) / len(among)
    return sum((found.get(name, 0) - each) ** 2 / each for name in among)


@pytest.mark.long
def test_with_a_lot_each_node_is_chosen_about_as_often(plane: ControlPlane, start: StartHomeport) -> None:
    """400 draws among 200 equal nodes, of which 100 are answered. Fair ones give 199 and 20 to either side.

    Beyond 370 they are once in 10¹¹ times; with the same hundred each time it would be 600.
    """
    names = [f"n{number}" for number in range(200)]
    pods = [f"pod-{number}" for number in range(400)]
    for name in names:
        plane.client.create_node(objects.node(name, cpu="64", memory="256Gi", pods="1000"))
    homeport = start({"atMost": 100})

    sizes: Counter[tuple[str, int, int]] = Counter()

    def hand_on(path: str, body: bytes) -> bytes:
        answer = HTTP.post(f"{homeport.url}{path}", content=body).content
        if path == "/lean/filter":
            sizes["filter", len(json.loads(body)["NodeNames"]), len(json.loads(answer)["NodeNames"])] += 1
        elif path == "/lean/prioritize":
            sizes["prioritize", len(json.loads(body)["NodeNames"]), 0] += 1
        return answer

    with extender(hand_on) as address:
        config = dict(scheduler_config(homeport, urlPrefix=f"{address}/lean"))
        config["profiles"] = [{"schedulerName": "default-scheduler", "plugins": SCORES}]
        with plane.start_scheduler({**config, "percentageOfNodesToScore": 100}):
            for name in pods:
                plane.client.create(objects.pod(name))
            placed = Counter(wait_all_bound(plane, pods).values())

    assert {("filter", 200, 100), ("prioritize", 100, 0)} == sizes.keys()
    assert chi_square(placed, names) < 370


def preferring(disk: str) -> dict[str, Any]:
    """A pod's affinity to nodes with that disk."""
    wish = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}
    return {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": wish}]}}


def make_varied_nodes(plane: ControlPlane) -> None:
    """Each is the best for some pod, but for one that may not be used."""
    shunned = objects.taint("x", effect="PreferNoSchedule")
    for node in (
        objects.node("fast", zone="a", cpu="8", labels={"disk": "ssd"}),
        objects.node("slow", zone="a", cpu="8", labels={"disk": "hdd"}),
        objects.node("large", zone="b", cpu="64", memory="256Gi"),
        objects.node("shunned", zone="c", cpu="256", memory="1024Gi", taints=[shunned]),
        objects.node("cordoned", zone="d", cpu="512", memory="2048Gi", unschedulable=True),
    ):
        plane.client.create_node(node)


def varied_pods() -> Iterator[dict[str, Any]]:
    """Each with a single best node, whatever is drawn by lot."""
    soft = objects.spread(WEB, when="ScheduleAnyway")
    room = {"cpu": "1", "memory": "1Gi"}
    yield objects.pod("plain", requests=room)
    yield objects.pod("wants-fast", requests=room, affinity=preferring("ssd"))
    yield objects.pod("wants-slow", requests=room, affinity=preferring("hdd"))
    yield objects.pod("tolerates", requests=room, tolerations=[objects.toleration("x")])
    yield objects.pod("web-1", labels=WEB, requests=room, spread_constraints=[soft], affinity=preferring("ssd"))
    yield objects.pod("too-large", requests={"cpu": "40"})
    yield objects.pod("web-2", labels=WEB, requests=room, spread_constraints=[soft])


def placed_one_by_one(plane: ControlPlane) -> dict[str, str]:
    """The node of each of the varied pods; they are gone again afterwards."""
    found = {}
    for pod in varied_pods():
        name = plane.client.create(pod)["metadata"]["name"]
        found[name] = plane.client.wait_bound(name)
    for name in found:
        plane.client.delete("Pod", name)
    return found


def test_pods_go_where_a_stock_kube_scheduler_sends_them_and_nothing_is_scored_twice(
    plane: ControlPlane, start: StartHomeport
) -> None:
    make_varied_nodes(plane)
    with plane.start_scheduler({"profiles": [{"schedulerName": "default-scheduler"}]}):
        expected = placed_one_by_one(plane)
    homeport = start(PICK)

    with plane.start_scheduler(scheduler_config(homeport, file=COMPLETE)):
        found = placed_one_by_one(plane)

    assert expected == found
    assert {"fast", "slow", "large", "shunned"} == set(found.values())
    assert ({}, {"bound": len(found)}) == (homeport.outcomes("prioritize"), homeport.outcomes("bind"))
    assert (len(found), 0) == picks(homeport)


def test_picks_in_a_row_know_of_each_other(plane: ControlPlane, start: StartHomeport) -> None:
    """Five equal nodes and 100 pods at once: each takes room of its node, so the next one goes elsewhere."""
    names = [f"n{number}" for number in range(5)]
    for name in names:
        plane.client.create_node(objects.node(name, cpu="32", memory="128Gi", pods="1000"))
    homeport = start(PICK, "--expected-bind-wait=1s")  # a busy machine may take long to send one
    pods = [f"pod-{number}" for number in range(100)]
    for name in pods:
        plane.client.create(objects.pod(name, requests={"cpu": "1", "memory": "4Gi"}))

    with plane.start_scheduler(scheduler_config(homeport, file=COMPLETE)):
        placed = Counter(wait_all_bound(plane, pods).values())

    made, failed = picks(homeport)
    assert 100 == made - failed
    assert set(names) == placed.keys()
    assert max(placed.values()) - min(placed.values()) <= 4, placed


def binding_late(homeport: Homeport) -> AbstractContextManager[str]:
    """Serve an extender that hands binds on to Homeport, but for the first one of each pod, which fails."""
    seen: set[str] = set()

    def hand_on(_path: str, body: bytes) -> bytes:
        uid = json.loads(body)["PodUID"]
        if uid not in seen:
            seen.add(uid)
            return json.dumps({"Error": REFUSED_ONCE}).encode()
        return HTTP.post(f"{homeport.url}/bind", content=body).content

    return extender(hand_on)


def test_a_bind_that_fails_costs_one_retry(plane: ControlPlane, start: StartHomeport) -> None:
    for number in range(3):
        plane.client.create_node(objects.node(f"n{number}"))
    homeport = start(PICK)

    with binding_late(homeport) as address:
        config = dict(scheduler_config(homeport, file=COMPLETE))
        (entry,) = config["extenders"]
        del entry["bindVerb"]
        assert "/lean" == urlsplit(entry["urlPrefix"]).path
        late = {"urlPrefix": address, "bindVerb": "bind", "nodeCacheCapable": True}
        with plane.start_scheduler({**config, "extenders": [entry, late]}):
            plane.client.create(objects.pod("late"))
            plane.client.wait_bound("late")

    assert any(REFUSED_ONCE in it["message"] for it in plane.client.events("late"))
    assert (2, 1) == picks(homeport)
    assert {"feasible": 2} == homeport.outcomes("filter")


def test_beside_a_pick_kube_scheduler_can_keep_its_own_filters_and_preemption(
    plane: ControlPlane, start: StartHomeport
) -> None:
    """Two nodes in each of three zones, each with room for one pod. Then a pod comes that needs a whole node."""
    for number in range(6):
        plane.client.create_node(objects.node(f"n{number}", zone=f"zone-{number % 3}", cpu="2"))
    plane.client.create(objects.priority_class("urgent", 1000))
    homeport = start(PICK)
    names = [f"web-{number}" for number in range(6)]
    for name in names:
        web = objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)], requests={"cpu": "1500m"})
        plane.client.create(web)

    with plane.start_scheduler(scheduler_config(homeport)):
        placed = wait_all_bound(plane, names)
        plane.client.create(objects.pod("urgent", priority_class_name="urgent", requests={"cpu": "2"}))
        plane.client.wait_bound("urgent")

    assert {"zone-0": 2, "zone-1": 2, "zone-2": 2} == Counter(f"zone-{int(it[1:]) % 3}" for it in placed.values())
    assert not homeport.outcomes("prioritize")
    assert homeport.outcomes("preempt")
    assert 5 == len([it for it in plane.client.list("Pod", "default") if it["metadata"]["name"] in names])
