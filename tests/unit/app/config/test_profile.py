"""Rules of the words of a profile: those of KubeSchedulerConfiguration, and no others."""

import pytest
from pydantic import ValidationError

from app.config.profile import DEFAULT_PROFILES, POINTS, PluginConfig, PluginRef, Plugins, PluginSet, Profile
from tests.builders import JsonObject


def test_a_profile_is_read_as_kube_scheduler_reads_it() -> None:
    found = Profile.model_validate(
        {
            "schedulerName": "homeport",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "A", "weight": 3}], "disabled": [{"name": "*"}]},
                "preFilter": {"disabled": [{"name": "B"}]},
            },
            "pluginConfig": [{"name": "A", "args": {"kind": "AArgs", "deep": {"er": [1]}}}],
        }
    )

    expected = Profile(
        scheduler_name="homeport",
        plugins=Plugins(
            multi_point=PluginSet(enabled=(PluginRef(name="A", weight=3),), disabled=(PluginRef(name="*"),)),
            pre_filter=PluginSet(disabled=(PluginRef(name="B"),)),
        ),
        plugin_config=(PluginConfig(name="A", args={"kind": "AArgs", "deep": {"er": [1]}}),),
    )
    assert expected == found


def test_what_is_left_out_changes_nothing() -> None:
    found = Profile.model_validate({})

    assert ("default-scheduler", (), {PluginSet()}) == (
        found.scheduler_name,
        found.plugin_config,
        {found.plugins.multi_point, *(found.plugins.at(point) for point in POINTS)},
    )


@pytest.mark.parametrize("point", POINTS)
def test_every_extension_point_has_its_own_set(point: str) -> None:
    given = {point: {"enabled": [{"name": "A"}]}}

    found = Plugins.model_validate(given)

    assert {point} == {it for it in POINTS if found.at(it) == PluginSet(enabled=(PluginRef(name="A"),))}


@pytest.mark.parametrize(
    ("given", "at"),
    [
        pytest.param({"plugins": {"filters": {}}}, ("plugins", "filters"), id="an unknown extension point"),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": ""}]}}},
            ("plugins", "filter", "enabled", 0, "name"),
            id="an empty plugin name",
        ),
        pytest.param(
            {"plugins": {"score": {"enabled": [{"name": "A", "weight": -1}]}}},
            ("plugins", "score", "enabled", 0, "weight"),
            id="a negative weight",
        ),
        pytest.param({"release": "1.34"}, ("release",), id="a release whose plugins are not here"),
        pytest.param({"pluginConfig": [{"args": {}}]}, ("pluginConfig", 0, "name"), id="arguments of nobody"),
    ],
)
def test_a_mistake_says_where_it_is(given: JsonObject, at: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as raised:
        Profile.model_validate(given)

    assert [at] == [it["loc"] for it in raised.value.errors()]


def test_without_configuration_every_name_is_served_by_the_default_plugins() -> None:
    assert (Profile(scheduler_name="*"),) == DEFAULT_PROFILES


def test_an_empty_name_means_the_default_scheduler_as_in_kube_scheduler() -> None:
    assert Profile() == Profile.model_validate({"schedulerName": ""})


@pytest.mark.parametrize("given", ["1.35", 1.35])
def test_a_release_may_be_written_as_a_number(given: object) -> None:
    assert ("1.36", "1.35") == (Profile().release, Profile.model_validate({"release": given}).release)
