"""Does a pod go where kube-scheduler's own PodTopologySpread would have sent it, when Homeport scores instead?

The first judge is a stock kube-scheduler, whose log tells the score of each plugin. The others have PodTopologySpread
disabled and Homeport for an extender, each under one setting of scale and weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tests.conformance.live.clusters import SmallCluster
from tests.conformance.live.panel import Judge, Panel, Ruling
from tests.conformance.live.recorder import TIMEOUT_SECONDS, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

SPREAD: Final = "PodTopologySpread"
SCHEDULED_BY: Final = "default-scheduler"
IN_TREE_WEIGHT: Final = 2
"""Of PodTopologySpread in kube-scheduler's default profile."""

MAX_NODE_SCORE: Final = 100
EXTENDER_FACTOR: Final = 10
"""kube-scheduler's MaxNodeScore / MaxExtenderPriority."""

DEFAULT_WEIGHTS: Final = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Of the other score plugins of that profile; a judge whose log says otherwise ends the trial."""


@dataclass(frozen=True)
class Setting:
    """``others`` multiplies the weights of the scheduler's own plugins."""

    max_priority: int
    weight: int
    others: int = 1

    def __str__(self) -> str:
        return f"{self.max_priority}" + (f", others x{self.others}" if self.others > 1 else "")

    @property
    def spread_weight(self) -> int:
        """The weight at which the in-tree plugin has as much to say as Homeport under this setting."""
        return self.max_priority * self.weight * EXTENDER_FACTOR // MAX_NODE_SCORE

    @property
    def step(self) -> int:
        """What one point of Homeport's is worth in kube-scheduler's total."""
        return self.weight * EXTENDER_FACTOR

    def is_clear(self, margin: int) -> bool:
        """Whether rounding cannot bring another node level with one so far ahead of all others."""
        return margin > 0 and (self.max_priority == MAX_NODE_SCORE or margin >= self.step)

    def points(self, score: int) -> int:
        """What is to become of an in-tree score of 0 to 100: the nearest point, a half one up."""
        return int(Fraction(score * self.max_priority, MAX_NODE_SCORE) + Fraction(1, 2)) * self.step

    def profile(self) -> Json:
        """Of the scheduler: its default plugins without PodTopologySpread."""
        plugins: Json = {"multiPoint": {"disabled": [{"name": SPREAD}]}}
        if self.others > 1:
            weights = [{"name": name, "weight": weight * self.others} for name, weight in DEFAULT_WEIGHTS.items()]
            plugins["score"] = {"disabled": [{"name": "*"}], "enabled": weights}
        return {"schedulerName": SCHEDULED_BY, "plugins": plugins}


SETTINGS: Final = (Setting(10, 2), Setting(20, 1), Setting(100, 1), Setting(100, 1, others=5))


@dataclass
class Tally:
    """What came of one setting, over the pods with two nodes to choose from.

    ``in_argmax``: the node chosen has the highest total, in-tree scores and Homeport's points. ``equal``: the in-tree
    plugin would have won with it too. ``clear_margin``: the in-tree winner is so far ahead that rounding cannot matter.
    ``worst_loss``: how far behind that winner a chosen node ever was, where one point of Homeport's is worth ``step``.
    """

    setting: str
    pods: int = 0
    in_argmax: int = 0
    equal: int = 0
    differing: int = 0
    clear_margin: int = 0
    clear_margin_equal: int = 0
    worst_loss: int = 0
    step: int = 0
    wrong: list[str] = field(default_factory=list)
    """Pods with a score off the scale, or placed against the rules: none, if all is well."""


def rulings(
    panel: Panel, plane: ControlPlane, cluster: SmallCluster, pods: int
) -> Iterator[tuple[str, Sequence[Ruling]]]:
    """Let the pods of a cluster come; each is bound where the stock scheduler would have it, of equals to the first.

    Yields each pod's name with the rulings, that of the stock scheduler first.
    """
    for found in (*cluster.nodes, *cluster.residents):
        plane.client.create(found)
    panel.await_nodes(node["metadata"]["name"] for node in cluster.nodes)
    for pod in cluster.pods(pods):
        each = panel.present(pod)
        panel.dismiss(pod, bind_to=_first_of_the_best(each[0]))
        yield pod["metadata"]["name"], each
    plane.client.clear()
    panel.await_nodes(())


def count(setting: Setting, tally: Tally, pod: str, stock: Ruling, ours: Ruling) -> None:
    """Hold one pod against the rules."""
    spread = {node: scores.get(SPREAD, 0) // IN_TREE_WEIGHT for node, scores in stock.scores.items()}
    others = {node: setting.others * _sum_without_spread(scores) for node, scores in stock.scores.items()}
    expected = {node: others[node] + setting.points(score) for node, score in spread.items()}
    in_tree = {node: others[node] + setting.spread_weight * score for node, score in spread.items()}
    best = max(in_tree.values())
    behind = sorted(best - total for total in in_tree.values())[1]
    tally.step = setting.step
    tally.pods += 1
    chosen_is_best = ours.totals.get(ours.chosen) == max(ours.totals.values(), default=None)
    equal = in_tree.get(ours.chosen) == best
    tally.in_argmax += chosen_is_best
    tally.equal += equal
    tally.differing += not equal
    clear = setting.is_clear(behind)
    tally.clear_margin += clear
    tally.clear_margin_equal += clear and equal
    tally.worst_loss = max(tally.worst_loss, best - in_tree.get(ours.chosen, 0))
    if ours.totals != expected or not chosen_is_best or (clear and not equal):
        tally.wrong.append(f"{pod}: chose {ours.chosen}, totals {ours.totals}, expected {expected}, in-tree {in_tree}")


def _first_of_the_best(ruling: Ruling) -> str:
    """So that a cluster fares the same each time: kube-scheduler draws lots among equals."""
    best = max(ruling.totals.values(), default=None)
    return min((node for node, total in ruling.totals.items() if total == best), default=ruling.chosen)


def _sum_without_spread(scores: Mapping[str, int]) -> int:
    return sum(score for plugin, score in scores.items() if plugin != SPREAD)


@contextmanager
def panel_for(plane: ControlPlane, settings: Sequence[Setting]) -> Iterator[Panel]:
    """The stock scheduler and, in the order of the settings, those that ask Homeport."""
    with ExitStack() as stack:
        flags = ("--expected-bind-wait=0s", f"--http-timeout={TIMEOUT_SECONDS}s")
        homeports: dict[int, Homeport] = {}
        for scale in {it.max_priority for it in settings}:
            homeport = Homeport(plane.kubeconfig, plane.folder, (*flags, f"--max-priority={scale}"))
            homeports[scale] = stack.enter_context(homeport)
        judges = [stack.enter_context(Judge(plane, [{"schedulerName": SCHEDULED_BY}]))]
        judges += [
            stack.enter_context(Judge(plane, [it.profile()], homeports[it.max_priority], weight=it.weight))
            for it in settings
        ]
        yield stack.enter_context(Panel(plane, judges))


def measure(plane: ControlPlane, settings: Sequence[Setting], clusters: int, pods: int, seed: int = 1) -> list[Tally]:
    """Judge so many pods in each of so many clusters."""
    tallies = {setting: Tally(str(setting)) for setting in settings}
    with panel_for(plane, settings) as panel:
        for index in range(clusters):
            cluster = SmallCluster(seed * 1000 + index, SCHEDULED_BY)
            for pod, (stock, *others) in rulings(panel, plane, cluster, pods):
                for (setting, tally), ruling in zip(tallies.items(), others, strict=True):
                    if len(stock.heard.passed) > 1:
                        count(setting, tally, pod, stock, ruling)
    return list(tallies.values())
