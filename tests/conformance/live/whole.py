"""Does a pod go where kube-scheduler would have sent it, when Homeport decides all of it (the preset ``complete``)?

The first judge is a stock kube-scheduler with its default plugins, whose log tells every score. The other has all
filters and scores disabled but for those that must stay (``KEPT``), and Homeport for an extender. Both must leave the
same nodes, and Homeport's points must be those of the in-tree total on its scale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.live.clusters import BusyCluster
from tests.conformance.live.panel import Judge, Panel, Ruling, bare_profile
from tests.conformance.live.prioritize import DEFAULT_WEIGHTS, IN_TREE_WEIGHT, SCHEDULED_BY, SPREAD
from tests.conformance.live.recorder import TIMEOUT_SECONDS
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

KEPT: Final = ("VolumeBinding", "DynamicResources")
"""Their Reserve finds what their Filter left, and volumes and devices are theirs to bind."""

SCALE: Final = 100
WEIGHTS: Final = {**DEFAULT_WEIGHTS, SPREAD: IN_TREE_WEIGHT}


@dataclass
class Tally:
    """``pods``: how many were judged. ``refused``: some node was left out; ``unplaced``: all were.

    ``scored``: there were scores of nodes to compare; ``unique``: one node was ahead of all others by a point of
    Homeport's scale, and so had to win.
    """

    pods: int = 0
    equal: int = 0
    refused: int = 0
    unplaced: int = 0
    scored: int = 0
    unique: int = 0
    wrong: list[str] = field(default_factory=list)


def points(stock: Ruling) -> dict[str, int]:
    """The in-tree totals as the mean of all who scored, 0 to 100, a half one up."""
    scored = {plugin for scores in stock.scores.values() for plugin in scores}
    whole = sum(WEIGHTS[plugin] for plugin in scored)
    return {node: (2 * total + whole) // (2 * whole) for node, total in stock.totals.items()} if whole else {}


def count(tally: Tally, nodes: int, pod: str, stock: Ruling, ours: Ruling) -> None:
    """Hold one pod against the rules."""
    left = stock.heard.passed
    tally.pods += 1
    tally.refused += len(left) < nodes
    tally.unplaced += not left
    same = left == ours.heard.passed
    expected = points(stock)
    if len(left) > 1 and expected:
        tally.scored += 1
        best = [node for node, it in expected.items() if it == max(expected.values())]
        tally.unique += len(best) == 1
        same = same and ours.heard.scored == expected and ours.chosen in best
    tally.equal += same
    if not same:
        said = {"left": sorted(ours.heard.passed), "points": ours.heard.scored, "chosen": ours.chosen}
        tally.wrong.append(f"{pod}: {said}, stock left {sorted(left)}, points {expected}")


def _homeport(plane: ControlPlane) -> Homeport:
    config = plane.folder / "complete.json"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    profiles = [{"schedulerName": "*", "preset": "complete"}]
    config.write_text(json.dumps({**head, "profiles": profiles}))
    flags = ("--due-bind-wait=0s", f"--http-timeout={TIMEOUT_SECONDS}s", f"--max-priority={SCALE}")
    return Homeport(plane.kubeconfig, plane.folder, (*flags, f"--config={config}"))


def measure(plane: ControlPlane, clusters: int, pods: int, seed: int = 1) -> Tally:
    """Judge so many pods in each of so many clusters; each is bound where the stock scheduler would have it."""
    tally = Tally()
    with ExitStack() as stack:
        homeport = stack.enter_context(_homeport(plane))
        stock = stack.enter_context(Judge(plane, [{"schedulerName": SCHEDULED_BY}]))
        bare = bare_profile(SCHEDULED_BY, *({"name": name} for name in KEPT))
        delegating = stack.enter_context(Judge(plane, [bare], homeport))
        panel = stack.enter_context(Panel(plane, [stock, delegating]))
        for index in range(clusters):
            _judge_cluster(panel, plane, BusyCluster(seed * 1000 + index, SCHEDULED_BY), pods, tally)
    return tally


def _judge_cluster(panel: Panel, plane: ControlPlane, cluster: BusyCluster, pods: int, tally: Tally) -> None:
    for found in (*cluster.nodes, *cluster.residents):
        plane.client.create(found)
    panel.await_nodes(node["metadata"]["name"] for node in cluster.nodes)
    for pod in cluster.pods(pods):
        stock, ours = panel.present(pod)
        panel.dismiss(pod, bind_to=_first_of_the_best(stock.totals, stock.chosen))
        count(tally, len(cluster.nodes), pod["metadata"]["name"], stock, ours)
    plane.client.clear()
    panel.await_nodes(())


def _first_of_the_best(totals: Mapping[str, int], chosen: str) -> str:
    """So that a cluster fares the same each time; where one node is left nothing is scored."""
    return min((node for node, it in totals.items() if it == max(totals.values())), default=chosen)
