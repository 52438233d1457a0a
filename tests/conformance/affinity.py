"""Topics of the plugins that look at labels, images and features of nodes.

Knows nothing of Homeport. What a pod asks for is mostly made from what some node has, and then spoilt a little: what
nearly matches is where mistakes show.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from tests.conformance import per_node
from tests.conformance.draft import CONFIG_API, HARD, PLUGIN, PREFERRED, REQUIRED, SOFT, ZONE, Draft, Json
from tests.conformance.per_node import CORDON, TAINTS, NodeDraft

AFFINITY: Final = "NodeAffinity"
IMAGES: Final = "ImageLocality"
FEATURES: Final = "NodeDeclaredFeatures"
GATES: Final = "SchedulingGates"

OPERATORS: Final = ("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
UNLAWFUL_OPERATORS: Final = ("", "in", "=", "Matches<&>")
INVALID_VALUES: Final = ("not ok!", "-a", "é", "x" * 64, 'a"b\\c\n', "\u00ad")
"""The API server takes them in preferred terms."""

NO_NUMBERS: Final = ("-7", "+7", "x1", "", "1.5", "0x1", "9223372036854775808", "-9223372036854775809")
UNLAWFUL_KEYS: Final = ("", "a/b/c", "/name", "Upper/name", "sub domain/x", "-x", "y" * 64, f"{'z' * 254}/x")
LABELS: Final = (("disk", ("ssd", "hdd", "nvme")), ("gen", ("1", "5", "10")), (ZONE, ("t0", "t1")), ("absent", ("a",)))


class AffinityDraft(NodeDraft):
    """Pods with terms of every kind, before a profile of ``plugins``, NodeAffinity among them.

    ``lawful``: the API server would take every term. Where not, there are also operators, keys and numbers of values
    that it refuses, weights of 0, and required affinities without any term.
    """

    points: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **per_node.POINTS,
        GATES: ("preEnqueue",),
        AFFINITY: ("preFilter", "filter", "preScore", "score"),
        IMAGES: ("score",),
        FEATURES: ("preFilter", "filter"),
    }

    def __init__(self, random: Random, *plugins: str, lawful: bool = True, **more: Any) -> None:
        self.broken = random.choice((0, 0, 0, 0.1))
        self.demanding = random.choice((0, 0.3, 0.5, 0.8) if lawful else (0, 0.2, 0.4))
        self.wishing = random.choice((0.3, 0.8, 1, 1) if lawful else (0.8, 1, 1, 1))
        self.enforcing = random.choice((0, 0, 0, 0.6))
        super().__init__(random, *plugins, lawful=lawful, **more)
        if AFFINITY in plugins and self.chance(self.enforcing):
            self.config["pluginConfig"] = [self._arguments()]

    # Terms.

    def pending(self) -> Json:
        pod = super().pending()
        if self.chance(0.15):
            pod["spec"]["nodeSelector"] = self._selector()
        affinity: Json = {}
        if self.chance(self.demanding):
            affinity[REQUIRED] = self._required()
        if self.chance(self.wishing):
            affinity[PREFERRED] = self._preferred()
        if affinity or self.chance(0.1):
            pod["spec"]["affinity"] = {"nodeAffinity": affinity} if self.chance(0.95) else {}
        if GATES in self.plugins and self.chance(0.3):
            pod["spec"]["schedulingGates"] = [{"name": f"example.com/{name}"} for name in self.some("abc")]
        return pod

    def _selector(self) -> Json:
        labels = self._labels_of_a_node()
        found = {key: labels[key] for key in self.some(sorted(labels), 0, 1)}
        if self.chance(0.15):
            found[self.random.choice(("disk", "absent"))] = self.random.choice(("ssd", ""))
        return found

    def _labels_of_a_node(self) -> Json:
        return dict(self.random.choice(self.nodes)["metadata"].get("labels", {})) if self.nodes else {}

    def _required(self) -> Json:
        if not self.lawful and self.chance(0.08):
            return self.random.choice(({}, {"nodeSelectorTerms": []}))
        terms = [self._term() for _ in range(self.weighted({1: 2, 2: 4, 3: 3, 5: 1}))]
        if self.chance(0.15):
            for term in terms:
                term["matchFields"] = [self._field() for _ in range(self.weighted({1: 4, 2: 2, 3: 1}))]
        return {"nodeSelectorTerms": terms}

    def _preferred(self) -> list[Json]:
        """Terms with weights, some of them more than once; of some the values are none that a label can have."""
        terms = [self._weighed_term() for _ in range(self.weighted({0: 0.5, 1: 2, 2: 3, 4: 4, 8: 2}))]
        if terms and self.chance(0.2):
            terms.append(dict(self.random.choice(terms)))
        if terms and self.chance(self.broken):
            self._break(self.random.choice(terms)["preference"])
        return terms

    def _weighed_term(self) -> Json:
        weight = self.random.choice((1, 1, 2, 7, 33, 50, 100))
        if not self.lawful and self.chance(0.1):
            weight = 0
        return {"weight": weight, "preference": self._term()}

    def _term(self) -> Json:
        expressions = [self._requirement() for _ in range(self.weighted({0: 0.3, 1: 8, 2: 2, 3: 0.5}))]
        fields = [self._field()] if self.chance(0.12) else []
        return self._maybe("matchExpressions", expressions) | self._maybe("matchFields", fields)

    def _requirement(self) -> Json:
        """Of a label that some node has, or of one that it could have."""
        labels = self._labels_of_a_node()
        key, pool = self.random.choice(LABELS)
        if labels and self.chance(0.7):
            key = self.random.choice(sorted(labels))
            pool = (str(labels[key]), *pool[:2])
        operator = self.random.choice(OPERATORS)
        if operator in ("Gt", "Lt"):
            key = "gen" if self.chance(0.8) else key
            return {
                "key": key,
                "operator": operator,
                "values": [self.random.choice(("0", "4", "5", "7", "007"))],
            }
        found = self._with_values(key, operator, tuple(dict.fromkeys(pool)))
        if not self.lawful and self.chance(0.025):
            self._spoil(found)
        return found

    def _field(self) -> Json:
        name = self.node_name() if self.nodes and self.chance(0.9) else "gone"
        found: Json = {
            "key": "metadata.name",
            "operator": self.random.choice(("In", "In", "In", "NotIn")),
            "values": [name],
        }
        if not self.lawful and self.chance(0.2):
            flaws: tuple[Json, ...] = (
                {"operator": "Exists"},
                {"values": [name, "gone"]},
                {"values": []},
                {"key": "metadata.namespace"},
                {"key": "spec.unschedulable", "values": [""]},
            )
            found.update(self.random.choice(flaws))
        return found

    def _spoil(self, found: Json) -> None:
        """What API validation refuses in a requirement."""
        flaws: tuple[Json, ...] = (
            {"operator": self.random.choice(UNLAWFUL_OPERATORS)},
            {"key": self.random.choice(UNLAWFUL_KEYS)},
            {"values": []},
            {"values": ["1", "2"], "operator": "Gt"},
            {"values": ["a"], "operator": "Exists"},
        )
        found.update(self.random.choice(flaws))
        if self.chance(0.3):
            found.pop("values", None)

    def _break(self, term: Json) -> None:
        """What it lets through in a preferred term, and no parser takes."""
        broken = {"key": "disk", "operator": "In", "values": [self.random.choice(INVALID_VALUES), "ssd"]}
        if self.chance(0.4):
            operator = self.random.choice(("Gt", "Lt"))
            broken = {"key": "gen", "operator": operator, "values": [self.random.choice(NO_NUMBERS)]}
        term.setdefault("matchExpressions", []).append(broken)

    # The profile.

    def _arguments(self) -> Json:
        """An affinity for all pods. kube-scheduler does not start with terms that cannot be parsed."""
        lawful, broken, self.lawful, self.broken = self.lawful, self.broken, True, 0
        added: Json = {}
        if self.chance(0.4):
            added[REQUIRED] = self._required()
        if self.chance(0.6):
            added[PREFERRED] = self._preferred()
        self.lawful, self.broken = lawful, broken
        args = {"apiVersion": CONFIG_API, "kind": f"{AFFINITY}Args", "addedAffinity": added}
        return {"name": AFFINITY, "args": args}


NAMES: Final = (
    "web", "web:latest", "web:v2", "registry.test/app:v1", "registry.test:5000/app", "registry.test:5000/app:latest",
    "registry.test:5000/team/big:1.0", "registry.test/init", "registry.test/init:v1", "data:latest",
    "registry.test/app@sha256:0123", "gcr.test/a/b/c:1-2",
)  # fmt: skip
MIB: Final = 1 << 20


class ImageDraft(AffinityDraft):
    """Nodes with up to a dozen images, each under several names, and pods that want some of them.

    ``volumes``: pods have image volumes too, which count since Kubernetes 1.36. An image has mostly one size; some
    nodes report another one, or one that no image has.
    """

    def __init__(self, random: Random, *plugins: str, volumes: bool = False) -> None:
        self.volumes = volumes
        self.stocked = random.choice((0.3, 0.6, 0.9))
        self.sizes = {
            name: random.choice((1, 20, 23, 24, 300, 999, 1000, 2500)) * MIB + random.randrange(MIB) for name in NAMES
        }
        self.other_sizes = random.choice((0, 0, 0.2))
        super().__init__(random, *plugins)

    def node(self, name: str) -> Json:
        found = super().node(name)
        images = [self._image(it) for it in self.some(NAMES, 0, 12) if self.chance(self.stocked)]
        if images or self.chance(0.3):
            found["status"]["images"] = images
        return found

    def _image(self, name: str) -> Json:
        names = [name, *self.some(NAMES, 0, 2)] if self.chance(0.2) else [name]
        size = self.sizes[name]
        if self.chance(self.other_sizes):
            size = self.random.choice((0, -1, size // 2, size * 3, 2**40, 2**62, 2**63 - 1))
        return {"names": names, "sizeBytes": size}

    def pending(self) -> Json:
        pod = super().pending()
        wanted = [self.random.choice(NAMES) for _ in range(self.weighted({1: 4, 2: 3, 3: 2, 6: 1}))]
        pod["spec"]["containers"] = [self._container(f"c{index}", name) for index, name in enumerate(wanted)]
        if self.chance(0.3):
            init = self.some(NAMES, 1, 3)
            pod["spec"]["initContainers"] = [self._container(f"i{index}", name) for index, name in enumerate(init)]
            if self.chance(0.4):
                pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
        if self.volumes:
            some = [self.random.choice(NAMES) for _ in range(self.weighted({0: 1, 1: 4, 2: 3, 5: 1}))]
            volumes: list[Json] = [{"name": f"v{it}", "image": {"reference": name}} for it, name in enumerate(some)]
            pod["spec"]["volumes"] = [*volumes, {"name": "scratch", "emptyDir": {}}]
        return pod

    def _container(self, name: str, image: str) -> Json:
        return {"name": name, "image": image}


RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
DECLARED: Final = (
    "AnotherFeature",
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
    RESTART_ALL,
    RESTART_ALL,
    HOST_NETWORK,
    HOST_NETWORK,
    "Zoned/subFeature",
)


class FeatureDraft(AffinityDraft):
    """Nodes that declare some features, and pods that need one.

    Not ``lawful``: a host network within a user namespace, whose gate is off, and lists that are not in order.
    """

    def __init__(self, random: Random, *plugins: str, lawful: bool = True) -> None:
        self.declaring = random.choice((0.5, 0.8, 1))
        super().__init__(random, *plugins, lawful=lawful)

    def node(self, name: str) -> Json:
        found = super().node(name)
        if self.chance(self.declaring):
            declared = sorted(set(self.some(DECLARED, 0, 6)))
            if not self.lawful and self.chance(0.4):
                self.random.shuffle(declared)
                declared += declared[:1]
            found["status"]["declaredFeatures"] = declared
        return found

    def pending(self) -> Json:
        pod = super().pending()
        pod["spec"]["containers"].append({"name": "other", "image": "registry.test/app:v1"})
        if self.chance(0.3):
            pod["spec"]["initContainers"] = [{"name": "init", "image": "registry.test/init:v1"}]
        containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
        for container in self.some(containers, 0, 2):
            container["restartPolicy"] = "Never"
            container["restartPolicyRules"] = [self._rule() for _ in range(self.random.randint(1, 3))]
        if self.chance(0.3):
            pod["spec"]["hostNetwork"] = True
        if self.chance(0.4) and (not self.lawful or "hostNetwork" not in pod["spec"]):
            pod["spec"]["hostUsers"] = self.chance(0.2)
        return pod

    def _rule(self) -> Json:
        action = "RestartAllContainers" if self.chance(0.6) else "Restart"
        return {"action": action, "exitCodes": {"operator": "In", "values": [self.random.randint(1, 9)]}}


def _draw(make: Callable[..., AffinityDraft], *plugins: str, **more: Any) -> Callable[[Random], Draft]:
    """Of some topics one plugin alone, or several that see each other's rejections and scores."""

    def draw(random: Random) -> Draft:
        own, *others = plugins
        beside: Sequence[str] = random.sample(others, random.randint(0, len(others))) if random.random() < 0.6 else ()
        draft = make(random, *(it for it in AffinityDraft.points if it == own or it in beside), **more)
        if PLUGIN in draft.plugins:
            draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 1, SOFT: 2})
        return draft.populate()

    return draw


_OTHERS: Final = (GATES, TAINTS, CORDON, PLUGIN)

TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "affinity": _draw(AffinityDraft, AFFINITY, *_OTHERS),
    "affinity-odd": _draw(AffinityDraft, AFFINITY, *_OTHERS, lawful=False),
    "images": _draw(ImageDraft, IMAGES, TAINTS, AFFINITY, PLUGIN),
    "image-volumes": _draw(ImageDraft, IMAGES, AFFINITY, volumes=True),
    "features": _draw(FeatureDraft, FEATURES, TAINTS, AFFINITY),
    "features-odd": _draw(FeatureDraft, FEATURES, TAINTS, AFFINITY, lawful=False),
}

UNLAWFUL: Final = frozenset({"affinity-odd", "features-odd"})
"""Topics with objects that API validation refuses."""

SINCE_136: Final = frozenset({"image-volumes", "features", "features-odd"})
"""Topics in which 1.35 says something else."""
