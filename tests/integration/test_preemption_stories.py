"""Preemption for topology spread (``preemption: Own``) before a stock kube-scheduler."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.preemption import (
    HIGH,
    LOW,
    NEVER,
    WEB,
    budget,
    evicted,
    forget_lease,
    homeport_of,
    make_classes,
    plans,
    running,
    stays_pending,
    web,
    zones,
)
from tests.integration.service import Homeport, scheduler_config


@pytest.fixture(scope="module", params=["1.36.3", pytest.param("1.35.4", marks=pytest.mark.long)])
def served(
    running: ControlPlane, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Homeport]:
    """A Homeport, and a stock kube-scheduler of each release that calls it, for all stories."""
    homeport = homeport_of(running, tmp_path_factory.mktemp("homeport"))
    with homeport, running.start_scheduler(scheduler_config(homeport), version=request.param):
        yield homeport
    forget_lease(running)


@pytest.fixture
def homeport(plane: ControlPlane, served: Homeport) -> Homeport:
    make_classes(plane.client)
    return served


@pytest.fixture
def before(homeport: Homeport) -> dict[str, int]:
    """The plans of earlier stories."""
    return plans(homeport)


def test_p1_the_fewest_low_pods_go_and_the_high_pod_is_bound_at_once(
    plane: ControlPlane, homeport: Homeport, before: dict[str, int]
) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    time.sleep(1.1)  # start times have seconds
    running(client, "low-1")

    calls, began = sum(homeport.outcomes("filter").values()), time.monotonic()
    client.create(web("high", skew=2))
    bound = client.wait_bound("high")
    seconds = time.monotonic() - began
    client.wait_for(lambda: plans(homeport, before), what="the plan to end")
    calls = sum(homeport.outcomes("filter").values()) - calls
    print(f"bound after {seconds:.2f} s and {calls} filter calls")  # noqa: T201  # a figure for the log

    assert ("a1", ["low-1"], {"bound": 1}) == (bound, evicted(client), plans(homeport, before))
    assert calls <= 15
    assert "Preempting" in {it["reason"] for it in client.events("high")}
    assert "Preempted" in {it["reason"] for it in client.events("low-1")}
    assert "homeport.dev/preempting" in client.get("Pod", "high")["metadata"]["annotations"]


def test_p3_no_budget_is_violated(plane: ControlPlane, homeport: Homeport) -> None:
    """The budget of one node's pod allows no eviction: the pod of the other node goes, though it is more important."""
    client = plane.client
    zones(client, "a2")
    running(client, "guarded", "a1", labels={**WEB, "guarded": "yes"})
    running(client, "free", "a2", "middle")
    budget(client, "guards", 0, {"matchLabels": {"guarded": "yes"}})

    client.create(web("high", skew=2))

    assert client.wait_bound("high") in ("a1", "a2")
    assert ["free"] == evicted(client)


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param([("none", 0, None)], id="no eviction is allowed"),
        pytest.param([("one", 5, None), ("two", 5, None)], id="two budgets on the pod"),
        pytest.param([("all", 0, {})], id="it selects every pod"),
    ],
)
def test_p3_pods_that_a_budget_guards_are_left_alone(
    plane: ControlPlane, homeport: Homeport, budgets: Sequence[tuple[str, int, Mapping[str, Any] | None]]
) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    for each in budgets:
        budget(client, *each)

    client.create(web("high"))
    stays_pending(client, "high")

    assert [] == evicted(client)


def test_p3_a_budget_of_one_lets_one_of_two_pods_in(plane: ControlPlane, homeport: Homeport) -> None:
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    budget(client, "one", 1)

    for number in range(2):
        client.create(web(f"high-{number}", skew=2))
    client.wait_for(lambda: evicted(client), what="an eviction")
    time.sleep(3)
    bound = [name for name in ("high-0", "high-1") if client.node_of(name)]

    assert (1, 1) == (len(bound), len(evicted(client)))


def test_p4_a_node_full_of_low_pods_is_left_to_the_scheduler(
    plane: ControlPlane, homeport: Homeport, before: dict[str, int]
) -> None:
    """The pod fits the node for spread, but not for CPU."""
    client = plane.client
    client.create(objects.node("a1", zone="a", cpu="4"))
    running(client, "low-0", labels={"app": "other"}, requests={"cpu": "3"})
    client.wait_for(lambda: homeport.knows("low-0"), what="the pod to be known")  # else preempt finds no victim

    client.create(web("high", requests={"cpu": "3"}))
    client.wait_for(lambda: evicted(client), what="the scheduler to evict")
    client.delete("Pod", "low-0")

    assert "a1" == client.wait_bound("high")
    assert {} == plans(homeport, before)


def test_p5_homeport_and_the_scheduler_do_not_both_evict(plane: ControlPlane, homeport: Homeport) -> None:
    """Node ``a1`` lacks spread, node ``b2`` lacks CPU: one eviction helps, and one is made."""
    client = plane.client
    client.create(objects.node("a1", zone="a"))
    client.create(objects.node("b2", zone="b", cpu="4"))
    running(client, "low-0")
    running(client, "low-1", "b2", labels={"app": "other"}, requests={"cpu": "3"})

    client.create(web("high", requests={"cpu": "3"}))
    client.wait_for(lambda: evicted(client), what="an eviction")
    for name in evicted(client):
        client.delete("Pod", name)
    client.wait_bound("high")
    time.sleep(1)
    left = {it["metadata"]["name"] for it in client.list("Pod", "default")}

    assert 2 == len(left)
    assert [] == evicted(client)


def test_p6_the_place_is_kept_from_the_victims_successor(plane: ControlPlane, homeport: Homeport) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")

    client.create(web("high"))
    for number in range(5):
        client.create(web(f"again-{number}", LOW))

    assert ("a1", ["low-0"]) == (client.wait_bound("high"), evicted(client))
    assert [] == [name for number in range(5) if client.node_of(name := f"again-{number}")]


def test_p6_a_higher_pod_takes_the_place_and_the_other_waits_or_starts_over(
    plane: ControlPlane, homeport: Homeport
) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")

    client.create(web("high"))
    client.create(web("highest", "highest"))
    client.wait_bound("highest")
    time.sleep(2)

    assert len(evicted(client)) <= 2
    assert {"low-0"} <= {*evicted(client)}


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
def test_p7_nobody_is_evicted(plane: ControlPlane, homeport: Homeport, priority: str, victim: dict[str, Any]) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0", **victim)

    client.create(web("high", priority))
    stays_pending(client, "high", 1.5)

    assert [] == evicted(client)


def test_the_case_of_kube_schedulers_own_tests(plane: ControlPlane, homeport: Homeport) -> None:
    """Two constraints, over zones and over hosts; ``TestPodTopologySpreadFilter`` has such a case."""
    client = plane.client
    for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "b"), ("n3", "b")):
        client.create(objects.node(name, zone=zone))
    for name, node in (("p1a", "n1"), ("p1b", "n1"), ("p2a", "n2"), ("p2b", "n2"), ("p3", "n3")):
        client.create(objects.pod(name, labels=WEB, node_name=node))
    spread = [objects.spread(WEB), objects.spread(WEB, topology_key=objects.HOSTNAME_LABEL)]
    term = {"key": objects.HOSTNAME_LABEL, "operator": "NotIn", "values": ["n0"]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}

    pod = objects.pod("high", labels=WEB, priority_class_name=HIGH, spread_constraints=spread)
    client.create({**pod, "spec": {**pod["spec"], "affinity": {"nodeAffinity": affinity}}})

    assert client.wait_bound("high") in ("n1", "n2", "n3")


@contextmanager
def webhook(plane: ControlPlane, folder: Path, refused: str) -> Iterator[list[str]]:
    """A webhook that answers Evictions of one pod with 429, as KubeVirt's does. Yields what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            asked.append(f"{'try' if review.get('dryRun') else 'evict'} {review['name']}")
            answer: dict[str, Any] = {"uid": review["uid"], "allowed": review["name"] != refused}
            if not answer["allowed"]:
                answer["status"] = {"code": 429, "message": "Eviction triggered evacuation of VMI"}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    authority = Authority(folder)
    certificate, key = authority.issue("webhook", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    hook = {
        "name": "evictions.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(authority.file.read_bytes()).decode(),
        },
        "rules": [rule],
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    plane.client.request("POST", path, {**kind, "metadata": {"name": "evictions"}, "webhooks": [hook]})
    time.sleep(1)  # the API server reads it from a watch
    try:
        yield asked
    finally:
        plane.client.request("DELETE", f"{path}/evictions")
        server.shutdown()
        server.server_close()


def test_p9_a_webhook_refuses_an_eviction(
    plane: ControlPlane, homeport: Homeport, before: dict[str, int], tmp_path: Path
) -> None:
    """Both pods of the node must go, and one must not: no pod is evicted, and nobody deletes one."""
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")

    with webhook(plane, tmp_path, "low-0") as asked:
        client.create(web("high"))
        stays_pending(client, "high")

    assert [] == evicted(client)
    assert "try low-0" in asked
    assert not [it for it in asked if it.startswith("evict")]
    assert {"refused"} == plans(homeport, before).keys()
