"""Rules of profiles: which plugins run where, in which order and with which weight; and every mistake at once."""

from typing import Any, Self

import pytest
from pydantic import BaseModel, model_validator

from app.config.mistakes import Mistake
from app.config.profile import POINTS, Profile
from app.framework.handle import Handle
from app.framework.parts import Part
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.kube.core_decoding import PLAIN
from app.kube.durations import Seconds
from app.kube.extras import Extra
from app.kube.kinds import PODS, REPLICA_SETS, SERVICES
from app.runtime.building import build, names_of, served_names
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.profiles import ProfileErrors, ResolvedProfile, core_for
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.runtime.resolving import resolve
from app.runtime.waiting import PodsAtPermit
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject
from tests.fakes import (
    Alpha,
    Beta,
    BindsFirst,
    Delta,
    FiltersOnly,
    FixedNominations,
    FromSpec,
    Gamma,
    OtherQueue,
    Queue,
    SizeArgs,
    spec_of,
)
from tests.harness import World

REGISTRY = Registry(
    [
        spec_of(Queue),
        spec_of(OtherQueue),
        spec_of(BindsFirst),
        spec_of(Alpha, SizeArgs, kinds=lambda args: (SERVICES, PODS)[: args.size]),
        spec_of(Beta, reads=Reads.NODE),
        spec_of(Gamma, kinds=lambda _: (SERVICES, REPLICA_SETS)),
        spec_of(Delta),
        spec_of(FiltersOnly),
    ],
    {"Queue": 1, "Alpha": 2, "Beta": 3, "Gamma": 1, "BindsFirst": 1},
)
IN_TREE_REGISTRY = Registry(SHIPPED, DEFAULT_WEIGHTS)
FEW = frozenset({*DEFAULT_WEIGHTS, "NodeUnschedulable", "NodeName", "TaintToleration"})
"""Plugins of ours that the tests of presets know."""
SORT = "exactly one queue sort plugin is required, found "
BIND = "at least one bind plugin is required"
ELSEWHERE = "runs in your scheduler, not in Homeport"
SIZED = PluginSpec(
    "Sized",
    SizeArgs,
    FiltersOnly,
    needs=lambda args: Needs(kinds=(SERVICES, PODS)[: args.size]),
    reads=Reads.NODE,
    parts={Part.PORTS},
)


def profile(plugins: JsonObject | None = None, config: list[JsonObject] | None = None, name: str = "p") -> Profile:
    """``plugins`` as points with ``enabled`` and ``disabled`` in short: names, or ``Name=weight``, ``-Name``."""
    sets = {point: plugin_set(entries) for point, entries in (plugins or {}).items()}
    return Profile.model_validate({"schedulerName": name, "plugins": sets, "pluginConfig": config or []})


def plugin_set(entries: str) -> JsonObject:
    words = entries.split()
    enabled = [word.partition("=") for word in words if not word.startswith("-")]
    return {
        "enabled": [{"name": name, "weight": int(weight or 0)} for name, _, weight in enabled],
        "disabled": [{"name": word[1:]} for word in words if word.startswith("-")],
    }


def registry_of(*specs: PluginSpec[Any]) -> Registry:
    """These plugins beside the two that every profile needs."""
    return Registry([*specs, spec_of(Queue), spec_of(BindsFirst)], {"Queue": 1, "BindsFirst": 1})


def resolved(found: Profile, registry: Registry = REGISTRY) -> ResolvedProfile:
    return resolve([found], registry)[0]


def built(found: Profile, registry: Registry = REGISTRY) -> Framework:
    world = World()
    return build(
        resolved(found, registry),
        world.handle,
        served=["p"],
        nominations=FixedNominations(),
        snapshot=world.cluster,
        waiting=PodsAtPermit(),
        guard=Guard(Metrics()),
    )


def only_mistake(asked: Profile, registry: Registry) -> Mistake:
    with pytest.raises(ProfileErrors) as raised:
        resolve([asked], registry)
    (mistake,) = raised.value.mistakes
    return mistake


def at(framework: Framework, point: str) -> str:
    """The plugins at a point, in order, with the weights that are not 1."""
    return " ".join(slot.name if slot.weight == 1 else f"{slot.name}={slot.weight}" for slot in framework.slots[point])


class TestMultiPoint:
    """Semantics §3.11, step 1."""

    @pytest.mark.parametrize(
        ("multi_point", "expected"),
        [
            ("-Alpha -Gamma", "Queue Beta=3 BindsFirst"),
            ("Delta=5 FiltersOnly", "Queue Alpha=2 Beta=3 Gamma BindsFirst Delta=5 FiltersOnly"),
            ("Beta=9 Alpha=8", "Queue Alpha=8 Beta=9 Gamma BindsFirst"),  # replaced in place
            ("-Alpha Alpha=4", "Queue Beta=3 Gamma BindsFirst Alpha=4"),  # moved to the end
            ("-Unknown", "Queue Alpha=2 Beta=3 Gamma BindsFirst"),  # no mistake
            ("-* Beta Queue BindsFirst", "Beta Queue BindsFirst"),
        ],
    )
    def test_the_plugins_of_a_profile(self, multi_point: str, expected: str) -> None:
        found = resolved(profile({"multiPoint": multi_point})).multi_point

        weighted = [ref.name if ref.weight in (0, 1) else f"{ref.name}={ref.weight}" for ref in found]
        assert expected == " ".join(weighted)


class TestOrder:
    """Semantics §3.11, step 3."""

    @pytest.mark.parametrize(
        ("plugins", "expected"),
        [
            ({"score": "Gamma=7 Beta=8"}, "Gamma=7 Beta=8 Alpha=2"),  # (a) at multiPoint too: first, in their order
            ({"multiPoint": "Delta=4", "score": "Gamma"}, "Gamma Alpha=2 Beta=3 Delta=4"),  # (b) multiPoint alone
            ({"score": "Delta=7 Gamma=8"}, "Gamma=8 Alpha=2 Beta=3 Delta=7"),  # (c) the others last
            ({"score": "-Beta"}, "Alpha=2 Gamma"),
            ({"score": "-*"}, ""),
            ({"score": "-* Beta Alpha=4"}, "Beta Alpha=4"),
            ({"score": "Alpha"}, "Alpha Beta=3 Gamma"),  # without a weight, 1
            ({"filter": "-Beta"}, "Alpha=2 Beta=3 Gamma"),
        ],
    )
    def test_of_the_score_plugins(self, plugins: JsonObject, expected: str) -> None:
        assert expected == at(built(profile(plugins)), "score")

    def test_a_plugin_is_at_the_points_it_has(self) -> None:
        framework = built(profile({"multiPoint": "FiltersOnly"}))

        expected = dict.fromkeys(POINTS, "") | {
            "queueSort": "Queue",
            "filter": "Alpha=2 Beta=3 Gamma FiltersOnly",
            "score": "Alpha=2 Beta=3 Gamma",
            "bind": "BindsFirst",
        }
        assert expected == {point: at(framework, point) for point in POINTS}

    def test_a_slot_knows_what_its_filter_reads(self) -> None:
        found = {slot.name: slot.reads for slot in built(profile()).slots["filter"]}

        assert {"Alpha": Reads.CLUSTER, "Beta": Reads.NODE, "Gamma": Reads.CLUSTER} == found


class TestArguments:
    @pytest.mark.parametrize(
        ("plugins", "config"),
        [
            pytest.param("-Alpha", {"name": "Alpha", "args": {"nonsense": 1}}, id="not enabled"),
            pytest.param("", {"name": "GangScheduling", "args": {"anything": {}}}, id="in the scheduler"),
        ],
    )
    def test_those_of_a_plugin_that_does_not_run_are_not_read(self, plugins: str, config: JsonObject) -> None:
        """One configuration can be given to both programs."""
        assert (
            resolved(profile({"multiPoint": plugins})).args == resolved(profile({"multiPoint": plugins}, [config])).args
        )

    def test_they_decide_which_kinds_are_read(self) -> None:
        found = resolved(profile(config=[{"name": "Alpha", "args": {"size": 2}}]))

        assert {SERVICES, PODS, REPLICA_SETS} == found.kinds()
        assert {SERVICES, REPLICA_SETS} == resolved(profile()).kinds()


def on_complete(plugins: JsonObject | None = None) -> Profile:
    return Profile.model_validate({**profile(plugins).model_dump(by_alias=True), "preset": "complete"})


class TestPresets:
    def test_complete_is_kube_schedulers_default_profile_and_homes(self) -> None:
        found = resolved(on_complete(), IN_TREE_REGISTRY)

        expected = [*KUBE_SCHEDULER_DEFAULTS.items(), ("StickyNode", 1)]
        assert expected == [(ref.name, ref.weight) for ref in found.multi_point]
        assert "complete" == built(on_complete(), IN_TREE_REGISTRY).preset

    def test_one_says_delegated_or_nothing(self) -> None:
        said = Profile.model_validate({"schedulerName": "p", "preset": "delegated"})

        assert resolved(profile(), IN_TREE_REGISTRY) == resolved(said, IN_TREE_REGISTRY)
        assert "delegated" == built(said, IN_TREE_REGISTRY).preset

    @pytest.mark.parametrize(
        ("plugins", "expected"),
        [
            ({}, "NodeUnschedulable NodeName TaintToleration=3 PodTopologySpread=2 StickyNode"),
            (
                {"multiPoint": "-NodeName TaintToleration=7"},
                "NodeUnschedulable TaintToleration=7 PodTopologySpread=2 StickyNode",
            ),
            ({"filter": "-StickyNode -NodeName -TaintToleration -NodeUnschedulable"}, "PodTopologySpread=2"),
            ({"filter": "-* NodeName"}, "NodeName"),
            ({"multiPoint": "-* PrioritySort DefaultBinder", "filter": "NodeName"}, "NodeName"),
        ],
    )
    def test_plugins_go_on_top(self, plugins: JsonObject, expected: str) -> None:
        few = Registry([it for it in SHIPPED if it.name in FEW], DEFAULT_WEIGHTS)

        assert expected == at(built(on_complete(plugins), few), "filter")

    def test_what_it_lacks_here_is_told_by_name(self) -> None:
        here = Registry([it for it in SHIPPED if it.name != "NodeName"], DEFAULT_WEIGHTS)
        lacking = ["NodeName", *(it for it in KUBE_SCHEDULER_DEFAULTS if IN_TREE_REGISTRY.get(it) is None)]
        lacking.sort(key=[*KUBE_SCHEDULER_DEFAULTS].index)

        (notice,) = resolved(on_complete(), here).notices
        assert notice.startswith(f'profile "p": preset complete: {", ".join(lacking)} of ')

    def test_what_is_named_or_disabled_is_not_missed(self) -> None:
        here = Registry([it for it in SHIPPED if it.name in FEW], DEFAULT_WEIGHTS)
        lacking = [it for it in KUBE_SCHEDULER_DEFAULTS if it not in FEW]
        disabled = " ".join(f"-{it}" for it in lacking[1:])

        assert (f'profile "p": {lacking[0]} runs in your scheduler, not in Homeport',) == resolved(
            on_complete({"multiPoint": f"{disabled} {lacking[0]}"}), here
        ).notices


def rechecking(*names: str, plugins: JsonObject | None = None, config: list[JsonObject] | None = None) -> Profile:
    asked = profile(plugins, config).model_dump(by_alias=True)
    return Profile.model_validate({**asked, "bindRecheck": list(names)})


class TestBindRecheck:
    def test_a_plugin_of_it_runs_nowhere_else(self) -> None:
        framework = built(rechecking("Delta", "FiltersOnly"))

        assert {point: at(built(profile()), point) for point in POINTS} == {
            point: at(framework, point) for point in POINTS
        }
        assert ("Delta", "FiltersOnly") == framework.added_at_bind
        assert {"Delta", "FiltersOnly"}.isdisjoint(framework.plugins)

    def test_its_times_and_faults_are_counted_from_the_start(self) -> None:
        framework = built(rechecking("FiltersOnly"))
        (faults,) = framework._guard._metrics.plugin_faults.collect()

        assert {"Filter"} == {
            it.labels["extension_point"] for it in faults.samples if it.labels["plugin"] == "FiltersOnly"
        }

    def test_of_one_that_scores_here_the_filter_can_be_asked_at_bind_alone(self) -> None:
        framework = built(rechecking("Alpha", plugins={"filter": "-Alpha", "preFilter": "-Alpha"}))

        assert ("Alpha",) == framework.added_at_bind
        assert "Alpha" in at(framework, "score")

    def test_its_arguments_kinds_and_parts_are_the_profiles(self) -> None:
        few = Registry([spec_of(Queue), spec_of(BindsFirst), SIZED], {"Queue": 1, "BindsFirst": 1})
        found = resolved(rechecking("Sized", config=[{"name": "Sized", "args": {"size": 1}}]), few)

        assert ({SERVICES}, {Part.PORTS}) == (found.kinds(), found.parts())
        assert SizeArgs(size=1) == found.args["Sized"]

    def test_one_whose_filter_runs_anyway_is_pointed_out(self) -> None:
        asked = rechecking("NodeName", "PodTopologySpread")

        (notice,) = resolved(asked, IN_TREE_REGISTRY).notices
        assert notice.startswith('profile "p": bindRecheck: plugin "PodTopologySpread" has no effect here, ')
        assert ("NodeName",) == built(asked, IN_TREE_REGISTRY).added_at_bind

    def test_one_of_which_nothing_is_known_is_pointed_out(self) -> None:
        (notice,) = resolved(rechecking("FiltersOnly", plugins={"multiPoint": "-* Queue BindsFirst Beta"})).notices[:1]

        assert notice == (
            'profile "p": bindRecheck: plugin "FiltersOnly" declares neither PluginSpec.reads nor '
            "ClusterFilterPlugin as a base: no bind is certain while other binds are in flight"
        )

    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["NodeNme"], 'plugin "NodeNme" does not exist; did you mean NodeName?'),
            (
                ["PrioritySort"],
                'plugin "PrioritySort" has neither preFilter nor filter, so it cannot run at bind',
            ),
            (["GangScheduling"], f'plugin "GangScheduling" {ELSEWHERE}, so it cannot run at bind'),
            (["NodeName", "NodeName"], 'plugin "NodeName" is named twice'),
        ],
    )
    def test_a_mistake_names_the_place(self, names: list[str], expected: str) -> None:
        mistake = only_mistake(rechecking(*names), IN_TREE_REGISTRY)
        assert f'profile "p": bindRecheck: {expected}' == mistake.message
        assert ((("profiles", 0, "bindRecheck", len(names) - 1),)) == mistake.places


def picking(plugins: JsonObject | None = None, **words: Any) -> Profile:
    return Profile.model_validate({**on_complete(plugins).model_dump(by_alias=True), "pick": True, **words})


class TestFewerNames:
    def test_a_profile_says_how_many_or_the_best(self) -> None:
        few = Profile.model_validate({"schedulerName": "p", "atMost": 100})
        frameworks = built(on_complete(), IN_TREE_REGISTRY), built(few), built(picking(), IN_TREE_REGISTRY)

        assert [(0, False), (100, False), (0, True)] == [(it.at_most, it.picks) for it in frameworks]

    @pytest.mark.parametrize(
        ("asked", "lacking"),
        [
            (picking({"multiPoint": "-NodePorts"}), "NodePorts (preFilter, filter)"),
            (
                picking({"score": "-ImageLocality", "filter": "-NodeName -NodePorts"}),
                "NodeName (filter), NodePorts (filter), ImageLocality (score)",
            ),
        ],
    )
    def test_nothing_is_picked_with_less_than_kube_scheduler_has(self, asked: Profile, lacking: str) -> None:
        mistake = only_mistake(asked, IN_TREE_REGISTRY)
        start, _, rest = mistake.message.partition(" without ")
        assert ('profile "p": pick: Homeport would pick the node', lacking) == (start, rest.partition(" of kube-")[0])
        assert ((("profiles", 0, "pick"),)) == mistake.places

    def test_nor_with_a_plugin_that_is_not_here(self) -> None:
        here = Registry([it for it in SHIPPED if it.name != "NodeName"], DEFAULT_WEIGHTS)

        with pytest.raises(ProfileErrors, match=r"pick: .* without NodeName \(filter\) of"):
            resolve([picking()], here)

    @pytest.mark.parametrize(
        "asked",
        [
            picking({"multiPoint": "NodeName=9 TaintToleration=1"}),
            picking({"multiPoint": "-NodeDeclaredFeatures"}, release="1.35"),
            picking({"multiPoint": "-StickyNode -DefaultPreemption"}),
        ],
        ids=["other weights", "an older release", "without what chooses no node"],
    )
    def test_what_is_whole_may_pick(self, asked: Profile) -> None:
        assert built(asked, IN_TREE_REGISTRY).picks

    def test_one_or_many(self) -> None:
        mistake = only_mistake(picking(atMost=100), IN_TREE_REGISTRY)
        assert mistake.message.startswith('profile "p": atMost and pick: ')
        assert (("profiles", 0, "atMost"), ("profiles", 0, "pick")) == mistake.places


class TestPreempting:
    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (on_complete(), "is for preset delegated without pick"),
            (profile({"multiPoint": "-DefaultPreemption"}), "DefaultPreemption is disabled"),
            (profile({"filter": "-PodTopologySpread"}), "PodTopologySpread is disabled"),
        ],
    )
    def test_own_evictions_need_delegated_spread(self, asked: Profile, message: str) -> None:
        own = Profile.model_validate({**asked.model_dump(by_alias=True), "preemption": "Own"})
        mistake = only_mistake(own, IN_TREE_REGISTRY)

        assert message in mistake.message
        assert (("profiles", 0, "preemption"),) == mistake.places

    def test_a_profile_that_returns_one_node_cannot_evict(self) -> None:
        """The planned node would be rejected whenever another node is better."""
        with pytest.raises(ProfileErrors, match="is for preset delegated without pick"):
            resolve([picking(preemption="Own")], IN_TREE_REGISTRY)


class TestNotices:
    def test_a_plugin_that_stays_in_the_scheduler_is_pointed_out(self) -> None:
        found = resolved(profile({"multiPoint": "GangScheduling"}), IN_TREE_REGISTRY)

        assert ('profile "p": GangScheduling runs in your scheduler, not in Homeport',) == found.notices
        assert list(DEFAULT_WEIGHTS) == list(found.specs)

    def test_one_that_runs_here_and_not_by_default_runs_if_it_is_named(self) -> None:
        named = profile({"multiPoint": "NodeName", "score": "TaintToleration=3", "preScore": "TaintToleration"})
        framework = built(named, IN_TREE_REGISTRY)

        assert () == resolved(named, IN_TREE_REGISTRY).notices
        assert ("PodTopologySpread=2 StickyNode NodeName", "PodTopologySpread=2 StickyNode TaintToleration=3") == (
            at(framework, "filter"),
            at(framework, "score"),
        )

    def test_disabling_the_spread_plugin_here_does_what_it_says(self) -> None:
        assert () == resolved(profile(), IN_TREE_REGISTRY).notices

        (notice,) = resolved(profile({"multiPoint": "-PodTopologySpread"}), IN_TREE_REGISTRY).notices
        assert notice.startswith('profile "p": PodTopologySpread is disabled.')


class TestMistakes:
    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (profile({"multiPoint": "Nonsense"}), 'plugin "Nonsense" does not exist'),
            (profile({"score": "Nonsense"}), 'plugin "Nonsense" does not exist'),
            (profile({"score": "FiltersOnly"}), 'plugin "FiltersOnly" has no extension point score'),
            (profile({"score": "Alpha Alpha"}), 'plugin "Alpha" is enabled twice at score'),
            (profile({"multiPoint": "Delta Delta"}), 'plugin "Delta" is enabled twice at multiPoint'),
            (profile(config=[{"name": "Alpha"}, {"name": "Alpha"}]), 'pluginConfig "Alpha" is repeated'),
            (profile(config=[{"name": "Nonsense"}]), 'pluginConfig "Nonsense" names a plugin that does not exist'),
            (
                profile(config=[{"name": "Alpha", "args": {"sise": 2}}]),
                "pluginConfig Alpha: sise: no such setting; did you mean size?",
            ),
            (
                profile(config=[{"name": "Alpha", "args": {"size": "big"}}]),
                "pluginConfig Alpha: size: must be a whole number",
            ),
        ],
    )
    def test_a_mistake_names_its_profile(self, found: Profile, expected: str) -> None:
        assert f'profile "p": {expected}' == only_mistake(found, REGISTRY).message

    def test_an_argument_that_is_wrong_as_a_whole_has_no_field(self) -> None:
        args = {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}

        mistake = only_mistake(profile(config=[{"name": "PodTopologySpread", "args": args}]), IN_TREE_REGISTRY)
        assert mistake.message == (
            'profile "p": pluginConfig PodTopologySpread: defaultingType: System: '
            "when .defaultConstraints are not empty"
        )

    def test_all_are_raised_together_each_with_its_place(self) -> None:
        """Whoever mends a configuration wants to mend it once."""
        one = profile({"multiPoint": "Nonsense", "score": "FiltersOnly"}, [{"name": "Alpha", "args": {"sise": 2}}])
        other = profile({"score": "Alpha Alpha"}, [{"name": "Beta"}, {"name": "Beta"}])

        with pytest.raises(ProfileErrors) as raised:
            resolve([one, other], REGISTRY)

        assert (
            'profiles: schedulerName "p" is used by more than one profile',
            'profile "p": plugin "Nonsense" does not exist',
            'profile "p": plugin "FiltersOnly" has no extension point score',
            'profile "p": pluginConfig Alpha: sise: no such setting; did you mean size?',
            'profile "p": plugin "Alpha" is enabled twice at score',
            'profile "p": pluginConfig "Beta" is repeated',
        ) == raised.value.messages
        assert "\n".join(raised.value.messages) == str(raised.value)
        assert [
            (("profiles", 0, "schedulerName"), ("profiles", 1, "schedulerName")),
            (("profiles", 0, "plugins", "multiPoint", "enabled", 0, "name"),),
            (("profiles", 0, "plugins", "score", "enabled", 0, "name"),),
            (("profiles", 0, "pluginConfig", 0, "args", "sise"),),
            tuple(("profiles", 1, "plugins", "score", "enabled", number, "name") for number in range(2)),
            (("profiles", 1, "pluginConfig", 1, "name"),),
        ] == [it.places for it in raised.value.mistakes]

    @pytest.mark.parametrize(
        ("plugins", "expected"),
        [
            ({"multiPoint": "-*"}, [f"{SORT}0", BIND]),
            ({"multiPoint": "OtherQueue"}, [f"{SORT}2"]),
            ({"bind": "-*"}, [BIND]),
        ],
        ids=["no plugins at all", "two queue sort plugins", "nobody binds"],
    )
    def test_a_profile_must_sort_and_bind(self, plugins: JsonObject, expected: list[str]) -> None:
        with pytest.raises(ProfileErrors) as raised:
            built(profile(plugins))

        assert [f'profile "p": {it}' for it in expected] == [*raised.value.messages]


class Broken(FromSpec):
    """A plugin that cannot be made."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        raise LookupError("no such\nrack")


class Second(Broken):
    """Another."""


class RackArgs(PluginArgs):
    """Its validator raises what pydantic does not look for."""

    racks: int = 0

    @model_validator(mode="after")
    def _ask(self) -> Self:
        if self.racks:
            raise LookupError("no such rack")
        return self


def test_pods_and_nodes_are_decoded_for_all_profiles_together() -> None:
    def needs(args: SizeArgs) -> Needs:
        return Needs(node_annotations=[f"example.com/{args.size}"])

    spec = PluginSpec("Delta", SizeArgs, Delta, parts=[Part.NODE_STATE, Part.LABELS], needs=needs)
    registry = registry_of(spec, SIZED)
    profiles = [
        resolved(profile({"multiPoint": "Delta"}, [{"name": "Delta", "args": {"size": size}}]), registry)
        for size in (1, 2)
    ]
    core = core_for([*profiles, resolved(profile({"multiPoint": "Sized"}), registry)])

    assert frozenset((Extra.NODE_STATE, Extra.PORTS)) == core.extras
    assert frozenset(("example.com/1", "example.com/2")) == core.node_annotations
    assert PLAIN is core_for([resolved(profile({"multiPoint": "Queue"}), registry)])


class TestFaultsOfPlugins:
    """Foreign code runs before the first request: what it raises names its profile and itself."""

    def test_all_that_cannot_be_made(self) -> None:
        registry = registry_of(spec_of(Broken), spec_of(Second))
        found = profile({"multiPoint": "Broken Second"})

        with pytest.raises(ProfileErrors) as raised:
            built(found, registry)

        where = "(" + __file__ + ", line "
        assert [
            'profile "p": plugin "Broken" cannot be made: LookupError: no such rack ',
            'profile "p": plugin "Second" cannot be made: LookupError: no such rack ',
        ] == [it.partition(where)[0] for it in raised.value.messages]
        assert [(("profiles", 0),)] * 2 == [it.places for it in raised.value.mistakes]

    def test_parts_that_it_reads_with_some_arguments(self) -> None:
        def needs(args: PluginArgs) -> Needs:
            return Needs(parts=(Part.VOLUMES,) if args == PluginArgs() else ())

        registry = registry_of(PluginSpec("Delta", PluginArgs, Delta, parts=[Part.PORTS], needs=needs))

        assert {Part.PORTS, Part.VOLUMES} == resolved(profile({"multiPoint": "Delta"}), registry).parts()

    def test_arguments_that_it_cannot_check(self) -> None:
        registry = registry_of(spec_of(Delta, RackArgs))

        found = only_mistake(profile({"multiPoint": "Delta"}, [{"name": "Delta", "args": {"racks": 1}}]), registry)
        assert 'profile "p": pluginConfig Delta: LookupError: no such rack ' == found.message.partition("(")[0]
        assert (("profiles", 0, "pluginConfig", 0, "args"),) == found.places


class Lease(BaseModel):
    """Part of the arguments of ``LeaseArgs``."""

    wait: Seconds = 1.0


class LeaseArgs(PluginArgs):
    """Arguments with durations at every depth."""

    wait: Seconds = 1.0
    most: int = 1
    zones: dict[str, Lease] | None = None
    list: tuple[Lease, ...] = ()


class TestDurations:
    """Arguments follow the rules of settings."""

    @pytest.mark.parametrize(
        ("args", "at"),
        [
            ({"wait": 15}, "wait"),
            ({"wait": 1.5}, "wait"),
            ({"zones": {"a": {"wait": 15}}}, "zones.a.wait"),
            ({"list": [{}, {"wait": 15}]}, "list[1].wait"),
        ],
    )
    def test_a_duration_has_a_unit(self, args: JsonObject, at: str) -> None:
        mistake = only_mistake(
            profile({"multiPoint": "Delta"}, [{"name": "Delta", "args": args}]), registry_of(spec_of(Delta, LeaseArgs))
        )
        rule = "must be a duration such as 5s, 500ms or 1m30s: it has no unit"
        assert f'profile "p": pluginConfig Delta: {at}: {rule}' == mistake.message


class TestOneRound:
    """A mistake hides no other one."""

    def test_a_validator_of_several_arguments_beside_a_bad_argument(self) -> None:
        twice = {"apiVersion": "example.com/v1", "kind": "Database"}
        configured = [{"name": "StickyNode", "args": {"policy": "never", "owners": [twice, twice]}}]

        with pytest.raises(ProfileErrors) as raised:
            resolve([profile({}, configured)], IN_TREE_REGISTRY)

        assert ["policy", "owners"] == [it.places[0][-1] for it in raised.value.mistakes]

    def test_what_several_plugins_cannot_say(self) -> None:
        def fails(_: object) -> Needs:
            raise LookupError("no such rack")

        registry = registry_of(*(PluginSpec(it.__name__, PluginArgs, it, needs=fails) for it in (Delta, Beta)))

        with pytest.raises(ProfileErrors) as raised:
            resolve([profile({"multiPoint": "Delta Beta"}), profile({"multiPoint": "Beta"}, name="q")], registry)

        expected = [("p", "Delta"), ("p", "Beta"), ("q", "Beta")]
        said = 'profile "{}": plugin "{}" cannot say what it needs: LookupError: no such rack '
        assert [said.format(*it) for it in expected] == [it.partition("(")[0] for it in raised.value.messages]


@pytest.mark.parametrize(
    ("profiles", "served"),
    [
        pytest.param(["a", "b"], {"a": "a", "b": "b"}, id="two names"),
        pytest.param(["*"], {"*": "a b c *"}, id="every name"),
        pytest.param(["a", "*"], {"a": "a", "*": "b c *"}, id="one name, and the rest"),
    ],
)
def test_whose_pods_a_profile_judges(profiles: list[str], served: dict[str, str]) -> None:
    names = ("a", "b", "c", "*")

    assert served == {of: " ".join(it for it in names if it in names_of(of, profiles)) for of in profiles}
    everybody = served_names(profiles)
    assert [it in everybody for it in names] == [any(it in names_of(of, profiles) for of in profiles) for it in names]
