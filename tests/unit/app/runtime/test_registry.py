"""Rules of the registry: specs by name, in order."""

import pytest

from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from tests.fakes import Alpha, Beta, spec_of


def test_specs_are_found_by_name_and_kept_in_order() -> None:
    alpha, beta = spec_of(Alpha), spec_of(Beta)
    registry = Registry([beta, alpha], {"Beta": 1})

    assert [beta, alpha] == list(registry)
    assert (alpha, None) == (registry.get("Alpha"), registry.get("Gamma"))


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match='plugin "Alpha" is registered twice'):
        Registry([spec_of(Alpha), spec_of(Alpha)], {})


def test_what_a_preset_enables() -> None:
    """``complete`` is kube-scheduler's default profile, then what Homeport has by default beside it."""
    registry = Registry([], {"PodTopologySpread": 5, "Homes": 3})

    assert {"PodTopologySpread": 5, "Homes": 3} == registry.preset("delegated", "1.36")
    assert [*KUBE_SCHEDULER_DEFAULTS.items(), ("Homes", 3)] == list(registry.preset("complete", "1.36").items())


def test_a_release_starts_without_what_came_later() -> None:
    registry = Registry([], {"PrioritySort": 1, "NodeDeclaredFeatures": 1})

    assert {"PrioritySort": 1} == registry.preset("delegated", "1.35")
    assert {"PrioritySort": 1, "NodeDeclaredFeatures": 1} == registry.preset("delegated", "1.36")
