"""Draws one case: a cluster with a pending pod and a profile. ``generate.py`` says which cases there are.

Knows nothing of Homeport. What is drawn depends on the random numbers alone, and on the order in which they are asked
for: a change here makes other cases of all topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Self, TypeAlias, TypeVar

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
RACK: Final = "rack"
ROW: Final = "example.com/row"
CELL: Final = "cell.example.com/A_b.c"
NO_LABEL_KEY: Final = "not a label key!"
"""No node can carry it, but a pod may name it: the API server only wants a topologyKey that is not empty."""

TOPOLOGY_KEYS: Final = (ZONE, HOSTNAME, RACK, REGION, ROW, CELL)
INT32_MAX: Final = 2**31 - 1
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
NAMESPACES: Final = ("default", "team-a", "team-b")
SCHEDULER: Final = "default-scheduler"
EPOCH: Final = "2026-01-01T00:00:00Z"
PLUGIN: Final = "PodTopologySpread"
CONFIG_API: Final = "kubescheduler.config.k8s.io/v1"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "app": ("web", "api", "db", ""),
    "tier": ("front", "back"),
    "pod-template-hash": ("77c9", "8d4f", "9aa1"),
    "version": ("v1", "v2", "v3"),
}


_ODD_POINTS: Final = (
    ("filter",),
    ("preFilter",),
    ("preFilter", "filter"),
    ("score",),
    ("preScore",),
    ("preScore", "score"),
)
"""Where a profile may leave the plugin out. Filter and Score fail without what prepares them."""


@dataclass(frozen=True)
class Traits:
    """How likely things are in one case: each case draws its own, so that extremes meet."""

    keyless: float
    """Of a node to lack a topology key."""
    tainted: float
    affinity: float
    tolerant: float
    foreign: float
    """Of a pod to be in another namespace."""
    odd: float
    """Of a pod to be terminating, finished, stray or not bound."""
    crowding: float
    """Exponent that gathers the pods on few nodes."""
    pods_per_node: float
    domains: int
    nominated: int
    odd_profile: float


def draw_traits(random: Random, **fixed: Any) -> Traits:
    drawn: Json = {
        "keyless": random.choice((0, 0, 0.05, 0.2, 0.5)),
        "tainted": random.choice((0, 0, 0.2, 0.5)),
        "affinity": random.choice((0, 0, 0.5, 1)),
        "tolerant": random.choice((0, 0.5)),
        "foreign": random.choice((0, 0.1, 0.4)),
        "odd": random.choice((0, 0.1, 0.3)),
        "crowding": random.choice((0, 1, 2, 4)),
        "pods_per_node": random.choice((0.7, 1, 2, 3, 4)),
        "domains": random.choice((1, 2, 2, 3, 3, 4, 8)),
        "nominated": random.choice((0, 0, 0, 0, 0, 2)),
        "odd_profile": 0.04,
    }
    return Traits(**{**drawn, **fixed})


class Draft:
    """One case being drawn."""

    def __init__(self, random: Random, traits: Traits, nodes: int | None = None) -> None:
        self.random = random
        self.traits = traits
        self.namespace = random.choice(NAMESPACES)
        self.labels = self._own_labels()
        self.nodes = [self.node(f"n{index}") for index in range(self._node_count() if nodes is None else nodes)]
        self.objects: list[Json] = [*self.nodes]
        self.pod = self.pending()
        self.config = self.profile([])

    # What everything else is drawn with.

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some(self, of: Sequence[T], least: int = 1, most: int = 3) -> list[T]:
        return self.random.sample(of, min(len(of), self.random.randint(least, most)))

    def weighted(self, weights: Mapping[T, float]) -> T:
        return self.random.choices(list(weights), list(weights.values()))[0]

    # Nodes.

    def _node_count(self) -> int:
        low, high = self.weighted({(0, 0): 1, (1, 1): 4, (2, 6): 59, (7, 12): 26, (13, 30): 10})
        return self.random.randint(low, high)

    def node(self, name: str) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"node-{name}",
                "creationTimestamp": EPOCH,
                **self._maybe("labels", self._node_labels(name)),
            },
            "spec": self._maybe("taints", self._taints()),
            "status": {"capacity": {"pods": "110"}, "allocatable": {"pods": "110"}},
        }

    def _node_labels(self, name: str) -> Json:
        labels = {key: self._domain(key, name) for key in TOPOLOGY_KEYS if not self.chance(self.traits.keyless)}
        if self.chance(0.7):
            labels["disk"] = self.random.choice(("ssd", "hdd", "nvme"))
        if self.chance(0.7):
            labels["gen"] = self.random.choice(("1", "5", "5", "10", "007", "x1", "", "9223372036854775808"))
        return labels

    def _domain(self, key: str, name: str) -> str:
        if key == HOSTNAME and not self.chance(0.03):
            return name
        if self.chance(0.04):
            return ""
        count = {REGION: 2, ZONE: self.traits.domains, ROW: 2}.get(key, self.traits.domains + 1)
        return f"{key[0]}{self.random.randrange(count)}"

    def _taints(self) -> list[Json]:
        if not self.chance(self.traits.tainted):
            return []
        drawn = {(taint["key"], taint["effect"]): taint for taint in (self._taint() for _ in range(2))}
        return list(drawn.values())[: self.random.randint(1, 2)]

    def _taint(self) -> Json:
        key = self.random.choice(("dedicated", "spot", "node.kubernetes.io/unschedulable"))
        effect = self.random.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
        return {"key": key, "effect": effect, **self._maybe("value", self.random.choice(("", "", "a", "b")))}

    # Pods.

    def _own_labels(self) -> dict[str, str]:
        labels = {"app": self.weighted({"web": 8, "api": 2, "": 0.5})}
        for key in ("tier", "pod-template-hash", "version"):
            if self.chance(0.5):
                labels[key] = self.random.choice(LABELS[key])
        return labels if self.chance(0.95) else {}

    def other_labels(self) -> dict[str, str]:
        """Those of the pending pod, one of them perhaps other or gone, or quite different ones."""
        if self.chance(0.2):
            return {key: self.random.choice(LABELS[key]) for key in self.some(list(LABELS), 0, 3)}
        labels = dict(self.labels)
        if labels and self.chance(0.4):
            key = self.random.choice(list(labels))
            if self.chance(0.5):
                del labels[key]
            else:
                labels[key] = self.random.choice(LABELS[key])
        return labels

    def other_namespace(self) -> str:
        return self.random.choice([each for each in NAMESPACES if each != self.namespace])

    def any_pod(self, name: str, namespace: str, labels: Mapping[str, str]) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"pod-{namespace}-{name}",
                "creationTimestamp": EPOCH,
                **self._maybe("labels", dict(labels)),
            },
            "spec": {
                "schedulerName": SCHEDULER,
                "priority": 0,
                "restartPolicy": "Always",
                "containers": [{"name": "main", "image": "registry.test/app:v1"}],
            },
            "status": {"phase": "Pending"},
        }

    def pending(self) -> Json:
        pod = self.any_pod("pending", self.namespace, self.labels)
        pod["spec"]["priority"] = self.random.choice((-10, 0, 0, 0, 10))
        if self.chance(self.traits.affinity):
            pod["spec"].update(self._affinity())
        if self.chance(self.traits.tolerant):
            pod["spec"]["tolerations"] = [self._toleration() for _ in range(self.random.randint(1, 3))]
        if self.nodes and self.chance(0.04):
            pod["status"]["nominatedNodeName"] = self.node_name()
        return pod

    def node_name(self) -> str:
        return str(self.random.choice(self.nodes)["metadata"]["name"])

    def _toleration(self) -> Json:
        key = self.random.choice(("dedicated", "spot", "node.kubernetes.io/unschedulable", ""))
        exists = not key or self.chance(0.5)
        found: Json = {"operator": "Exists"} if exists else {"value": self.random.choice(("a", "b"))}
        if not exists and self.chance(0.5):
            found["operator"] = "Equal"
        effect = self.random.choice(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
        found.update(self._maybe("key", key) | self._maybe("effect", effect))
        if effect == "NoExecute" and self.chance(0.5):
            found["tolerationSeconds"] = 300
        return found

    def _affinity(self) -> Json:
        found: Json = {}
        if self.chance(0.5):
            found["nodeSelector"] = self.random.choice(
                ({"disk": "ssd"}, {"disk": "hdd"}, {ZONE: "t0"}, {"gen": "5", "disk": "ssd"}, {"gen": ""}, {})
            )
        if self.chance(0.7):
            terms = [self._term() for _ in range(self.random.randint(1, 3))]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            found["affinity"] = {"nodeAffinity": required}
        return found

    def _term(self) -> Json:
        expressions = [self._node_expression() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3)))]
        fields = []
        if self.nodes and self.chance(0.2):
            operator = self.random.choice(("In", "NotIn"))
            fields = [{"key": "metadata.name", "operator": operator, "values": [self.node_name()]}]
        return self._maybe("matchExpressions", expressions) | self._maybe("matchFields", fields)

    def _node_expression(self) -> Json:
        operator = self.random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gt", "Lt", "Lt"))
        if operator in ("Gt", "Lt"):
            bound = self.weighted({"1": 3, "4": 3, "7": 3, "10": 2, "x": 0.5, "99999999999999999999": 0.3})
            return {
                "key": self.random.choice(("gen", "gen", "disk", "absent")),
                "operator": operator,
                "values": [bound],
            }
        key, pool = self.random.choice(
            (
                ("disk", ("ssd", "hdd", "nvme")),
                ("gen", ("1", "5", "10", "")),
                (ZONE, ("t0", "t1", "t2")),
                (RACK, ("r0", "r1", "")),
                ("absent", ("a", "b")),
            )
        )
        return self._with_values(key, operator, pool)

    def _with_values(self, key: str, operator: str, pool: Sequence[str]) -> Json:
        values = self.some(pool, 1, 2) if operator in ("In", "NotIn") else []
        return {"key": key, "operator": operator, **self._maybe("values", values)}

    # Constraints.

    def constraints(self, kinds: Mapping[str, float]) -> list[Json]:
        count = self.weighted({1: 50, 2: 28, 3: 12, 4: 4, 5: 4, 8: 1})
        keys = self.random.choices((*TOPOLOGY_KEYS, NO_LABEL_KEY), (40, 30, 12, 8, 8, 3, 0.5), k=count)
        drawn = {(key, self.weighted(kinds)): None for key in keys}
        shared = self.selector() if self.chance(0.5) else None
        return [self._constraint(key, when, shared) for key, when in drawn]

    def _constraint(self, key: str, when: str, shared: Json | None) -> Json:
        found: Json = {"maxSkew": self._max_skew(), "topologyKey": key, "whenUnsatisfiable": when}
        if when == HARD and self.chance(0.3):
            found["minDomains"] = self.weighted({1: 3, 2: 3, 3: 3, 4: 2, 5: 2, 9: 1, INT32_MAX: 0.2})
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.chance(0.5):
                found[policy] = self.random.choice(("Honor", "Ignore"))
        if self.chance(0.94):
            found["labelSelector"] = selector = shared if shared is not None else self.selector()
            if self.chance(0.25):
                self._match_label_keys(found, selector)
        return found

    def _max_skew(self) -> int:
        return self.weighted({1: 60, 2: 20, 3: 8, 5: 5, 7: 3, 20: 2, INT32_MAX: 2})

    def _match_label_keys(self, constraint: Json, selector: Json) -> None:
        """As stored: the API server has added each key that the pod had, with the value it had then.

        Not with merging off, as before Kubernetes 1.34; and the pod's label may have been changed since.
        """
        used = {*selector.get("matchLabels", ()), *(it["key"] for it in selector.get("matchExpressions", ()))}
        free = [key for key in (*LABELS, "absent") if key not in used]
        keys = self.some(free, 1, 2)
        if not keys:
            return
        constraint["matchLabelKeys"] = keys
        if self.chance(0.3):
            return
        then = {key: self.random.choice(LABELS[key]) if self.chance(0.2) else self.labels[key] for key in self.labels}
        merged = [{"key": key, "operator": "In", "values": [then[key]]} for key in keys if key in then]
        expressions = [*selector.get("matchExpressions", ()), *merged]
        constraint["labelSelector"] = {**selector, **self._maybe("matchExpressions", expressions)}

    def selector(self) -> Json:
        form = self.weighted({"own": 50, "some": 10, "expressions": 20, "both": 15, "stranger": 2, "everything": 5})
        own = {key: self.labels[key] for key in self.some(list(self.labels), 1, 2)}
        match form:
            case "own":
                return self._maybe("matchLabels", own)
            case "some":
                return {"matchLabels": {key: self.random.choice(LABELS[key]) for key in self.some(list(LABELS), 1, 2)}}
            case "expressions":
                return {"matchExpressions": [self._expression() for _ in range(self.random.randint(1, 3))]}
            case "both":
                return self._maybe("matchLabels", own) | {"matchExpressions": [self._expression()]}
            case "stranger":
                return {"matchLabels": {"app": "nobody"}}
        return {}

    def _expression(self) -> Json:
        operator = self.random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        key = self.random.choice((*LABELS, "app", "absent"))
        return self._with_values(key, operator, LABELS.get(key, ("a", "b")))

    # The other pods.

    def populate(self) -> Self:
        """Bound pods, gathered on some of the nodes, and what does not count among them."""
        crowd = [self.random.random() ** self.traits.crowding for _ in self.nodes]
        for index in range(round(len(self.nodes) * self.traits.pods_per_node)):
            namespace = self.other_namespace() if self.chance(self.traits.foreign) else self.namespace
            pod = self.any_pod(f"p{index}", namespace, self.other_labels())
            node = self.random.choices(self.nodes, crowd)[0]
            pod["spec"]["nodeName"], pod["status"]["phase"] = node["metadata"]["name"], "Running"
            if self.chance(self.traits.odd):
                self._make_odd(pod)
            self.objects.append(pod)
        for index in range(self.random.randint(0, self.traits.nominated)):
            self.objects.append(self.nominated(f"nominated{index}"))
        self.random.shuffle(self.objects)
        return self

    def _make_odd(self, pod: Json) -> None:
        match self.random.choice(("terminating", "terminating", "Succeeded", "Failed", "stray", "pending", "unknown")):
            case "terminating":
                self._terminate(pod)
            case "stray":
                pod["spec"]["nodeName"] = "gone"
            case "pending":
                del pod["spec"]["nodeName"]
                pod["status"]["phase"] = "Pending"
            case "unknown":
                pod["status"] = {"phase": "Unknown", "nominatedNodeName": self.node_name()}
            case phase:
                pod["status"]["phase"] = phase

    def _terminate(self, pod: Json) -> None:
        pod["metadata"].update(deletionTimestamp="2026-01-02T00:00:00Z", deletionGracePeriodSeconds=30)

    def nominated(self, name: str) -> Json:
        namespace = self.other_namespace() if self.chance(0.15) else self.namespace
        pod = self.any_pod(name, namespace, self.other_labels())
        pod["status"]["nominatedNodeName"] = self.node_name() if self.nodes and self.chance(0.95) else "gone"
        pod["spec"]["priority"] = self.random.choice((-10, 0, 0, 0, 10, 1000))
        if self.chance(0.1):
            del pod["spec"]["priority"]
        if self.chance(0.1):
            pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        if self.chance(0.1):
            pod["spec"]["schedulerName"] = "other-scheduler"
        if self.chance(0.05):
            self._terminate(pod)
        if self.chance(0.05):
            pod["status"]["phase"] = "Failed"
        return pod

    # Defaults: what selects and owns the pod.

    def default_config(self) -> Json:
        form = self.weighted({"none": 20, "System": 20, "List": 55, "empty": 5})
        if form == "none":
            return self.profile([])
        args: Json = {"apiVersion": CONFIG_API, "kind": f"{PLUGIN}Args", "defaultingType": "System"}
        if form != "System":
            drawn = self.constraints({HARD: 1, SOFT: 1}) if form == "List" else []
            drawn = [each for each in drawn if each["topologyKey"] != NO_LABEL_KEY]
            args.update(defaultingType="List", defaultConstraints=list(map(self._default, drawn)))
        return self.profile([{"name": PLUGIN, "args": args}])

    def _default(self, constraint: Json) -> Json:
        """Of a default constraint the API knows every field, and plugin arguments are hardly validated."""
        found = {key: value for key, value in constraint.items() if key not in ("labelSelector", "matchLabelKeys")}
        if self.chance(0.05):
            found["minDomains"] = self.random.choice((0, -1, 2))
        if self.chance(0.06):
            found["nodeAffinityPolicy"] = self.random.choice(("", "Perhaps"))
        if self.chance(0.06):
            found["nodeTaintsPolicy"] = self.random.choice(("", "Perhaps"))
        if self.chance(0.1):
            found["matchLabelKeys"] = self.some(list(LABELS), 1, 2)
        return found

    def add_owners(self) -> None:
        for index in range(self.random.choice((0, 1, 1, 1, 2, 4))):
            self.objects.append(self.service(index))
        kind = self.weighted({"": 30, "ReplicaSet": 30, "StatefulSet": 15, "ReplicationController": 20, "Job": 5})
        if not kind:
            return
        api = {"ReplicationController": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
        owner: Json = {"apiVersion": api, "kind": kind, "name": "owner", "uid": "owner", "controller": True}
        if self.chance(0.08):
            owner["apiVersion"] = "example.com/v1"
        if self.chance(0.08):
            owner["controller"] = False
        self.pod["metadata"]["ownerReferences"] = [owner]
        for name, likely in (("owner", 0.9), ("bystander", 0.1)):
            if kind != "Job" and self.chance(likely):
                self.objects.append(self.workload(api, kind, name))

    def service(self, index: int) -> Json:
        namespace = self.other_namespace() if self.chance(0.15) else self.namespace
        selector = {key: self.labels[key] for key in self.some(list(self.labels), 1, 2)}
        if self.chance(0.15):
            selector = {**selector, "version": "v9"}
        spec: Json = {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "type": "ClusterIP"}
        if not self.chance(0.1):
            spec["selector"] = {} if self.chance(0.1) else selector
        return self._object("v1", "Service", f"s{index}", namespace, spec)

    def workload(self, api: str, kind: str, name: str) -> Json:
        """Its selector selects its template, and mostly the pod: a label may have been changed since it was adopted."""
        labels = {key: self.labels[key] for key in self.some(list(self.labels), 1, 3)} or {"app": "web"}
        if self.chance(0.15):
            labels = {**labels, "app": "api"}
        made = {**labels, "version": "v1"} if self.chance(0.3) and "version" not in labels else labels
        selector: Json = labels
        if kind != "ReplicationController":
            drawn = [self._expression() for _ in range(self.random.choice((0, 0, 2, 4)))]
            selector = {"matchLabels": labels} | self._maybe(
                "matchExpressions", [it for it in drawn if _holds(it, made)]
            )
        template = {"metadata": {"labels": made}, "spec": self.any_pod("t", "default", {})["spec"]}
        for field in ("priority", "schedulerName"):
            del template["spec"][field]
        spec = {"replicas": 3, "selector": selector, "template": template}
        namespace = self.other_namespace() if self.chance(0.06) else self.namespace
        return self._object(api, kind, name, namespace, spec)

    def _object(self, api: str, kind: str, name: str, namespace: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": namespace, "uid": f"{kind}-{name}", "creationTimestamp": EPOCH}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}

    # The profile.

    def profile(self, plugin_config: list[Json]) -> Json:
        """PodTopologySpread alone, beside the two plugins that a profile must have."""
        spread: Json = {"name": PLUGIN}
        if self.chance(0.2):
            spread["weight"] = self.random.choice((1, 2, 5, 100))
        plugins: Json = {
            "multiPoint": {
                "disabled": [{"name": "*"}],
                "enabled": [spread, {"name": "PrioritySort"}, {"name": "DefaultBinder"}],
            }
        }
        if self.chance(self.traits.odd_profile):
            for point in self.random.choice(_ODD_POINTS):
                plugins[point] = {"disabled": [{"name": PLUGIN}]}
        return {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": plugin_config}

    @staticmethod
    def _maybe(key: str, value: Any) -> Json:
        return {key: value} if value else {}

    def case(self, name: str) -> Json:
        return {"name": name, "config": self.config, "objects": self.objects, "pod": self.pod}


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    present = expression["key"] in labels
    listed = labels.get(expression["key"]) in expression.get("values", ())
    return {"In": listed, "NotIn": not listed, "Exists": present, "DoesNotExist": not present}[expression["operator"]]
