"""The one field after whose change fewer lost pods wait. Each is proved by placing the pods again."""

from __future__ import annotations

from tests.builders import ZONE, constraint
from tests.unit.app.whatif.losses import (
    VARIANTS,
    WEB,
    ZONES,
    change,
    numbers,
    replicas,
    row,
    web,
)
from tests.unit.app.whatif.scratches import pod, scratch_of


def test_the_field_that_helps_differs_too() -> None:
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, app="web")])))

    assert {
        "gone": None,
        "tainted": ("nodeTaintsPolicy", "Honor", 0),
        "full": ("maxSkew", "2", 0),
    } == {it: change(found[it]) for it in VARIANTS}


def test_fewer_zones_than_min_domains() -> None:
    found = row(scratch_of(*ZONES, *replicas(spread=[constraint(ZONE, min_domains=3, app="web")])))

    assert (1, 0, 1) == numbers(found["gone"])
    assert ("minDomains", "none", 0) == change(found["gone"])


def test_required_anti_affinity() -> None:
    """The pods that stay have the rule too, so it is changed in all of them."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": WEB}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    found = row(scratch_of(*ZONES, *replicas(affinity=apart)))

    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}
    assert ("podAntiAffinity", "preferred instead of required", 0) == change(found["gone"])


def test_a_request_that_fits_nowhere() -> None:
    found = row(scratch_of(*ZONES, *(web(f"web-{zone}", f"{zone}1", cpu="3") for zone in "abc")))

    assert (1, 0, 1) == numbers(found["full"])
    assert ("cpu", "1 instead of 3", 0) == change(found["full"])


def test_pods_that_need_the_zone() -> None:
    found = row(scratch_of(*ZONES, *replicas(node_selector={ZONE: "c"})))

    assert ("spec.nodeSelector and required node affinity", "none", 0) == (
        found["gone"]["change"].field,
        found["gone"]["change"].value,
        found["gone"]["change"].waiting,
    )


def test_a_field_is_named_only_if_it_helps() -> None:
    """The zone's pod fits nowhere else, whatever its constraint says."""
    full = [pod(f"full-{zone}", node=f"{zone}1", cpu="4") for zone in "ab"]

    found = row(scratch_of(*ZONES, *full, web("web-c", "c1", spread=[constraint(ZONE, app="web")])))

    assert dict.fromkeys(VARIANTS, (1, 0, 1)) == {it: numbers(found[it]) for it in VARIANTS}
    assert dict.fromkeys(VARIANTS) == {it: change(found[it]) for it in VARIANTS}
