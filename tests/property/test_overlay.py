"""Within an overlay a picture reads as one built without these pods and with those; and nothing of it moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.framework.counts import DomainCounts
from app.kube.core_decoding import decode_node
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import partial_kind
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from tests import strategies
from tests.builders import controller, encoded, make_pod
from tests.property.naive import Question
from tests.property.test_picture import inclusion_of, questions, selector_of
from tests.strategies import NODES, rarely

pytestmark = pytest.mark.timeout(600)

SETS = partial_kind("apps/v1", "Set")
LIMITS = range(4)
SETTINGS = settings(derandomize=True, max_examples=strategies.examples(200))

Moved = tuple[Sequence[Pod], Sequence[Pod]]
"""The pods left out, and the pods added."""

node_names = st.sampled_from((*NODES, *NODES, "gone"))


@st.composite
def pods(draw: st.DrawFn, names: st.SearchStrategy[str]) -> Pod:
    name, namespace = draw(names), draw(st.sampled_from(("default", "default", "shop")))
    return make_pod(
        name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}" + draw(st.sampled_from(("", "", "", "-anew"))),
        labels=draw(strategies.labels),
        node=draw(st.one_of(st.just(""), node_names, node_names)),
        nominated=draw(st.one_of(st.just(""), node_names)),
        terminating=draw(rarely),
        gated=draw(rarely),
        phase="Succeeded" if draw(rarely) else "Running",
        annotations={f"{ANNOTATION_DOMAIN}home": "n1"} if draw(rarely) else {},
        owner=controller("Set", draw(st.sampled_from(("a", "b")))),
    )


class Given(Struct):
    """A picture as tables. ``assumed``: where waiting pods of these keys are meant to go."""

    nodes: list[Node]
    pods: dict[tuple[str, str], Pod]
    assumed: dict[tuple[str, str], str]

    def moved(self, moved: Moved) -> Given:
        """The same without some pods and with others."""
        found = Given(self.nodes, dict(self.pods), dict(self.assumed))
        without, with_ = moved
        for pod in without:
            if (known := found.pods.get(pod.key)) is not None and known.uid == pod.uid:
                del found.pods[pod.key]
                found.assumed.pop(pod.key, None)
        for pod in with_:
            found.pods[pod.key] = pod
            found.assumed.pop(pod.key, None)
        return found

    def built(self) -> Cluster:
        cluster = Cluster()
        cluster.by_controller(SETS)
        for node in self.nodes:
            cluster.upsert_node(node)
        for key, pod in self.pods.items():
            cluster.upsert_pod(pod)
            if key in self.assumed:
                cluster.assume(pod, self.assumed[key])
        return cluster


@st.composite
def pictures(draw: st.DrawFn) -> Given:
    names = draw(st.lists(st.sampled_from(NODES), unique=True, min_size=1))
    nodes = [decode_node(encoded(draw(strategies.nodes(st.just(name))))) for name in names]
    running = {it.key: it for it in draw(st.lists(pods(st.sampled_from("123456")), max_size=12)) if not it.finished}
    waiting = [key for key, pod in running.items() if not pod.node_name]
    return Given(nodes, running, {key: draw(node_names) for key in waiting if draw(st.booleans())})


@st.composite
def moves(draw: st.DrawFn, picture: Given) -> Moved:
    """Mostly of pods that are there; now and then of one that is not, or of another of that name."""
    anybody = pods(st.sampled_from("1234567"))
    there = st.sampled_from(list(picture.pods.values())) if picture.pods else anybody
    without = draw(st.lists(st.one_of(there, there, anybody), max_size=3))
    with_ = [
        *draw(st.lists(anybody, max_size=2)),
        *(replace(it, node_name=draw(node_names)) for it in draw(st.lists(there, max_size=1))),
    ]
    return without, with_


def question(asked: Question) -> tuple[Any, ...]:
    return asked.namespace, selector_of(asked.selector), asked.key, asked.required, inclusion_of(asked)


def domains_of(cluster: Cluster, asked: Question) -> DomainCounts:
    return run_prepared(partial(cluster.counts.domains, *question(asked)))


def answers(cluster: Cluster, asked: Sequence[Question], deltas: dict[str, int]) -> dict[str, Any]:
    """All that a plugin can see of nodes and pods."""
    nodes = cluster.nodes
    by_controller = cluster.by_controller(SETS)
    return {
        "nodes": {name: (info.name, info.node, dict(info.pods)) for name, info in nodes.items()},
        "names": (set(nodes), set(nodes.keys()), len(nodes), {name for name in (*NODES, "gone") if name in nodes}),
        "nominated": {name: {it.uid: it for it in cluster.nominated(name)} for name in cluster.nominated_nodes},
        "none nominated": [set(cluster.nominated(name)) for name in NODES if name not in cluster.nominated_nodes],
        "controllers": {uid: dict(found) for uid, found in by_controller.items()},
        "no controllers": [(uid, by_controller.get(uid)) for uid in ("uid-a", "uid-b") if uid not in by_controller],
        "annotated": {it.uid: it for it in cluster.annotated_pods()},
        "counts": [counts(cluster, it, deltas) for it in asked],
    }


def counts(cluster: Cluster, asked: Question, deltas: dict[str, int]) -> dict[str, Any]:
    namespace, selector, *_ = question(asked)
    found = domains_of(cluster, asked)
    return {
        "by node": dict(run_prepared(lambda: cluster.counts.pods_by_node(namespace, selector))),
        "by domain": {value: found.count(value) for value in (*found.nodes_by_domain(), "unknown")},
        "nodes": dict(found.nodes_by_domain()),
        "size": found.size(),
        "minimum": (found.minimum(), found.minimum({}), found.minimum(deltas)),
        "above": [sorted(found.above(limit)) for limit in LIMITS],
        "domain": {name: found.domain_of(name) for name in (*NODES, "gone")},
    }


def kept(cluster: Cluster) -> dict[str, Any]:
    """All that is kept, and every number that tells others that something has moved."""
    counts = cluster.counts
    return {
        "generation": (cluster.generation, cluster.node_set, cluster.others.changes),
        "infos": {name: (id(info), info.node, dict(info.pods)) for name, info in cluster._nodes.items()},
        "pods": {pod.key: pod for pod in cluster.pods()},
        "nominated": {name: dict(row) for name, row in cluster._nominated.items()},
        "controlled": {uid: dict(row) for uid, row in cluster._controlled[SETS.kind].items()},
        "annotated": dict(cluster._annotated),
        "assumed": [it.uid for it in cluster.assumed.in_flight()],
        "groups": {(ns, it): dict(group.nodes) for ns, row in counts._groups.items() for it, group in row.items()},
        "selections": {key: dict(it.nodes) for key, it in counts._selections.items()},
        "topologies": {key: (it.stamp, dict(it.domain)) for key, it in counts._topologies.items()},
        "domains": {key: (dict(it.counts), dict(it.stamps)) for key, it in counts._domains.items()},
        "check": cluster.check(),
    }


def stamps(cluster: Cluster, asked: Sequence[Question]) -> list[list[tuple[int, list[str]]]]:
    """Of each question and limit, with what the stamp stands for."""
    found = [domains_of(cluster, it) for it in asked]
    return [[(it.stamp(limit), sorted(it.above(limit))) for limit in LIMITS] for it in found]


def opened(cluster: Cluster, moved: Sequence[Moved], look: Callable[[], None]) -> None:
    """Look through as many overlays as there are, one within the other."""
    if not moved:
        look()
        return
    (without, with_), *rest = moved
    with cluster.overlay(without=without, with_=with_):
        opened(cluster, rest, look)


@SETTINGS
@given(data=st.data())
def test_it_reads_as_a_picture_built_so_and_moves_nothing(data: st.DataObject) -> None:
    given_ = data.draw(pictures())
    asked = data.draw(st.lists(questions(), min_size=1, max_size=3))
    deltas = data.draw(st.dictionaries(st.sampled_from(("a", "b", "n1", "n2", "r1")), st.integers(-1, 2), max_size=2))
    moved = data.draw(st.lists(moves(given_), min_size=1, max_size=2))
    rebuilt = given_
    for each in moved:
        rebuilt = rebuilt.moved(each)
    expected, otherwise = answers(rebuilt.built(), asked, deltas), answers(given_.built(), asked, deltas)
    cluster = given_.built()
    assert otherwise == answers(cluster, asked, deltas)
    told = stamps(cluster, asked)
    before = kept(cluster)

    def look() -> None:
        assert expected == answers(cluster, asked, deltas)
        assert before == kept(cluster)
        seen = stamps(cluster, asked)
        assert seen == stamps(cluster, asked)
        for of_one, told_of_one in zip(seen, told, strict=True):
            for (stamp, above), (told_stamp, told_above) in zip(of_one, told_of_one, strict=True):
                assert (stamp == told_stamp) == (above == told_above)
        assert before == kept(cluster)

    opened(cluster, moved, look)

    assert before == kept(cluster)
    assert otherwise == answers(cluster, asked, deltas)
    assert told == stamps(cluster, asked)


@SETTINGS
@given(data=st.data())
def test_what_is_first_asked_for_within_is_kept_as_it_is_without(data: st.DataObject) -> None:
    given_ = data.draw(pictures())
    asked = data.draw(st.lists(questions(), min_size=1, max_size=3))
    moved = data.draw(moves(given_))
    cluster = given_.built()

    without, with_ = moved
    with cluster.overlay(without=without, with_=with_):
        answers(cluster, asked, {})

    assert [] == cluster.check()
    assert answers(given_.built(), asked, {}) == answers(cluster, asked, {})


@SETTINGS
@given(data=st.data())
def test_one_pod_is_left_out_by_its_name(data: st.DataObject) -> None:
    given_ = data.draw(pictures().filter(lambda it: bool(it.pods)))
    asked = data.draw(st.lists(questions(), min_size=1, max_size=2))
    pod = data.draw(st.sampled_from(list(given_.pods.values())))
    expected = answers(given_.moved(((pod,), ())).built(), asked, {})
    cluster = given_.built()
    placed = bool(pod.node_name or pod.nominated_node_name or pod.key in given_.assumed)
    assert placed == cluster.is_placed_or_nominated(pod.uid, pod.key)

    with cluster.without(pod.uid, pod.key):
        found = answers(cluster, asked, {})

    if not placed:  # a waiting pod is nobody's peer; its controller still has it
        expected |= {name: found[name] for name in ("controllers", "no controllers")}
    assert expected == found
