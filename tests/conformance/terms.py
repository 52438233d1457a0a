"""Kept terms equal those that are counted afresh: random changes of nodes, pods and namespaces, and questions between.

    python -m tests.conformance.terms               # CHANGES and SEED as in the environment, 1,000,000 and 1 if unset

Every answer is compared with what a walk over all pods says; a search for many nodes with a look at each; what is
called certain with every way in which the binds in flight may end; rejections at a signature with those at the same one
before. Prints JSON; ends with 1 if anything differs.
"""

import sys
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import partial
from itertools import chain, combinations
from typing import Any, Final

from msgspec.structs import replace

from app.cache.counters import run_prepared
from app.framework.counts import DomainCounts
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES
from app.kube.labels import NO_LABELS
from app.kube.pod_affinity import Newcomer, Peers, PodAffinityTerm
from app.kube.selectors import EVERYTHING, Selector, of_labels
from tests.builders import HOSTNAME, ZONE, JsonObject, encoded, node_object, pod_object
from tests.conformance import changes as frame
from tests.conformance.changes import Changing, Difference
from tests.conformance.draft import PREFERRED, REQUIRED
from tests.harness import World, only

NAME: Final = "InterPodAffinity"
NODES: Final = tuple(f"n{number}" for number in range(8))
PODS: Final = tuple(f"p{number}" for number in range(24))
SPACES: Final = ("red", "blue", "green")
KEYS: Final = (ZONE, HOSTNAME, "rack")
SELECTORS: Final[tuple[JsonObject, ...]] = (
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": "db"}},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {},
)
MOST_SIGNATURES: Final = 4096
CHECKED_EVERY: Final = 500


class History(Changing):
    """One cluster under random changes."""

    def __init__(self, seed: int) -> None:
        self.world = World(profile=only(NAME, InterPodAffinity={"hardPodAffinityWeight": 7}))
        super().__init__(seed, self.world.cluster, NODES)
        self.framework = self.world.framework
        self.terms = self.cluster.terms
        self.questions = self.rejections = self.remembered = self.certain = 0
        self.known: dict[Hashable, Mapping[str, Any]] = {}
        self.bodies = [self._body() for _ in range(40)]
        for name in NODES[:5]:
            self._node(name)

    # What happens.

    def happen(self) -> None:
        """One change."""
        self.happens(
            {
                self._node_changes: 4,
                self.node_goes: 2,
                self._pod_comes: 20,
                self._pod_goes: 14,
                self._relabelled: 6,
                self._terminates: 3,
                self._assumed: 6,
                self.settle: 6,
                self._namespace_changes: 2,
            }
        )

    def _node(self, name: str) -> None:
        labels = {key: value for key, value in (("rack", self.random.choice("abc")),) if self.random.random() < 0.7}
        zone = self.random.choice(("z1", "z2", "z3", None))
        hostname = name if self.random.random() < 0.9 else None
        found = node_object(name, zone=zone, hostname=hostname, labels=labels, resource_version=str(self.changes))
        self.cluster.upsert_node(self.cluster.core.decode_node(encoded(found)))

    def _node_changes(self) -> None:
        self._node(self.random.choice(NODES))

    def _body(self) -> JsonObject:
        """What pods of one workload share."""
        labels = {"app": self.random.choice(("web", "db", "mq"))} | (
            {"tier": "x"} if self.random.random() < 0.4 else {}
        )
        affinity: JsonObject = {}
        for field in ("podAffinity", "podAntiAffinity"):
            if self.random.random() < 0.4:
                affinity.setdefault(field, {})[REQUIRED] = [self._term() for _ in range(self.random.choice((1, 1, 2)))]
            if self.random.random() < 0.3:
                weighed = {"weight": self.random.choice((1, 5, 7)), "podAffinityTerm": self._term()}
                affinity.setdefault(field, {})[PREFERRED] = [weighed]
        return {"labels": labels, "affinity": affinity, "namespace": self.random.choice(SPACES)}

    def _term(self) -> JsonObject:
        found: JsonObject = {"topologyKey": self.random.choice(KEYS), "labelSelector": self.random.choice(SELECTORS)}
        if self.random.random() < 0.25:
            found["namespaces"] = self.random.sample(SPACES, self.random.randint(0, 2))
        if self.random.random() < 0.25:
            found["namespaceSelector"] = self.random.choice(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                )
            )
        return found

    def _pod(self, name: str, **more: Any) -> Pod:
        body = self.random.choice(self.bodies)
        uid = f"{body['namespace']}-{name}-{self.random.randint(0, 2)}"
        found = pod_object(name, **{**body, "uid": uid, "resource_version": str(self.changes), **more})
        return self.cluster.core.decode_pod(encoded(found))

    def _pod_comes(self) -> None:
        node = self.random.choice((*NODES, ""))
        self.cluster.upsert_pod(self._pod(self.random.choice(PODS), node=node) if node else self._pending())

    def _pending(self) -> Pod:
        return self._pod(self.random.choice(PODS))

    def _some(self) -> Pod | None:
        every = list(self.cluster.pods())
        return self.random.choice(every) if every else None

    def _pod_goes(self) -> None:
        found = self._some()
        if found is not None:
            self.cluster.delete_pod(found.key, found.uid)

    def _relabelled(self) -> None:
        found = self._some()
        if found is not None and self.cluster.assumed.get(found.uid) is None:
            labels = self.world.cluster.core.decode_pod(
                encoded(pod_object(labels=self.random.choice(self.bodies)["labels"]))
            ).labels
            self.cluster.upsert_pod(replace(found, labels=labels, resource_version=str(self.changes)))

    def _terminates(self) -> None:
        found = self._some()
        if found is not None and self.cluster.assumed.get(found.uid) is None:
            self.cluster.upsert_pod(replace(found, terminating=True, resource_version=str(self.changes)))

    def _assumed(self) -> None:
        self.assume(self._pending())

    def _namespace_changes(self) -> None:
        name = self.random.choice(SPACES)
        if self.random.random() < 0.2:
            self.cluster.others.delete(NAMESPACES, ("", name))
            return
        labels = {"team": self.random.choice("ab")} if self.random.random() < 0.6 else {}
        found = {"metadata": {"name": name, "labels": labels, "resourceVersion": str(self.changes)}}
        self.cluster.others.upsert(NAMESPACES, NAMESPACES.decode(encoded(found)))

    # What is asked.

    def ask(self) -> None:
        """Of the terms, as they are and under an overlay; and of the plugin."""
        self.questions += 1
        self._ask_terms()
        with self.cluster.overlay(without=self._few(), with_=[replace(self._pending(), node_name=NODES[0])]):
            self._ask_terms()
        self._ask_plugin()

    def _few(self) -> list[Pod]:
        every = list(self.cluster.pods())
        return self.random.sample(every, min(len(every), self.random.randint(0, 2)))

    def _ask_terms(self) -> None:
        newcomer, peers, key = self._newcomer(), self._peers(), self.random.choice(KEYS)
        counted = self._walk(key, lambda pod: int(peers.include(pod.namespace, pod.labels)))
        self.compare("peers", counted, _counts(run_prepared(lambda: self.terms.peers(peers, key)), counted))
        refusing = run_prepared(lambda: self.terms.refusing(newcomer))
        weights = run_prepared(lambda: self.terms.weights(newcomer, 7))
        for each in KEYS:
            right = self._walk(each, lambda pod: int(each in _refused_over(pod, newcomer)))  # noqa: B023  # called before each moves on
            found = _counts(refusing[each], right) if each in refusing else {}
            self.compare(f"refusing over {each}", right, found)
            self._compare_weights(newcomer, each, weights.get(each))

    def _compare_weights(self, newcomer: Newcomer, key: str, found: Mapping[str, int] | None) -> None:
        asked = {pod.key for pod in self._placed() if _weights_of(pod, newcomer, key)}
        is_there = self._walk(key, lambda pod: int(pod.key in asked))
        self.compare(f"whether anybody weighs over {key}", bool(is_there), found is not None)
        right = self._walk(key, lambda pod: sum(_weights_of(pod, newcomer, key)))
        nonzero = {value: weight for value, weight in (found or {}).items() if weight}
        self.compare(f"weights over {key}", {value: it for value, it in right.items() if it}, nonzero)

    def _placed(self) -> Iterator[Pod]:
        return chain.from_iterable(list(info.pods.values()) for info in list(self.cluster.nodes.values()))

    def _walk(self, key: str, weigh: Callable[[Pod], int]) -> dict[str, int]:
        """What all pods weigh together, by domain; only domains in which any does."""
        found: dict[str, int] = {}
        for info in list(self.cluster.nodes.values()):
            value = info.node.labels.get(key)
            for pod in info.pods.values():
                weight = weigh(pod)
                if value is not None and weight:
                    found[value] = found.get(value, 0) + weight
        return found

    def _newcomer(self) -> Newcomer:
        pod = self._pending()
        space = self.cluster.get(NAMESPACES, "", pod.namespace)
        return Newcomer(pod.namespace, NO_LABELS if space is None else space.labels, pod.labels)

    def _peers(self) -> Peers:
        selector: Selector = self.random.choice((EVERYTHING, of_labels({"app": "web"}), of_labels({"app": "db"})))
        names = self.random.choice((None, ("red",), ("red", "blue"), SPACES))
        return Peers(selector, None if names is None else frozenset(names))

    def _ask_plugin(self) -> None:
        pod = self._pod("asked")
        nodes = Candidates.of(self.cluster.nodes)
        found = run_prepared(lambda: self.framework.search.find_nodes_that_fit(pod, nodes))
        rejected = dict(found.rejected())
        state = CycleState()
        run_prepared(lambda: self.framework.filters.pre_filter(state, pod))
        each = {it.name: self.framework.filters.filter_node(state, pod, it) for it in nodes}
        alone = {name: status for name, status in each.items() if not status.is_success}
        self.compare("rejected", alone, rejected)
        self.compare("passed", [it for it in nodes.names if it not in alone], list(found.passed))
        self.rejections += len(rejected)
        self._same_as_before(pod, rejected)
        self._certain(pod, [it for it in nodes.names if it not in alone])

    def _same_as_before(self, pod: Pod, rejected: Mapping[str, Any]) -> None:
        signature = run_prepared(lambda: self.framework.search.signatures(pod)).get(NAME)
        key = (signature, self.cluster.node_set)
        if key in self.known:
            self.remembered += 1
            self.compare("rejected at a known signature", self.known[key], rejected)
        if len(self.known) >= MOST_SIGNATURES:
            self.known.clear()
        self.known[key] = rejected

    def _certain(self, pod: Pod, passed: Collection[str]) -> None:
        """A certain Success holds whichever of the binds in flight fail."""
        flying = [it for it in self.cluster.assumed.in_flight() if it.uid != pod.uid][:3]
        if not passed or not flying:
            return
        name = self.random.choice(sorted(passed))
        recheck = run_prepared(
            lambda: self.framework.at_bind.recheck(CycleState(), pod, self.cluster.nodes[name], flying)
        )
        ends = chain.from_iterable(combinations(flying, count) for count in range(len(flying) + 1))
        holds = all(self._fits_without(pod, name, failed) for failed in ends)
        if recheck.certain:
            self.certain += 1
            self.compare("certain", True, holds)
        elif not any(self.framework.filters.depends(pod, it) for it in flying):
            raise Difference(f"after {self.changes} changes: not certain, and rests on nobody in flight")

    def _fits_without(self, pod: Pod, name: str, failed: Collection[Pod]) -> bool:
        with self.cluster.overlay(without=failed):
            state = CycleState()
            run_prepared(lambda: self.framework.filters.pre_filter(state, pod))
            return self.framework.filters.filter_node(state, pod, self.cluster.nodes[name]).is_success

    def check(self) -> None:
        """The picture, compared with a recount."""
        self.compare("picture", [], self.cluster.check())

    def met(self) -> JsonObject:
        return {
            "questions": self.questions,
            "rejections": self.rejections,
            "remembered": self.remembered,
            "certain": self.certain,
        }


def _counts(found: DomainCounts, expected: Mapping[str, int]) -> dict[str, int]:
    values = {*found.above(0), *expected}
    assert found.is_empty() == (not found.above(0))
    return {value: found.count(value) for value in values if found.count(value)}


def _refused_over(pod: Pod, newcomer: Newcomer) -> set[str]:
    return {it.topology_key for it in pod.spec.pod_affinity.required_anti if _matches(it, pod, newcomer)}


def _weights_of(pod: Pod, newcomer: Newcomer, key: str) -> list[int]:
    affinity = pod.spec.pod_affinity
    each = [(it, 7) for it in affinity.required] + [(it.term, it.weight) for it in affinity.preferred]
    return [weight for it, weight in each if it.topology_key == key and _matches(it, pod, newcomer)]


def _matches(term: PodAffinityTerm, owner: Pod, newcomer: Newcomer) -> bool:
    """Said once more, from what the API documents: own namespace by default, else those named and those selected."""
    own = not term.namespaces and term.namespace_selector is None and newcomer.namespace == owner.namespace
    named = newcomer.namespace in term.namespaces
    chosen = term.namespace_selector is not None and term.namespace_selector.matches(newcomer.namespace_labels)
    return (own or named or chosen) and term.selector is not None and term.selector.matches(newcomer.labels)


def run(changes: int, seed: int, *, asked_every: int = 3) -> JsonObject:
    """So many changes, questions after each few, a check after every five hundredth. Raises ``Difference``."""
    return frame.run(History(seed), changes, asked_every=asked_every, checked_every=CHECKED_EVERY)


if __name__ == "__main__":
    sys.exit(frame.main(partial(run, asked_every=50)))
