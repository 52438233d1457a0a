"""Rules about the configurations of kube-scheduler and of Homeport."""

from __future__ import annotations

from typing import Any, Final

import pytest

from app.lint.rules import Severity
from tests.builders import JsonObject
from tests.unit.app.lint.examples import ids, linted, workload

BOTH_VERBS: Final[JsonObject] = {"filterVerb": "filter", "prioritizeVerb": "prioritize"}
OFF: Final[JsonObject] = {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}


def scheduler(
    plugins: JsonObject | None = None,
    name: str = "default-scheduler",
    *,
    url: str = "http://127.0.0.1:8888/lean",
    verbs: JsonObject = BOTH_VERBS,
) -> JsonObject:
    profile = {"schedulerName": name, "plugins": plugins or {}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
        "extenders": [{"urlPrefix": url, **verbs}],
    }


def homeport(*profiles: JsonObject, **settings: Any) -> JsonObject:
    own = {"profiles": list(profiles)} if profiles else {}
    return {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", **own, **settings}


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (scheduler(OFF), homeport(), []),
        (scheduler(), homeport(), ["spread-twice"]),
        (scheduler(), homeport({"schedulerName": "*", "plugins": OFF}), []),
        (scheduler(OFF), homeport({"schedulerName": "*", "plugins": OFF}), ["spread-nowhere"]),
        (scheduler(OFF), homeport({"schedulerName": "other"}), ["spread-nowhere"]),
        (scheduler(OFF), homeport({"schedulerName": "default-scheduler", "preset": "complete"}), []),
        (scheduler(OFF, verbs={"filterVerb": "filter"}), homeport(), ["spread-nowhere"]),
        (scheduler({"score": {"disabled": [{"name": "*"}]}}), homeport(), ["spread-twice"]),
        (scheduler({"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "Theirs"}]}}), homeport(), []),
        (
            scheduler({"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}}),
            homeport(),
            ["spread-twice"],
        ),
        (scheduler(url="http://other:1234"), homeport(), []),
        (scheduler(url="https://homeport.x.svc:1234"), homeport(), ["spread-twice"]),
        (scheduler(url="http://other:9999"), homeport(port=9999), ["spread-twice"]),
        ({**scheduler(), "profiles": None}, homeport(), ["spread-twice"]),
    ],
)
def test_who_spreads(theirs: JsonObject, ours: JsonObject, expected: list[str]) -> None:
    report = linted([theirs, ours])

    assert expected == [it.id for it in report.findings]
    assert () == report.broken
    assert {"spread-twice", "spread-nowhere"}.isdisjoint(it.id for it in report.skipped)


def test_deletion_costs_need_the_bind_verb() -> None:
    """The option is written down, but the Binding that would carry the costs is the scheduler's own."""
    beyond = {"name": "PodTopologySpread", "args": {"beyond": {"scaleDown": "Spread"}}}
    ours = homeport({"schedulerName": "*", "pluginConfig": [beyond]})

    (found,) = linted([scheduler(OFF), ours]).findings
    assert ("costs-unwritten", Severity.WARNING, "profiles[0]") == (found.id, found.severity, found.field)
    assert () == linted([scheduler(OFF, verbs=BOTH_VERBS | {"bindVerb": "bind"}), ours]).findings


def test_each_point_is_told() -> None:
    one = scheduler({"filter": {"disabled": [{"name": "PodTopologySpread"}]}})
    twice, nowhere = linted([one, homeport({"schedulerName": "*", "plugins": {"filter": OFF["multiPoint"]}})]).findings

    assert ("spread-twice", Severity.WARNING, True) == (twice.id, twice.severity, "(score)" in twice.message)
    assert ("spread-nowhere", Severity.ERROR) == (nowhere.id, nowhere.severity)
    assert "(filter): hard constraints of topology spread have no effect" in nowhere.message
    assert "profiles[0]" == twice.field


def test_several_homeports_in_other_files_are_no_pair() -> None:
    report = linted([scheduler(), homeport(), homeport()])

    assert [] == list(report.findings)
    assert {"spread-twice", "spread-nowhere"} <= {it.id for it in report.skipped}


def sticky(**args: Any) -> JsonObject:
    return homeport({"pluginConfig": [{"name": "StickyNode", "args": args}]})


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ({"gracePeriod": "5m"}, ["gracePeriod"]),
        ({"gracePeriod": "350s"}, []),
        ({}, []),
        ({"gracePeriod": "15m", "namespaces": [{}, {"gracePeriod": "1s"}]}, ["namespaces[1].gracePeriod"]),
    ],
)
def test_a_short_grace(args: JsonObject, fields: list[str]) -> None:
    found = linted([sticky(**args)]).findings

    assert [f"profiles[0].pluginConfig[0].args.{it}" for it in fields] == [it.field for it in found]
    assert {"short-grace"} >= {it.id for it in found}


def test_the_names_in_a_configuration_are_served() -> None:
    named = scheduler(name="batch")

    assert [] == ids([named, workload(schedulerName="batch")])
    assert [] == ids([named, workload()])
    assert ["unknown-scheduler"] == ids([named, workload(schedulerName="other")])
    assert [] == ids([workload(schedulerName="other")])


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ([{**homeport(), "profiles": {}}], "web.yaml:3: HomeportConfiguration : profiles: must be a list"),
        ([homeport(1)], "profiles[0]: must be a mapping"),  # type: ignore[arg-type]
        ([sticky(gracePeriod="5")], 'args.gracePeriod: "5" is not a duration such as'),
        ([scheduler(), homeport({"preset": "some"})], "profiles[0].preset: must be one of delegated, complete"),
        ([scheduler({"filter": []}), homeport()], "profiles[0].plugins.filter"),
    ],
)
def test_a_configuration_that_cannot_be_read(objects: list[JsonObject], told: str) -> None:
    broken = [str(it) for it in linted(objects).broken]

    assert [True] == [told in it for it in broken]
