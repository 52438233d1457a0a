"""A relaxed constraint is judged and scored exactly as if it were soft, for this pod alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.memory.fallbacks import FallbackTable, assumed_relaxed
from tests import strategies
from tests.builders import ZONE, JsonObject, constraint, make_node, make_pod
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
BEYOND: JsonObject = {"fallback": {"after": "10m"}}


def world(*objects: JsonObject, **args: object) -> World:
    profile = only(SPREAD, **{SPREAD: {"beyond": BEYOND, **args}})
    return World(*objects, profile=profile, fallbacks=FallbackTable().of("default-scheduler"))


@settings(derandomize=True, max_examples=strategies.examples(200))
@given(strategies.clusters(), strategies.pending_pods, st.data())
def test_it_is_judged_as_a_soft_one(objects: list[JsonObject], pod: JsonObject, data: st.DataObject) -> None:
    relaxing, plain = world(*objects), World(*objects, profile=only(SPREAD))
    spread = pod["spec"]["topologySpreadConstraints"]
    keys = data.draw(st.sets(st.sampled_from([it["topologyKey"] for it in spread]))) if spread else set[str]()
    softer = [
        {**it, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": None} if it["topologyKey"] in keys else it
        for it in spread
    ]
    soft = {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": softer}}

    with assumed_relaxed(keys):
        verdicts, scores = relaxing.filter(relaxing.pod(pod)), relaxing.score(relaxing.pod(pod))
    assert (verdicts, scores) == (plain.filter(plain.pod(soft)), plain.score(plain.pod(soft)))
    hard = relaxing.pod(pod)
    assert relaxing.filter(hard) == plain.filter(plain.pod(pod))


def test_a_kept_verdict_ends_with_the_relaxation() -> None:
    """Also for another pod with equal labels and constraints, which is not relaxed."""
    table = FallbackTable()
    found = World(
        *(make_node(f"n{zone}", zone=zone) for zone in "ab"),
        make_pod("a-0", node="na", labels=WEB),
        profile=only(SPREAD, **{SPREAD: {"beyond": BEYOND}}),
        fallbacks=table.of("default-scheduler"),
    )
    pod = make_pod("web-1", labels=WEB, spread=[constraint(app="web")])
    other = replace(pod, name="web-2", uid="uid-web-2")
    before = found.filter(pod)
    table.judged(pod, "default-scheduler", {ZONE}, 0.0)
    table.judged(pod, "default-scheduler", {ZONE}, 600.0)

    assert [before["na"] == "Success", found.filter(pod)["na"], found.filter(other) == before] == [
        False,
        "Success",
        True,
    ]
    assert found.recheck(pod, "na").status.is_success
    assert not found.recheck(other, "na").status.is_success


def test_default_constraints_are_relaxed_too() -> None:
    defaults = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    found = world(defaultingType="List", defaultConstraints=defaults)
    found.add(*(make_node(f"n{zone}", zone=zone) for zone in "ab"))
    found.add(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s", "namespace": "default"},
            "spec": {"selector": WEB},
        }
    )
    found.add(make_pod("a-0", node="na", labels=WEB))
    pod = make_pod("web-1", labels=WEB)

    assert found.filter(pod)["na"] != "Success"
    with assumed_relaxed((ZONE,)):
        assert found.filter(pod)["na"] == "Success"


def test_explain_says_what_falls_back() -> None:
    found = world()
    found.add(*(make_node(f"n{zone}", zone=zone) for zone in "ab"))
    pod = make_pod("web-1", labels=WEB, spread=[constraint(app="web")])

    (hard,) = found.framework.explain(pod, found.candidates())[SPREAD].tables
    with assumed_relaxed((ZONE,)):
        (soft,) = found.framework.explain(pod, found.candidates())[SPREAD].tables
    assert (hard.title, soft.title) == (
        f"DoNotSchedule over {ZONE}, maxSkew 1, fallback after 10m",
        f"ScheduleAnyway over {ZONE}, maxSkew 1, soft by fallback after 10m",
    )
