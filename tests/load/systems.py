"""What is measured side by side: a stock kube-scheduler, alone or with an extender beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec import Struct

from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.controlplane.processes import ProcessGroup, free_port
from tests.integration.service import Homeport, scheduler_config

_START_SECONDS: Final = 300.0
_CLIENT: Final = {"clientConnection": {"qps": 5000, "burst": 10000}}
"""kube-scheduler's own limit of 50 requests a second would be all that is measured."""
_QUIET: Final = ("--v=0",)
_WITHOUT_SPREAD: Final = {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}


class Running(Struct, frozen=True):
    """``pids`` by the name of the process."""

    pids: Mapping[str, int]
    scheduler: Scheduler


Start = Callable[[ControlPlane, Path, int | None], AbstractContextManager[Running]]


@contextmanager
def in_tree(plane: ControlPlane, _folder: Path, percentage: int | None) -> Iterator[Running]:
    """kube-scheduler with its own PodTopologySpread."""
    with _scheduler(plane, {"profiles": [{"schedulerName": "default-scheduler"}]}, percentage) as scheduler:
        yield _running(plane, scheduler)


@contextmanager
def without(plane: ControlPlane, _folder: Path, percentage: int | None) -> Iterator[Running]:
    """kube-scheduler without PodTopologySpread and without an extender: nobody looks at the constraints."""
    with _scheduler(plane, {"profiles": [_profile()]}, percentage) as scheduler:
        yield _running(plane, scheduler)


@contextmanager
def passing(plane: ControlPlane, folder: Path, percentage: int | None) -> Iterator[Running]:
    """The same with an extender that lets everything pass: what the protocol alone costs. kube-scheduler binds."""
    port, processes = free_port(), ProcessGroup(folder)
    try:
        extender = processes.start("passing", [sys.executable, "-m", "tests.load.passing", str(port)])
        extender.wait_ready(lambda: _listens(port), _START_SECONDS)
        entry = {"urlPrefix": f"http://127.0.0.1:{port}", "filterVerb": "filter", "prioritizeVerb": "prioritize"}
        extenders = [{**entry, "weight": 1, "nodeCacheCapable": True}]
        with _scheduler(plane, {"profiles": [_profile()], "extenders": extenders}, percentage) as scheduler:
            yield _running(plane, scheduler, extender=extender.pid)
    finally:
        processes.close()


@contextmanager
def homeport(plane: ControlPlane, folder: Path, percentage: int | None) -> Iterator[Running]:
    """The same with Homeport as examples/kube-scheduler has it: filter, prioritize, preempt and bind."""
    with (
        Homeport(plane.kubeconfig, folder, start_seconds=_START_SECONDS) as extender,
        with_homeport(plane, extender, percentage) as scheduler,
    ):
        yield _running(plane, scheduler, extender=extender.pid)


def with_homeport(
    plane: ControlPlane, extender: Homeport, percentage: int | None, at: str = ""
) -> AbstractContextManager[Scheduler]:
    """kube-scheduler beside a Homeport that runs; ``at`` is an address to call instead of its own."""
    config = dict(scheduler_config(extender))
    del config["percentageOfNodesToScore"]
    (entry,) = config["extenders"]
    entry["urlPrefix"] = entry["urlPrefix"].replace(extender.url, at or extender.url)
    return _scheduler(plane, config, percentage)


SYSTEMS: Final[Mapping[str, Start]] = {
    "in-tree": in_tree,
    "homeport": homeport,
    "passing": passing,
    "without": without,
}


def _scheduler(plane: ControlPlane, config: Mapping[str, Any], percentage: int | None) -> Scheduler:
    """Sampling of nodes is the default one, unless a percentage is asked for."""
    sampling = {} if percentage is None else {"percentageOfNodesToScore": percentage}
    return plane.start_scheduler({**config, **_CLIENT, **sampling}, flags=_QUIET)


def _profile() -> dict[str, Any]:
    return {"schedulerName": "default-scheduler", "plugins": _WITHOUT_SPREAD}


def _running(plane: ControlPlane, scheduler: Scheduler, **beside: int) -> Running:
    return Running({**plane.pids, "kube-scheduler": scheduler.process.pid, **beside}, scheduler)


def _listens(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/docs", trust_env=False, timeout=2).is_success
    except httpx.TransportError:
        return False
