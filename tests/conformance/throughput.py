"""How many ten-node spreading cases `homeport evaluate` judges in a second on one core.

    python -m tests.conformance.throughput --count 5000

Generated cases of all kinds of constraints, ten nodes each. The process is pinned to one core where that is possible;
what it takes to start is measured and taken off. Prints JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from random import Random

from tests.conformance.compare import ROOT
from tests.conformance.draft import HARD, SOFT, Draft, draw_traits
from tests.conformance.generate import line


def ten_nodes(count: int) -> list[bytes]:
    """Cases with constraints of their own, as the topics `hard`, `soft` and `mixed` draw them."""
    made = []
    for index in range(count):
        random = Random(f"throughput-{index}")
        draft = Draft(random, draw_traits(random), nodes=10)
        kinds = ({HARD: 1}, {SOFT: 1}, {HARD: 1, SOFT: 1})[index % 3]
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints(kinds)
        draft.populate()
        made.append(line(draft.case(f"throughput-{index}")))
    return made


def seconds(cases: Sequence[bytes]) -> float:
    """Wall time of one process from start to end."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "homeport", "evaluate"]
    subprocess.run(command, input=b"".join(cases), stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    return time.perf_counter() - begun


def main() -> int:
    """Print cases a second."""
    parser = argparse.ArgumentParser("python -m tests.conformance.throughput", description="Speed of evaluate.")
    parser.add_argument("--count", type=int, default=5000, help="cases; default: %(default)s")
    cases = ten_nodes(parser.parse_args().count)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    start = min(seconds([]) for _ in range(3))
    took = min(seconds(cases) for _ in range(3))
    found = {
        "cases": len(cases),
        "bytes a case": round(sum(map(len, cases)) / len(cases)),
        "start": round(start, 2),
        "seconds": round(took, 2),
        "cases a second": round(len(cases) / (took - start)),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
