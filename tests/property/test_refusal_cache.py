"""A refusal from memory is what would be said anew, whatever happened in between, in any order and window of names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, ClassVar, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin
from app.framework.spec import PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES, partial_kind
from tests import strategies
from tests.builders import JsonObject, constraint, controller, encoded, pod_object, service_object
from tests.fakes import FromSpec, spec_of, wanted_else_any
from tests.filtering import Filter
from tests.harness import SPREAD, World, only
from tests.property.test_picture import CrowdedSnapshot, Snapshot
from tests.strategies import KEYS, NODES, rarely

pytestmark = pytest.mark.timeout(600)

DATABASES: Final = partial_kind("example.com/v1", "Database")
OWNERS: Final = [{"apiVersion": "example.com/v1", "kind": "Database"}]
PROFILE: Final[JsonObject] = {
    "pluginConfig": [
        {"name": "StickyNode", "args": {"owners": OWNERS}},
        {
            "name": "PodTopologySpread",
            "args": {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": KEYS[0], "whenUnsatisfiable": "DoNotSchedule"},
                ],
            },
        },
    ]
}
CROWDED: Final = unschedulable("crowded")
SETTINGS: Final = settings(derandomize=True, max_examples=strategies.examples(120), stateful_step_count=40)

asked_names = st.lists(st.sampled_from((*NODES, "gone", "unknown")), min_size=1, max_size=6, unique=True)
level_constraints = st.builds(
    lambda key, skew, domains, affinity, taints: constraint(
        key, skew=skew, min_domains=domains, affinity_policy=affinity, taints_policy=taints, app="web"
    ),
    st.sampled_from(KEYS),
    st.sampled_from((1, 1, 2)),
    st.sampled_from((None, None, 3, 4)),
    st.sampled_from((None, "Ignore")),
    st.sampled_from((None, "Honor")),
)


@st.composite
def waiting_pods(draw: st.DrawFn) -> JsonObject:
    """Pods that are mostly refused: by constraints, by those of the profile, or because they have a home."""
    fields: dict[str, Any] = {
        "labels": draw(strategies.labels),
        "spread": draw(st.lists(st.one_of(level_constraints, strategies.hard_constraints), max_size=2)),
        "node_selector": draw(strategies.node_selectors),
        "tolerations": draw(strategies.tolerations),
        "priority": draw(st.sampled_from((0, 0, 50))),
    }
    if draw(st.booleans()):
        fields["owner"] = controller("Database", draw(st.sampled_from(("d1", "d2"))), api_version="example.com/v1")
    return pod_object(draw(st.sampled_from(("w1", "w2", "p1"))), resource_version=draw(st.sampled_from("12")), **fields)


class RefusalCache(Snapshot):
    """The picture changes as it may; pods are asked about again and again, with a memory and without."""

    limits: ClassVar[list[dict[str, int]]] = [{}]
    memory: ClassVar[dict[str, Any]] = {}
    profile: ClassVar[JsonObject] = PROFILE
    specs: ClassVar[tuple[PluginSpec[Any], ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.asked_of: tuple[World, Filter] | None = None
        self.requests: list[tuple[JsonObject, Sequence[str]]] = []

    @rule(pod=waiting_pods(), names=asked_names)
    def pod_asks(self, pod: JsonObject, names: list[str]) -> None:
        self.requests = [*self.requests[-3:], (pod, names)]
        self._compare(pod, names)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), names=asked_names)
    def pod_asks_of_other_nodes(self, data: st.DataObject, names: list[str]) -> None:
        pod, _ = data.draw(st.sampled_from(self.requests))
        self.requests = [*self.requests[-3:], (pod, names)]
        self._compare(pod, names)

    @invariant()
    def all_ask_again(self) -> None:
        """After every event, and in another order than before."""
        for pod, names in self.requests:
            self._compare(pod, names[::-1])

    @rule(name=st.sampled_from(("d1", "d2")), home=st.sampled_from(("", *NODES)))
    def owner_changes(self, name: str, home: str) -> None:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {"homeport.dev/home": home},
        }
        self.cluster.others.upsert(DATABASES, DATABASES.decode(encoded({"metadata": metadata})))

    @rule(name=st.sampled_from(("d1", "d2")))
    def owner_goes(self, name: str) -> None:
        self.cluster.others.delete(DATABASES, ("default", name))

    @rule(labels=strategies.labels, gone=rarely)
    def service_changes(self, labels: dict[str, str], gone: bool) -> None:
        if gone:
            self.cluster.others.delete(SERVICES, ("default", "web"))
        else:
            self.cluster.others.upsert(SERVICES, SERVICES.decode(encoded(service_object("web", labels))))

    def _compare(self, pod: JsonObject, names: Sequence[str]) -> None:
        if self.asked_of is None:
            world = World(profile=self.profile, cluster=self.cluster, specs=self.specs)
            self.asked_of = (world, Filter(world, **self.memory))
        world, remembering = self.asked_of
        fresh = told(Filter(world).answer(pod, names))
        assert fresh == told(remembering.answer(pod, names))
        assert fresh == told(remembering.answer(pod, names)), "at once asked again"


def told(answer: JsonObject) -> JsonObject:
    """Of a node that several plugins reject, another one's reason may be remembered: any of theirs will do."""
    return {**answer, "FailedAndUnresolvableNodes": set(answer["FailedAndUnresolvableNodes"])}


class CrowdedStandingRefusals(RefusalCache):
    """The same with room for little: in the counts, and in the memory."""

    limits: ClassVar[list[dict[str, int]]] = CrowdedSnapshot.limits
    memory: ClassVar[dict[str, Any]] = {"most_verdict_bytes": 4000, "most_pod_bytes": 2000}


class Crowded(FromSpec, FilterPlugin):
    """Reads the pods on a node, and takes one."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if len(node.pods) < 1 else CROWDED


class Chooses(FromSpec, FilterPlugin):
    """A pod of revision 1 wants n1 if it will do, one of revision 2 wants n2: else any, if somebody asked about it."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        revision = pod.labels.get("rev")
        return wanted_else_any(f"n{revision}" if revision else "", nodes, passed)


class LastWords(RefusalCache):
    """The same beside a last filter. What a search finds by kept verdicts is what all nodes judged afresh say."""

    profile: ClassVar[JsonObject] = only("NodeAffinity", "TaintToleration", "Chooses", "Crowded", SPREAD)
    specs: ClassVar[tuple[PluginSpec[Any], ...]] = (
        spec_of(Crowded, reads=Reads.PODS_ON_NODE),
        spec_of(Chooses, reads=Reads.NODE, parts=[Part.LABELS]),
    )

    @rule(pod=waiting_pods())
    def pod_asks_of_ever_more_nodes(self, pod: JsonObject) -> None:
        """What was said of few would be wrong of more of them."""
        for size in range(1, len(NODES)):
            for names in combinations(NODES, size):
                self._compare(pod, names)

    def _compare(self, pod: JsonObject, names: Sequence[str]) -> None:
        super()._compare(pod, names)
        assert self.asked_of is not None
        world, _ = self.asked_of
        asked = world.pod(pod)
        with self.cluster.without(asked.uid, asked.key):
            passed, rejected = run_prepared(lambda: searched(world, asked, names))
            fresh = run_prepared(lambda: afresh(world, asked, names))
        assert fresh == (passed, rejected)


def searched(world: World, pod: Pod, names: Sequence[str]) -> tuple[list[str], dict[str, Status]]:
    """Who passes and why the others do not, as filter finds it."""
    found = world.framework.search.find_nodes_that_fit(pod, Candidates(names, world.cluster.nodes.__getitem__))
    return [*found.passed], dict(found.rejected())


def afresh(world: World, pod: Pod, names: Sequence[str]) -> tuple[list[str], dict[str, Status]]:
    """The same without anything kept."""
    known = [name for name in names if name in world.cluster.nodes]
    found = world.framework.filters.feasible(CycleState(), pod, Candidates(known, world.cluster.nodes.__getitem__))
    return [name for name in known if name not in found.rejected], dict(found.rejected)


TestStandingRefusals = RefusalCache.TestCase
TestStandingRefusals.settings = SETTINGS
TestCrowdedStandingRefusals = CrowdedStandingRefusals.TestCase
TestCrowdedStandingRefusals.settings = SETTINGS
TestLastWords = LastWords.TestCase
TestLastWords.settings = SETTINGS
