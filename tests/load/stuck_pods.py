"""Count scheduling attempts of pods that wait for ever: stock kube-scheduler beside Homeport, guard off and on.

Real etcd, kube-apiserver and kube-schedulers. Run as ``python -m tests.load.stuck_pods``; prints a table. With
``--wide 60`` requests have more than 100 names, so that the sampling guard takes them for samples.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration import stuck
from tests.integration.attempts import attempts_by_profile
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_home_stories import install_kubevirt

_GUARDED: Final = {"off": False, "on": True}
_PATIENCE: Final = "600s"
"""Time limit of a call: longer than a run, so that no bind of a held pod ends and wakes the others."""


def counted(kinds: Sequence[str], pods: int, seconds: float, wide: int) -> dict[str, dict[str, int]]:
    """Return the attempts of each side, by kind."""
    sides = [stuck.STOCK, *_GUARDED]
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        install_kubevirt(plane.client)
        stuck.make(plane.client, sides, pods, wide, kinds)
        configs = {stuck.STOCK: stuck.profiles({}, stuck.groups(stuck.STOCK))}
        for side, guarded in _GUARDED.items():
            own = Path(folder) / side
            own.mkdir()
            flag, variables = stuck.homeport_settings(own, side, httpTimeout=_PATIENCE, samplingGuard=guarded)
            homeport = stack.enter_context(Homeport(plane.kubeconfig, own, [flag], environment=variables))
            configs[side] = stuck.profiles(scheduler_config(homeport, httpTimeout=_PATIENCE), stuck.groups(side))
        schedulers: Mapping[str, Scheduler] = {
            side: stack.enter_context(plane.start_scheduler(config)) for side, config in configs.items()
        }
        time.sleep(seconds)
        counts = {side: attempts_by_profile(it) for side, it in schedulers.items()}
        return {side: {kind: counts[side][f"{side}-{kind}"] for kind in kinds} for side in sides}


def table(counts: Mapping[str, Mapping[str, int]]) -> Sequence[str]:
    """Return the lines of a table, a row for each kind."""
    kinds = next(iter(counts.values()))
    rows = [[stuck.KINDS[name].title, *(str(of[name]) for of in counts.values())] for name in kinds]
    return [f"| {' | '.join(it)} |" for it in ([["kind", *counts], ["---"] * (1 + len(counts)), *rows])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=20, help="of each kind and side")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--wide", type=int, default=3, help="nodes in each of two zones")
    parser.add_argument("--only", nargs="+", choices=stuck.KINDS, default=list(stuck.KINDS), help="kinds")
    asked = parser.parse_args()
    print("\n".join(table(counted(asked.only, asked.pods, asked.seconds, asked.wide))))


if __name__ == "__main__":
    main()
