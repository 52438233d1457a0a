"""The law of plugins: whatever comes with Homeport, each of these holds for every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from app.analysis.skew_estimate import ConstraintDefaults
from app.framework.cycle_state import CycleState
from app.framework.points import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from app.framework.spec import PluginSpec
from app.framework.status import Code, Status
from app.homes.protocol import HomesPlugin
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.post_filters import Preemption
from app.runtime.registry import POINT_METHODS, Registry
from app.runtime.slots import BASES, declares, flaws, overrides
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests import strategies
from tests.builders import JsonObject, constraint, pod_object
from tests.harness import World, only

ARGUMENTS: Final[dict[str, list[JsonObject]]] = {
    "NodeAffinity": [
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "NodeAffinityArgs",
            "addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "hdd"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
                ],
            },
        },
        {"addedAffinity": {}},
    ],
    "InterPodAffinity": [{"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": True}],
    "PodTopologySpread": [
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "PodTopologySpreadArgs",
            "defaultingType": "List",
            "defaultConstraints": [
                {
                    "maxSkew": 2,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "minDomains": 2,
                    "nodeAffinityPolicy": "Ignore",
                    "nodeTaintsPolicy": "Honor",
                }
            ],
        }
    ],
    "StickyNode": [
        {
            "owners": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True},
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Pool",
                    "through": [{"apiVersion": "example.com/v1", "kind": "Machine"}],
                },
            ]
        }
    ],
    "NodeResourcesFit": [
        {
            "ignoredResources": ["example.com/gpu"],
            "ignoredResourceGroups": ["vendor.io"],
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": [{"name": "cpu", "weight": 3}],
                "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 10}, {"utilization": 100}]},
            },
        }
    ],
    "NodeResourcesBalancedAllocation": [{"resources": [{"name": "cpu"}, {"name": "example.com/gpu", "weight": 1}]}],
}
"""Arguments beside the defaults, by plugin."""

NULLS: Final[list[JsonObject]] = [
    pod_object("pending") | {"spec": None, "status": None},
    pod_object("pending", labels=None) | {"spec": dict.fromkeys(pod_object(gated=True, node="n1")["spec"])},
    pod_object("pending", spread=[dict.fromkeys(constraint())]),
    pod_object("pending", spread=[{}], tolerations=[{}], affinity={"nodeAffinity": None}),
    pod_object("pending", tolerations=[dict.fromkeys(("key", "operator", "value", "effect"))]),
    pod_object("pending", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
    pod_object(
        "pending",
        affinity={
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": None}]},
        },
    ),
]

every_plugin = pytest.mark.parametrize("spec", SHIPPED, ids=lambda spec: spec.name)


def all_arguments() -> Iterator[Any]:
    for spec in SHIPPED:
        for number, given_ in enumerate([{}, *ARGUMENTS.get(spec.name, [])]):
            yield pytest.param(spec, given_, id=f"{spec.name} {number}")


def profile_of(spec: PluginSpec[Any]) -> JsonObject:
    return only(*({spec.name} - {"PrioritySort", "DefaultBinder"}))


ELSEWHERE: Final = (HomesPlugin, Preemption, ConstraintDefaults)
"""Interfaces of single plugins, outside of the contract."""


class TestSpec:
    def test_names_are_unique(self) -> None:
        names = [spec.name for spec in Registry(SHIPPED, DEFAULT_WEIGHTS)]

        assert sorted(set(names)) == sorted(names)

    def test_every_default_is_a_plugin_with_a_weight(self) -> None:
        assert set(DEFAULT_WEIGHTS) <= {spec.name for spec in SHIPPED}
        assert all(weight > 0 for weight in DEFAULT_WEIGHTS.values())

    @every_plugin
    def test_a_plugin_and_its_arguments_are_named_after_it(self, spec: PluginSpec[Any]) -> None:
        assert (spec.name, f"{spec.name}Args") == (spec.plugin.__name__, spec.args.__name__)

    @every_plugin
    def test_a_plugin_takes_part_somewhere_and_spells_it_right(self, spec: PluginSpec[Any]) -> None:
        known = {name for it in (*BASES, *ELSEWHERE) for name in vars(it) if not name.startswith("_")}

        assert [] != [point for point, it in POINT_METHODS.items() if declares(spec.plugin, it)]
        assert set() == {name for name in vars(spec.plugin) if not name.startswith("_")} - known
        assert [] == list(flaws(spec.plugin, spec.reads))

    @every_plugin
    def test_the_kinds_it_reads_are_kinds(self, spec: PluginSpec[Any]) -> None:
        assert all(isinstance(kind, Kind) for kind in spec.needs(spec.args()).kinds)

    @pytest.mark.parametrize(("spec", "given_"), list(all_arguments()))
    def test_what_it_writes_it_reads_and_says_what_for(self, spec: PluginSpec[Any], given_: JsonObject) -> None:
        needs = spec.needs(spec.args.model_validate(given_))

        assert {it.kind for it in needs.writes} <= set(needs.kinds)
        assert all(it.what for it in needs.writes)


class TestArguments:
    @pytest.mark.parametrize(("spec", "given_"), list(all_arguments()))
    def test_they_are_the_same_after_a_round_trip(self, spec: PluginSpec[Any], given_: JsonObject) -> None:
        parsed = spec.args.model_validate(given_)

        assert parsed == spec.args.model_validate(parsed.model_dump(by_alias=True))
        assert parsed == spec.args.model_validate_json(parsed.model_dump_json(by_alias=True))
        assert given_ == parsed.model_dump(by_alias=True, exclude_unset=True, mode="json")

    @every_plugin
    def test_unknown_fields_are_refused(self, spec: PluginSpec[Any]) -> None:
        with pytest.raises(ValidationError) as raised:
            spec.args.model_validate({"nonsense": 1})

        assert [("extra_forbidden", ("nonsense",))] == [(it["type"], it["loc"]) for it in raised.value.errors()]

    @every_plugin
    def test_they_cannot_be_changed(self, spec: PluginSpec[Any]) -> None:
        args = spec.args()

        with pytest.raises(ValidationError, match="frozen"):
            args.kind = "Other"

    @every_plugin
    def test_fields_are_spelled_as_in_kubernetes(self, spec: PluginSpec[Any]) -> None:
        aliases = [field.alias or name for name, field in spec.args.model_fields.items()]

        assert [] == [alias for alias in aliases if "_" in alias or not alias[0].islower()]
        assert get_type_hints(spec.args)


def deciding(world: World, name: str, pod: Pod) -> tuple[list[Status], dict[str, int]]:
    """Run every deciding point of one plugin by its per-node forms."""
    plugin: Any = world.framework.plugins[name]
    state, statuses, scores = CycleState(), [], {}
    ready = True
    if declares(type(plugin), PreFilterPlugin):
        status, _ = plugin.pre_filter(state, pod)
        statuses.append(status)
        ready = status.is_success
    if ready and declares(type(plugin), FilterPlugin):
        statuses.extend(plugin.filter(state, pod, it) for it in world.candidates())
    ready = not declares(type(plugin), PreScorePlugin) or plugin.pre_score(state, pod, world.candidates()).is_success
    if ready and declares(type(plugin), ScorePlugin):
        scores = {it.name: plugin.score(state, pod, it) for it in world.candidates()}
        scores = dict(plugin.normalize(state, pod, scores))
    return statuses, scores


def seen(world: World, pod: Pod) -> str:
    """Everything a plugin could have changed, written down."""
    return repr([pod, *((it.node, sorted(it.pods.items())) for it in world.cluster.nodes.values())])


@every_plugin
@settings(derandomize=True, max_examples=strategies.examples(40))
@given(objects=strategies.clusters(), pod=strategies.pending_pods)
def test_a_plugin_changes_neither_pod_nor_node(
    spec: PluginSpec[Any], objects: list[JsonObject], pod: JsonObject
) -> None:
    world = World(*objects, profile=profile_of(spec))
    asking = world.pod(pod)
    before = seen(world, asking)

    first = deciding(world, spec.name, asking)

    assert before == seen(world, asking)
    assert first == deciding(world, spec.name, asking)
    assert [] == world.cluster.check()


@every_plugin
@settings(derandomize=True, max_examples=strategies.examples(40))
@given(objects=strategies.clusters(), pod=strategies.pending_pods)
def test_the_batch_form_says_what_the_per_node_form_says(
    spec: PluginSpec[Any], objects: list[JsonObject], pod: JsonObject
) -> None:
    world = World(*objects, profile=profile_of(spec))
    asking = world.pod(pod)
    plugin: Any = world.framework.plugins[spec.name]
    nodes, state = world.candidates(), CycleState()
    if overrides(spec.plugin, FilterPlugin, "filter_nodes") and plugin.pre_filter(state, asking)[0].is_success:
        statuses = {it.name: plugin.filter(state, asking, it) for it in nodes}
        rejected = {name: status for name, status in statuses.items() if not status.is_success}
        found = plugin.filter_nodes(state, asking, nodes)
        assert [name for name in nodes.names if name not in rejected] == list(found.passed)
        assert rejected == found.rejected()
        if plugin.takes_any_names:
            assert found.passed == plugin.filter_nodes(state, asking, nodes.among(["no-node", *nodes.names])).passed
    scores = overrides(spec.plugin, ScorePlugin, "score_nodes")
    if scores and plugin.pre_score(state, asking, nodes).is_success:
        raw = {it.name: plugin.score(state, asking, it) for it in nodes}
        assert raw == plugin.score_nodes(state, asking, nodes).by_name(nodes.names)


@every_plugin
@settings(derandomize=True, max_examples=strategies.examples(20))
@given(objects=strategies.clusters(), pod=st.sampled_from(NULLS))
def test_a_plugin_survives_pods_full_of_nulls(
    spec: PluginSpec[Any], objects: list[JsonObject], pod: JsonObject
) -> None:
    world = World(*objects, profile=profile_of(spec))
    statuses, _ = deciding(world, spec.name, world.pod(pod))

    assert [] == [it for it in statuses if it.code is Code.ERROR]
