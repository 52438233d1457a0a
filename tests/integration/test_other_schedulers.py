"""Homeport serves schedulers that are not kube-scheduler 1.36: a tiny one of our own, and kube-scheduler 1.35."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import ProcessGroup
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_home_stories import boot, home_of, install_kubevirt, shut_down
from tests.integration.test_spread_stories import WEB, make_zones, wait_all_bound

StartHomeport = Callable[..., Homeport]
TINY_SCHEDULER = Path(__file__).parents[2] / "examples" / "tiny_scheduler.py"
PREVIOUS = "1.35.4"


def test_the_tiny_scheduler_spreads_and_brings_home(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """At most 100 lines of standard library: a cycle at Homeport, a bind through Homeport, and pods come out even."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 3, "zone-b": 2, "zone-c": 1})
    homeport = start_homeport()
    machine = client.create(objects.virtual_machine("db01"))
    names = [f"web-{number}" for number in range(12)]
    flags = [f"--api={plane.server}", f"--token={plane.token}", f"--ca={plane.ca_file}", f"--homeport={homeport.url}"]
    scheduler = ProcessGroup(tmp_path)
    try:
        scheduler.start("tiny-scheduler", [sys.executable, str(TINY_SCHEDULER), *flags])
        for name in names:
            constraint = objects.spread(WEB)
            client.create(objects.pod(name, labels=WEB, scheduler_name="homeport", spread_constraints=[constraint]))
        bound = wait_all_bound(plane, names)
        first = boot(client, machine, "first", scheduler_name="homeport")
        home = client.wait_bound(first)
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
        shut_down(client, "db01", first)
        assert client.wait_bound(boot(client, machine, "second", scheduler_name="homeport")) == home
    finally:
        scheduler.close()

    assert Counter(zones[node] for node in bound.values()) == {"zone-a": 4, "zone-b": 4, "zone-c": 4}
    assert len(TINY_SCHEDULER.read_text().splitlines()) <= 100


def test_the_previous_minor_spreads_and_brings_home(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """kube-scheduler 1.35.4 on the 1.36.3 API server: the core stories once more."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane)
    homeport = start_homeport()
    machine = client.create(objects.virtual_machine("db01"))
    names = [f"web-{number}" for number in range(30)]

    with plane.start_scheduler(scheduler_config(homeport), version=PREVIOUS):
        for name in names:
            client.create(objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)]))
        bound = wait_all_bound(plane, names)
        first = boot(client, machine, "first")
        home = client.wait_bound(first)
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
        shut_down(client, "db01", first)
        assert client.wait_bound(boot(client, machine, "second")) == home

    assert Counter(zones[node] for node in bound.values()) == {"zone-a": 10, "zone-b": 10, "zone-c": 10}
