"""The picture after any interleaving of events equals the picture built from their end result, counts and all."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.cache import counters
from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.framework.counts import Inclusion, Unprepared
from app.framework.resources import Totals
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from app.kube.kinds import partial_kind
from app.kube.selectors import Selector, decode_selector
from tests import strategies
from tests.builders import ZONE, JsonObject, bound_pods, controller, encoded, mounting, node_object, pod_object
from tests.property import naive
from tests.property.naive import Question
from tests.strategies import KEYS, NODES, rarely

pytestmark = pytest.mark.timeout(600)  # seconds to pass, minutes to shrink a failure to a story one can read

NAMES = ("p1", "p2", "p3")
CLAIMS = ("a", "b")
CORE = core_v1(list(Extra))
decode_pod, decode_node = CORE.decode_pod, CORE.decode_node
SETS = partial_kind("apps/v1", "Set")
SETTINGS = settings(derandomize=True, max_examples=strategies.examples(100), stateful_step_count=50)

names = st.sampled_from(NAMES)
namespaces = st.sampled_from(("default", "default", "default", "shop"))
node_names = st.sampled_from((*NODES, *NODES, "gone"))
claims = st.lists(st.sampled_from(CLAIMS), max_size=2)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """Mostly of all nodes that have the key; sometimes of fewer, or of those without it too."""
    key = draw(st.sampled_from(KEYS))
    more = draw(st.sampled_from((frozenset[str](), frozenset({draw(st.sampled_from(KEYS))}))))
    nodes = {"nodeSelector": draw(strategies.node_selectors), "affinity": draw(strategies.affinities)}
    return Question(
        draw(namespaces),
        draw(strategies.selectors),
        key,
        frozenset() if draw(rarely) else more | {key},
        draw(st.sampled_from((None, nodes))),
        draw(st.sampled_from((None, tuple(draw(strategies.tolerations))))),
    )


def selector_of(found: JsonObject) -> Selector:
    selector = decode_selector(encoded(found))
    assert selector is not None
    return selector


def inclusion_of(asked: Question) -> Inclusion:
    """The question's policies as our own code would read them off a pod."""
    pod = pod_object()
    pod["spec"] |= {**(asked.affinity or {}), "tolerations": asked.tolerations or ()}
    spec = decode_pod(encoded(pod)).spec
    return Inclusion(
        None if asked.affinity is None else spec.affinity, None if asked.tolerations is None else spec.tolerations
    )


def expected_answers(nodes: Iterable[JsonObject], pods: Iterable[JsonObject], asked: Question) -> dict[str, Any]:
    nodes, pods = list(nodes), list(pods)
    found = naive.domains(nodes, pods, asked)
    return {
        "counts": found,
        "size": len(found),
        "minimum": min(found.values(), default=0),
        "above": [{value for value, count in found.items() if count > limit} for limit in range(3)],
        "domain": {node["metadata"]["name"]: naive.domain_of(node, asked) for node in nodes},
        "by node": naive.pods_by_node(pods, asked.namespace, asked.selector),
        "values": {
            node["metadata"]["name"]: naive.labels_of(node)[asked.key]
            for node in nodes
            if asked.key in naive.labels_of(node)
        },
    }


def answers(cluster: Cluster, asked: Question) -> dict[str, Any]:
    counts, selector = cluster.counts, selector_of(asked.selector)
    question = (asked.namespace, selector, asked.key, asked.required, inclusion_of(asked))
    found = run_prepared(partial(counts.domains, *question))
    values = run_prepared(partial(counts.values, asked.key))
    assert {value: [name for name in values if values[name] != value] for value in values.values()} == {
        value: counts.outside(asked.key, [value], list(values)) for value in values.values()
    }
    return {
        "counts": {value: found.count(value) for value in found.nodes_by_domain()},
        "size": found.size(),
        "minimum": found.minimum(),
        "above": [set(found.above(limit)) for limit in range(3)],
        "domain": {name: found.domain_of(name) for name in cluster.nodes},
        "by node": dict(run_prepared(partial(counts.pods_by_node, asked.namespace, selector))),
        "values": dict(values),
    }


def everything(cluster: Cluster) -> dict[str, Any]:
    """All that can be seen of a picture, whatever the order in which it came about."""
    return {
        "nodes": {name: (info.node, dict(info.pods)) for name, info in cluster.nodes.items()},
        "totals": {name: info.totals.copy() for name, info in cluster.nodes.items()},
        "images": dict(cluster.aggregates._by_image),
        "pods": {pod.key: pod for pod in cluster.pods()},
        "bound": {pod.key for pod in bound_pods(cluster)},
        "in flight": {pod.uid: pod for pod in cluster.assumed.in_flight()},
        "reserved": {pod.uid: pod for pod in cluster.assumed.reserved()},
        "assumed": len(cluster.assumed),
        "nominated": {name: {pod.uid: pod for pod in cluster.nominated(name)} for name in cluster.nominated_nodes},
        "controllers": {uid: dict(pods) for uid, pods in cluster.by_controller(SETS).items()},
        "claims": {claim: dict(pods) for claim, pods in cluster.by_claim().items()},
        "groups": {
            (ns, it): dict(group.nodes) for ns, row in cluster.counts._groups.items() for it, group in row.items()
        },
    }


class Assumption:
    """Where a pod was assumed, whether its binding was accepted, and whether it waits at Permit."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.accepted = False
        self.reserved = False


class Snapshot(RuleBasedStateMachine):
    """Drives a picture and, beside it, plain tables of what the API server would have."""

    limits: ClassVar[list[dict[str, int]]] = [{}]

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(CORE)
        self.nodes: dict[str, JsonObject] = {}
        self.pods: dict[tuple[str, str], JsonObject] = {}
        self.assumptions: dict[str, Assumption] = {}
        self.asked: list[Question] = []
        self.made = 0
        self.checks: list[Generator[str, None, None]] = []

    @initialize(data=st.data())
    def a_small_cluster(self, data: st.DataObject) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, limit in data.draw(st.sampled_from(self.limits)).items():
                patch.setattr(counters, name, limit)
            self.cluster = Cluster(CORE)
        self.cluster.by_controller(SETS)
        self.cluster.by_claim()
        for name in NODES[:3]:
            self.node_comes_or_changes(data.draw(strategies.nodes(st.just(name))))
        for name in NAMES:
            node, labels = data.draw(st.sampled_from(NODES)), data.draw(strategies.labels)
            self._shown(pod_object(name, uid=f"uid-{name}", node=node, labels=labels))

    @rule(node=strategies.nodes(st.sampled_from(NODES)))
    def node_comes_or_changes(self, node: JsonObject) -> None:
        self.nodes[node["metadata"]["name"]] = node
        self.cluster.upsert_node(decode_node(encoded(node)))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.cluster.delete_node(name)

    @rule(
        name=names,
        namespace=namespaces,
        labels=strategies.labels,
        node=st.one_of(st.just(""), node_names, node_names),
        nominated=st.one_of(st.just(""), node_names),
        anew=rarely,
        terminating=rarely,
        phase=rarely.map(lambda done: "Succeeded" if done else "Running"),
        gated=rarely,
        owner=st.sampled_from(("a", "b")),
        containers=strategies.containers,
        claims=claims,
    )
    def watch_shows_pod(
        self,
        name: str,
        namespace: str,
        labels: dict[str, str],
        node: str,
        nominated: str,
        anew: bool,
        terminating: bool,
        phase: str,
        gated: bool,
        owner: str,
        containers: list[JsonObject],
        claims: list[str],
    ) -> None:
        known = self.pods.get((namespace, name))
        self.made += 1
        uid = known["metadata"]["uid"] if known is not None and not anew else f"uid-{self.made}"
        pod = pod_object(
            name,
            namespace=namespace,
            uid=uid,
            labels=labels,
            node=node,
            nominated=nominated,
            terminating=terminating,
            phase=phase,
            gated=gated,
            priority=self.made,
            owner=controller("Set", owner),
            containers=containers,
            more=mounting(*claims),
        )
        self._shown(pod)

    def _shown(self, pod: JsonObject) -> None:
        key, uid = (pod["metadata"]["namespace"], pod["metadata"]["name"]), pod["metadata"]["uid"]
        known = self.pods.get(key)
        finished = pod["status"]["phase"] == "Succeeded"
        if known is not None and known["metadata"]["uid"] != uid:
            self.assumptions.pop(known["metadata"]["uid"], None)
        if pod["spec"]["nodeName"] or finished:
            self.assumptions.pop(uid, None)
        self.pods.pop(key, None)
        if not finished:
            self.pods[key] = pod
        self.cluster.upsert_pod(decode_pod(encoded(pod)))

    @rule(name=names, namespace=namespaces, by=st.sampled_from(("name", "uid", "another uid")))
    def pod_goes(self, name: str, namespace: str, by: str) -> None:
        known = self.pods.get((namespace, name))
        uid = known["metadata"]["uid"] if known is not None and by == "uid" else ""
        if by == "another uid":
            uid = "another"
        elif known is not None:
            del self.pods[namespace, name]
            self.assumptions.pop(known["metadata"]["uid"], None)
        self.cluster.delete_pod((namespace, name), uid)

    def _waiting(self) -> list[JsonObject]:
        return [
            pod
            for pod in self.pods.values()
            if not pod["spec"]["nodeName"] and pod["metadata"]["uid"] not in self.assumptions
        ]

    @precondition(lambda self: self._waiting())
    @rule(data=st.data(), node=node_names)
    def pod_is_assumed(self, data: st.DataObject, node: str) -> None:
        pod = data.draw(st.sampled_from(self._waiting()))
        self.assumptions[pod["metadata"]["uid"]] = Assumption(node)
        self.cluster.assume(decode_pod(encoded(pod)), node)

    @rule(name=names, namespace=namespaces, labels=strategies.labels, node=node_names)
    def pod_made_anew_is_assumed(self, name: str, namespace: str, labels: dict[str, str], node: str) -> None:
        """The binder read it past the watch, which still shows its predecessor or nothing."""
        known = self.pods.pop((namespace, name), None)
        if known is not None:
            self.assumptions.pop(known["metadata"]["uid"], None)
        self.made += 1
        pod = pod_object(name, namespace=namespace, uid=f"uid-{self.made}", labels=labels, node="", nominated="")
        self.pods[namespace, name] = pod
        self.assumptions[pod["metadata"]["uid"]] = Assumption(node)
        self.cluster.assume(decode_pod(encoded(pod)), node)

    @precondition(lambda self: self.assumptions)
    @rule(data=st.data())
    def binding_is_accepted(self, data: st.DataObject) -> None:
        """Of one at Permit there is none."""
        uid = data.draw(st.sampled_from(sorted(self.assumptions)))
        self.assumptions[uid].accepted = not self.assumptions[uid].reserved
        self.cluster.accept(uid)

    @precondition(lambda self: self.assumptions)
    @rule(data=st.data())
    def pod_waits_at_permit(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.assumptions)))
        self.assumptions[uid].reserved = not self.assumptions[uid].accepted
        self.cluster.assumed.reserve(uid)

    @precondition(lambda self: self.assumptions)
    @rule(data=st.data())
    def pod_is_let_go_by_permit(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.assumptions)))
        self.assumptions[uid].reserved = False
        self.cluster.assumed.proceed(uid)

    @precondition(lambda self: self.assumptions)
    @rule(data=st.data())
    def binding_fails(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.assumptions)))
        del self.assumptions[uid]
        self.cluster.forget(uid)

    @precondition(lambda self: self.assumptions)
    @rule(data=st.data(), elsewhere=st.booleans())
    def watch_shows_the_binding(self, data: st.DataObject, elsewhere: bool) -> None:
        uid = data.draw(st.sampled_from(sorted(self.assumptions)))
        pod = next(pod for pod in self.pods.values() if pod["metadata"]["uid"] == uid)
        node = "n1" if elsewhere else self.assumptions[uid].node
        self._shown({**pod, "spec": {**pod["spec"], "nodeName": node}})

    @rule(uid=st.sampled_from(("unknown", "uid-1", "uid-2")))
    def a_late_failure_is_forgotten(self, uid: str) -> None:
        if uid not in self.assumptions:
            self.cluster.forget(uid)

    @precondition(lambda self: len(self.checks) < 2)
    @rule()
    def a_check_begins(self) -> None:
        """It goes on while everything changes."""
        self.checks.append(self.cluster.checking())

    @precondition(lambda self: self.checks)
    @rule(steps=st.integers(1, 12))
    def checks_go_on(self, steps: int) -> None:
        for check in list(self.checks):
            told = list(islice(check, steps))
            assert "" == "".join(told)
            if len(told) < steps:
                self.checks.remove(check)

    @rule(asked=questions())
    def counts_are_asked_for(self, asked: Question) -> None:
        self.asked = [*self.asked[-5:], asked]
        assert expected_answers(self.nodes.values(), self._placed(), asked) == answers(self.cluster, asked)

    @rule()
    def counts_are_asked_for_again(self) -> None:
        for asked in self.asked:
            assert expected_answers(self.nodes.values(), self._placed(), asked) == answers(self.cluster, asked)

    @precondition(lambda self: self.pods and self.asked)
    @rule(data=st.data())
    def pod_is_judged(self, data: st.DataObject) -> None:
        """While a pod is judged it is not there; afterwards nothing has changed."""
        pod = data.draw(st.sampled_from(list(self.pods.values())))
        before = everything(self.cluster)
        others = [it for it in self._placed() if it["metadata"]["uid"] != pod["metadata"]["uid"]]

        with self.cluster.without(pod["metadata"]["uid"], (pod["metadata"]["namespace"], pod["metadata"]["name"])):
            for asked in self.asked:
                assert expected_answers(self.nodes.values(), others, asked) == answers(self.cluster, asked)

        assert before == everything(self.cluster)

    def _placed(self) -> list[JsonObject]:
        """The pods as the picture should have them: assumed ones on their node."""
        return [self._with_assumption(pod) for pod in self.pods.values()]

    def _with_assumption(self, pod: JsonObject) -> JsonObject:
        assumption = self.assumptions.get(pod["metadata"]["uid"])
        return pod if assumption is None else {**pod, "spec": {**pod["spec"], "nodeName": assumption.node}}

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), pods=st.lists(strategies.containers, max_size=2))
    def pods_are_tried_on_a_node(self, data: st.DataObject, pods: list[list[JsonObject]]) -> None:
        """A dry run takes some of its pods away and puts others there."""
        info = self.cluster.nodes[data.draw(st.sampled_from(sorted(self.nodes)))]
        gone = data.draw(st.sets(st.sampled_from(sorted(info.pods)))) if info.pods else set()
        came = [decode_pod(encoded(pod_object(f"new-{it}", containers=found))) for it, found in enumerate(pods)]
        tried = info.without_pods(gone).with_pods(came)

        stay = {uid: pod for uid, pod in info.pods.items() if uid not in gone}
        assert {**stay, **{pod.uid: pod for pod in came}} == tried.pods
        assert Totals(CORE.extras, tried.pods.values()) == tried.totals

    @invariant()
    def nodes_say_what_their_pods_take(self) -> None:
        """Added up as plainly as can be."""
        for name, info in self.cluster.nodes.items():
            containers = [it for pod in self._on(name) for it in pod["spec"]["containers"]]
            asked = [it.get("resources", {}).get("requests", {}) for it in containers]
            cpu = sum(int(it["cpu"].removesuffix("m")) for it in asked if "cpu" in it)
            assert (cpu, sum("cpu" not in it for it in asked) * 100 + cpu) == (
                info.requested.get("cpu", 0),
                info.non_zero_requested.get("cpu", 0),
            )
            ports = {port["hostPort"] for it in containers for port in it.get("ports", ())}
            assert ports == {it.port for it in info.ports}
        for namespace in ("default", "shop"):
            on_nodes = [
                pod for name in self.nodes for pod in self._on(name) if pod["metadata"]["namespace"] == namespace
            ]
            volumes = [str(volume) for pod in on_nodes for volume in pod["spec"].get("volumes", ())]
            assert [sum(f"'claimName': '{it}'" in volume for volume in volumes) for it in CLAIMS] == [
                self.cluster.uses_of_claim(namespace, it) for it in CLAIMS
            ]
        for image in strategies.IMAGES:
            nodes = [it for it in self.nodes.values() if image in str(it["status"])]
            found = self.cluster.aggregates.images([image])
            assert len(nodes) == self.cluster.aggregates.nodes_with_image(image)
            assert [(1 << 20, len(nodes))] * bool(nodes) == [(it.size, it.nodes) for it in found.values()]

    def _on(self, name: str) -> list[JsonObject]:
        return [pod for pod in self._placed() if pod["spec"]["nodeName"] == name]

    @invariant()
    def nothing_differs_from_a_recount(self) -> None:
        assert [] == self.cluster.check()

    @invariant()
    def what_was_given_up_is_held_nowhere(self) -> None:
        counts = self.cluster.counts
        selections, topologies, domains = set(counts._selections), set(counts._topologies), set(counts._domains)
        assert domains == {it for selection in selections for it in selection.domains}
        assert domains == {it for topology in topologies for it in topology.users}
        assert {it for it in selections if counts._index_keys_of(it)} == {
            it for row in counts._by_index_key.values() for it in row
        }
        eligibilities = set(counts._eligibilities.values())
        assert topologies == {it for eligibility in eligibilities for it in eligibility.topologies.values()}
        assert eligibilities == {it for row in counts._by_label.values() for it in row}
        assert eligibilities >= set(counts._by_taints)
        groups = [group for groups in counts._groups.values() for group in groups.values()]
        assert selections >= {it for group in groups for it in group.selections}
        assert {(group, it) for group in groups for it in group.selections} == {
            (group, it) for it in selections for group in it.groups
        }

    def teardown(self) -> None:
        """Pods first, nodes last, every assumption made anew: the order of events leaves no trace."""
        assert "" == "".join(words for check in self.checks for words in check)
        rebuilt = Cluster(CORE)
        for pod in reversed(self.pods.values()):
            rebuilt.upsert_pod(decode_pod(encoded(pod)))
        for uid, assumption in self.assumptions.items():
            newest = next(pod for pod in self.pods.values() if pod["metadata"]["uid"] == uid)
            rebuilt.assume(decode_pod(encoded(newest)), assumption.node)
            if assumption.accepted:
                rebuilt.accept(uid)
            if assumption.reserved:
                rebuilt.assumed.reserve(uid)
        for node in reversed(self.nodes.values()):
            rebuilt.upsert_node(decode_node(encoded(node)))
        assert everything(rebuilt) == everything(self.cluster)


class CrowdedSnapshot(Snapshot):
    """The same with room for two or three of a thing: counts are given up and made anew all the time."""

    limits: ClassVar[list[dict[str, int]]] = [
        {"_MIN_ENTRIES": 0, "_MOST_SELECTION_BYTES": 4_000},
        {"_MIN_ENTRIES": 0, "_MOST_TOPOLOGY_BYTES": 30_000},
        {"_MIN_ENTRIES": 0, "_MOST_DOMAINS_BYTES": 2_500},
        {
            "_MIN_ENTRIES": 0,
            "_MOST_SELECTION_BYTES": 4_000,
            "_MOST_TOPOLOGY_BYTES": 30_000,
            "_MOST_DOMAINS_BYTES": 2_500,
        },
    ]


class PiecemealSnapshot(Snapshot):
    """The same with counts that are made node by node and group by group, while events go on."""

    limits: ClassVar[list[dict[str, int]]] = [
        {},
        {"_MIN_ENTRIES": 0, "_MOST_SELECTION_BYTES": 4_000, "_MOST_TOPOLOGY_BYTES": 30_000},
    ]

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(counters, "_PIECE", 1)
        self.begun: list[Iterator[None]] = []

    @rule(asked=questions())
    def counts_are_begun(self, asked: Question) -> None:
        question = (asked.namespace, selector_of(asked.selector), asked.key, asked.required, inclusion_of(asked))
        try:
            self.cluster.counts.domains(*question)
        except Unprepared as missing:
            self.begun = [*self.begun[-2:], missing.steps]

    @rule(steps=st.integers(1, 4))
    def counts_are_gone_on_with(self, steps: int) -> None:
        for it in self.begun:
            for _ in islice(it, steps):
                pass

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestSnapshot = Snapshot.TestCase
TestSnapshot.settings = SETTINGS
TestCrowdedSnapshot = CrowdedSnapshot.TestCase
TestCrowdedSnapshot.settings = SETTINGS
TestPiecemealSnapshot = PiecemealSnapshot.TestCase
TestPiecemealSnapshot.settings = SETTINGS


def test_the_oracle_sees_what_counts() -> None:
    """A checker that finds nothing must be able to find something."""
    asked = Question("default", {}, ZONE, frozenset({ZONE}), None, None)
    nodes = [node_object("n1", zone="a"), node_object("n2", zone="b")]

    assert {"a": 1, "b": 0} == naive.domains(nodes, [pod_object("p1", node="n1")], asked)
    assert {"a": 0, "b": 0} == naive.domains(nodes, [pod_object("p1", node="n1", terminating=True)], asked)
