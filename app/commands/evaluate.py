"""``homeport evaluate``: reads saved cases, one per line, and prints one line with the verdicts for each case."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from app.analysis.evaluate import Evaluator
from app.framework.spec import PluginSpec
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics


def run(path: str | None, specs: Iterable[PluginSpec[Any]], release: str) -> None:
    """Evaluate the cases in a file, or on standard input without ``path``. Print each answer before the next case.

    ``release``: Kubernetes release for cases that do not name a release. Raises ``OSError`` if the file cannot be read.
    """
    evaluator = Evaluator(Registry(specs, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()), release)
    with Path(path).open("rb") if path else nullcontext(sys.stdin.buffer) as cases:
        for line in filter(bytes.strip, cases):
            sys.stdout.buffer.write(evaluator.evaluate(line) + b"\n")
            sys.stdout.buffer.flush()
