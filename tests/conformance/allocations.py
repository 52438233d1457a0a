"""Topics of the plugins that look at what pods take of a node: resources and host ports.

Knows nothing of Homeport. Nodes are about as large as what their pods ask for together, so that one more pod fits on
some of them: what nearly fits is where mistakes show.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import ClassVar, Final

from tests.conformance.draft import CONFIG_API, HARD, SOFT, Draft, Json
from tests.conformance.per_node import POINTS, NodeDraft

PORTS: Final = "NodePorts"
FIT: Final = "NodeResourcesFit"
BALANCE: Final = "NodeResourcesBalancedAllocation"

CPU: Final = "cpu"
MEMORY: Final = "memory"
STORAGE: Final = "ephemeral-storage"
GPU: Final = "example.com/gpu"
FPGA: Final = "vendor.io/fpga"
GAUGE: Final = "vendor.io/Gauge_a.b"
CLASS: Final = "deviceclass.resource.kubernetes.io/tiny"
PAGES: Final = "hugepages-2Mi"
LARGE_PAGES: Final = "hugepages-1Gi"

Ki, Mi, Gi = 1 << 10, 1 << 20, 1 << 30
INT64: Final = 2**63

EXTENDED: Final = (GPU, FPGA, GAUGE, CLASS)
HUGE: Final = {PAGES: 2 * Mi, LARGE_PAGES: Gi}

ASKED: Final[Mapping[str, tuple[int, ...]]] = {
    CPU: (0, 1, 10, 100, 100, 250, 333, 500, 1000, 1500, 2000),
    MEMORY: (0, 1, 64 * Mi, 100_000_000, 200 * Mi, 512 * Mi, 512 * Mi, Gi, 1500 * Mi, 2 * Gi),
    STORAGE: (0, 1, Gi, Gi, 5 * Gi, 10**10),
    GPU: (0, 1, 1, 2, 3),
    FPGA: (0, 1, 1, 2),
    GAUGE: (1, 2),
    CLASS: (1, 2),
    PAGES: (0, 2 * Mi, 4 * Mi, 64 * Mi),
    LARGE_PAGES: (0, Gi, 2 * Gi),
}
"""Of one container: thousandths of a core, whole units of all else."""

THERE: Final[Mapping[str, tuple[int, ...]]] = {
    CPU: (0, 500, 1000, 2000, 3900, 4000, 7910, 16_000),
    MEMORY: (0, Gi, 2 * Gi, 4 * Gi, 4 * Gi + 1, 8_000_000_000, 16 * Gi, 16 * Gi - 100 * Mi),
    STORAGE: (0, 5 * Gi, 20 * Gi, 10**11),
    GPU: (0, 1, 2, 4, 8),
    FPGA: (0, 1, 2, 3),
    GAUGE: (0, 1, 3, 10),
    CLASS: (0, 1, 5),
    PAGES: (0, 8 * Mi, 64 * Mi, 256 * Mi),
    LARGE_PAGES: (0, Gi, 4 * Gi),
}

HUGE_AMOUNTS: Final = (
    INT64 - 1,
    INT64 - 2,
    INT64 // 2,
    INT64 // 2 + 1,
    INT64 // 100,
    INT64 // 100 + 1,
    10**18,
    2**53 + 1,
)

_UNITS: Final = (("Gi", Gi), ("Mi", Mi), ("Ki", Ki), ("G", 10**9), ("M", 10**6), ("k", 10**3), ("e3", 10**3))


class AllocationDraft(NodeDraft):
    """Nodes and pods with resources and host ports.

    ``scarce``: which resources are drawn beside cpu and memory · ``absurd``: how likely an amount is one that 64 bits
    hardly hold · ``negative``: how likely one is less than nothing, which no API server takes.
    """

    points: ClassVar[Mapping[str, tuple[str, ...]]] = {
        PORTS: ("preFilter", "filter"),
        FIT: ("preFilter", "filter", "preScore", "score"),
        BALANCE: ("preScore", "score"),
        **POINTS,
    }

    def __init__(
        self, random: Random, *plugins: str, ports: float = 0, absurd: float = 0, negative: float = 0, odd: float = 0.04
    ) -> None:
        self.ports = ports
        self.absurd = absurd
        self.negative = negative
        self.scarce = [it for it in (STORAGE, *EXTENDED, *HUGE) if random.random() < random.choice((0.1, 0.4, 0.8))]
        self.silent = random.choice((0.1, 0.3, 0.6))
        self.resized = random.choice((0, 0, 0.3))
        self.whole = random.choice((0, 0, 0.4))
        self.few_pods = random.choice((0, 0, 0.3))
        self.frugal = random.choice((1, 1, 2, 4))
        super().__init__(random, *plugins, odd=odd)

    def amount(self, resource: str, table: Mapping[str, tuple[int, ...]]) -> int:
        if self.chance(self.negative):
            return -self.random.choice((1, 1000, *table[resource], *HUGE_AMOUNTS))
        if resource not in HUGE and self.chance(self.absurd):
            return self.random.choice(HUGE_AMOUNTS) // (1000 if resource in EXTENDED else 1)
        return self.random.choice(table[resource])

    def written(self, resource: str, amount: int) -> str:
        """As one of the many texts that mean it."""
        if resource == CPU:
            cores, rest = divmod(amount, 1000)
            if rest % 100 == 0 <= amount and self.chance(0.3):
                return f"{cores}.{rest // 100}"
            return f"{amount}m" if rest or self.chance(0.3) else str(cores)
        if amount % (Gi // 2) == 0 < amount and self.chance(0.2) and resource not in EXTENDED:
            return f"{amount // Gi}.{5 * (amount % Gi // (Gi // 2))}Gi"
        fitting = [f"{amount // unit}{suffix}" for suffix, unit in _UNITS if amount and amount % unit == 0]
        if resource not in EXTENDED and fitting and self.chance(0.8):
            return self.random.choice(fitting)
        return str(amount)

    def listed(self, amounts: Mapping[str, int]) -> Json:
        return {name: self.written(name, amount) for name, amount in amounts.items()}

    # Nodes.

    def node(self, name: str) -> Json:
        found = super().node(name)
        names = [CPU, MEMORY, *(it for it in self.scarce if self.chance(0.8))]
        there = self.listed({it: self.amount(it, THERE) for it in names if self.chance(0.97)})
        there["pods"] = self.random.choice(("0", "1", "2", "3", "4")) if self.chance(self.few_pods) else "110"
        if self.chance(0.02):
            del there["pods"]
        if self.chance(0.1):
            there["attachable-volumes-test"] = "3"
        found["status"] = {"capacity": dict(there), "allocatable": there} if self.chance(0.98) else {}
        return found

    # Pods.

    def pending(self) -> Json:
        """It asks for something, most often: else there is little to judge."""
        usual = self.ports, self.silent
        self.ports, self.silent = self.ports and 0.8, min(self.silent, 0.1)
        pod = super().pending()
        self.ports, self.silent = usual
        return pod

    def any_pod(self, name: str, namespace: str, labels: Mapping[str, str]) -> Json:
        pod = super().any_pod(name, namespace, labels)
        spec = pod["spec"]
        spec["containers"] = [
            self._container(f"c{index}") for index in range(self.weighted({1: 60, 2: 25, 3: 10, 5: 5}))
        ]
        starting = [self._container(f"i{index}") for index in range(self.weighted({0: 60, 1: 20, 2: 12, 3: 8}))]
        for container in starting:
            if self.chance(0.4):
                container["restartPolicy"] = "Always"
        if starting:
            spec["initContainers"] = starting
        if self.chance(0.1):
            spec["overhead"] = self.listed({CPU: self.amount(CPU, ASKED), MEMORY: self.amount(MEMORY, ASKED)})
        amounts = [container.pop("amounts") for container in (*spec["containers"], *starting)]
        if self.chance(self.whole):
            self._add_whole(spec, amounts)
        if self.chance(self.resized):
            self._resize(pod)
        self._add_ports(spec)
        return pod

    def _container(self, name: str) -> Json:
        found: Json = {"name": name, "image": "registry.test/app:v1"}
        common = [] if self.chance(self.silent) else self.some((CPU, MEMORY, CPU), 1, 2)
        scarce = self.some(self.scarce, 0, 2) if self.scarce and self.chance(0.5) else []
        amounts = {it: self.amount(it, ASKED) // (1 if it in self.scarce else self.frugal) for it in (*common, *scarce)}
        if HUGE.keys() & amounts.keys():
            amounts.setdefault(CPU, 100)
        exact = {it: amount for it, amount in amounts.items() if it in EXTENDED or it in HUGE}
        requests, limits = self.listed(amounts), {}
        limits = {it: requests[it] for it in exact}
        if amounts and self.chance(0.2):
            limits = dict(requests)
        return {
            **found,
            "resources": self._maybe("requests", requests) | self._maybe("limits", limits),
            "amounts": amounts,
        }

    def _add_whole(self, spec: Json, each: Iterable[Mapping[str, int]]) -> None:
        """At least what its containers ask for: those that start beside one another are more than enough.

        Without binary fractions: kube-scheduler adds the overhead to such a one in place, once more each time it looks.
        """
        names = self.some((CPU, MEMORY, *(it for it in HUGE if it in self.scarce)), 1, 3)
        whole: dict[str, int] = {}
        for name in names:
            total = sum(amounts.get(name, 0) for amounts in each)
            whole[name] = total + (
                HUGE[name] * self.random.choice((0, 1)) if name in HUGE else self.amount(name, ASKED)
            )
        if {*whole} <= HUGE.keys():
            whole[CPU] = 1000 + sum(amounts.get(CPU, 0) for amounts in each)
        requests = self.listed({it: amount for it, amount in whole.items() if amount < INT64})
        requests = {
            it: str(whole[it]) if text.endswith("Gi") and "." in text else text for it, text in requests.items()
        }
        spec["resources"] = self._maybe("requests", requests)
        limits = {it: requests[it] for it in HUGE if it in requests}
        spec["resources"].update(self._maybe("limits", limits))

    def _resize(self, pod: Json) -> None:
        """What its containers have differs from what they shall have."""
        spec = pod["spec"]
        for field, containers in (
            ("containerStatuses", spec["containers"]),
            ("initContainerStatuses", spec.get("initContainers", ())),
        ):
            statuses = [self._status(it) for it in containers if self.chance(0.7)]
            if statuses:
                pod["status"][field] = statuses
        if self.chance(0.4):
            reason = self.random.choice(("Infeasible", "Infeasible", "Deferred"))
            pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]

    def _status(self, container: Json) -> Json:
        found: Json = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
        }
        if self.chance(0.8):
            found["resources"] = {"requests": self._held()}
        if self.chance(0.4):
            found["allocatedResources"] = self._held()
        return found

    def _held(self) -> Json:
        return self.listed({it: self.amount(it, ASKED) for it in self.some((CPU, MEMORY), 0, 2)})

    def _add_ports(self, spec: Json) -> None:
        """No two of one pod are the same; those of init containers that end count for nothing."""
        taken = set()
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            for _ in range(self.random.randint(1, 3) if self.chance(self.ports) else 0):
                port = {
                    "containerPort": self.random.choice((80, 8080)),
                    "protocol": self.weighted({"TCP": 5, "UDP": 3, "SCTP": 1}),
                }
                if self.chance(0.9):
                    port["hostPort"] = self.random.choice((53, 80, 80, 443, 8080))
                if self.chance(0.5):
                    port["hostIP"] = self.random.choice(("0.0.0.0", "127.0.0.1", "127.0.0.1", "10.0.0.7", "::", "::1"))
                key = (port["protocol"], port.get("hostPort"), port.get("hostIP"))
                if key not in taken:
                    taken.add(key)
                    container.setdefault("ports", []).append(port)

    def _make_odd(self, pod: Json) -> None:
        """A status that is replaced keeps what says how far a resize is."""
        before = {key: it for key, it in pod["status"].items() if key != "phase"}
        super()._make_odd(pod)
        pod["status"] = {**before, **pod["status"]}

    # The arguments.

    def configure(self, plugin: str, args: Json) -> None:
        self.config["pluginConfig"].append(
            {"name": plugin, "args": {"apiVersion": CONFIG_API, "kind": f"{plugin}Args", **args}}
        )

    def ignore(self) -> None:
        """Some resources are none of the filter's business."""
        args: Json = {}
        if self.chance(0.5):
            args["ignoredResources"] = self.some((*EXTENDED, CPU, PAGES, "example.com/other"), 0, 3)
        if self.chance(0.5):
            args["ignoredResourceGroups"] = self.some(
                ("example.com", "vendor.io", "deviceclass.resource.kubernetes.io"), 0, 2
            )
        self.configure(FIT, args)

    def strategy(self, names: Iterable[str]) -> Json:
        """Any of the three, by some of the resources."""
        kind = self.random.choice(
            ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "RequestedToCapacityRatio")
        )
        found: Json = {"type": kind}
        if self.chance(0.8):
            found["resources"] = [self._weighed_resource(it) for it in self.some((CPU, MEMORY, *names), 1, 4)]
            if self.chance(0.05):
                found["resources"] *= 2
        if kind == "RequestedToCapacityRatio":
            found["requestedToCapacityRatio"] = {"shape": self._shape()}
        return found

    def _weighed_resource(self, name: str) -> Json:
        return {"name": name, **({"weight": self.random.choice((0, 1, 2, 3, 7, 99, 100))} if self.chance(0.7) else {})}

    def _shape(self) -> list[Json]:
        """Up, down, both, level, or a single point."""
        at = sorted(self.some(range(101), 1, self.random.choice((1, 2, 2, 3, 5))))
        if self.chance(0.4):
            at = sorted({0, *at, 100})
        scores = [self.random.randint(0, 10) for _ in at]
        if self.chance(0.3):
            scores.sort(reverse=self.chance(0.7))
        return [{"utilization": it, "score": score} for it, score in zip(at, scores, strict=True)]


def _ports(random: Random) -> Draft:
    return AllocationDraft(random, PORTS, ports=random.choice((0.2, 0.4, 0.8))).populate()


def _resources(random: Random) -> Draft:
    """What fits and what does not, and why."""
    draft = AllocationDraft(random, FIT)
    if draft.chance(0.3):
        draft.ignore()
    return draft.populate()


def _device_classes(random: Random) -> Draft:
    """Some extended resources stand for devices: where a node has none of them of its own, they are not counted."""
    draft = AllocationDraft(random, FIT, *((BALANCE,) if random.random() < 0.3 else ()))
    draft.ignore()
    names = draft.some((GPU, FPGA, GAUGE, "example.com/other"), 0, 3)
    for index, name in enumerate(("tiny", "small", "large")):
        if draft.chance(0.6):
            spec = {"extendedResourceName": names[index]} if index < len(names) else {}
            metadata = {"name": name, "uid": f"class-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
            draft.objects.append(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}
            )
    return draft.populate()


def _strategies(random: Random) -> Draft:
    draft = AllocationDraft(random, FIT)
    draft.configure(FIT, {"scoringStrategy": draft.strategy((*draft.scarce, "pods", "unknown"))})
    return draft.populate()


def _balanced(random: Random) -> Draft:
    return _with_balance(AllocationDraft(random, BALANCE)).populate()


def _with_balance(draft: AllocationDraft) -> AllocationDraft:
    if draft.chance(0.7):
        names = draft.some((CPU, MEMORY, CPU, *draft.scarce, "unknown"), 2, 5)
        draft.configure(BALANCE, {"resources": [{"name": it, "weight": 1} for it in dict.fromkeys(names)]})
    return draft


def _absurd(random: Random) -> Draft:
    """Amounts that 64 bits hardly hold, and whose sums they do not."""
    return _scored(AllocationDraft(random, FIT, BALANCE, absurd=random.choice((0.05, 0.2, 0.5))))


def _negative(random: Random) -> Draft:
    """What no API server takes: less than nothing."""
    return _scored(
        AllocationDraft(random, FIT, BALANCE, absurd=random.choice((0, 0.1)), negative=random.choice((0.05, 0.3)))
    )


def _scored(draft: AllocationDraft) -> Draft:
    if draft.chance(0.7):
        draft.configure(FIT, {"scoringStrategy": draft.strategy(draft.scarce)})
    return _with_balance(draft).populate()


def _crowded(random: Random) -> Draft:
    """The three beside those that look at nodes, and PodTopologySpread: who rejects first, weights, nominated pods."""
    others = [it for it in POINTS if random.random() < 0.5]
    draft = AllocationDraft(random, *others, PORTS, FIT, BALANCE, ports=random.choice((0, 0.2)), odd=0.25)
    if draft.chance(0.4):
        draft.configure(FIT, {"scoringStrategy": draft.strategy(draft.scarce)})
    if draft.chance(0.3):
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 2, SOFT: 1})
    if draft.nodes:
        draft.objects += [draft.nominated(f"first{index}") for index in range(draft.random.choice((0, 0, 1, 3)))]
    return _with_balance(draft).populate()


TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "ports": _ports,
    "resources": _resources,
    "device-classes": _device_classes,
    "strategies": _strategies,
    "balanced": _balanced,
    "absurd": _absurd,
    "negative": _negative,
    "crowded": _crowded,
}

UNLAWFUL: Final = frozenset({"negative", "device-classes"})
"""Topics with objects that API validation refuses, or that the oracle does not validate: DeviceClasses."""
