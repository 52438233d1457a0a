"""What follows from what a plugin says it reads: a plain plugin of each ``Reads`` beside PodTopologySpread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import pytest
from structlog.testing import capture_logs

from app.config.profile import Profile
from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, FilterPlugin, PreFilterPlugin, ScorePlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.filters import Recheck
from app.runtime.guard import PluginError
from app.runtime.profiles import ProfileErrors
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject, constraint, make_node, make_pod, pod_object
from tests.filtering import Filter
from tests.harness import SPREAD, World, only

NODES: Final = tuple(f"n{number}" for number in range(9))
NO: Final = unresolvable("no")
LAST: Final = unresolvable("last")
IN_FLIGHT: Final = make_pod("flying", node="n1", labels={"app": "web"})
WEB: Final[Any] = {"labels": {"app": "web"}, "spread": [constraint(app="web")]}

DECLARED: Final = pytest.param(Reads.NODE, (Part.TOLERATIONS,), id="NODE, of the pod its tolerations")
UNDECLARED: Final = pytest.param(Reads.NODE, None, id="NODE")
PODS: Final = pytest.param(Reads.PODS_ON_NODE, None, id="PODS_ON_NODE")
CLUSTER: Final = pytest.param(Reads.CLUSTER, None, id="CLUSTER")


class Plain(FilterPlugin, ScorePlugin):
    """Nodes with a taint will not do; counts how often it is asked."""

    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        self.judged: list[str] = []
        self.scored: list[str] = []
        self.look: Callable[[Pod], object] = lambda pod: pod.spec.tolerations
        self.look_at: Callable[[NodeInfo], int] = lambda node: len(node.node.taints)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.look(pod)
        self.judged.append(node.name)
        return NO if node.node.taints else SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        self.scored.append(node.name)
        return self.look_at(node)


class Plane:
    """Nine nodes in three zones, and a profile of PodTopologySpread with the plain plugin."""

    form: ClassVar[type[Plain]] = Plain

    def __init__(self, reads: Reads, parts: Sequence[Part] | None) -> None:
        spec = PluginSpec("Plain", PluginArgs, self.form, reads=reads, parts=parts)
        nodes = [make_node(name, zone=f"z{number % 3}") for number, name in enumerate(NODES)]
        self.world = World(*nodes, profile=only(SPREAD, "Plain"), specs=[spec])
        self.cluster = self.world.cluster
        self.filter = Filter(self.world)

    @property
    def plugin(self) -> Plain:
        found: Plain = self.world.framework.plugins["Plain"]
        return found

    def asked(self, pod: JsonObject) -> list[str]:
        """Which nodes the plugin was asked about by a search for ``pod``."""
        self.plugin.judged.clear()
        self.filter.answer(pod, NODES)
        return sorted(self.plugin.judged)

    def scored(self, pod: Pod) -> list[str]:
        self.plugin.scored.clear()
        self.world.framework.scoring.score(CycleState(), pod, self.world.candidates())
        return sorted(self.plugin.scored)


class PlainLast(Plain):
    """The first node that passes will do, if n0 was asked about; else none will."""

    def filter_last(self, state: CycleState, pod: Pod, nodes: Candidates, passed: Sequence[str]) -> FilterResult:
        self.look(pod)
        left = passed[: int("n0" in nodes.name_set)]
        return FilterResult(left, lambda: dict.fromkeys(passed[len(left) :], LAST))


class LastPlane(Plane):
    """The same with the plugin that says the last word too."""

    form = PlainLast


both_forms = pytest.mark.parametrize("form", [Plane, LastPlane], ids=["", "with a last word"])


@both_forms
@pytest.mark.parametrize(
    ("reads", "parts", "again", "after_bind"),
    [
        pytest.param(*DECLARED.values, [], [], id="NODE, of the pod its tolerations"),
        pytest.param(*UNDECLARED.values, [], [], id="NODE"),
        pytest.param(*PODS.values, [], ["n4"], id="PODS_ON_NODE"),
        pytest.param(*CLUSTER.values, list(NODES), list(NODES), id="CLUSTER"),
    ],
)
def test_what_is_judged_again(
    form: type[Plane], reads: Reads, parts: Sequence[Part] | None, again: list[str], after_bind: list[str]
) -> None:
    plane = form(reads, parts)
    pod = pod_object("new", labels={"app": "db"})

    assert list(NODES) == plane.asked(pod)
    assert again == plane.asked(pod)
    plane.world.add(make_pod("bound", node="n4"))
    assert after_bind == plane.asked(pod)
    plane.world.add(make_node("n2", zone="z2", resource_version="2"))
    assert again == plane.asked(pod), "a heartbeat"
    plane.world.add(make_node("n2", zone="z2", taints=[{"key": "spot", "effect": "NoSchedule"}]))
    assert (again or ["n2"]) == plane.asked(pod)


@pytest.mark.parametrize(
    ("reads", "parts", "after_bind"),
    [
        pytest.param(*DECLARED.values, [], id="NODE"),
        pytest.param(*PODS.values, ["n4"], id="PODS_ON_NODE"),
        pytest.param(*CLUSTER.values, list(NODES), id="CLUSTER"),
    ],
)
def test_what_is_scored_again(reads: Reads, parts: Sequence[Part] | None, after_bind: list[str]) -> None:
    plane = Plane(reads, parts)
    pod = make_pod("new", labels={"app": "db"})

    assert list(NODES) == plane.scored(pod)
    plane.world.add(make_pod("bound", node="n4"))
    assert after_bind == plane.scored(pod)


@both_forms
@pytest.mark.parametrize(
    ("reads", "parts", "certain"),
    [
        pytest.param(*UNDECLARED.values, True, id="NODE"),
        pytest.param(*PODS.values, True, id="PODS_ON_NODE"),
        pytest.param(*CLUSTER.values, False, id="CLUSTER"),
    ],
)
def test_whether_a_bind_is_certain_and_who_waits_for_whom(
    form: type[Plane], reads: Reads, parts: Sequence[Part] | None, certain: bool
) -> None:
    framework = form(reads, parts).world.framework
    pod, node = make_pod("new", labels={"app": "db"}), NodeInfo(make_node("n1"))

    assert Recheck(SUCCESS, certain) == framework.at_bind.recheck(CycleState(), pod, node, [IN_FLIGHT])
    assert (not certain) is framework.filters.depends(pod, IN_FLIGHT)


@both_forms
@pytest.mark.parametrize(("reads", "parts"), [DECLARED, UNDECLARED, PODS, CLUSTER])
def test_rejections_of_the_others_are_remembered_beside_it(
    form: type[Plane], reads: Reads, parts: Sequence[Part] | None
) -> None:
    """Zones z0 and z1 are full, and PodTopologySpread says so."""
    plane = form(reads, parts)
    plane.world.add(make_pod("a", node="n0", **WEB), make_pod("b", node="n1", **WEB))
    full = [name for number, name in enumerate(NODES) if number % 3 != 2]

    refused = plane.filter.refused(pod_object("new", **WEB), full)

    assert set(full) == refused.keys()
    assert 0 == plane.filter.remembered.count
    assert refused == plane.filter.refused(pod_object("new", **WEB), full)
    assert 1 == plane.filter.remembered.count


@pytest.mark.parametrize(
    ("reads", "parts", "remembered"),
    [
        pytest.param(*DECLARED.values, 1, id="NODE, of the pod its tolerations"),
        pytest.param(*UNDECLARED.values, 1, id="NODE"),
        pytest.param(*PODS.values, 1, id="PODS_ON_NODE"),
        pytest.param(*CLUSTER.values, 0, id="CLUSTER: without a signature it loses its own"),
    ],
)
def test_whether_its_own_rejections_are_remembered(reads: Reads, parts: Sequence[Part] | None, remembered: int) -> None:
    plane = Plane(reads, parts)
    plane.world.add(make_node("n2", zone="z2", taints=[{"key": "spot", "effect": "NoSchedule"}]))

    first = plane.filter.refused(pod_object("new", **WEB), ["n2"])
    plane.world.add(make_pod("elsewhere", node="n4"))

    assert {"n2": "no"} == first == plane.filter.refused(pod_object("new", **WEB), ["n2"])
    assert remembered == plane.filter.remembered.count


@pytest.mark.parametrize("reads", [Reads.NODE, Reads.PODS_ON_NODE])
def test_a_remembered_rejection_ends_with_what_it_rests_on(reads: Reads) -> None:
    plane = Plane(reads, None)
    tainted = make_node("n2", zone="z2", taints=[{"key": "spot", "effect": "NoSchedule"}])
    plane.world.add(tainted)
    pod = pod_object("new", **WEB)
    plane.filter.refused(pod, ["n2"])

    plane.world.add(make_node("n2", zone="z2"))
    assert {} == plane.filter.refused(pod, ["n2"])

    plane.world.add(tainted)
    assert {"n2": "no"} == plane.filter.refused(pod, ["n2"])


@pytest.mark.parametrize(
    ("parts", "times"), [pytest.param((Part.TOLERATIONS,), 1, id="declared"), pytest.param(None, 50, id="undeclared")]
)
def test_pods_of_one_signature_share_their_verdicts(parts: Sequence[Part] | None, times: int) -> None:
    """Jobs of one pod each, every one with labels of its own."""
    plane = Plane(Reads.NODE, parts)
    plane.plugin.judged.clear()

    for number in range(50):
        plane.filter.answer(pod_object(f"job-{number}", labels={"job-name": f"job-{number}"}), NODES)

    assert times * len(NODES) == len(plane.plugin.judged)


@pytest.mark.parametrize(
    ("parts", "look", "path"),
    [
        pytest.param((Part.TOLERATIONS,), lambda pod: pod.labels, "labels", id="labels"),
        pytest.param((Part.TOLERATIONS,), lambda pod: pod.spec.affinity, "spec.affinity", id="a part of the spec"),
        pytest.param((), lambda pod: pod.spec.spread, "spec.spread", id="nothing is declared"),
        pytest.param(None, lambda pod: pod.name, "name", id="the name"),
        pytest.param(None, lambda pod: pod.uid, "uid", id="the UID"),
    ],
)
@pytest.mark.parametrize("reads", [Reads.NODE, Reads.PODS_ON_NODE])
def test_what_is_not_declared_cannot_be_read(
    reads: Reads, parts: Sequence[Part] | None, look: Callable[[Pod], object], path: str
) -> None:
    plane = Plane(reads, parts)
    plane.plugin.look = look

    with capture_logs() as logs, pytest.raises(PluginError, match=f"read pod.{path}, which it does not declare"):
        plane.world.framework.search.find_nodes_that_fit(make_pod("new"), plane.world.candidates())

    assert [("Plain", "default/new", "n0")] == [(it["plugin"], it["pod"], it["node"]) for it in logs]


@pytest.mark.parametrize("what", ["pods", "requested", "ports", "totals"])
def test_the_pods_of_a_node_are_not_seen_by_who_reads_nodes(what: str) -> None:
    plane = Plane(Reads.NODE, None)
    plane.plugin.look_at = lambda node: bool(getattr(node, what))

    with pytest.raises(PluginError, match=r"declare Reads\.PODS_ON_NODE"):
        plane.world.framework.scoring.score(CycleState(), make_pod("new"), plane.world.candidates())


@pytest.mark.parametrize(("reads", "parts"), [DECLARED, UNDECLARED, PODS, CLUSTER])
def test_a_last_word_is_never_remembered_nor_what_was_said_beside_it(
    reads: Reads, parts: Sequence[Part] | None
) -> None:
    """What the filter itself says of n2 would be, where it reads no more than nodes."""
    plane = LastPlane(reads, parts)
    plane.world.add(make_node("n2", zone="z2", taints=[{"key": "spot", "effect": "NoSchedule"}]))
    pod = pod_object("new", labels={"app": "db"})

    for _ in range(3):
        assert {"n1": "last", "n2": "no"} == plane.filter.refused(pod, ["n1", "n2"])
    assert 0 == plane.filter.remembered.count
    assert ["n1"] == plane.filter.answer(pod, ["n1", "n0"])["NodeNames"], "n0 is asked about by now"


def test_a_last_word_sees_of_the_pod_what_is_declared() -> None:
    plane = LastPlane(Reads.NODE, (Part.TOLERATIONS,))
    plane.filter.answer(pod_object("new"), NODES)
    plane.plugin.look = lambda pod: pod.labels

    with pytest.raises(PluginError, match=r"read pod.labels, which it does not declare"):
        plane.world.framework.search.find_nodes_that_fit(make_pod("new"), plane.world.candidates())


def test_a_factory_is_no_plugin() -> None:
    with pytest.raises(ProfileErrors, match='plugin "Plain" is not a class'):
        World(profile=only("Plain"), specs=[PluginSpec("Plain", PluginArgs, partial(Plain))])


def test_a_signature_that_cannot_be_hashed_is_a_fault_of_the_plugins() -> None:
    class Signs(Plain, ClusterFilterPlugin):
        def signature(self, pod: Pod) -> Any:
            return ["list"]

    found = World(make_node("n1"), profile=only("Signs"), specs=[PluginSpec("Signs", PluginArgs, Signs)])

    with capture_logs() as logs, pytest.raises(PluginError, match="unhashable type"):
        found.framework.search.signatures(make_pod("new"))

    assert [("Signs", "Signature", "default/new")] == [(it["plugin"], it["point"], it["pod"]) for it in logs]


def test_parts_that_are_too_long_are_seen_by_everybody() -> None:
    plane = Plane(Reads.NODE, (Part.LABELS,))
    plane.plugin.look = lambda pod: plane.plugin.scored.extend(pod.spec.oversized)

    plane.filter.answer(pod_object("new", labels={"app": "x" * (65 << 10)}), NODES)

    assert {"metadata.labels"} == set(plane.plugin.scored)


def test_a_plugin_that_prepares_by_the_cluster_is_not_certain() -> None:
    class Prepares(_Made, PreFilterPlugin):
        def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
            return SUCCESS, None

    found = World(make_node("n1"), profile=only("Prepares"), specs=[PluginSpec("Prepares", PluginArgs, Prepares)])
    pod = make_pod("new")

    assert found.framework.filters.depends(pod, IN_FLIGHT)
    assert Recheck(SUCCESS, False) == found.framework.at_bind.recheck(
        CycleState(), pod, found.cluster.nodes["n1"], [IN_FLIGHT]
    )


def test_one_line_at_start_says_what_a_plain_plugin_costs() -> None:
    (profile,) = resolve([Profile.model_validate(only("Plain"))], registry(Reads.CLUSTER))
    (declared,) = resolve([Profile.model_validate(only("Plain"))], registry(Reads.NODE))

    assert 1 == sum('plugin "Plain" declares neither PluginSpec.reads' in it for it in profile.notices)
    assert not any("Plain" in it for it in declared.notices)


def registry(reads: Reads) -> Registry:
    return Registry([*SHIPPED, PluginSpec("Plain", PluginArgs, Plain, reads=reads)], DEFAULT_WEIGHTS)


class _Made:
    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        pass


class LacksFilter(_Made, FilterPlugin):
    """Names a base and has no method of it."""


class LacksRemoval(_Made, PreFilterPlugin):
    """Has one of two."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        return SUCCESS


class LacksBase(_Made, PreFilterPlugin):
    """Has a filter that nobody would ever ask."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS


class LacksScore(_Made, ScorePlugin):
    """Names the base, and has neither of its forms."""


class SaysTooMuch(Plain, ClusterFilterPlugin):
    """Says of the cluster what matters, and that it does not read it."""


@pytest.mark.parametrize(
    ("plugin", "reads", "said"),
    [
        (LacksFilter, Reads.CLUSTER, "abstract class LacksFilter"),
        (LacksRemoval, Reads.CLUSTER, "has one of add_pod and remove_pod: a dry run needs both"),
        (LacksBase, Reads.CLUSTER, "has filter, and does not name FilterPlugin as a base"),
        (LacksScore, Reads.CLUSTER, "names ScorePlugin as a base, and has neither score nor score_nodes"),
        (
            SaysTooMuch,
            Reads.NODE,
            "names ClusterFilterPlugin as a base, and declares that it reads no more than Reads.NODE",
        ),
    ],
)
def test_a_plugin_that_contradicts_itself_does_not_start(plugin: Any, reads: Reads, said: str) -> None:
    spec = PluginSpec("Plain", PluginArgs, plugin, reads=reads)

    with pytest.raises(ProfileErrors, match=said) as raised:
        World(profile=only("Plain"), specs=[spec])

    assert all('plugin "Plain"' in it for it in raised.value.messages)


def test_scores_by_kept_values_are_those_by_node() -> None:
    plane = Plane(Reads.PODS_ON_NODE, None)
    plane.plugin.look_at = lambda node: len(node.pods)
    plane.world.add(make_pod("bound", node="n4"))
    pod = make_pod("new", labels={"app": "db"})

    for _ in range(2):
        assert {name: int(name == "n4") for name in NODES} == plane.world.score(pod)["Plain"]
    some = plane.world.framework.scoring.score(CycleState(), pod, Candidates(("n4",), plane.cluster.nodes.__getitem__))
    assert {"n4": 1} == some.by_plugin["Plain"]


class Single(FilterPlugin):
    """A node takes one pod."""

    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        pass

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return NO if node.pods else SUCCESS


def test_what_is_kept_is_not_brought_up_to_date_with_what_an_overlay_leaves_out() -> None:
    """A pod that is judged is left out of its node; for others the node is as full as ever."""
    spec = PluginSpec("Single", PluginArgs, Single, reads=Reads.PODS_ON_NODE)
    world = World(make_node("n1"), make_node("n2"), profile=only("Single"), specs=[spec])
    there, other = make_pod("there", node="n1"), make_pod("other")
    world.add(there)

    def passed(pod: Pod) -> list[str]:
        with world.cluster.without(pod.uid, pod.key):
            return list(world.framework.search.find_nodes_that_fit(pod, world.candidates()).passed)

    assert ["n2"] == passed(other)
    world.add(make_pod("there", node="n1", resource_version="2", labels={"moved": "on"}))
    assert ["n1", "n2"] == passed(there)
    assert ["n2"] == passed(other)
    with world.cluster.overlay(without=[there]):
        assert ["n1", "n2"] == list(world.framework.search.find_nodes_that_fit(other, world.candidates()).passed)
    with world.cluster.overlay(with_=[make_pod("more", node="n2")]):
        assert [] == list(world.framework.search.find_nodes_that_fit(other, world.candidates()).passed)
    assert ["n2"] == passed(other)
