"""Parts of a pod that are longer than what is read: refused where the verdict rests on them, and only there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import LARGEST_PART
from app.kube.pod_decoding import MOST_CONSTRAINTS
from tests.builders import ZONE, constraint, make_node, make_pod, required_affinity, service_object
from tests.harness import SPREAD, World, only

LONG: Final = "x" * LARGEST_PART
WEB: Final = {"app": "web"}
AFFINITY: Final[Any] = {"affinity": {**required_affinity(), "podAffinity": {"x": LONG}}}
NODE_SELECTOR: Final[Any] = {"node_selector": {"disk": LONG}}
TOLERATIONS: Final[Any] = {"tolerations": [{"key": LONG, "operator": "Exists"}]}
LABELS: Final[Any] = {"labels": {**WEB, "long": LONG}}
MANY: Final[Any] = {"spread": [constraint(f"key-{number}") for number in range(MOST_CONSTRAINTS + 1)]}
LONG_SPREAD: Final[Any] = {"spread": [constraint(app=LONG)]}
MANY_SOFT: Final[Any] = {"spread": [constraint(f"key-{number}", soft=True) for number in range(MOST_CONSTRAINTS + 1)]}

HARD: Final[Any] = {"spread": [constraint(app="web")]}
SOFT: Final[Any] = {"spread": [constraint(soft=True, app="web")]}
IGNORING: Final[Any] = {"spread": [constraint(app="web", affinity_policy="Ignore")]}
HONOURING_TAINTS: Final[Any] = {"spread": [constraint(app="web", taints_policy="Honor")]}

LIST_HARD: Final[Any] = {
    "defaultingType": "List",
    "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
}


def said(part: str, more: str = "") -> Any:
    text = f"node(s) can't be judged: the pod's {part} is longer than 64 KiB{more}"
    return ("UnschedulableAndUnresolvable", SPREAD, (text,))


BEYOND: Final = said("spec.topologySpreadConstraints", f", or has more than {MOST_CONSTRAINTS} entries")


def world(**args: Any) -> World:
    return World(make_node("n1", zone="z1"), service_object("web", WEB), profile=only(SPREAD, **args))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(MANY, BEYOND, id="more constraints than are read"),
        pytest.param(MANY_SOFT, BEYOND, id="soft ones too: nobody knows that they are"),
        pytest.param(LONG_SPREAD, BEYOND, id="constraints that are too long"),
        pytest.param({**HARD, **AFFINITY}, said("spec.affinity"), id="an affinity that a hard constraint honours"),
        pytest.param({**SOFT, **AFFINITY}, said("spec.affinity"), id="an affinity that a soft constraint honours"),
        pytest.param({**IGNORING, **AFFINITY}, "Success", id="an affinity that the constraint ignores"),
        pytest.param({**HARD, **NODE_SELECTOR}, said("spec.nodeSelector"), id="a node selector"),
        pytest.param({**IGNORING, **NODE_SELECTOR}, "Success", id="a node selector that is ignored"),
        pytest.param({**HARD, **TOLERATIONS}, "Success", id="tolerations, ignored unless asked for"),
        pytest.param({**HONOURING_TAINTS, **TOLERATIONS}, said("spec.tolerations"), id="tolerations that are honoured"),
        pytest.param({**IGNORING, **LABELS}, said("metadata.labels"), id="labels: the pod counts itself"),
        pytest.param({**AFFINITY, **NODE_SELECTOR, **TOLERATIONS, **LABELS}, "Success", id="no constraint at all"),
    ],
)
def test_what_is_not_read_is_refused_where_it_matters(fields: Any, expected: Any) -> None:
    assert {"n1": expected} == world().filter(make_pod("pending", **fields))


def test_as_many_constraints_as_are_read_are_judged() -> None:
    many = [constraint(ZONE if not number else f"key-{number}", app="web") for number in range(MOST_CONSTRAINTS)]
    missing = "node(s) didn't match pod topology spread constraints (missing required label)"

    found = world().filter(make_pod("pending", labels=WEB, spread=many))

    assert {"n1": ("UnschedulableAndUnresolvable", SPREAD, (missing,))} == found


@pytest.mark.parametrize("fields", [LABELS, AFFINITY, NODE_SELECTOR])
def test_hard_defaults_are_constraints_as_well(fields: Any) -> None:
    (reason,) = world(**{SPREAD: LIST_HARD}).filter(make_pod("pending", **fields)).values()

    assert reason != "Success"


def test_soft_defaults_say_nothing_of_a_pod_that_cannot_be_read() -> None:
    found = world()

    assert (["Success"], {}) == (
        list(found.filter(make_pod("pending", **LABELS)).values()),
        found.score(make_pod("pending", **LABELS)),
    )


@pytest.mark.parametrize("fields", [MANY, {**HARD, **AFFINITY}, {**IGNORING, **LABELS}])
def test_refusals_are_remembered_by_the_part(fields: Any) -> None:
    """Equal signatures promise equal answers: that of one part is no other pod's."""

    def signature(pod: Pod) -> Hashable:
        return found.framework.search.signatures(pod)["PodTopologySpread"]

    found = world()
    others = [make_pod("a"), make_pod("b", **HARD), make_pod("c", **HONOURING_TAINTS, **TOLERATIONS)]

    mine = signature(make_pod("pending", **fields))

    assert mine == signature(make_pod("replica", **fields))
    assert mine not in [signature(it) for it in others]


def test_a_person_who_asks_is_told() -> None:
    found = world()
    pod = make_pod("pending", **MANY)

    told = found.framework.explain(pod, found.candidates())[SPREAD]

    assert (
        "spec.topologySpreadConstraints is too long, so Homeport does not read it: make it shorter",
    ) == told.unblock
    assert not found.framework.filters.pre_filter(CycleState(), pod).status.is_success
