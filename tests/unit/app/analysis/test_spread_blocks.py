"""What keeps a pod waiting that spread refuses: numbers of domains, and what else keeps the others from taking it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pytest

from app.analysis.explain_snapshot import ExplainedProfile, ExplainSnapshot
from app.analysis.spread_blocks import (
    LONGEST_NOTE,
    MOST_LIMITS,
    MainReasonInDomain,
    SpreadBlock,
    SpreadBlocks,
    note_of,
)
from app.config.profile import Profile
from app.feeds.feed import FeedState
from app.framework.explanation import DomainLimit
from app.kube.kinds import NODES, PODS
from app.memory.fallbacks import FallbackTable
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.verbs.context import VerbContext
from app.verbs.outcome import VerbFailure
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, container, node_object, pod_object
from tests.harness import World, only

DELEGATED: Final = {"schedulerName": "default-scheduler"}
COMPLETE: Final = {"schedulerName": "default-scheduler", "preset": "complete"}
WEB: Final = {"app": "web"}


class CompleteFeed:
    """A feed without problems."""

    def problem(self) -> str:
        return ""

    def states(self) -> Mapping[str, FeedState]:
        return {repr(it): FeedState(state="watching", objects=1, age=0.0, synced=True) for it in (NODES, PODS)}


def node(name: str, zone: str, cpu: str = "4", **fields: Any) -> JsonObject:
    return node_object(name, zone=zone, status={"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}, **fields)


def pod(name: str, **fields: Any) -> JsonObject:
    return pod_object(name, labels=WEB, containers=[container(resources={"requests": {"cpu": "1"}})], **fields)


def zones(**third: Any) -> list[JsonObject]:
    """Three zones with three pods in a and b and one in c, whose node has no CPU."""
    nodes = [node("a1", "eu-1a", "9"), node("b1", "eu-1b", "9"), node("c1", "eu-1c", **{"cpu": "1500m", **third})]
    places = {"a1": 3, "b1": 3, "c1": 1}
    return [*nodes, *(pod(f"{at}-{it}", node=at) for at, count in places.items() for it in range(count))]


class Case:
    """What the composition root makes of a profile: one world for decisions and explain, or two."""

    def __init__(
        self, *objects: JsonObject, profile: JsonObject = COMPLETE, explained: JsonObject | None = None
    ) -> None:
        self.table = FallbackTable()
        self.world = World(*objects, profile=profile, fallbacks=self.table.of("default-scheduler"))
        self.explained = World(*objects, profile=explained) if explained is not None else self.world
        name = self.world.framework.scheduler_name
        (found,) = resolve([Profile.model_validate(profile)], Registry(SHIPPED, DEFAULT_WEIGHTS))
        self.problem = ""
        snapshot = ExplainSnapshot(
            self.explained.cluster,
            cast("Any", CompleteFeed()),
            {name: self.explained.framework},
            {name: ExplainedProfile.of(found, complete=explained is not None)},
            resolved={found.scheduler_name: found},
            deciding=self.world.cluster,
            deciding_feed=cast("Any", CompleteFeed()),
            max_age=60.0,
        )
        context = VerbContext(
            self.world.cluster,
            {name: self.world.framework},
            cast("Any", None),
            lambda: self.problem,
            cast("Any", None),
        )
        self.blocks = SpreadBlocks(context, snapshot, self.table)

    def of(self, found: JsonObject) -> SpreadBlock | None:
        for world in {id(it): it for it in (self.world, self.explained)}.values():
            world.add(found)
        waits = self.world.pod(found)
        return asyncio.run(self.blocks.of(waits))

    def note(self, *spread: JsonObject, **fields: Any) -> str:
        block = self.of(pod("new", spread=list(spread or [constraint(app="web")]), **fields))
        return "" if block is None else block.note


def test_the_numbers_and_the_reason_that_a_constant_reason_cannot_have() -> None:
    assert "zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1; eu-1c: Insufficient cpu" == Case(*zones()).note()


def test_a_delegated_profile_says_nothing_of_filters_that_it_does_not_judge() -> None:
    assert "zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1" == Case(*zones(), profile=DELEGATED).note()


def test_a_delegated_profile_says_it_with_a_snapshot_of_explain() -> None:
    case = Case(*zones(), profile=DELEGATED, explained=COMPLETE)

    assert "zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1; eu-1c: Insufficient cpu" == case.note()


def test_a_change_of_numbers_is_no_other_verdict_and_another_reason_is() -> None:
    case, waits = Case(*zones()), pod("new", spread=[constraint(app="web")])
    first = case.of(waits)
    case.world.add(pod("more", node="a1"))
    more = case.of(waits)
    case.world.add(node("c1", "eu-1c", "9", unschedulable=True))
    cordoned = case.of(waits)

    assert first is not None
    assert more is not None
    assert cordoned is not None
    assert (first.verdict, True) == (more.verdict, "eu-1a 4" in more.note)
    assert first.verdict != cordoned.verdict
    assert cordoned.note.endswith("; eu-1c: node(s) were unschedulable")


def test_nothing_blocks_a_pod_that_a_node_takes() -> None:
    assert "" == Case(*zones(cpu="9")).note()


def test_a_node_that_passes_the_filters_of_the_profile_alone_is_no_answer() -> None:
    """kube-scheduler's filters, which are not judged, can reject it."""
    assert "zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1" == Case(*zones(cpu="9"), profile=DELEGATED).note()


@pytest.mark.parametrize(
    "spread",
    [[], [constraint(soft=True, app="web")], [constraint(skew=9, app="web")]],
    ids=["none", "soft", "satisfied"],
)
def test_nothing_is_said_of_constraints_that_reject_no_domain(spread: list[JsonObject]) -> None:
    assert Case(*zones()).of(pod("new", spread=spread)) is None


def test_a_profile_without_the_plugin() -> None:
    case = Case(*zones(), profile=only("NodeName"))

    assert case.of(pod("new", spread=[constraint(app="web")])) is None


def test_each_constraint_that_rejects_with_the_reasons_where_all_of_them_pass() -> None:
    """Of zone c, c2 alone is open to both, so c1 is not judged. A constraint that rejects nothing is left out."""
    case = Case(*zones(), node("c2", "eu-1c", unschedulable=True))

    assert (
        "zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1; eu-1c: node(s) were unschedulable. "
        "hostname: c2 0, c1 1, a1 3, b1 3; maxSkew 1; c2: node(s) were unschedulable"
    ) == case.note(constraint(app="web"), constraint(HOSTNAME, app="web"), constraint(ZONE, skew=9, app="web"))


def test_where_constraints_contradict_each_other_no_other_reason_matters() -> None:
    """Zone c has the fewest pods, but no host there."""
    case = Case(*zones(), node("a2", "eu-1a"))

    assert ("zone: eu-1c 1, eu-1a 3, eu-1b 3; maxSkew 1. hostname: a2 0, c1 1, a1 3, b1 3; maxSkew 1") == case.note(
        constraint(app="web"), constraint(HOSTNAME, app="web")
    )


def test_of_several_reasons_that_of_the_most_nodes() -> None:
    more = [node("c2", "eu-1c", "0"), node("c3", "eu-1c", unschedulable=True)]

    assert Case(*zones(), *more).note().endswith("; eu-1c: Insufficient cpu (2 of 3 nodes)")


def test_nodes_that_the_pod_does_not_select_are_no_reason_where_it_selects_others() -> None:
    others = [node(f"c{number}", "eu-1c", labels={"disk": "hdd"}) for number in range(2, 6)]
    full = [node("b2", "eu-1b", labels={"disk": "ssd"}), *(pod(f"b2-{number}", node="b2") for number in range(2))]
    case = Case(*zones(labels={"disk": "ssd"}), *others, *full)

    assert "zone: eu-1c 1, eu-1b 2; maxSkew 1; eu-1c: Insufficient cpu" == case.note(node_selector={"disk": "ssd"})


def test_a_domain_of_which_the_pod_selects_no_node() -> None:
    spread = constraint(affinity_policy="Ignore", app="web")

    assert (
        Case(*zones(cpu="9"))
        .note(spread, node_selector={"disk": "ssd"})
        .endswith("; eu-1c: node(s) didn't match Pod's node affinity/selector")
    )


def test_a_domain_with_a_node_that_fits_has_no_reason() -> None:
    """Of two such domains: by the filters that are judged, zone d takes the pod."""
    unjudged = {**COMPLETE, "plugins": {"filter": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    case = Case(*zones(), node("d1", "eu-1d", unschedulable=True), pod("d1-0", node="d1"), profile=unjudged)

    assert "zone: eu-1c 1, eu-1d 1, eu-1a 3, eu-1b 3; maxSkew 1; eu-1c: Insufficient cpu" == case.note()


def test_too_few_domains() -> None:
    case = Case(node("a1", "eu-1a"), pod("a1-0", node="a1"))

    assert "zone: eu-1a 1; maxSkew 1, minDomains 3" == case.note(constraint(min_domains=3, app="web"))


def test_a_label_that_no_node_has() -> None:
    assert "example.com/rack: no counted node has the label; maxSkew 1" == Case(*zones()).note(
        constraint("example.com/rack", app="web")
    )


def test_without_a_usable_snapshot_nothing_is_said() -> None:
    case = Case(*zones())
    case.problem = "pods: no contact for 200 s"

    with pytest.raises(VerbFailure, match="no contact for 200 s"):
        case.note()


def limit(pods: Mapping[str, int], key: str = ZONE) -> DomainLimit:
    return DomainLimit(key, ("maxSkew 1",), pods, frozenset())


def test_of_many_domains_those_with_the_fewest_pods_are_named() -> None:
    many = limit({f"h{number}": number for number in range(9, -1, -1)}, HOSTNAME)
    reasons = {f"h{number}": MainReasonInDomain("Too many pods", 1, 1) for number in range(5)}

    assert (
        "hostname: h0 0, h1 1, h2 2, h3 3, h4 4, h5 5 and 4 more with up to 9; maxSkew 1; "
        "h0, h1, h2 and 2 more: Too many pods"
    ) == note_of([many], [reasons])


def test_of_many_constraints_the_first_are_shown() -> None:
    many = [limit({"a": 1}, f"k{number}") for number in range(MOST_LIMITS + 2)]

    assert "k0: a 1; maxSkew 1. k1: a 1; maxSkew 1. k2: a 1; maxSkew 1. 2 more constraints" == note_of(many, [{}] * 5)


def test_a_note_is_short_whatever_names_and_reasons_are() -> None:
    long = limit({f"{number}{'z' * 62}": number for number in range(9)}, f"example.com/{'k' * 63}")
    reasons = {name: MainReasonInDomain(f"{name}\n{'x' * 5000}", 1, 1) for name in long.pods}

    note = note_of([long] * 9, [reasons] * 9)

    assert (LONGEST_NOTE, True) == (len(note), note.endswith("…"))
    assert (True, "x" * 100 in note) == (note.isprintable(), False)


class TestAlone:
    """Which constraints alone keep the pod from a node, for the option ``fallback``."""

    PROFILE: Final = {
        **COMPLETE,
        "pluginConfig": [{"name": "PodTopologySpread", "args": {"beyond": {"fallback": {"after": "10m"}}}}],
    }

    def alone(self, *spread: JsonObject, objects: Sequence[JsonObject] = (), **fields: Any) -> frozenset[str]:
        case = Case(*(objects or zones()), profile=self.PROFILE)
        block = case.of(pod("new", spread=list(spread), **fields))
        return frozenset() if block is None else block.alone

    def test_a_node_fits_but_for_the_constraint(self) -> None:
        assert self.alone(constraint(app="web")) == {ZONE}

    def test_no_other_node_fits_either(self) -> None:
        full = [node("a1", "eu-1a", "3"), *zones()[1:]]
        cordoned = [{**it, "spec": {"unschedulable": True}} if it["metadata"]["name"] == "b1" else it for it in full]
        assert self.alone(constraint(app="web"), objects=cordoned) == frozenset()

    def test_two_constraints_that_exclude_each_others_nodes(self) -> None:
        """Each node that the other rules accept is rejected by both, so neither is alone."""
        assert self.alone(constraint(app="web"), constraint(HOSTNAME, app="web")) == frozenset()

    def test_one_of_two_constraints(self) -> None:
        assert self.alone(constraint(app="web"), constraint(HOSTNAME, skew=9, app="web")) == {ZONE}

    def test_a_filter_without_a_verdict(self) -> None:
        """Here explain judges only the rules of the profile."""
        profile = {**self.PROFILE, "preset": "delegated"}
        block = Case(*zones(), profile=profile).of(pod("new", spread=[constraint(app="web")]))
        assert block is not None
        assert block.alone == frozenset()

    def test_a_profile_without_the_option(self) -> None:
        block = Case(*zones()).of(pod("new", spread=[constraint(app="web")]))
        assert block is not None
        assert block.alone == frozenset()

    def test_a_node_without_the_label(self) -> None:
        objects = [*zones(), node_object("d1", status={"allocatable": {"cpu": "9", "memory": "8Gi", "pods": "10"}})]
        crowded = [pod(f"more-{it}-{at}", node=at) for at in ("a1", "b1") for it in range(6)]
        assert self.alone(constraint(app="web"), objects=[*objects, *crowded]) == {ZONE}
