"""A bind through a follower is one trace: both replicas, and the Binding on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector import Collector
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, leader_and_follower
from tests.integration.test_home_stories import boot, install_kubevirt
from tests.integration.test_permissions import bind
from tests.integration.test_replicas import ELECTION
from tests.integration.test_spread_stories import make_zones


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture
def pair(plane: ControlPlane, tmp_path: Path, collector: Collector) -> Iterator[tuple[Homeport, Homeport]]:
    """A leader and its follower. Spans leave at once."""
    tracing = {"endpoint": collector.url, "samplingRatePerMillion": 1_000_000}
    config = {"tracing": tracing, "leaderElection": {**ELECTION, "resourceName": "traced"}}
    install_kubevirt(plane.client)
    with leader_and_follower(plane, tmp_path, config, {"OTEL_BSP_SCHEDULE_DELAY": "50"}) as both:
        yield both


def test_one_trace_from_the_follower_to_the_api_server(
    plane: ControlPlane, pair: tuple[Homeport, Homeport], collector: Collector
) -> None:
    _, follower = pair
    client = plane.client
    make_zones(plane, {"zone-a": 1})
    machine = client.create(objects.virtual_machine("traced01"))
    pod = client.get("Pod", boot(client, machine, "first", scheduler_name="homeport"))

    assert "" == bind(follower, pod, "zone-a-0")

    sent = [it for it in collector.wait_for(6) if "homeport.held_back" not in it.attributes]
    (begin,) = [it for it in sent if not it.parent]
    path = [begin]
    while below := [it for it in sent if it.parent == path[-1].span and it.name != "PATCH virtualmachines"]:
        path += below
    assert [("bind", "server"), ("forward /bind", "client"), ("bind", "server"), ("POST pods/binding", "client")] == [
        (it.name, it.kind) for it in path
    ]
    assert ["forwarded", "bound"] == [it.attributes["homeport.outcome"] for it in path if it.name == "bind"]
    assert {pod["metadata"]["uid"]} == {it.attributes["k8s.pod.uid"] for it in path if it.name == "bind"}
    assert 200 == path[1].attributes["http.response.status_code"]
    (home,) = [it for it in sent if it.name == "PATCH virtualmachines"]
    assert path[2].span == home.parent
    assert ({begin.trace}, {""}) == ({it.trace for it in collector.spans}, {it.failed for it in collector.spans})
    (held,) = [it for it in collector.spans if it not in sent]
    assert ("POST pods/binding", path[2].span) == (held.name, held.parent)  # a first bind waits for the Lease
