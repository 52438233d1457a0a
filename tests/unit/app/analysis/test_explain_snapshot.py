"""What explain judges, whose verdicts these are, and what it says of those that it cannot give now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
from msgspec.structs import replace

from app import wiring
from app.analysis.explain_snapshot import NOT_HERE, ONLY_PROFILE, ExplainedProfile, ExplainSnapshot
from app.cache.cluster import Cluster
from app.config.profile import ANY, PluginRef, Profile
from app.config.settings import Settings
from app.controllers.nominations import CountedNominations
from app.feeds.feed import Feed, FeedState, SavedFeed
from app.feeds.live import LiveFeed
from app.feeds.saved import load_saved
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.kube.kinds import CSI_NODES, DEVICE_CLASSES, NAMESPACES, NODES, PERSISTENT_VOLUMES, PODS, Kind
from app.kube.meta_v1 import ObjectKey
from app.memory.fallbacks import FallbackTable
from app.memory.known_domains import DomainTable, SpreadTables
from app.runtime.framework import Framework
from app.runtime.profiles import ResolvedProfile, has_point
from app.runtime.registry import Registry, kube_scheduler_defaults
from app.runtime.resolving import resolve
from app.verbs.outcome import VerbFailure
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import SAMPLE
from tests.apiserver import kubeconfig
from tests.builders import JsonObject, container, encoded, make_pod, node_object, pod_object
from tests.fakes import ManualClock

ALL: Final = Registry(SHIPPED, DEFAULT_WEIGHTS)
VOLUMES: Final = ("NodeVolumeLimits", "VolumeBinding", "VolumeZone")
"""Filters that read PersistentVolumes."""

DEVICES: Final = ("DynamicResources", "NodeResourcesFit")
"""Filters that read DeviceClasses."""

VOLUME: Final[JsonObject] = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def requesting(resource: str) -> JsonObject:
    return {"containers": [container(requests={resource: "1"})]}


def resolved(*profiles: Profile, registry: Registry = ALL) -> list[ResolvedProfile]:
    return resolve(profiles, registry)


def state(state: str = "watching", **values: Any) -> FeedState:
    return FeedState(**{"state": state, "objects": 1, "age": 0.0, "synced": True, **values})


class Feeds:
    """The states of an explain feed, as a test sets them."""

    def __init__(self) -> None:
        self.found: dict[str, FeedState] = {}

    def states(self) -> Mapping[str, FeedState]:
        return {repr(NODES): state(), repr(PODS): state(), **self.found}


class Case:
    """An explain snapshot of its own for one profile, whose feed is in whatever state."""

    def __init__(self, profile: Profile | None = None) -> None:
        self.feed = Feeds()
        self.cluster = Cluster()
        self.deciding = Cluster()
        (found,) = resolved(profile or Profile(scheduler_name=ANY))
        self.snapshot = ExplainSnapshot(
            self.cluster,
            cast("Feed", self.feed),
            {},
            {found.scheduler_name: ExplainedProfile.of(found, complete=True)},
            resolved={found.scheduler_name: found},
            deciding=self.deciding,
            deciding_feed=cast("Feed", self.feed),
            max_age=60.0,
        )


class TestFilters:
    def test_a_delegated_profile_gets_the_other_default_filters(self) -> None:
        (profile,) = resolved(Profile())
        merged = profile.with_defaults()

        names = [ref.name for ref in merged.at("filter")]
        lacking = [it for it in kube_scheduler_defaults("1.36") if it in profile.lacking]
        missing = [it for it in lacking if has_point(merged.specs[it], "filter")]
        assert ["PodTopologySpread", "StickyNode", *missing] == names
        assert {"NodeUnschedulable", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures"} <= {*missing}
        added = [
            PluginRef(name=it, weight=profile.lacking[it][1]) for it in lacking if has_point(merged.specs[it], "score")
        ]
        assert {("NodeResourcesFit", 1), ("TaintToleration", 3)} <= {(it.name, it.weight) for it in added}
        assert [*profile.at("score"), *added] == [*merged.at("score")]
        assert {"ImageLocality", "NodeResourcesBalancedAllocation"} <= {it.name for it in merged.at("score")}
        assert ["DynamicResources", "DefaultPreemption"] == [it.name for it in merged.at("postFilter")]
        assert ((), {}) == (merged.not_judged, dict(merged.lacking))

    def test_those_of_its_release(self) -> None:
        (profile,) = resolved(Profile(release="1.35"))

        assert "NodeDeclaredFeatures" not in profile.with_defaults().specs

    def test_a_complete_profile_gets_none(self) -> None:
        (profile,) = resolved(Profile(preset="complete"))
        merged = profile.with_defaults()

        assert [profile.at(it) for it in ("preFilter", "filter")] == [merged.at(it) for it in ("preFilter", "filter")]
        assert not ExplainedProfile.of(profile, complete=True).adds_filters

    def test_a_filter_that_is_disabled_alone_keeps_its_arguments(self) -> None:
        document = {
            "preset": "complete",
            "plugins": {"filter": {"disabled": [{"name": "*"}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/x"]}}],
        }
        (profile,) = resolved(Profile.model_validate(document))
        merged = profile.with_defaults()

        assert "NodeResourcesFit" in {ref.name for ref in merged.at("filter")}
        assert profile.args["NodeResourcesFit"] is merged.args["NodeResourcesFit"]


class TestJudges:
    def test_whose_verdict_it_is(self) -> None:
        by = Case(Profile(bind_recheck=("NodeResourcesFit",))).snapshot.by("default-scheduler")

        assert ("Homeport", "both", "kube-scheduler") == (
            by["PodTopologySpread"],
            by["NodeResourcesFit"],
            by["TaintToleration"],
        )

    def test_all_are_homeports_in_a_complete_profile(self) -> None:
        by = Case(Profile(preset="complete")).snapshot.by("default-scheduler")

        assert {"Homeport"} == {*by.values()}


class TestNotJudged:
    def test_nothing_while_all_is_well(self) -> None:
        assert {} == Case().snapshot.not_judged(ANY)

    @pytest.mark.parametrize(
        ("found", "reason"),
        [
            (state("forbidden", synced=False), "no permission to list and watch persistentvolumes"),
            (state("listing", synced=False), "persistentvolumes: not listed yet"),
            (state("retrying", age=71.4), "persistentvolumes: no contact for 71 s"),
        ],
    )
    def test_every_filter_that_reads_the_kind_and_why(self, found: FeedState, reason: str) -> None:
        case = Case()
        case.feed.found[repr(PERSISTENT_VOLUMES)] = found

        told = case.snapshot.not_judged(ANY)

        assert {*VOLUMES} <= told.keys()
        assert {reason} == {*told.values()}
        assert "NodeResourcesFit" not in told

    def test_a_kind_of_a_group_is_named_with_it(self) -> None:
        case = Case()
        case.feed.found[repr(CSI_NODES)] = state("forbidden")

        assert "no permission to list and watch csinodes.storage.k8s.io" in case.snapshot.not_judged(ANY).values()

    def test_a_kind_that_is_not_served_has_no_objects(self) -> None:
        case = Case()
        case.feed.found[repr(CSI_NODES)] = state("not_served")

        assert {} == case.snapshot.not_judged(ANY)

    @pytest.mark.parametrize(
        ("keys", "named"),
        [
            ([("", "a")], "a"),
            ([("shop", "a"), ("", "b\x1b[31m")], r"shop/a, b\x1b[31m"),
            ([("", name) for name in "abcdef"], "a, b, c and 3 more"),
        ],
    )
    def test_objects_that_cannot_be_read_are_named(self, keys: Sequence[ObjectKey], named: str) -> None:
        case = Case()
        for key in keys:
            case.cluster.mark_unreadable(PERSISTENT_VOLUMES, key, "odd")

        assert f"persistentvolumes: {named} cannot be read" == case.snapshot.not_judged(ANY)["VolumeBinding"]

    @pytest.mark.parametrize(
        ("kind", "fields", "plugins"),
        [
            (PERSISTENT_VOLUMES, {}, set()),
            (PERSISTENT_VOLUMES, {"volumes": [VOLUME]}, {*VOLUMES, "StickyNode"}),
            (DEVICE_CLASSES, {}, set()),
            (DEVICE_CLASSES, requesting("cpu"), set()),
            (DEVICE_CLASSES, requesting("example.com/gpu"), {*DEVICES}),
            (DEVICE_CLASSES, {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, {*DEVICES}),
        ],
    )
    def test_what_a_pod_does_not_depend_on_need_not_be_readable(
        self, kind: Kind[Any], fields: JsonObject, plugins: set[str]
    ) -> None:
        case = Case()
        pod = core_v1([*Extra]).decode_pod(encoded(pod_object("p", more=fields)))
        case.cluster.mark_unreadable(kind, ("", "odd"), "odd")

        assert plugins == {*case.snapshot.not_judged(ANY, pod)}
        case.feed.found[repr(kind)] = state("forbidden")
        assert {*case.snapshot.not_judged(ANY)} == {*case.snapshot.not_judged(ANY, pod)}

    def test_a_plugin_that_is_not_part_of_this_homeport(self) -> None:
        (profile,) = resolved(
            Profile(), registry=Registry([it for it in SHIPPED if it.name != "VolumeZone"], DEFAULT_WEIGHTS)
        )
        found = ExplainedProfile.of(profile, complete=True)

        assert (NOT_HERE, "kube-scheduler") == (found.never_judged["VolumeZone"], found.judges["VolumeZone"])

    def test_explain_is_profile(self) -> None:
        (profile,) = resolved(Profile())
        found = ExplainedProfile.of(profile, complete=False)

        assert dict.fromkeys(profile.not_judged, ONLY_PROFILE) == found.never_judged
        assert "explain: complete" in ONLY_PROFILE


class TestProblem:
    def test_none(self) -> None:
        case = Case()
        case.feed.found[repr(CSI_NODES)] = state("forbidden", synced=False, age=1e6)

        assert ("", 0.0) == (case.snapshot.problem(), case.snapshot.age())

    def test_pods_are_not_listed(self) -> None:
        case = Case()
        case.feed.found[repr(PODS)] = state("forbidden", synced=False, cause="no")

        assert "the snapshot of explain is not complete: pods are not listed yet (no)" == case.snapshot.problem()

    def test_nodes_are_too_old(self) -> None:
        case = Case()
        case.feed.found[repr(NODES)] = state(age=61.0)

        assert "the snapshot of explain is too old: nodes: no contact for 61 s" == case.snapshot.problem()
        assert 61.0 == case.snapshot.age()


def test_the_time_of_the_snapshot_is_that_of_the_last_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.analysis.explain_snapshot.time", lambda: 1_000_000.0)
    case = Case()
    case.feed.found[repr(PODS)] = state(age=40.0)

    assert 999_960.0 == case.snapshot.taken_at().timestamp()


class TestNamespaces:
    """``default`` is listed and has no pods, ``shop`` has pods only in the snapshot of the decisions."""

    @staticmethod
    def listed(**of_feed: Any) -> Case:
        case = Case()
        case.feed.found[repr(NAMESPACES)] = state(**of_feed)
        case.cluster.others.upsert(NAMESPACES, NAMESPACES.decode(encoded({"metadata": {"name": "default"}})))
        case.deciding.upsert_pod(make_pod("p", namespace="shop"))
        return case

    @staticmethod
    def refused(case: Case, name: str) -> str:
        """Outcome and message for a namespace that does not exist; empty if it exists or might exist."""
        try:
            case.snapshot.require_namespace(name)
        except VerbFailure as failure:
            return f"{failure.outcome}: {failure.message}"
        return ""

    def test_an_unknown_one(self) -> None:
        message = 'nothing_to_do: namespaces "shp" not found; did you mean shop?'
        assert message == self.refused(self.listed(), "shp")

    def test_known_ones(self) -> None:
        """One without pods, one with pods, and one that cannot be read."""
        case = self.listed()
        case.cluster.mark_unreadable(NAMESPACES, ("", "huge"), "too large")

        assert ["", "", ""] == [self.refused(case, it) for it in ("default", "shop", "huge")]

    def test_nothing_is_unknown_without_a_whole_and_fresh_list(self) -> None:
        late, old = self.listed(synced=False), self.listed(age=61.0)

        assert ["", "", ""] == [self.refused(case, "shp") for case in (late, old, Case())]


def test_pods_that_only_the_decisions_have_on_a_node() -> None:
    case = Case()
    waits, bound = make_pod("waits"), make_pod("bound")
    for cluster in (case.cluster, case.deciding):
        cluster.upsert_pod(waits)
        cluster.upsert_pod(bound)
    for pod in (waits, bound, make_pod("unseen")):
        case.deciding.assume(pod, "n1")
    case.cluster.upsert_pod(replace(bound, node_name="n1", resource_version="9"))

    assert [("waits", "n1")] == [(pod.name, pod.node_name) for pod in case.snapshot.in_flight()]


class TestMaking:
    """``wiring.explain_snapshot``."""

    @staticmethod
    def made(settings: Settings) -> tuple[ExplainSnapshot, Cluster, Mapping[str, Framework]]:
        found = resolve(settings.profiles, ALL)
        cluster = wiring.snapshot(settings, found)
        feed: Feed = (
            wiring.saved_feed(settings, cluster, found, None)
            if settings.cluster is not None
            else LiveFeed(settings.kubeconfig, cluster, (), max_age=60.0)
        )
        nominations = CountedNominations(cluster)
        spread = SpreadTables(FallbackTable(), DomainTable(ManualClock()))
        frameworks = wiring.frameworks_of_explain(found, cluster, nominations, {}, spread)
        return (
            wiring.explain_snapshot(
                settings,
                found,
                cluster,
                feed,
                frameworks,
                nominations,
                spread,
            ),
            cluster,
            frameworks,
        )

    def test_profile_has_what_decides(self, tmp_path: Path) -> None:
        snapshot, cluster, frameworks = self.made(Settings(kubeconfig=str(kubeconfig(tmp_path))))

        assert (cluster, frameworks) == (snapshot.cluster, snapshot.frameworks)
        assert ONLY_PROFILE == snapshot.not_judged(ANY)["NodeResourcesFit"]

    def test_complete_has_a_snapshot_of_its_own(self, tmp_path: Path) -> None:
        snapshot, cluster, frameworks = self.made(Settings(kubeconfig=str(kubeconfig(tmp_path)), explain="complete"))

        assert snapshot.is_own
        assert cluster.core.extras < snapshot.cluster.core.extras
        assert "NodeResourcesFit" in snapshot.frameworks[ANY].plugins
        assert frameworks is not snapshot.frameworks
        assert snapshot.problem().startswith("the snapshot of explain is not complete: pods are not listed yet")

    def test_complete_profiles_need_none(self, tmp_path: Path) -> None:
        snapshot, cluster, frameworks = self.made(
            Settings(kubeconfig=str(kubeconfig(tmp_path)), explain="complete", profiles=(Profile(preset="complete"),))
        )

        assert (cluster, frameworks) == (snapshot.cluster, snapshot.frameworks)
        assert {} == snapshot.not_judged("default-scheduler")

    def test_a_saved_cluster_is_wide(self) -> None:
        snapshot, cluster, frameworks = self.made(Settings(cluster=str(SAMPLE)))

        assert snapshot.cluster is cluster
        assert frameworks is not snapshot.frameworks
        assert ({}, "") == (snapshot.not_judged(ANY), snapshot.problem())

    def test_a_saved_cluster_can_be_as_narrow_as_its_profiles(self) -> None:
        snapshot, _, frameworks = self.made(Settings(cluster=str(SAMPLE), explain="profile"))

        assert frameworks is snapshot.frameworks


def test_an_object_that_only_explain_reads_cannot_spoil_a_saved_cluster(tmp_path: Path) -> None:
    """It would otherwise keep a cluster from being served that was served before."""
    path = tmp_path / "cluster.yaml"
    odd = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: odd}\nspec: {nodeAffinity: [7]}\n"
    path.write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n---\n{odd}")
    cluster = Cluster()

    SavedFeed(partial(load_saved, path), cluster, (), (PERSISTENT_VOLUMES,))

    assert [("", "odd")] == [*cluster.unreadable.of(PERSISTENT_VOLUMES)]
    with pytest.raises(ValueError, match="odd"):
        SavedFeed(partial(load_saved, path), Cluster(), (PERSISTENT_VOLUMES,))


class TestWrites:
    async def test_no_plugin_can_write(self) -> None:
        snapshot, _, _ = TestMaking.made(Settings(cluster=str(SAMPLE)))
        handle = snapshot.frameworks[ANY].plugins["StickyNode"]._handle
        pod = make_pod("p")

        for write in (
            handle.writer.annotate(PODS, pod, {}),
            handle.writer.create(PODS, "default", "p", {}),
            handle.writer.change(PODS, pod, {}),
            handle.writer.delete(PODS, pod),
        ):
            with pytest.raises(PermissionError):
                await write
        assert not (await handle.binder.bind(pod, "n1", {})).is_success
        assert handle.is_asked()


def rejected(framework: Framework, cluster: Cluster, pod: Pod) -> Mapping[str, str]:
    """The plugin that rejects the pod, by node."""
    state = CycleState()
    framework.filters.pre_filter(state, pod)
    nodes = Candidates.of(cluster.nodes)
    return {name: it.plugin for name, it in framework.filters.filter(state, pod, nodes).items()}


def test_a_filter_that_only_the_scheduler_runs_is_judged() -> None:
    snapshot, cluster, deciding = TestMaking.made(Settings(cluster=str(SAMPLE)))
    cluster.upsert_node(cluster.core.decode_node(encoded(node_object("cordoned", unschedulable=True))))
    pod = cluster.core.decode_pod(encoded(pod_object("p")))

    assert "NodeUnschedulable" == rejected(snapshot.frameworks[ANY], cluster, pod)["cordoned"]
    assert "cordoned" not in rejected(deciding[ANY], cluster, pod)
