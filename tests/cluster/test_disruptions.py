"""Pods come all the time while replicas are drained, restarted, deleted and killed: none is lost, and none bound twice.

How long nothing was scheduled stands in the table at the end of the run.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.beside import beside
from tests.cluster.cluster import Cluster
from tests.cluster.figures import FIGURES
from tests.cluster.release import Release
from tests.cluster.stream import Outcome, streaming
from tests.controlplane import objects

_ANY = [{"operator": "Exists"}]
_LOOK_SECONDS = 0.5
_FILTER_SECONDS = 120
_POD = {"metadata": {"name": "asked", "namespace": "default", "uid": "asked"}, "spec": {"schedulerName": "homeport"}}
_FILTER = {"Pod": _POD, "NodeNames": ["node-a"]}
_ASK = """
import json, sys, time, urllib.request
while True:
    try:
        asked = urllib.request.Request("http://127.0.0.1:8888/filter", sys.argv[1].encode())
        with urllib.request.urlopen(asked, timeout=1) as answer:
            if not json.load(answer).get("Error"):
                break
    except OSError:
        pass
    time.sleep(0.02)
print(time.clock_gettime(time.CLOCK_BOOTTIME))
"""


def disrupted(cluster: Cluster, release: Release, name: str, disrupt: Callable[[], object]) -> Outcome:
    """A stream through a disruption, until everything is ready again and further pods are bound."""
    release.wait_ready()
    with streaming(cluster, name) as (stream, nodes):
        disrupt()
        stream.until_bound(60)
        release.wait_ready()
        stream.until_bound(20)
        outcome = stream.finish()
        assert ([], []) == (outcome.lost, outcome.twice)
        assert outcome.skew(nodes.zones) <= 1
    return outcome


def report(what: str, outcome: Outcome, most: float | None = None) -> None:
    FIGURES.seconds(f"{what}: nothing was scheduled for", outcome.standstill, most)
    FIGURES.add(
        f"{what}: pods, lost, bound twice", f"{len(outcome.created)}, {len(outcome.lost)}, {len(outcome.twice)}"
    )


def crash(cluster: Cluster, release: Release, pod: str) -> bool:
    """End the process of Homeport in a pod as the kernel would for want of memory; kubelet starts it again.

    Whether there was one: none is while kubelet waits before it starts the next.
    """
    running = processes(cluster, release, pod, "homeport")
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return bool(running)


def processes(cluster: Cluster, release: Release, pod: str, container: str) -> list[int]:
    """The main process of a container, if it runs."""
    (found,) = [it for it in release.pods() if it["metadata"]["name"] == pod]
    statuses = (*found["status"]["initContainerStatuses"], *found["status"]["containerStatuses"])
    (status,) = [it for it in statuses if it["name"] == container]
    identity = status["containerID"].rpartition("/")[2]
    told = cluster.nodes[found["spec"]["nodeName"]].run("ctr", "--namespace=k8s.io", "tasks", "list")
    tasks = [line.split() for line in told.splitlines() if line.startswith(identity)]
    return [int(pid) for _, pid, state in tasks if state == "RUNNING"]


def filter_answers(neighbour: int) -> float:
    """Wait until Homeport beside this process, in its pod, answers filter; return when, in seconds since the boot."""
    command = ["nsenter", f"--target={neighbour}", "--net", sys.executable, "-c", _ASK, json.dumps(_FILTER)]
    return float(subprocess.run(command, capture_output=True, timeout=_FILTER_SECONDS, check=True).stdout)


def started(pid: int) -> float:
    """When a process was started, in seconds since the boot."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def crash_looping(cluster: Cluster, release: Release, pod: str) -> Iterator[list[float]]:
    """Within the block Homeport in a pod ends as often as kubelet starts it; when it did, by a clock in seconds."""
    crashes = [time.monotonic()]

    def crash_again(over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            if crash(cluster, release, pod):
                crashes.append(time.monotonic())

    assert crash(cluster, release, pod)
    with beside(crash_again):
        yield crashes


def test_quiet(cluster: Cluster, release: Release) -> None:
    report("nothing happens", disrupted(cluster, release, "quiet", lambda: None))


@pytest.mark.parametrize("whose", ["Homeport's leader", "kube-scheduler's leader"])
def test_a_node_is_drained(cluster: Cluster, release: Release, whose: str) -> None:
    """The replica on it hands over: no pod has to be fenced off."""
    release.wait_ready()
    leader = release.leader() if whose.startswith("Homeport") else release.scheduler_leader()
    (node,) = [pod["spec"]["nodeName"] for pod in release.pods() if pod["metadata"]["name"] == leader]

    def drain() -> None:
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")

    try:
        outcome = disrupted(cluster, release, "drain", drain)
    finally:
        cluster.kubectl("uncordon", node)

    report(f"drain of the node of {whose}", outcome, most=2)
    assert 0 == outcome.fenced


def test_rollout_restart(cluster: Cluster, release: Release) -> None:
    def restart() -> None:
        cluster.kubectl("rollout", "restart", f"deployment/{release.name}", "--namespace", release.namespace)
        release.wait_ready()

    outcome = disrupted(cluster, release, "restart", restart)

    report("rollout restart", outcome, most=2)
    assert 0 == outcome.fenced


def test_the_leader_is_deleted(cluster: Cluster, release: Release) -> None:
    outcome = disrupted(cluster, release, "deleted", lambda: release.delete(release.leader()))

    report("deletion of the leader", outcome, most=2)
    assert 0 == outcome.fenced


def test_the_leader_crashes(cluster: Cluster, release: Release) -> None:
    """Without a word: the restarted container takes the Lease back, and what waited is fenced off before a bind.

    On a machine so busy that it takes longer than the Lease lasts, the other replica leads.
    """
    answered: list[tuple[float, float, bool]] = []

    def crash_leader() -> None:
        pod = release.leader()
        (neighbour,) = processes(cluster, release, pod, "kube-scheduler")
        crashed = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert crash(cluster, release, pod)
        at = filter_answers(neighbour)
        (restarted,) = processes(cluster, release, pod, "homeport")
        answered.append((at - crashed, at - started(restarted), pod == release.leader()))

    outcome = disrupted(cluster, release, "crashed", crash_leader)

    ((since_crash, since_start, is_same),) = answered
    report("Homeport's leader crashes", outcome)
    FIGURES.add("Homeport's leader crashes: its pod leads again", "yes" if is_same else "no", "yes")
    FIGURES.seconds("Homeport's leader crashes: from there until filter answers", since_crash)
    FIGURES.seconds("Homeport's leader crashes: from the container's start until filter answers", since_start, most=5)


def test_homeport_crash_loops_beside_the_leading_kube_scheduler(cluster: Cluster, release: Release) -> None:
    """kube-scheduler itself is well and would keep its Lease: its probe asks Homeport, so that the other pod leads."""
    release.wait_ready()
    pod = release.scheduler_leader()
    with streaming(cluster, "looping") as (stream, nodes):
        with crash_looping(cluster, release, pod) as crashes:
            cluster.client.wait_for(
                lambda: release.scheduler_leader() not in ("", pod), 60, "the other kube-scheduler to lead"
            )
            stream.until_bound(100)
            assert pod != release.scheduler_leader()
        release.delete(pod)  # kubelet starts the crashed one again in minutes only
        release.wait_ready()
        outcome = stream.finish()
        assert ([], []) == (outcome.lost, outcome.twice)
        assert outcome.skew(nodes.zones) <= 1

    report("Homeport crash-loops beside kube-scheduler's leader", outcome)
    FIGURES.add("Homeport crash-loops: crashes", str(len(crashes)))


def test_both_replicas_are_deleted_at_once(cluster: Cluster, release: Release) -> None:
    """Successors have to be started first; no ending replica takes the Lease meanwhile."""
    names = [pod["metadata"]["name"] for pod in release.pods()]
    outcome = disrupted(cluster, release, "both", lambda: release.delete(*names))

    report("both replicas deleted at once", outcome)
    assert 0 == outcome.fenced


def test_all_replicas_are_gone(cluster: Cluster, release: Release) -> None:
    """Pods of other schedulers do not notice; ours wait, and are bound when a replica is back."""
    scale = ("scale", f"deployment/{release.name}", "--namespace", release.namespace)

    def away_and_back() -> None:
        cluster.kubectl(*scale, "--replicas=0")
        cluster.client.wait_for(lambda: not release.pods(), what="all replicas to be gone")
        cluster.client.create(objects.pod("others", node_selector={"homeport.test/kind": "object"}, tolerations=_ANY))
        cluster.client.wait_bound("others")
        cluster.kubectl(*scale, "--replicas=2")

    try:
        report("all replicas gone for a while", disrupted(cluster, release, "gone", away_and_back))
    finally:
        cluster.kubectl("delete", "pod", "others", "--ignore-not-found", "--grace-period=0", "--force")
