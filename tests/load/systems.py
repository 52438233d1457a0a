"""What is measured side by side: a stock kube-scheduler, alone or with an extender beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import SCHEDULER_CONFIG, Homeport, scheduler_config

_START_SECONDS: Final = 300.0
_CLIENT: Final = {"clientConnection": {"qps": 5000, "burst": 10000}}
"""kube-scheduler's own limit of 50 requests a second would be all that is measured."""
_QUIET: Final = ("--v=0",)


_COMPLETE_CONFIG: Final = SCHEDULER_CONFIG.with_name("complete.yaml")
_FEWEST: Final = 100


class Variant(Struct, frozen=True):
    """Homeport with these settings and fields of its profile, beside a kube-scheduler with a file of examples/."""

    settings: Mapping[str, Any] = {}
    profile: Mapping[str, Any] = {}
    scheduler: Path = SCHEDULER_CONFIG


_WHOLE: Final = Variant({"maxPriority": 100}, {"preset": "complete"}, _COMPLETE_CONFIG)

VARIANTS: Final[Mapping[str, Variant]] = {
    "homeport": Variant(),
    "one-by-one": Variant({"bindBatchWindow": "0s"}),
    "at-most": Variant(profile={"atMost": _FEWEST}),
    "complete": _WHOLE,
    "pick": replace(_WHOLE, profile={**_WHOLE.profile, "pick": True}),
}
"""``one-by-one`` holds no Binding, ``at-most`` answers a hundred names, ``complete`` has all filters and scores, and
``pick`` answers the best node alone."""


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
def homeport(variant: Variant, plane: ControlPlane, folder: Path, percentage: int | None) -> Iterator[Running]:
    """kube-scheduler beside Homeport: filter, prioritize, preempt and bind."""
    config = folder / "homeport.yaml"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", **variant.settings}
    config.write_text(json.dumps({**head, "profiles": [{"schedulerName": "*", **variant.profile}]}))
    with Homeport(plane.kubeconfig, folder, [f"--config={config}"], start_seconds=_START_SECONDS) as extender:
        scheduled = {**scheduler_config(extender, variant.scheduler)}
        del scheduled["percentageOfNodesToScore"]
        with _scheduler(plane, scheduled, percentage) as scheduler:
            yield _running(plane, scheduler, extender=extender.pid)


SYSTEMS: Final[Mapping[str, Start]] = {
    "in-tree": in_tree,
    **{name: partial(homeport, it) for name, it in VARIANTS.items()},
}


def _scheduler(plane: ControlPlane, config: Mapping[str, Any], percentage: int | None) -> Scheduler:
    """Sampling of nodes is the default one, unless a percentage is asked for."""
    sampling = {} if percentage is None else {"percentageOfNodesToScore": percentage}
    return plane.start_scheduler({**config, **_CLIENT, **sampling}, flags=_QUIET)


def _running(plane: ControlPlane, scheduler: Scheduler, **beside: int) -> Running:
    return Running({**plane.pids, "kube-scheduler": scheduler.process.pid, **beside}, scheduler)
