"""Kept equals fresh: random changes of nodes, pods, nominations and objects, and after each few a search with scores.

    python -m tests.conformance.kept                # CHANGES and SEED as in the environment, 1,000,000 and 1 if unset

Plain plugins of each ``Reads`` stand beside PodTopologySpread. What is found from kept verdicts, with a memory of
refusals in front, must be what an engine says that keeps nothing; and `check` must find nothing to say of what is kept.
Prints JSON; ends with 1 if anything differs.
"""

import sys
from typing import Any, Final

from msgspec.structs import replace

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin, ScorePlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import partial_kind
from app.kube.selectors import of_labels
from tests.builders import ZONE, JsonObject, constraint, encoded, make_node, make_pod, pod_object
from tests.conformance import changes as frame
from tests.conformance.changes import Changing
from tests.filtering import Filter
from tests.harness import World, only

RACKS: Final = partial_kind("racks.example/v1", "Rack")
NODES: Final = tuple(f"n{number}" for number in range(12))
PODS: Final = tuple(f"p{number}" for number in range(16))
ROOM: Final = 2

TAINTED: Final = unresolvable("tainted")
CORDONED: Final = unresolvable("cordoned")
DRAINED: Final = unresolvable("drained")
FULL: Final = unschedulable("full")
CROWDED: Final = unschedulable("crowded")


class NoArgs(PluginArgs):
    """Takes no arguments."""


class _Plain(FilterPlugin, ScorePlugin):
    """``calls``: how often a node was judged."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.handle = handle
        self.calls = 0

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.calls += 1
        return self.judge(pod, node)

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        raise NotImplementedError

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 7


class Taints(_Plain):
    """Reads the node, and of the pod its tolerations alone."""

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        kept = {it.key for it in pod.spec.tolerations}
        return TAINTED if any(it.key not in kept for it in node.node.taints) else SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return len(node.node.taints)


class Cordons(_Plain):
    """Reads the node, declares nothing of the pod and reads its labels."""

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        return CORDONED if node.node.unschedulable and pod.labels.get("app") != "web" else SUCCESS


class Racks(_Plain):
    """Reads the node and objects of a declared kind."""

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        rack = self.handle.objects.get(RACKS, "", node.node.labels.get(ZONE, ""))
        return DRAINED if rack is not None and rack.labels else SUCCESS


class Room(_Plain):
    """Reads the pods on the node."""

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if len(node.pods) < ROOM else FULL

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return len(node.pods)


class Crowds(_Plain):
    """Reads the cluster, and says nothing more."""

    def judge(self, pod: Pod, node: NodeInfo) -> Status:
        web = self.handle.counts.pods_by_node("default", WEB)
        return CROWDED if web.get(node.name, 0) > 1 else SUCCESS


WEB: Final = of_labels({"app": "web"})


SPECS: Final[tuple[PluginSpec[Any], ...]] = (
    PluginSpec("Taints", NoArgs, Taints, reads=Reads.NODE, parts=[Part.TOLERATIONS]),
    PluginSpec("Cordons", NoArgs, Cordons, reads=Reads.NODE),
    PluginSpec("Racks", NoArgs, Racks, reads=Reads.NODE, parts=[], needs=lambda _: Needs(kinds=(RACKS,))),
    PluginSpec("Room", NoArgs, Room, reads=Reads.PODS_ON_NODE, parts=[]),
    PluginSpec("Crowds", NoArgs, Crowds),
)

PROFILES: Final = (
    ("Taints", "PodTopologySpread", "Cordons", "Racks", "Room"),
    ("Cordons", "Room", "PodTopologySpread", "Taints", "Crowds"),
    ("Taints", "Cordons", "Racks", "Room"),
)
"""In these orders: kept before, after and without plugins that read the cluster."""


class History(Changing):
    """One cluster under random changes, and the profiles that judge in it."""

    def __init__(self, seed: int) -> None:
        first = World(profile=only(*PROFILES[0]), specs=SPECS)
        super().__init__(seed, first.cluster, NODES)
        self.searches = self.rejections = self.remembered = 0
        others = [World(profile=only(*it), specs=SPECS, cluster=self.cluster) for it in PROFILES[1:]]
        self.worlds = [first, *others]
        self.remembering = [Filter(it) for it in self.worlds]
        sizes = (1, 1, 2, 2, 3, 3, 5, 8, 12)
        self.windows = [self.random.sample(NODES, it) for it in sizes]
        self.asking = [self._pending(number) for number in range(6)]
        for name in NODES[:8]:
            self._node(name)

    def _pending(self, number: int) -> JsonObject:
        tolerations = [{"key": key, "operator": "Exists"} for key in ("spot", "gpu") if self.random.random() < 0.4]
        return pod_object(
            f"pending-{number}",
            labels={"app": self.random.choice(("web", "db"))},
            tolerations=tolerations,
            priority=self.random.choice((0, 5)),
            spread=[constraint(app="web", skew=2)] if self.random.random() < 0.5 else [],
        )

    def happen(self) -> None:
        """One change."""
        self.happens(
            {
                self._node_changes: 4,
                self._heartbeat: 4,
                self.node_goes: 1,
                self._pod_comes: 8,
                self._pod_goes: 12,
                self._pod_changes: 3,
                self._nominated: 1,
                self._assumed: 2,
                self.settle: 4,
                self._rack_changes: 1,
            }
        )

    def _node(self, name: str) -> None:
        keys = [key for key in ("spot", "gpu") if self.random.random() < 0.2]
        self.cluster.upsert_node(
            make_node(
                name,
                zone=self.random.choice(("a", "b", None)),
                taints=[{"key": key, "effect": "NoSchedule"} for key in keys],
                unschedulable=self.random.random() < 0.15,
                resource_version=str(self.changes),
            )
        )

    def _node_changes(self) -> None:
        self._node(self.random.choice(NODES))

    def _heartbeat(self) -> None:
        found = self.cluster.nodes.get(self.random.choice(NODES))
        if found is not None:
            self.cluster.upsert_node(replace(found.node, resource_version=str(self.changes)))

    def _pod(self, **fields: Any) -> Pod:
        name = self.random.choice(PODS)
        return make_pod(
            name, uid=f"uid-{name}", labels={"app": self.random.choice(("web", "db"))},
            resource_version=str(self.changes), **fields,
        )  # fmt: skip

    def _pod_comes(self) -> None:
        self.cluster.upsert_pod(self._pod(node=self.random.choice(NODES)))

    def _pod_changes(self) -> None:
        self.cluster.upsert_pod(self._pod(node=self.random.choice(NODES), terminating=self.random.random() < 0.5))

    def _pod_goes(self) -> None:
        """Those that are judged more often: mostly they wait, and are nowhere."""
        asked = [f"pending-{number}" for number in range(len(self.asking))]
        self.cluster.delete_pod(("default", self.random.choice((*PODS, *asked, *asked, *asked))))

    def _nominated(self) -> None:
        """Also one of those that are judged."""
        pod = self.random.choice((self._pod(nominated=self.random.choice(NODES), priority=3), self._asked()))
        if self.is_waiting(pod):
            to = self.random.choice((self.random.choice(NODES), "", ""))
            self.cluster.upsert_pod(replace(pod.nominated(to), resource_version=str(self.changes)))

    def _asked(self) -> Pod:
        return self._decoded(self.random.choice(self.asking))

    def _assumed(self) -> None:
        self.assume(self.random.choice((self._pod(), self._asked())))

    def _rack_changes(self) -> None:
        labels = {"drained": "yes"} if self.random.random() < 0.5 else {}
        found = {"metadata": {"name": self.random.choice("ab"), "labels": labels, "resourceVersion": str(self.changes)}}
        self.cluster.others.upsert(RACKS, RACKS.decode(encoded(found)))

    def ask(self) -> None:
        """Search and score for one pod, as kept and afresh."""
        self.searches += 1
        number = self.random.randrange(len(self.worlds))
        world, asked = self.worlds[number], self.random.choice(self.asking)
        pod = self._decoded(asked)
        names = self.random.choice(self.windows)
        with self.cluster.without(pod.uid, pod.key):
            fresh = run_prepared(lambda: world.framework.filters.feasible(CycleState(), pod, self._known(names)))
            found = run_prepared(lambda: world.framework.search.find_nodes_that_fit(pod, self._named(names)))
            passed = [it for it in names if it in self.cluster.nodes and it not in fresh.rejected]
            self.compare("passed", passed, list(found.passed))
            self.compare("rejected", fresh.rejected, dict(found.rejected()))
            if passed:
                self._scores(world, pod, passed)
        self.rejections += len(fresh.rejected)
        self._by_memory(self.remembering[number], asked, names, passed, fresh.rejected)

    def _scores(self, world: World, pod: Pod, names: list[str]) -> None:
        nodes = self._named(names)
        kept = world.framework.scoring.score(CycleState(), pod, nodes)
        everybody = {it.name: NodeInfo(it.node, dict(it.pods)) for it in nodes}
        sent = Candidates(names, everybody.__getitem__, everybody)
        self.compare("scores", world.framework.scoring.score(CycleState(), pod, sent).by_plugin, kept.by_plugin)

    def _by_memory(
        self, remembering: Filter, asked: JsonObject, names: list[str], passed: list[str], rejected: Any
    ) -> None:
        """Of a node that is refused by several, another one's reason may be remembered."""
        before = remembering.remembered.count
        answer = remembering.answer(asked, names)
        remembered = remembering.remembered.count - before
        self.remembered += remembered
        self.compare("passed by memory", passed, answer["NodeNames"])
        refused = answer["FailedAndUnresolvableNodes"]
        self.compare("refused by memory", set(names) - set(passed), set(refused))
        if not remembered:
            said = {name: status.message for name, status in rejected.items()}
            self.compare("reasons", said, {name: refused[name] for name in said})

    def check(self) -> None:
        """What is kept, compared with what plugins say now; and the picture with a recount."""
        for world in self.worlds:
            self.compare("check", [], [it for it in world.framework.checking() if it])
        self.compare("picture", [], self.cluster.check())

    def met(self) -> JsonObject:
        return {"searches": self.searches, "rejections": self.rejections, "remembered": self.remembered}

    def _decoded(self, pod: JsonObject) -> Pod:
        return make_pod(pod["metadata"]["name"], **_fields(pod))

    def _named(self, names: list[str]) -> Candidates:
        return Candidates(names, self.cluster.nodes.__getitem__)

    def _known(self, names: list[str]) -> Candidates:
        return self._named([name for name in names if name in self.cluster.nodes])


def _fields(pod: JsonObject) -> Any:
    spec = pod["spec"]
    return {
        "labels": pod["metadata"]["labels"],
        "tolerations": spec.get("tolerations", []),
        "priority": spec.get("priority", 0),
        "spread": spec.get("topologySpreadConstraints", []),
    }


def run(changes: int, seed: int) -> JsonObject:
    """So many changes, a search after every third, a check after every thousandth. Raises ``Difference``."""
    return frame.run(History(seed), changes, asked_every=3, checked_every=1000)


if __name__ == "__main__":
    sys.exit(frame.main(run))
