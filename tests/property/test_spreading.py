"""PodTopologySpread on any small cluster: the batch form says what the per-node form says, and a bind that is called
certain holds whatever becomes of the binds in flight.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.framework.cycle_state import CycleState
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from tests import strategies
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, encoded, node_object, pod_object, taint
from tests.harness import SPREAD, World, only
from tests.property import naive
from tests.strategies import NODES, rarely

Binds = list[tuple[Pod, str]]
"""Pods whose binding is under way, each with its node."""

PROFILE = only(SPREAD)
IGNORE: JsonObject = {"untoleratedDomains": "Ignore"}
NOT_WORSE: JsonObject = {"onViolation": "AllowNotWorse"}
HONOR: JsonObject = {"defaults": {"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}}
OPTIONS: tuple[JsonObject, ...] = ({}, IGNORE, NOT_WORSE, HONOR, IGNORE | NOT_WORSE, IGNORE | NOT_WORSE | HONOR)
options = st.sampled_from(OPTIONS)
NOTHING: JsonObject = {"matchExpressions": [{"key": "app", "operator": "In", "values": []}]}
EMPTY: JsonObject = {"matchLabels": {}, "matchExpressions": []}

newcomers = st.lists(strategies.labels, max_size=3)
peers = st.sampled_from(({"app": "web"}, {"app": "web"}, {"app": "web"}, {"app": "web", "rev": "1"}, {"app": "db"}))
binds = st.tuples(
    st.sampled_from(("default", "default", "default", "default", "default", "shop")),
    peers,
    st.sampled_from((*NODES, *NODES, "gone")),
    rarely,
)
in_flight = st.sampled_from((1, 2, 3, 4)).flatmap(lambda size: st.lists(binds, min_size=size, max_size=size))
hard_pods = st.builds(
    lambda pod, constraints: {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": constraints}},
    strategies.pending_pods,
    st.lists(strategies.hard_constraints, min_size=1, max_size=2),
)


@st.composite
def level_clusters(draw: st.DrawFn) -> list[JsonObject]:
    """Every node with its labels and nearly as many pods of one app: where each single pod decides."""
    found: list[JsonObject] = []
    for name, zone in zip(NODES, "abca", strict=True):
        taints = [taint("x")] if draw(rarely) else []
        labels, cordoned = draw(strategies.node_labels), draw(rarely)
        found.append(node_object(name, zone=zone, labels=labels, taints=taints, unschedulable=cordoned))
        count = draw(st.sampled_from((0, 0, 1, 1, 1, 2)))
        found += [pod_object(f"{name}-{number}", node=name, labels=draw(peers)) for number in range(count)]
    return found


@st.composite
def level_pods(draw: st.DrawFn) -> JsonObject:
    """A pod of that app which must be spread as evenly as can be."""
    spread = [
        constraint(
            draw(st.sampled_from((ZONE, HOSTNAME))),
            skew=draw(st.sampled_from((1, 1, 2))),
            min_domains=draw(st.sampled_from((None, None, 3, 4))),
            taints_policy=draw(st.sampled_from((None, "Honor"))),
            selector=draw(st.sampled_from(({"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "web"}}, {}))),
        )
        for _ in range(draw(st.sampled_from((1, 1, 2))))
    ]
    return pod_object("pending", labels=draw(peers), spread=spread)


def profile_with(beyond: JsonObject) -> JsonObject:
    return only(SPREAD, **{SPREAD: {"beyond": beyond}}) if beyond else PROFILE


cases = st.one_of(st.tuples(level_clusters(), level_pods()), st.tuples(strategies.clusters(pods=8), hard_pods))


def slim(pod: JsonObject) -> Pod:
    return decode_pod(encoded(pod))


@settings(derandomize=True, max_examples=strategies.examples(400))
@given(cases, in_flight, options)
def test_certain_means_for_every_outcome_of_the_binds_in_flight(
    case: tuple[list[JsonObject], JsonObject],
    binding: list[tuple[str, dict[str, str], str, bool]],
    beyond: JsonObject,
) -> None:
    """Brute force over all subsets: Success for certain, if and only if the filter passes with each of them."""
    objects, pod = case
    world, asking = World(*objects, profile=profile_with(beyond)), slim(pod)
    waiting: Binds = []
    for number, (namespace, labels, node, terminating) in enumerate(binding):
        other = slim(pod_object(f"bind-{number}", namespace=namespace, labels=labels, terminating=terminating))
        waiting.append((other, node))
    assume(world, waiting)
    found = {name: world.recheck(asking, name) for name in world.cluster.nodes}
    optimistic = passes(world, asking)

    holds = dict.fromkeys(world.cluster.nodes, True)
    for failing in subsets(waiting):
        for other, _ in failing:
            world.cluster.forget(other.uid)
        passed = passes(world, asking)
        holds = {name: ok and passed[name] for name, ok in holds.items()}
        assume(world, failing)

    assert optimistic == {name: it.status.is_success for name, it in found.items()}
    assert {name: ok for name, ok in holds.items() if optimistic[name]} == {
        name: it.certain for name, it in found.items() if optimistic[name]
    }


@settings(derandomize=True, max_examples=strategies.examples(200))
@given(cases, strategies.labels, options, st.data())
def test_where_a_pod_runs_that_another_does_not_depend_on_does_not_matter(
    case: tuple[list[JsonObject], JsonObject], labels: dict[str, str], beyond: JsonObject, data: st.DataObject
) -> None:
    """Binds of the two need not wait for one another."""
    objects, pod = case
    world, asking = World(*objects, profile=profile_with(beyond)), slim(pod)
    other = slim(pod_object("other", namespace=data.draw(st.sampled_from(strategies.NAMESPACES)), labels=labels))
    before = world.filter(asking)

    if not world.framework.filters.depends(asking, other):
        for node in world.cluster.nodes:
            world.cluster.assume(other, node)
            assert before == world.filter(asking)


def assume(world: World, binds: Binds) -> None:
    for other, node in binds:
        world.cluster.assume(other, node)


def passes(world: World, pod: Pod) -> dict[str, bool]:
    return {name: answer == "Success" for name, answer in world.filter(pod).items()}


def subsets(binds: Binds) -> list[Binds]:
    return [list(chosen) for size in range(len(binds) + 1) for chosen in combinations(binds, size)]


@settings(derandomize=True, max_examples=strategies.examples(300))
@given(strategies.clusters(), strategies.pending_pods, options)
def test_the_batch_form_says_what_the_per_node_form_says(
    objects: list[JsonObject], pod: JsonObject, beyond: JsonObject
) -> None:
    world, asking = World(*objects, profile=profile_with(beyond)), slim(pod)
    plugin: Any = world.framework.plugins[SPREAD]
    nodes, state = world.candidates(), CycleState()

    if plugin.pre_filter(state, asking)[0].is_success:
        statuses = {it.name: plugin.filter(state, asking, it) for it in nodes}
        passed = [name for name, it in statuses.items() if it.is_success]
        found = plugin.filter_nodes(state, asking, nodes)
        assert passed == list(found.passed)
        assert {name: it for name, it in statuses.items() if not it.is_success} == found.rejected()
        assert passed == list(plugin.filter_nodes(state, asking, nodes.among(["no-node", *nodes.names])).passed)
    if plugin.pre_score(state, asking, nodes).is_success:
        raw = {it.name: plugin.score(state, asking, it) for it in nodes}
        assert raw == plugin.score_nodes(state, asking, nodes).by_name(nodes.names)


@settings(derandomize=True, max_examples=strategies.examples(200))
@given(cases, options, st.data())
def test_a_dry_run_says_what_the_cluster_would_say(
    case: tuple[list[JsonObject], JsonObject], beyond: JsonObject, data: st.DataObject
) -> None:
    """Removing counted pods in a dry run, and adding others, equals a cluster in which it happened.

    Not so for terminating pods and the empty selector, where the in-tree plugin itself says different things.
    """
    objects, pod = case
    constraints = [it for it in pod["spec"]["topologySpreadConstraints"] if it["labelSelector"] not in ({}, EMPTY)]
    asking = slim({**pod, "spec": {**pod["spec"], "topologySpreadConstraints": constraints}})
    profile = profile_with(beyond)
    world, changed = World(*objects, profile=profile), World(*objects, profile=profile)
    node = data.draw(st.sampled_from(list(world.cluster.nodes.values())))
    running = [it for it in node.pods.values() if not it.terminating]
    victims = data.draw(st.lists(st.sampled_from(running), unique_by=id) if running else st.just([]))
    added = [slim(pod_object(f"new-{n}", labels=it, node=node.name)) for n, it in enumerate(data.draw(newcomers))]

    framework, state = world.framework, CycleState()
    if not framework.filters.pre_filter(state, asking).status.is_success:
        return
    framework.filters.remove_pods(state, asking, victims, node)
    framework.filters.add_pods(state, asking, added, node)
    for victim in victims:
        changed.cluster.delete_pod(victim.key)
    changed.add(*added)

    statuses = {it.name: framework.filters.filter_node(state, asking, it) for it in world.candidates()}
    assert passes(changed, asking) == {name: status.is_success for name, status in statuses.items()}
    assert {name: status for name, status in statuses.items() if not status.is_success} == framework.filters.filter(
        state, asking, world.candidates()
    )


@settings(derandomize=True, max_examples=strategies.examples(300))
@given(cases, st.sampled_from(OPTIONS[1:]), st.data())
def test_the_options_beyond_kube_scheduler_follow_their_rules(
    case: tuple[list[JsonObject], JsonObject], beyond: JsonObject, data: st.DataObject
) -> None:
    """The verdicts are those of the rules, written down naively, before and after a change of a node."""
    objects, pod = case
    world, asking = World(*objects, profile=profile_with(beyond)), slim(pod)
    assert verdicts(objects, pod, beyond) == passes(world, asking)

    number = data.draw(st.sampled_from([number for number, it in enumerate(objects) if it["kind"] == "Node"]))
    node = objects[number]
    taints = data.draw(st.sampled_from(([], [taint("x")], [taint("x", effect="PreferNoSchedule")])))
    spec = {"taints": taints, "unschedulable": data.draw(st.booleans())}
    changed = {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}, "spec": spec}
    world.add(changed)
    assert verdicts([*objects[:number], changed, *objects[number + 1 :]], pod, beyond) == passes(world, asking)


def verdicts(objects: list[JsonObject], pod: JsonObject, beyond: JsonObject) -> dict[str, bool]:
    """Which nodes pass, from the JSON objects alone."""
    nodes = {it["metadata"]["name"]: it for it in objects if it["kind"] == "Node"}
    pods = [it for it in objects if it["kind"] == "Pod"]
    hard = [it for it in pod["spec"]["topologySpreadConstraints"] if it["whenUnsatisfiable"] == "DoNotSchedule"]
    required = frozenset(it["topologyKey"] for it in hard)
    passed = dict.fromkeys(nodes, True)
    for each in hard:
        asked = question(pod, completed(each, beyond), required)
        counts = naive.domains(nodes.values(), pods, asked)
        opened = [it for it in nodes.values() if is_open(it, pod) and naive.domain_of(it, asked) is not None]
        compared = {naive.domain_of(it, asked) for it in opened} if "untoleratedDomains" in beyond else set(counts)
        known = [count for domain, count in counts.items() if domain in compared] or list(counts.values())
        lowest = 0 if len(counts) < (each.get("minDomains") or 1) else min(known, default=0)
        own = naive.selects(own_selector(pod, completed(each, beyond)), naive.labels_of(pod))
        most = each["maxSkew"] + lowest
        if "onViolation" in beyond:
            most = max(most, max(known, default=0))
        for name, node in nodes.items():
            value = naive.labels_of(node).get(each["topologyKey"])
            passed[name] &= value is not None and counts.get(value, 0) + own <= most
    return passed


def completed(each: JsonObject, beyond: JsonObject) -> JsonObject:
    missing = beyond.get("defaults") or {}
    filled = {**each, "nodeTaintsPolicy": each["nodeTaintsPolicy"] or missing.get("nodeTaintsPolicy")}
    selector = each["labelSelector"]
    if selector is not None and not each["matchLabelKeys"]:
        used = {*(selector.get("matchLabels") or {}), *(it["key"] for it in selector.get("matchExpressions") or ())}
        filled["matchLabelKeys"] = [it for it in missing.get("matchLabelKeys", ()) if it not in used]
    return filled


def own_selector(pod: JsonObject, each: JsonObject) -> JsonObject:
    """The selector with the pod's values of ``matchLabelKeys``; of null one that selects nothing."""
    if each["labelSelector"] is None:
        return NOTHING
    labels = naive.labels_of(pod)
    keys = [it for it in each["matchLabelKeys"] or () if it in labels]
    pairs = [{"key": it, "operator": "In", "values": [labels[it]]} for it in keys]
    expressions = each["labelSelector"].get("matchExpressions") or []
    return {**each["labelSelector"], "matchExpressions": [*expressions, *pairs]}


def question(pod: JsonObject, each: JsonObject, required: frozenset[str]) -> naive.Question:
    selector, spec = own_selector(pod, each), pod["spec"]
    return naive.Question(
        namespace=pod["metadata"]["namespace"],
        selector=selector if selector.get("matchLabels") or selector.get("matchExpressions") else NOTHING,
        key=each["topologyKey"],
        required=required,
        affinity=None if each["nodeAffinityPolicy"] == "Ignore" else spec,
        tolerations=tuple(spec.get("tolerations") or ()) if each["nodeTaintsPolicy"] == "Honor" else None,
    )


def is_open(node: JsonObject, pod: JsonObject) -> bool:
    """Whether the node is not cordoned, and the pod tolerates its taints; it may tolerate the cordon."""
    tolerations = pod["spec"].get("tolerations") or ()
    cordon = {"spec": {"taints": [taint("node.kubernetes.io/unschedulable")]}}
    is_cordoned = node["spec"].get("unschedulable") and not naive.taints_admit(tolerations, cordon)
    return not is_cordoned and naive.taints_admit(tolerations, node)
