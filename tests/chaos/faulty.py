"""Homeport with failpoints: ``python -m tests.chaos.faulty serve …`` takes the flags that ``homeport serve`` takes.

What happens at the points is in the environment, see ``FAULTS``. Homeport runs in a child, made by ``fork`` from a
process that has imported everything: one that is killed is back as soon as it has read the cluster, as if a kubelet
had restarted it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.chaos.failpoints import (
    CONTROL,
    READS,
    KillPlan,
    Passed,
    Rule,
    aim_among,
    install,
    noted,
    passed_file,
    points_of,
    sides_of,
)

FAULTS: Final = "HOMEPORT_CHAOS"
"""JSON, of which any may be left out:

``rules``     fields of ``Rule``
``seed``
``log``       a path
``kills``     how many in all
``aims``      points with their side, at which processes are to be killed, one each, by turns
``patience``  seconds a process waits for that, once its picture is complete
``periods``   seconds by ``module:NAME``, in place of those that are longer than a process lives here
"""

BEGINS: Final = "app.controllers.plugin_runs:PluginRun.run:1:after"
"""By then the picture is complete."""

_LONGEST_QUIET: Final = 400
"""A bind passes some 30 points."""


def environment(
    rules: Sequence[Rule] = (),
    *,
    seed: int,
    log: Path,
    kills: int = 0,
    aims: Sequence[str] = (),
    patience: float = 0.0,
    periods: Mapping[str, float] | None = None,
) -> Mapping[str, str]:
    """The variable for these faults."""
    found = {"rules": [asdict(it) for it in rules], "seed": seed, "log": str(log), "kills": kills}
    return {FAULTS: json.dumps({**found, "aims": list(aims), "patience": patience, "periods": dict(periods or {})})}


def over_file(log: Path) -> Path:
    """Whoever makes this file ends the killing."""
    return log.with_suffix(".over")


def main(argv: Sequence[str]) -> int:
    """Keep Homeport running until told to end; the exit code of one that ends by itself."""
    faults = json.loads(os.environ.pop(FAULTS, "{}"))
    install()
    from homeport import main as homeport  # only now are its modules rewritten

    _import_everything()
    for name, seconds in faults.get("periods", {}).items():
        _shorten(name, float(seconds))
    sides = sides_of(points_of())
    generation = 0
    while True:
        generation += 1
        child = os.fork()
        if child == 0:
            _set(faults, generation, sides)
            os._exit(_run(homeport, argv))
        code = _attend(child)
        if code >= 0:
            return code


def _run(homeport: Any, argv: Sequence[str]) -> int:
    try:
        return int(homeport(list(argv)))
    except SystemExit as ended:
        return int(ended.code or 0)


def _import_everything() -> None:
    import app.__main__
    import app.main  # noqa: F401  # imported once, before the fork


def _shorten(name: str, seconds: float) -> None:
    module, _, constant = name.partition(":")
    found = import_module(module)
    if not getattr(found, constant) > seconds:
        raise ValueError(f"{name} is no longer than {seconds} s")
    setattr(found, constant, seconds)


def _set(faults: Mapping[str, Any], generation: int, sides: Sequence[str]) -> None:
    seed = int(faults.get("seed", 0)) * 1_000_003 + generation
    rules = [Rule(**it) for it in faults.get("rules", ())]
    if "log" not in faults:
        CONTROL.set(rules, seed=seed)
        return
    log = Path(faults["log"])
    plan = _plan(faults, log, random.Random(seed)) if faults.get("kills") else None
    CONTROL.set(rules, plan=plan, seed=seed, log=log, passed=Passed(passed_file(log), sides))


def _plan(faults: Mapping[str, Any], log: Path, chance: random.Random) -> KillPlan:
    told = noted(log)
    aim = aim_among(faults.get("aims", ()), told)
    return KillPlan(
        int(faults["kills"]),
        0 if aim else chance.randrange(_LONGEST_QUIET),
        told.get("kill", Counter()),
        READS,
        over_file(log),
        aim,
        BEGINS,
        float(faults.get("patience", 0.0)),
    )


def _attend(child: int) -> int:
    """Wait for its end, and end it when this process is asked to end; negative: the signal that ended it."""

    def end(_signal: int, _frame: object) -> None:
        os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    _, status = os.waitpid(child, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
