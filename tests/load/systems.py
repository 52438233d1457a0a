"""What is measured side by side: a stock kube-scheduler, alone or with an extender beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec import Struct
from msgspec.structs import replace

from tests.conformance.live.prioritize import Setting
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.controlplane.processes import ProcessGroup, free_port
from tests.integration.service import HTTP, SCHEDULER_CONFIG, Homeport, scheduler_config

_START_SECONDS: Final = 300.0
_CLIENT: Final = {"clientConnection": {"qps": 5000, "burst": 10000}}
"""kube-scheduler's own limit of 50 requests a second would be all that is measured."""
_QUIET: Final = ("--v=0",)
_WITHOUT_SPREAD: Final = {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}


_COMPLETE_CONFIG: Final = SCHEDULER_CONFIG.with_name("complete.yaml")
_FEWEST: Final = 100


class Variant(Struct, frozen=True):
    """Homeport with these settings and words of its profile, beside a kube-scheduler as examples/ has it.

    ``scheduled``: the profiles of kube-scheduler, where they are not those of its example.
    """

    settings: Mapping[str, Any] = {}
    profile: Mapping[str, Any] = {}
    scheduler: Path = SCHEDULER_CONFIG
    scheduled: Sequence[Mapping[str, Any]] = ()


_WHOLE: Final = Variant({"maxPriority": 100}, {"preset": "complete"}, _COMPLETE_CONFIG)

VARIANTS: Final[Mapping[str, Variant]] = {
    "homeport": Variant(),
    "mode-scheduler": Variant({"maxPriority": 100}, scheduled=[Setting(100, 1, others=5).profile()]),
    "one-by-one": Variant({"bindBatchWindow": "0s"}),
    "at-most": Variant(profile={"atMost": _FEWEST}),
    "complete": _WHOLE,
    "pick": replace(_WHOLE, profile={**_WHOLE.profile, "pick": True}),
}
"""``mode-scheduler`` has the scale and the weights of that mode of the chart; ``one-by-one`` holds no Binding;
``at-most`` answers a hundred names; ``complete`` has all filters and scores, and ``pick`` answers the best alone."""


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
def watched(plane: ControlPlane, folder: Path, percentage: int | None) -> Iterator[Running]:
    """``passing`` with a Homeport beside it that nobody asks: what its watches alone cost kube-apiserver."""
    with (
        Homeport(plane.kubeconfig, folder, start_seconds=_START_SECONDS) as watcher,
        passing(plane, folder, percentage) as running,
    ):
        yield replace(running, pids={**running.pids, "homeport": watcher.pid})


@contextmanager
def homeport(variant: Variant, plane: ControlPlane, folder: Path, percentage: int | None) -> Iterator[Running]:
    """The same with Homeport: filter, prioritize, preempt and bind."""
    with serving(variant, plane, folder) as extender, with_homeport(variant, plane, extender, percentage) as scheduler:
        yield _running(plane, scheduler, extender=extender.pid)


def serving(variant: Variant, plane: ControlPlane, folder: Path) -> Homeport:
    """A Homeport to be started."""
    config = folder / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", **variant.settings}
    config.write_text(json.dumps({**head, "profiles": [{"schedulerName": "*", **variant.profile}]}))
    return Homeport(plane.kubeconfig, folder, [f"--config={config}"], start_seconds=_START_SECONDS)


def with_homeport(
    variant: Variant, plane: ControlPlane, extender: Homeport, percentage: int | None, at: str = ""
) -> AbstractContextManager[Scheduler]:
    """kube-scheduler beside a Homeport that runs; ``at`` is an address to call instead of its own."""
    config = dict(scheduler_config(extender, variant.scheduler))
    del config["percentageOfNodesToScore"]
    if variant.scheduled:
        config["profiles"] = variant.scheduled
    (entry,) = config["extenders"]
    entry["urlPrefix"] = entry["urlPrefix"].replace(extender.url, at or extender.url)
    return _scheduler(plane, config, percentage)


SYSTEMS: Final[Mapping[str, Start]] = {
    "in-tree": in_tree,
    **{name: partial(homeport, it) for name, it in VARIANTS.items()},
    "passing": passing,
    "watched": watched,
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
        return HTTP.get(f"http://127.0.0.1:{port}/docs", timeout=2).is_success
    except httpx.TransportError:
        return False
