"""Does a pod go where kube-scheduler would have sent it, when Homeport decides all of it (the preset ``complete``)?

The first judge is a stock kube-scheduler with its default plugins, whose log tells every score. The other has all
filters and scores disabled but for those that must stay (``KEPT``), and Homeport for an extender. Both must leave the
same nodes, and Homeport's points must be those of the in-tree total on its scale.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.live.clusters import BusyCluster
from tests.conformance.live.panel import Judge, Panel, Ruling, bare_profile, homeport_with
from tests.conformance.live.prioritize import DEFAULT_WEIGHTS, IN_TREE_WEIGHT, SCHEDULED_BY, SPREAD, rulings
from tests.controlplane.controlplane import ControlPlane

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


def measure(plane: ControlPlane, clusters: int, pods: int, seed: int = 1) -> Tally:
    """Judge so many pods in each of so many clusters; each is bound where the stock scheduler would have it."""
    tally = Tally()
    with ExitStack() as stack:
        profile = {"schedulerName": "*", "preset": "complete"}
        homeport = stack.enter_context(homeport_with(plane, [profile], SCALE))
        stock = stack.enter_context(Judge(plane, [{"schedulerName": SCHEDULED_BY}]))
        bare = bare_profile(SCHEDULED_BY, *({"name": name} for name in KEPT))
        delegating = stack.enter_context(Judge(plane, [bare], homeport))
        panel = stack.enter_context(Panel(plane, [stock, delegating]))
        for index in range(clusters):
            cluster = BusyCluster(seed * 1000 + index, SCHEDULED_BY)
            for pod, (stock_ruling, ours) in rulings(panel, plane, cluster, pods):
                count(tally, len(cluster.nodes), pod, stock_ruling, ours)
    return tally
