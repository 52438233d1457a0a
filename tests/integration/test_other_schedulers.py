"""Homeport serves schedulers that are not kube-scheduler 1.36: a tiny one of our own, and kube-scheduler 1.35."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from plugins import SHIPPED
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import ProcessGroup
from tests.integration.service import SCHEDULER_CONFIG, Homeport, scheduler_config
from tests.integration.test_home_stories import boot, home_of, install_kubevirt, shut_down
from tests.integration.test_spread_stories import WEB, make_zones, wait_all_bound

StartHomeport = Callable[..., Homeport]
TINY_SCHEDULER = Path(__file__).parents[2] / "examples" / "tiny_scheduler.py"
TINY_CONFIG = TINY_SCHEDULER.with_suffix(".yaml")
COMPLETE_CONFIG = SCHEDULER_CONFIG.with_name("complete.yaml")
PREVIOUS = "1.35.4"
HERE: Final = frozenset(spec.name for spec in SHIPPED)

MISFITS: Final[dict[str, dict[str, Any]]] = {
    "NodeResourcesFit": {"requests": {"cpu": "64"}},
    "NodeAffinity": {"node_selector": {"disk": "ssd"}},
    "InterPodAffinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": objects.HOSTNAME_LABEL, "labelSelector": {"matchLabels": WEB}}
                ]
            }
        }
    },
}
"""By the plugin that sees it, what of a pod keeps it from the small node, where a pod of WEB runs."""


@contextmanager
def tiny_scheduler(plane: ControlPlane, homeport: Homeport, folder: Path) -> Iterator[Path]:
    """The example at work; gives the file that it writes into."""
    flags = [f"--api={plane.server}", f"--token={plane.token}", f"--ca={plane.ca_file}", f"--homeport={homeport.url}"]
    processes = ProcessGroup(folder)
    try:
        processes.start("tiny-scheduler", [sys.executable, str(TINY_SCHEDULER), *flags])
        yield folder / "tiny-scheduler.log"
    finally:
        processes.close()


def test_the_tiny_scheduler_spreads_and_brings_home(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """At most 100 lines of standard library: a cycle at Homeport, a bind through Homeport, and pods come out even."""
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 3, "zone-b": 2, "zone-c": 1})
    homeport = start_homeport(f"--config={TINY_CONFIG}")
    machine = client.create(objects.virtual_machine("db01"))
    names = [f"web-{number}" for number in range(12)]
    with tiny_scheduler(plane, homeport, tmp_path):
        for name in names:
            constraint = objects.spread(WEB)
            client.create(objects.pod(name, labels=WEB, scheduler_name="homeport", spread_constraints=[constraint]))
        bound = wait_all_bound(plane, names)
        first = boot(client, machine, "first", scheduler_name="homeport")
        home = client.wait_bound(first)
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
        shut_down(client, "db01", first)
        assert client.wait_bound(boot(client, machine, "second", scheduler_name="homeport")) == home

    assert Counter(zones[node] for node in bound.values()) == {"zone-a": 4, "zone-b": 4, "zone-c": 4}
    assert len(TINY_SCHEDULER.read_text().splitlines()) <= 100


def test_the_tiny_scheduler_binds_nothing_where_it_does_not_fit(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    """It has no filters of its own. What fits on no node but a cordoned one waits until that is open again."""
    client = plane.client
    client.create_node(objects.node("small", cpu="4"))
    client.create_node(objects.node("large", cpu="128", labels={"disk": "ssd"}, unschedulable=True))
    homeport = start_homeport(f"--config={TINY_CONFIG}")
    misfits = [name for name in MISFITS if name in HERE]
    with tiny_scheduler(plane, homeport, tmp_path):
        client.create(objects.pod("web", labels=WEB, scheduler_name="homeport"))
        assert "small" == client.wait_bound("web")
        for name in misfits:
            client.create(objects.pod(name.lower(), scheduler_name="homeport", **MISFITS[name]))
        client.create(objects.pod("also-fits", scheduler_name="homeport"))
        assert "small" == client.wait_bound("also-fits")
        assert [""] * len(misfits) == [client.node_of(name.lower()) for name in misfits]
        client.patch("Node", "large", {"spec": {"unschedulable": False}})
        assert ["large"] * len(misfits) == [client.wait_bound(name.lower()) for name in misfits]


def test_the_tiny_scheduler_asks_no_profile_that_leaves_filters_to_it(
    plane: ControlPlane, start_homeport: StartHomeport, tmp_path: Path
) -> None:
    client = plane.client
    client.create_node(objects.node("small"))
    with tiny_scheduler(plane, start_homeport(), tmp_path) as log:
        client.create(objects.pod("web", scheduler_name="homeport"))
        client.wait_for(lambda: "profile * leaves filters to its caller" in log.read_text(), what="a word about it")
        assert "" == client.node_of("web")


def test_complete_behind_a_kube_scheduler_without_filters(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """The kube-scheduler of examples/ judges volumes and devices alone: a cordoned node is Homeport's to refuse."""
    client = plane.client
    for number in range(3):
        client.create_node(objects.node(f"node-{number}", unschedulable=number != 1))
    profile = {"schedulerName": "default-scheduler", "preset": "complete"}
    settings = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "profiles": [profile]}
    config = plane.folder / "complete.yaml"
    config.write_text(yaml.safe_dump(settings))
    homeport = start_homeport(f"--config={config}", "--max-priority=100")
    names = [f"web-{number}" for number in range(4)]

    with plane.start_scheduler(scheduler_config(homeport, file=COMPLETE_CONFIG)):
        for name in names:
            client.create(objects.pod(name))
        bound = wait_all_bound(plane, names)

    assert dict.fromkeys(names, "node-1") == bound


@pytest.mark.long
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
