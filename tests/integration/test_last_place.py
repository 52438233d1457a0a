"""A stock kube-scheduler with ``preset: complete``: of two pods for one place, the one that asked first gets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

import yaml

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, SCHEDULER_CONFIG, Homeport, extender, scheduler_config

COMPLETE: Final = SCHEDULER_CONFIG.with_name("complete.yaml")
LATE_SECONDS: Final = 0.1


def first_bind_late(homeport: Homeport) -> AbstractContextManager[str]:
    """Serve an extender that hands binds on to Homeport, the first one late."""
    held = threading.Event()

    def hand_on(_path: str, body: bytes) -> bytes:
        if not held.is_set():
            held.set()
            time.sleep(LATE_SECONDS)
        return HTTP.post(f"{homeport.url}/bind", content=body).content

    return extender(hand_on)


def test_of_two_pods_for_the_last_place_the_earlier_one_gets_it(
    plane: ControlPlane, start_homeport: Callable[..., Homeport]
) -> None:
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config = plane.folder / "complete.yaml"
    config.write_text(
        yaml.safe_dump({**head, "profiles": [{"schedulerName": "default-scheduler", "preset": "complete"}]})
    )
    plane.client.create_node(objects.node("n1", cpu="1"))
    for name in ("one", "other"):  # the scheduler tries either of them first
        plane.client.create(objects.pod(name, requests={"cpu": "600m"}))
    homeport = start_homeport(f"--config={config}", "--expected-bind-wait=1s")

    with first_bind_late(homeport) as address:
        scheduling = dict(scheduler_config(homeport, file=COMPLETE))
        (entry,) = scheduling["extenders"]
        del entry["bindVerb"]
        late = {"urlPrefix": address, "bindVerb": "bind", "nodeCacheCapable": True}
        with plane.start_scheduler({**scheduling, "extenders": [entry, late]}):
            plane.client.wait_for(lambda: homeport.outcomes("bind").get("bound"), what="one pod to be bound")
            plane.client.wait_for(lambda: homeport.outcomes("filter").get("no_fit"), what="the other pod's refusal")

    assert ({"bound": 1}, 1) == (homeport.outcomes("bind"), homeport.outcomes("filter")["feasible"])
