"""Topics of the plugins that look at one node at a time: taints and tolerations, cordons, and pods that name a node.

Knows nothing of Homeport. Tolerations are mostly made from a taint that some node has, and then spoilt a little: what
nearly matches is where mistakes show.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar, Final

from tests.conformance.draft import HARD, PLUGIN, SCHEDULER, SOFT, Draft, Json, draw_traits

TAINTS: Final = "TaintToleration"
NODE_NAME: Final = "NodeName"
CORDON: Final = "NodeUnschedulable"

POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    CORDON: ("filter",),
    NODE_NAME: ("filter",),
    TAINTS: ("filter", "preScore", "score"),
    PLUGIN: ("preFilter", "filter", "preScore", "score"),
}
"""In the order kube-scheduler runs them by default."""

CORDONED: Final = "node.kubernetes.io/unschedulable"
KEYS: Final = ("dedicated", "spot", CORDONED, "node.kubernetes.io/not-ready", "example.com/Gpu_a.b", "9")
VALUES: Final = ("", "", "a", "b", "A", "5", "10")
"""The last two are what Lt and Gt compare."""

EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")
UNLAWFUL_EFFECTS: Final = ("", "NoScheduleNoAdmit", "preferNoSchedule")
UNLAWFUL_OPERATORS: Final = ("Lt", "Gt", "Lt", "Gt", "exists", "In", "!=")


class NodeDraft(Draft):
    """Nodes with up to eight taints, some of them cordoned, and a profile of ``plugins`` alone.

    ``lawful``: the API server would take every taint and toleration. Where not, there are also operators that nobody
    knows, or that are behind a feature gate, a value beside Exists, no key beside Equal, and taints that are repeated.
    ``naming``: how likely the pod names a node. ``odd``: how likely the profile says something about single points.
    Where several plugins can refuse a node, each has less to refuse. ``points``: those of the plugins.
    """

    points: ClassVar[Mapping[str, tuple[str, ...]]] = POINTS

    def __init__(
        self, random: Random, *plugins: str, lawful: bool = True, naming: float = 0, odd: float = 0.04
    ) -> None:
        self.plugins = plugins
        self.lawful = lawful
        self.naming = naming
        self.odd = odd
        crowd = len(plugins) > 1
        self.most_taints = random.choice((0, 1, 1, 2, 3) if crowd else (1, 2, 2, 3, 4, 8))
        self.wishes = random.choice((1, 3, 6) if crowd else (1, 1, 2, 6))
        self.cordoned = random.choice((0, 0, 0.2, 0.4) if crowd else (0.2, 0.4, 0.5, 0.7))
        self.unlabelled = random.choice((0, 0, 0, 0.2) if crowd else (0, 0, 0.3, 1))
        super().__init__(random, draw_traits(random, tolerant=0))

    # Nodes.

    def node(self, name: str) -> Json:
        found = super().node(name)
        if self.chance(self.cordoned):
            found["spec"]["unschedulable"] = True
        elif self.chance(0.1):
            found["spec"]["unschedulable"] = False
        if self.chance(self.unlabelled):
            found["metadata"].pop("labels", None)
        return found

    def _taints(self) -> list[Json]:
        drawn = [self._taint() for _ in range(self.random.randint(0, self.most_taints))]
        if not self.lawful:
            return drawn + drawn[:1] if self.chance(0.2) else drawn
        return list({(taint["key"], taint["effect"]): taint for taint in drawn}.values())

    def _taint(self) -> Json:
        effect = self.weighted({"NoSchedule": 2, "NoExecute": 1, "PreferNoSchedule": self.wishes})
        taint = {"key": self.random.choice(KEYS), "effect": effect, "value": self.random.choice(VALUES)}
        if not self.lawful and self.chance(0.2):
            taint.update(self.random.choice(({"key": ""}, {"effect": self.random.choice(UNLAWFUL_EFFECTS)})))
        return self._said(taint)

    def _said(self, found: Json) -> Json:
        """An empty text is often left out."""
        return {key: value for key, value in found.items() if value or self.chance(0.3)}

    # The pod.

    def pending(self) -> Json:
        pod = super().pending()
        tolerations = [self._toleration() for _ in range(self.weighted({0: 30, 1: 30, 2: 20, 3: 10, 5: 5, 9: 5}))]
        if tolerations and self.chance(0.15):
            tolerations.append(dict(self.random.choice(tolerations)))
        if tolerations or self.chance(0.1):
            pod["spec"]["tolerations"] = tolerations
        if self.chance(self.naming):
            pod["spec"]["nodeName"] = self.node_name() if self.nodes and self.chance(0.9) else "gone"
        return pod

    def _toleration(self) -> Json:
        """Of a taint, if there is one, and then perhaps not quite."""
        taints = [taint for node in self.nodes for taint in node["spec"].get("taints", ())]
        taint = self.random.choice(taints) if taints and self.chance(0.8) else self._taint()
        if self.chance(0.15):
            taint = {"key": CORDONED, "effect": "NoSchedule"}
        found = {name: taint.get(name, "") for name in ("key", "effect", "value")}
        found["operator"] = self.random.choice(("", "Equal", "Equal", "Exists", "Exists"))
        if self.chance(0.3):
            found["effect"] = ""
        for name, instead in (("key", KEYS), ("effect", EFFECTS), ("value", VALUES)):
            if self.chance(0.12):
                found[name] = self.random.choice(instead)
        if self.chance(0.06):
            found.update(key="", operator="Exists")
        if self.lawful or self.chance(0.5):
            found = _within_the_law(found)
        else:
            found[self.random.choice(("key", "effect", "operator", "operator", "operator"))] = self._unlawful()
        if found["effect"] == "NoExecute" and self.chance(0.4):
            found["tolerationSeconds"] = self.random.choice((0, 300))
        return self._said(found)

    def _unlawful(self) -> str:
        return self.random.choice((*UNLAWFUL_OPERATORS, *UNLAWFUL_EFFECTS))

    # The profile.

    def profile(self, plugin_config: list[Json]) -> Json:
        """The plugins in the usual order or any other, and perhaps an extension point that says something else."""
        names = [*self.plugins, "PrioritySort", "DefaultBinder"]
        if self.chance(0.3):
            self.random.shuffle(names)
        plugins: Json = {
            "multiPoint": {"disabled": [{"name": "*"}], "enabled": [self._weighed(name) for name in names]}
        }
        while self.chance(self.odd):
            point = self.random.choice(sorted({point for name in self.plugins for point in self.points[name]}))
            plugins[point] = self._at_point([name for name in self.plugins if point in self.points[name]])
        return {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": plugin_config}

    def _weighed(self, name: str) -> Json:
        weight = {"weight": self.random.choice((1, 2, 3, 7, 100))} if self.chance(0.3) else {}
        return {"name": name, **weight}

    def _at_point(self, names: list[str]) -> Json:
        """Some plugins left out, put in front, or all of them in an order of their own."""
        some = self.some(names, 1, len(names))
        form = self.random.choice(("without", "first", "instead"))
        if form == "without":
            return {"disabled": [{"name": name} for name in some]}
        enabled = [self._weighed(name) for name in some]
        return {"enabled": enabled} | ({"disabled": [{"name": "*"}]} if form == "instead" else {})


def _within_the_law(toleration: Json) -> Json:
    """No key needs Exists, and Exists needs no value."""
    found = dict(toleration)
    if not found["key"]:
        found["operator"] = "Exists"
    if found["operator"] == "Exists":
        found["value"] = ""
    return found


def _taints(random: Random) -> Draft:
    return NodeDraft(random, TAINTS).populate()


def _node_name(random: Random) -> Draft:
    return NodeDraft(random, NODE_NAME, naming=0.8).populate()


def _unschedulable(random: Random) -> Draft:
    return NodeDraft(random, CORDON).populate()


def _together(random: Random) -> Draft:
    """The three beside PodTopologySpread: who rejects first, and what the weights make of two scores."""
    return _with_constraints(NodeDraft(random, *POINTS, naming=0.15, odd=0.25))


def _unlawful(random: Random) -> Draft:
    """As stored by an API server of other rules: an older one, or one with other feature gates."""
    return _with_constraints(NodeDraft(random, *POINTS, lawful=False, naming=0.05))


def _with_constraints(draft: Draft) -> Draft:
    if draft.chance(0.6):
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 2, SOFT: 1})
    return draft.populate()


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "taints": _taints,
    "nodename": _node_name,
    "unschedulable": _unschedulable,
    "together": _together,
    "unlawful": _unlawful,
}

UNLAWFUL: Final = frozenset({"unlawful"})
"""Topics with objects that API validation refuses."""
