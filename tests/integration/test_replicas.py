"""Two replicas before a stock kube-scheduler that asks the follower: whatever happens to the leader, pods get bound."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport, leader_and_follower, role, start_scheduler
from tests.integration.test_spread_stories import make_zones, wait_all_bound

WEB = {"app": "web"}
FENCE = "homeport.dev/unclear-bind"
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "2s",
    "renewDeadline": "1500ms",
    "retryPeriod": "500ms",
    "resourceNamespace": "default",
    "resourceName": "homeport",
}

Pair = tuple[Homeport, Homeport]


@pytest.fixture
def pair(plane: ControlPlane, tmp_path: Path) -> Iterator[Pair]:
    """The leader and its follower, both ready."""
    with leader_and_follower(plane, tmp_path, {"leaderElection": ELECTION}) as both:
        yield both


def make_pods(plane: ControlPlane, *names: str, **fields: Any) -> list[str]:
    """Pods that are spread hard over zones."""
    for name in names:
        plane.client.create(objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)], **fields))
    return list(names)


def until_it_leads(plane: ControlPlane, homeport: Homeport) -> float:
    """Wait for it; returns how many seconds that took."""
    started = time.monotonic()
    plane.client.wait_for(lambda: role(homeport) == "ok: leader", what="the follower to lead")
    return time.monotonic() - started


def report(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.3f} s")  # noqa: T201  # a figure for the log


def binding(plane: ControlPlane, name: str, node: str) -> dict[str, str]:
    uid = plane.client.get("Pod", name)["metadata"]["uid"]
    return {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}


def skew(zones: dict[str, str], bound: dict[str, str]) -> int:
    counts = [list(map(zones.__getitem__, bound.values())).count(zone) for zone in set(zones.values())]
    return max(counts) - min(counts)


def holds_the_lease(homeport: Homeport) -> list[str]:
    """The samples of the metric that says so."""
    text = HTTP.get(f"{homeport.url}/metrics", timeout=5).text
    name = "homeport_leader_election_master_status"
    return [line.removeprefix(name) for line in text.splitlines() if line.startswith(name)]


def test_metrics_say_who_holds_the_lease(pair: Pair) -> None:
    leader, follower = pair

    assert (['{name="homeport"} 1.0'], ['{name="homeport"} 0.0']) == (
        holds_the_lease(leader),
        holds_the_lease(follower),
    )


def test_pods_are_bound_through_the_follower_and_a_hand_over(plane: ControlPlane, pair: Pair) -> None:
    """The leader decides for both. Told to end it gives way at once, and the follower goes on without a fence."""
    leader, follower = pair
    zones = make_zones(plane, {"zone-a": 3, "zone-b": 2, "zone-c": 1})
    identity = leader.get("/api/v1/status")["leader"]["identity"]
    assert ("ok: leader", "ok: follower") == (role(leader), role(follower))

    with start_scheduler(plane, follower):
        wait_all_bound(plane, make_pods(plane, *(f"first-{number}" for number in range(9))))
        decided = (follower.outcomes("bind"), leader.outcomes("bind"))
        waiting = make_pods(plane, "nobody-s", scheduler_name="homeport")
        leader.signal(signal.SIGTERM)
        taken = until_it_leads(plane, follower)
        second = make_pods(plane, *(f"second-{number}" for number in range(9)))
        bound = wait_all_bound(plane, [*second, *(f"first-{number}" for number in range(9))])
        plane.client.wait_for(lambda: not leader.alive, what="the old leader to end")

    report("SIGTERM to the follower leading", taken)
    forwarded, outcomes = decided
    assert ({"forwarded": sum(outcomes.values())}, 9) == (forwarded, outcomes["bound"])
    assert 9 == follower.outcomes("bind")["bound"]
    assert skew(zones, bound) <= 1
    status = follower.get("/api/v1/status")["leader"]
    assert (True, status["replica"], follower.url.removeprefix("http://")) == (
        status["here"],
        status["identity"],
        status["address"],
    )
    assert identity != status["identity"]
    assert FENCE not in plane.client.get("Pod", waiting[0])["metadata"].get("annotations", {})


def test_a_leader_that_slept_binds_nothing_and_one_that_is_killed_is_replaced(plane: ControlPlane, pair: Pair) -> None:
    """The one that slept sends on what lay at its door; when its successor is killed, it leads again.

    What waits at a take-over without notice is fenced off, and nothing that comes later, nor what waits for a scheduler
    that never called.
    """
    first, second = pair
    make_zones(plane, {"zone-a": 3, "zone-b": 2, "zone-c": 1})
    make_pods(plane, "lay-there", "came-later", "nobody-s", scheduler_name="s0")
    make_pods(plane, "stranger", scheduler_name="never-called")
    asked = binding(plane, "lay-there", "zone-a-0")

    first.signal(signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        HTTP.post(f"{first.url}/bind", json=asked, timeout=0.5)
    slept = until_it_leads(plane, second)
    first.signal(signal.SIGCONT)
    plane.client.wait_for(lambda: role(first) == "ok: follower", what="the one that slept to follow")
    answer = HTTP.post(f"{first.url}/bind", json=binding(plane, "came-later", "zone-b-0"))
    decided = first.outcomes("bind")

    with start_scheduler(plane, first):
        second.kill()
        killed = until_it_leads(plane, first)
        names = make_pods(plane, *(f"web-{number}" for number in range(9)))
        wait_all_bound(plane, names)

    report("SIGSTOP to the follower leading", slept)
    report("SIGKILL to the follower leading", killed)
    assert ({"Error": ""}, "zone-b-0") == (answer.json(), plane.client.node_of("came-later"))
    assert "bound" not in decided
    assert 9 == first.outcomes("bind")["bound"]
    fenced = [
        FENCE in plane.client.get("Pod", name)["metadata"].get("annotations", {})
        for name in ("nobody-s", "stranger", *names)
    ]
    assert [True, False, *[False] * 9] == fenced
    lease = plane.client.get("Lease", "homeport")["metadata"]["annotations"]
    assert "default-scheduler,s0" == lease["homeport.dev/schedulers"]


def test_a_hostile_lease_is_shown_in_a_line_waited_for_and_taken(
    plane: ControlPlane, start_homeport: Callable[..., Homeport]
) -> None:
    """Its holder controls terminals, its count of transitions ends an int32, and it does not say since when."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "homeport", "namespace": "default"},
        "spec": {
            "holderIdentity": "\x1b[31m" + "x" * 50_000,
            "leaseDurationSeconds": 1,
            "leaseTransitions": 2**31 - 1,
        },
    }
    plane.client.create(lease)
    flags = [f"--leader-elect-{name}" for name in ("lease-duration=3s", "renew-deadline=2s", "retry-period=500ms")]
    homeport = start_homeport("--leader-elect", "--leader-elect-resource-namespace=default", *flags)
    shown = role(homeport, whole=True)
    until_it_leads(plane, homeport)
    taken = plane.client.get("Lease", "homeport")["spec"]
    plane.client.delete("Lease", "homeport")
    plane.client.wait_for(lambda: plane.client.find("Lease", "homeport"), what="the Lease to be made again")
    until_it_leads(plane, homeport)

    assert f'ok: follower of "\\x1b[31m{"x" * 123}"… at \n' == shown
    assert (0, 3) == (taken["leaseTransitions"], taken["leaseDurationSeconds"])
