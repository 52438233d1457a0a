"""Preemption for topology spread (``preemption: Own``) before a stock kube-scheduler."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.killed import KILLED_AFTER
from tests.integration.service import HTTP, Homeport, leader_and_follower, start_scheduler
from tests.integration.test_replicas import ELECTION

WEB = {"app": "web"}
HIGH, LOW, NEVER = "high", "low", "high-never"
PRIORITIES = {LOW: 10, "middle": 100, HIGH: 1000, NEVER: 1000, "highest": 2000}

Start = Callable[..., Homeport]


def configuration(preemption: str = "Own") -> dict[str, Any]:
    return {"profiles": [{"schedulerName": "*", "preemption": preemption}], "leaderElection": ELECTION}


@pytest.fixture
def classes(plane: ControlPlane) -> None:
    for name, value in PRIORITIES.items():
        policy = "Never" if name == NEVER else "PreemptLowerPriority"
        plane.client.create(objects.priority_class(name, value, preemption_policy=policy))


@pytest.fixture
def start(plane: ControlPlane, classes: None, tmp_path: Path) -> Iterator[Start]:
    """Starts a Homeport that leads, with a profile for every scheduler; its settings can be replaced."""
    started: list[Homeport] = []

    def begin(preemption: str = "Own", killed_after: str = "", **settings: Any) -> Homeport:
        head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
        config = tmp_path / f"homeport-{len(started)}.json"
        config.write_text(json.dumps({**head, **configuration(preemption), **settings}))
        environment = {KILLED_AFTER: f"{killed_after}:{tmp_path}/killed"}
        module = "tests.integration.killed" if killed_after else "homeport"
        homeport = Homeport(plane.kubeconfig, tmp_path, [f"--config={config}"], module, environment)
        started.append(homeport)
        homeport.start()
        return homeport

    yield begin
    for homeport in started:
        homeport.__exit__(None, None, None)


def zones(client: Client, *others: str) -> None:
    """Node ``a1`` and ``others`` in zone ``a``. The node of zone ``b`` takes no pods, but its zone counts."""
    for name in ("a1", *others):
        client.create(objects.node(name, zone="a"))
    client.create(objects.node("b1", zone="b", taints=[objects.taint("closed")]))


def running(client: Client, name: str, node: str = "a1", priority: str = LOW, **fields: Any) -> dict[str, Any]:
    """A pod that a kubelet runs: it is ready, and takes 30 s to end."""
    pod = objects.pod(name, priority_class_name=priority, node_name=node, **{"labels": WEB, **fields})
    pod["spec"]["terminationGracePeriodSeconds"] = 30
    client.create(pod)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
    return client.patch_status("Pod", name, {"phase": "Running", "startTime": now, "conditions": ready})


def web(name: str, priority: str = HIGH, skew: int = 1, **fields: Any) -> dict[str, Any]:
    spread = [objects.spread(WEB, max_skew=skew)]
    return objects.pod(name, labels=WEB, priority_class_name=priority, spread_constraints=spread, **fields)


def evicted(client: Client) -> list[str]:
    """Names of the pods that are terminating: a test plays no kubelet, so they stay."""
    pods = (it["metadata"] for it in client.list("Pod", "default"))
    return sorted(it["name"] for it in pods if "deletionTimestamp" in it)


def nominated(client: Client, name: str) -> str:
    return str(client.get("Pod", name).get("status", {}).get("nominatedNodeName", ""))


def plans(homeport: Homeport) -> dict[str, int]:
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("homeport_preemption_plans_total{")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}


def refused(client: Client, name: str) -> bool:
    conditions = client.get("Pod", name)["status"].get("conditions") or []
    return any(it["type"] == "PodScheduled" and it["status"] == "False" for it in conditions)


def stays_pending(client: Client, name: str, seconds: float = 2.0) -> None:
    """The pod is refused, and nothing follows within some seconds."""
    client.wait_for(lambda: refused(client, name), what=f"{name} to be refused")
    time.sleep(seconds)
    assert ("", "") == (client.node_of(name), nominated(client, name))


def budget(client: Client, name: str, allowed: int, selector: Mapping[str, Any] | None = None) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": WEB} if selector is None else selector}
    metadata = {"name": name, "namespace": "default"}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    client.create(made)
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2}
    client.patch_status("PodDisruptionBudget", name, {"observedGeneration": 1, **status})


def test_p1_the_fewest_low_pods_go_and_the_high_pod_is_bound_at_once(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    time.sleep(1.1)  # start times have seconds
    running(client, "low-1")
    homeport = start()

    with start_scheduler(plane, homeport):
        began = time.monotonic()
        client.create(web("high", skew=2))
        bound = client.wait_bound("high")
        seconds = time.monotonic() - began
        client.wait_for(lambda: plans(homeport), what="the plan to end")
    calls = sum(homeport.outcomes("filter").values())
    print(f"bound after {seconds:.2f} s and {calls} filter calls")  # noqa: T201  # a figure for the log

    assert ("a1", ["low-1"], {"bound": 1}) == (bound, evicted(client), plans(homeport))
    assert calls <= 15
    assert "Preempting" in {it["reason"] for it in client.events("high")}
    assert "Preempted" in {it["reason"] for it in client.events("low-1")}
    assert "homeport.dev/preempting" in client.get("Pod", "high")["metadata"]["annotations"]


def test_p1_with_never_it_waits(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    homeport = start("Never")

    with start_scheduler(plane, homeport):
        client.create(web("high"))
        stays_pending(client, "high")

    assert [] == evicted(client)


def test_p3_no_budget_is_violated(plane: ControlPlane, start: Start) -> None:
    """The budget of one node's pod allows no eviction: the pod of the other node goes, though it is more important."""
    client = plane.client
    zones(client, "a2")
    running(client, "guarded", "a1", labels={**WEB, "guarded": "yes"})
    running(client, "free", "a2", "middle")
    budget(client, "guards", 0, {"matchLabels": {"guarded": "yes"}})
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high", skew=2))

        assert ("a2", ["free"]) == (client.wait_bound("high"), evicted(client))


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param([("none", 0, None)], id="no eviction is allowed"),
        pytest.param([("one", 5, None), ("two", 5, None)], id="two budgets on the pod"),
        pytest.param([("all", 0, {})], id="it selects every pod"),
    ],
)
def test_p3_pods_that_a_budget_guards_are_left_alone(
    plane: ControlPlane, start: Start, budgets: Sequence[tuple[str, int, Mapping[str, Any] | None]]
) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    for each in budgets:
        budget(client, *each)
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high"))
        stays_pending(client, "high")

    assert [] == evicted(client)


def test_p3_a_budget_of_one_lets_one_of_two_pods_in(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    budget(client, "one", 1)
    homeport = start()

    with start_scheduler(plane, homeport):
        for number in range(2):
            client.create(web(f"high-{number}", skew=2))
        client.wait_for(lambda: evicted(client), what="an eviction")
        time.sleep(3)
        bound = [name for name in ("high-0", "high-1") if client.node_of(name)]

    assert (1, 1) == (len(bound), len(evicted(client)))


def test_p4_a_node_full_of_low_pods_is_left_to_the_scheduler(plane: ControlPlane, start: Start) -> None:
    """The pod fits the node for spread, but not for CPU."""
    client = plane.client
    client.create(objects.node("a1", zone="a", cpu="4"))
    running(client, "low-0", labels={"app": "other"}, requests={"cpu": "3"})
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high", requests={"cpu": "3"}))
        client.wait_for(lambda: evicted(client), what="the scheduler to evict")
        client.delete("Pod", "low-0")

        assert "a1" == client.wait_bound("high")
    assert {} == plans(homeport)


def test_p5_homeport_and_the_scheduler_do_not_both_evict(plane: ControlPlane, start: Start) -> None:
    """Node ``a1`` lacks spread, node ``b2`` lacks CPU: one eviction helps, and one is made."""
    client = plane.client
    client.create(objects.node("a1", zone="a"))
    client.create(objects.node("b2", zone="b", cpu="4"))
    running(client, "low-0")
    running(client, "low-1", "b2", labels={"app": "other"}, requests={"cpu": "3"})
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high", requests={"cpu": "3"}))
        client.wait_for(lambda: evicted(client), what="an eviction")
        for name in evicted(client):
            client.delete("Pod", name)
        client.wait_bound("high")
        time.sleep(1)
        left = {it["metadata"]["name"] for it in client.list("Pod", "default")}

    assert 2 == len(left)
    assert [] == evicted(client)


def test_p6_the_place_is_kept_from_the_victims_successor(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high"))
        for number in range(5):
            client.create(web(f"again-{number}", LOW))

        assert ("a1", ["low-0"]) == (client.wait_bound("high"), evicted(client))
        assert [] == [name for number in range(5) if client.node_of(name := f"again-{number}")]


def test_p6_the_place_is_kept_on_every_node_of_the_domain(plane: ControlPlane, start: Start) -> None:
    """Without a scheduler: the high pod is refused and not tried again, and a low pod is tried on another node."""
    client = plane.client
    zones(client, "a2")
    running(client, "low-0")
    homeport = start()

    def passing(pod: dict[str, Any]) -> list[str]:
        answer = HTTP.post(f"{homeport.url}/filter", json={"Pod": pod, "NodeNames": ["a1", "a2"]}).json()
        return sorted(answer["NodeNames"] or ())

    high, again = (client.create(web(name, priority)) for name, priority in (("high", HIGH), ("again", LOW)))
    before = [passing(high), passing(again)]
    client.wait_for(lambda: evicted(client), what="an eviction")
    during = passing(again)
    client.wait_for(lambda: plans(homeport), timeout=20, what="the plan to end")
    client.wait_for(lambda: passing(again), what="the place to be free again")

    assert ([[], []], []) == (before, during)
    assert {"timed_out": 1} == plans(homeport)


def test_p6_a_higher_pod_takes_the_place_and_the_other_waits_or_starts_over(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high"))
        client.create(web("highest", "highest"))
        client.wait_bound("highest")
        time.sleep(2)

    assert len(evicted(client)) <= 2
    assert {"low-0"} <= {*evicted(client)}


def test_p6_after_another_pod_took_the_place_the_node_is_tried_again(plane: ControlPlane, start: Start) -> None:
    """Without a scheduler, so nothing calls Homeport again."""
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    homeport = start()

    high = client.create(web("high", skew=2))
    HTTP.post(f"{homeport.url}/filter", json={"Pod": high, "NodeNames": ["a1"]})
    client.wait_for(lambda: evicted(client), what="an eviction")
    client.create(web("highest", "highest"))
    client.bind("highest", "a1")
    client.wait_for(lambda: plans(homeport), what="the plan to end")
    before = len(evicted(client))
    client.wait_for(lambda: len(evicted(client)) == 2, timeout=60, what="another eviction")

    assert (1, {"overtaken": 1}) == (before, {key: it for key, it in plans(homeport).items() if key == "overtaken"})


@pytest.mark.parametrize(
    ("priority", "victim"),
    [
        pytest.param(NEVER, {}, id="preemptionPolicy Never"),
        pytest.param(LOW, {}, id="equal priority"),
        pytest.param(HIGH, {"annotations": {"homeport.dev/never-evict": "true"}}, id="never-evict"),
        pytest.param(HIGH, {"labels": {**WEB, "kubevirt.io": "virt-launcher"}}, id="virt-launcher"),
        pytest.param(
            HIGH, {"owners": [objects.owner_reference_to("apps/v1", "DaemonSet", "agent", "uid-1")]}, id="DaemonSet"
        ),
    ],
)
def test_p7_nobody_is_evicted(plane: ControlPlane, start: Start, priority: str, victim: dict[str, Any]) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0", **victim)
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high", priority))
        stays_pending(client, "high", 1.5)

    assert [] == evicted(client)


@pytest.mark.parametrize("write", ["nominate", "evict-1", "evict-2"])
def test_p8_it_is_killed_during_a_plan_and_started_again(plane: ControlPlane, start: Start, write: str) -> None:
    """In the end, both victims are evicted, no third pod is, and the pod is bound."""
    client = plane.client
    zones(client, "a2")
    for number in range(2):
        running(client, f"low-{number}")
    running(client, "low-2", "a2")
    killed = start(killed_after=write)

    with start_scheduler(plane, killed):
        client.create(web("high", skew=2))
        client.wait_for(lambda: not killed.alive, what="the process to be killed")
        before = evicted(client)
        killed.start()
        bound = client.wait_bound("high", timeout=60)

    assert (int(write[-1]) if write[-1].isdigit() else 0) == len(before)
    assert 2 == len(evicted(client))
    assert bound in ("a1", "a2")


def test_p8_the_leader_changes_during_a_plan(plane: ControlPlane, classes: None, tmp_path: Path) -> None:
    """The old leader is killed after the first of two evictions; the follower goes on."""
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    killing = {KILLED_AFTER: f"evict-1:{tmp_path}/killed"}
    with (
        leader_and_follower(plane, tmp_path, configuration(), killing, "tests.integration.killed") as (
            leader,
            follower,
        ),
        start_scheduler(plane, follower),
    ):
        client.create(web("high"))
        client.wait_for(lambda: not leader.alive, what="the leader to be killed")

        assert "a1" == client.wait_bound("high", timeout=60)
    assert ["low-0", "low-1"] == evicted(client)


def test_p8_the_api_server_is_away_during_a_plan(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    homeport = start()

    with start_scheduler(plane, homeport):
        client.create(web("high"))
        client.wait_for(lambda: evicted(client), what="an eviction")
        plane.stop_apiserver()
        time.sleep(15)
        plane.start_apiserver()

        assert "a1" == client.wait_bound("high", timeout=90)
    assert ["low-0", "low-1"] == evicted(client)
