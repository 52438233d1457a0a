"""Topic of InterPodAffinity: pods that need one another or cannot stand one another, in their namespace or in others.

Knows nothing of Homeport. Selectors are mostly made from the labels of the pending pod, so that its terms mean its like
and those of the pods that are there mean it. It is judged alone or beside plugins that decide before and after it.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Final

from tests.conformance.draft import (
    CONFIG_API,
    EPOCH,
    HARD,
    HOSTNAME,
    NAMESPACES,
    PREFERRED,
    RACK,
    REQUIRED,
    SOFT,
    ZONE,
    Draft,
    Json,
)
from tests.conformance.per_node import POINTS as NODE_POINTS
from tests.conformance.per_node import NodeDraft

NAME: Final = "InterPodAffinity"

KEYS: Final[Mapping[str, float]] = {ZONE: 45, HOSTNAME: 30, RACK: 10, "example.com/row": 8, "absent": 1.5, "disk": 4}
NAMESPACE_LABELS: Final[Mapping[str, tuple[str, ...]]] = {"team": ("a", "b", ""), "stage": ("test", "live")}
_UNKNOWN_NAMESPACE: Final = "nowhere"


class InterPodDraft(NodeDraft):
    """``termed``: how likely a pod that is there has terms; ``foreign_terms``: how likely one says namespaces."""

    points: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **NODE_POINTS,
        NAME: ("preFilter", "filter", "preScore", "score"),
    }

    def __init__(self, random: Random, *plugins: str, odd: float = 0.04) -> None:
        self.termed = random.choice((0, 0.1, 0.3, 0.3, 0.6, 1))
        self.required = random.choice((0.15, 0.4, 0.8))
        self.foreign_terms = random.choice((0, 0.2, 0.6))
        self.namespaces_known = random.choice((1, 1, 0.6, 0))
        super().__init__(random, NAME, *plugins, odd=odd)
        self.config = self.profile(self._args())

    def _args(self) -> list[Json]:
        if self.chance(0.5):
            return []
        args: Json = {"apiVersion": CONFIG_API, "kind": f"{NAME}Args"}
        if self.chance(0.6):
            args["hardPodAffinityWeight"] = self.random.choice((0, 0, 1, 5, 100))
        if self.chance(0.5):
            args["ignorePreferredTermsOfExistingPods"] = self.chance(0.7)
        return [{"name": NAME, "args": args}]

    # Namespaces.

    def namespace_objects(self) -> list[Json]:
        return [self.namespace_object(name) for name in (*NAMESPACES, "team-c") if self.chance(self.namespaces_known)]

    def namespace_object(self, name: str) -> Json:
        labels = {"kubernetes.io/metadata.name": name} if self.chance(0.8) else {}
        labels |= {key: self.random.choice(values) for key, values in NAMESPACE_LABELS.items() if self.chance(0.7)}
        metadata = {"name": name, "uid": f"namespace-{name}", "creationTimestamp": EPOCH, "labels": labels}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {}, "status": {}}

    # Pods.

    def any_pod(self, name: str, namespace: str, labels: Mapping[str, str]) -> Json:
        pod = super().any_pod(name, namespace, labels)
        if self.chance(0.9 if name == "pending" else self.termed):
            affinity = self._pod_terms()
            if affinity:
                pod["spec"]["affinity"] = affinity
        return pod

    def pending(self) -> Json:
        """Node affinity, where there is any, stands beside the terms."""
        terms = (pod := super().pending())["spec"].get("affinity", {})
        if "nodeAffinity" in terms:
            terms.update(self._pod_terms())
        return pod

    def _pod_terms(self) -> Json:
        """Of the four lists mostly one or two are there; a list may be empty, too."""
        found: Json = {}
        for field in self.weighted(
            {("podAffinity",): 3, ("podAntiAffinity",): 4, ("podAffinity", "podAntiAffinity"): 3}
        ):
            lists: Json = {}
            if self.chance(self.required * (1 if field == "podAntiAffinity" else 0.6)):
                lists[REQUIRED] = [self._pod_term() for _ in range(self._how_many())]
            if self.chance(0.6):
                lists[PREFERRED] = [self._preferred() for _ in range(self._how_many())]
            if self.chance(0.05):
                lists.setdefault(self.random.choice((REQUIRED, PREFERRED)), [])
            if lists or self.chance(0.2):
                found[field] = lists
        return found

    def _how_many(self) -> int:
        return self.weighted({1: 70, 2: 20, 3: 6, 5: 3, 9: 1})

    def _preferred(self) -> Json:
        return {"weight": self.random.choice((1, 1, 2, 5, 10, 50, 99, 100)), "podAffinityTerm": self._pod_term()}

    def _pod_term(self) -> Json:
        found: Json = {"topologyKey": self.weighted(KEYS)}
        if self.chance(0.96):
            found["labelSelector"] = selector = self.selector()
            if self.chance(0.2):
                self._merge_label_keys(found, selector)
        if self.chance(self.foreign_terms):
            found["namespaces"] = self.some([*NAMESPACES, _UNKNOWN_NAMESPACE], 0, 3)
            if self.chance(0.1) and found["namespaces"]:
                found["namespaces"] *= 2
        if self.chance(self.foreign_terms):
            found["namespaceSelector"] = self._namespace_selector()
        return found

    def _merge_label_keys(self, term: Json, selector: Json) -> None:
        """As stored: the API server has added what the pod's labels were to the selector."""
        used = {*selector.get("matchLabels", ()), *(it["key"] for it in selector.get("matchExpressions", ()))}
        free = [key for key in self.labels if key not in used]
        expressions = list(selector.get("matchExpressions", ()))
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            if free and self.chance(0.6):
                key = free.pop()
                term[field] = [key]
                if self.chance(0.85):
                    expressions.append({"key": key, "operator": operator, "values": [self.labels[key]]})
        term["labelSelector"] = {**selector, **self._maybe("matchExpressions", expressions)}

    def _namespace_selector(self) -> Json:
        match self.weighted({"all": 3, "name": 2, "labels": 3, "expressions": 3}):
            case "all":
                return {}
            case "name":
                return {"matchLabels": {"kubernetes.io/metadata.name": self.random.choice(NAMESPACES)}}
            case "labels":
                keys = self.some(list(NAMESPACE_LABELS), 1, 2)
                return {"matchLabels": {key: self.random.choice(NAMESPACE_LABELS[key]) for key in keys}}
        operator = self.random.choice(("In", "NotIn", "NotIn", "Exists", "DoesNotExist"))
        key = self.random.choice(list(NAMESPACE_LABELS))
        return {"matchExpressions": [self._with_values(key, operator, NAMESPACE_LABELS[key])]}


def draw(random: Random, **traits: Any) -> InterPodDraft:
    """A draft without pods: alone, or beside some of the plugins that come before it."""
    others: tuple[str, ...] = ()
    if random.random() < 0.4:
        others = tuple(random.sample(list(NODE_POINTS), random.randint(1, len(NODE_POINTS))))
    draft = InterPodDraft(random, *others, **traits)
    if "PodTopologySpread" in others and draft.chance(0.6):
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 1, SOFT: 2})
    draft.objects.extend(draft.namespace_objects())
    return draft


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {"interpod": lambda random: draw(random).populate()}
