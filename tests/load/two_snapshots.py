"""What ``explain: complete`` costs beside ``explain: profile``: memory, and the time of an event of a pod.

    python -m tests.load.two_snapshots
    python -m tests.load.two_snapshots --nodes 100 --pods 1000    # to try the harness

One process loads the snapshot of the decisions of the default profile, and then that of explain, each from the JSON of
every object as a reflector would. Memory is the growth of the resident set. An event is decoded and applied, with
another resource version and status: microseconds of processor time in each snapshot, in turns. With ``complete`` each
event costs both. Prints JSON, and a table on standard error.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any, Final

from app.cache.cluster import Cluster
from app.config.profile import DEFAULT_PROFILES
from app.kube.kinds import NODES, PODS
from app.runtime.profiles import ResolvedProfile, core_for
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.load import cluster, report
from tests.load.picture import each
from tests.load.usage import resident_megabytes

MODES: Final = ("profile", "complete")
_EVENTS: Final = 500
_ROUNDS: Final = 9


def filled(profiles: Sequence[ResolvedProfile], nodes: int, pods: int) -> tuple[Cluster, float]:
    """A snapshot with the parts that the profiles read, and the megabytes that it takes."""
    gc.collect()
    before = resident_megabytes(os.getpid())
    made = Cluster(core_for(profiles))
    for number in range(nodes):
        made.upsert_node(made.decoder(NODES)(json.dumps(cluster.node(number)).encode()))
    for number in range(pods):
        made.upsert_pod(made.decoder(PODS)(json.dumps(cluster.pod(number, nodes)).encode()))
    gc.collect()
    gc.freeze()
    return made, resident_megabytes(os.getpid()) - before


def events(nodes: int, pods: int, version: int) -> list[bytes]:
    """The JSON of pods all over the cluster whose status has changed."""
    found = []
    for number in range(0, pods, max(1, pods // _EVENTS)):
        made = cluster.pod(number, nodes)
        made["metadata"]["resourceVersion"] = str(1_000_000 + version)
        made["status"]["podIP"] = f"10.2.0.{version}"
        found.append(json.dumps(made).encode())
    return found


def apply(snapshot: Cluster, raw: bytes) -> None:
    snapshot.upsert_pod(snapshot.core.decode_pod(raw))


def measure(nodes: int, pods: int) -> dict[str, Any]:
    """Megabytes of both snapshots, and µs of an event in each."""
    gc.disable()
    profiles = resolve(DEFAULT_PROFILES, Registry(SHIPPED, DEFAULT_WEIGHTS))
    deciding, megabytes = filled(profiles, nodes, pods)
    explaining, more = filled([it.with_defaults() for it in profiles], nodes, pods)
    took: list[tuple[float, float]] = []
    for version in range(_ROUNDS):
        bodies = events(nodes, pods, version)
        ours = each([partial(apply, explaining, it) for it in bodies])
        took.append((each([partial(apply, deciding, it) for it in bodies]), ours))
    event, also = (round(median(side), 1) for side in zip(*took, strict=True))
    return {
        "megabytes": {"profile": round(megabytes), "complete": round(megabytes + more)},
        "megabytes_ratio": round((megabytes + more) / megabytes, 2) if megabytes else None,
        "event_us": {"profile": event, "complete": round(event + also, 1)},
        "event_ratio": round((event + also) / event, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.load.two_snapshots", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    sizes = parser.parse_args()
    found = measure(sizes.nodes, sizes.pods)
    print(json.dumps({"machine": report.machine(), **vars(sizes), **found}, indent=2))
    columns = ("megabytes", "event_us")
    report.table(("explain", *columns), [(it, *(found[column][it] for column in columns)) for it in MODES])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
