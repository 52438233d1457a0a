"""What an explanation costs: processor time and the longest step, on a large cluster.

    python -m tests.load.explanations
    python -m tests.load.explanations --nodes 500 --pods 15000

Each pod is explained with all filters of kube-scheduler's default profile, with its remedies. The first page of pods
that wait has 500 unlike pods. A step is what runs between two turns of the event loop. Prints JSON: milliseconds of a
processor for each shape of pod and for the page, and their steps.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time, thread_time
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from app.analysis.explaining import Explainer
from app.analysis.pending import MOST_LISTED, PendingPods
from app.config.profile import Profile
from app.config.settings import Settings
from app.kube.core_v1 import Pod
from app.kube.labels import label_set
from app.main import HomeportService
from app.telemetry.logging import configure
from app.verbs import stepwise
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import constraint, container, pod_object
from tests.load import cluster, report
from tests.load.shop import node, pod

_REPEATS: Final = 5
_LABELS: Final = {"app": "app-1", "team": "team-1"}


def shapes() -> dict[str, Pod]:
    """Pods of ordinary shape, most of which fit nowhere."""
    small, huge = ([container(resources={"requests": {"cpu": cpu, "memory": "256Mi"}})] for cpu in ("250m", "500"))
    zone, host = (constraint(key, app="app-1") for key in (cluster.ZONE_KEY, cluster.HOST_KEY))
    fields: dict[str, Any] = {"namespace": "team-1", "labels": _LABELS}
    five = [
        {**zone, "maxSkew": number, "minDomains": 5, "labelSelector": {"matchLabels": {"app": "app-1", **more}}}
        for number, more in ((1, {}), (2, {"team": "team-1"}), (3, {"team": "team-2"}))
    ]
    return {
        "fits": pod(pod_object("fits", containers=small, **fields)),
        "requests too much": pod(pod_object("huge", containers=huge, **fields)),
        "one constraint": pod(pod_object("one", containers=small, spread=[{**zone, "minDomains": 5}], **fields)),
        "five constraints": pod(pod_object("five", containers=small, spread=[*five, host, host], **fields)),
        "a selector of no node": pod(pod_object("ssd", containers=small, node_selector={"disk": "ssd"}, **fields)),
    }


def service(nodes: int, pods: int) -> HomeportService:
    """A service with the default profile, and a snapshot of a large cluster."""
    configure("error", "json")
    with tempfile.NamedTemporaryFile(suffix=".json") as saved:
        Path(saved.name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [cluster.node(0)]}))
        profile = Profile.model_validate({"schedulerName": "*", "preset": "complete"})
        made = HomeportService(
            Settings(cluster=saved.name, profiles=(profile,)), SHIPPED, DEFAULT_WEIGHTS, version="bench"
        )
    for number in range(nodes):
        made.snapshot.upsert_node(node(cluster.furnished_node(number)))
    for number in range(pods):
        made.snapshot.upsert_pod(pod(cluster.furnish(cluster.pod(number, nodes))))
    return made


@contextmanager
def timed_turns() -> Iterator[list[float]]:
    """Seconds between two turns of the event loop, while the explanation runs."""
    steps: list[float] = []
    last = thread_time()
    state = stepwise._state

    async def turn() -> None:
        nonlocal last
        steps.append(thread_time() - last)
        await state().wait()
        last = thread_time()

    with patch.object(stepwise, "_state", lambda: SimpleNamespace(wait=turn, pinning=state().pinning)):
        yield steps
    steps.append(thread_time() - last)


async def explained(explainer: Explainer, asked: Pod, node: str = "") -> dict[str, Any]:
    with timed_turns() as steps:
        began = process_time()
        answer = await explainer.explain(asked, node)
        taken = process_time() - began
    return {
        "ms": round(taken * 1000, 1),
        "longest_step_ms": round(max(steps, default=0.0) * 1000, 1),
        "feasible": len(answer.feasible),
        "remedies": len(answer.remedies),
        "incomplete": answer.incomplete,
    }


async def listed(pending: PendingPods) -> dict[str, Any]:
    with timed_turns() as steps:
        began = process_time()
        page = await pending.page()
        taken = process_time() - began
    judged = {it.reason.judged_at for it in page.items if it.reason is not None}
    return {
        "ms": round(taken * 1000, 1),
        "longest_step_ms": round(max(steps, default=0.0) * 1000, 1),
        "listed": len(page.items),
        "judged": len(judged),
    }


async def measure(nodes: int, pods: int) -> dict[str, Any]:
    explainer = Explainer((made := service(nodes, pods)).verb_context, made._explain, made._stays)
    waiting = list(shapes().values())[2:4]
    for number in range(MOST_LISTED):
        labels = label_set({**_LABELS, "number": str(number)})
        made.snapshot.upsert_pod(replace(waiting[number % 2], name=f"p-{number}", uid=f"p-{number}", labels=labels))
    gc.collect()
    gc.freeze()
    pending = PendingPods(made.verb_context, made._explain)
    found = {"a page of pods that wait": await repeated(lambda: listed(pending))}
    every = [(name, asked, "") for name, asked in shapes().items()]
    every.append(("fits, with the scores of a node", every[0][1], cluster.node(1)["metadata"]["name"]))
    for name, asked, on in every:
        found[name] = await repeated(partial(explained, explainer, asked, on))
    return found


async def repeated(run: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of several runs, and the times of the first one, which counts pods that are not counted yet."""
    first = await run()
    runs = [await run() for _ in range(_REPEATS)]
    medians = {it: median(run[it] for run in runs) for it in ("ms", "longest_step_ms")}
    return {**runs[-1], **medians, "first_ms": first["ms"], "first_longest_step_ms": first["longest_step_ms"]}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.explanations", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    given = parser.parse_args()
    report.publish(asyncio.run(measure(given.nodes, given.pods)))


if __name__ == "__main__":
    main()
