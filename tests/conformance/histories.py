"""Generates histories: a cluster that hundreds of events change, and pending pods that are judged in between.

Knows nothing of Homeport, as `generate.py`. A history is its `events`, for whoever keeps a picture of the cluster from
them; and its `cases`, a case of the common format at each point where a pod is judged, for whoever starts afresh.

    {"do": "upsert", "object": {…}}     added, changed, or another of the same name
    {"do": "delete", "object": {…}}
    {"do": "assume", "object": {the waiting pod}, "node": "n1"}, then {"do": "accept"} and, some time, upsert as bound;
                                        or {"do": "forget", "object": …}: the binding failed
    {"do": "relist", "missed": […]}     events that nobody saw, made up for by listing everything anew
    {"do": "ask", "case": name, "pod": {…}, "dryRun": {"node": "n1", "steps": [{"remove": "ns/p"}, {"add": "ns/p"}]}}
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from tests.conformance.draft import HARD, NAMESPACES, SOFT, Draft, Json, draw_traits
from tests.conformance.interpod import InterPodDraft, draw
from tests.conformance.per_node import POINTS, NodeDraft

ASKED: Final = 25
"""Cases of one history."""
BETWEEN: Final = 12
"""Events, more or less, from one to the next."""
Key: TypeAlias = tuple[str, str, str]
D = TypeVar("D", bound=Draft)


class History:
    """Draws the events of one history, and keeps what the API server and the scheduler would have.

    PodTopologySpread alone judges.
    """

    topic: ClassVar = "histories"

    def __init__(self, seed: int, index: int) -> None:
        self.name = f"{self.topic}-{seed}-{index}"
        self.random = Random(self.name)
        self.draft = self._draft()
        self.config = self.draft.config
        self.world: dict[Key, Json] = {}
        self.assumed: dict[Key, str] = {}
        self.events: list[Json] = []
        self.cases: list[Json] = []
        self._made = 0
        for found in self.draft.objects:
            self._do(self.events, "upsert", found)
        self.pool = [self._pending(number) for number in range(6)]
        for _ in range(ASKED):
            for _ in range(BETWEEN):
                self._happen(self.events)
            self._ask()

    def _draft(self) -> Draft:
        traits = draw_traits(self.random, nominated=3, odd=0.1, odd_profile=0)
        draft = _on_some_nodes(lambda: Draft(self.random, traits))
        if draft.chance(0.5):
            draft.config = draft.default_config()
        draft.add_owners()
        return draft.populate()

    def _pending(self, number: int) -> Json:
        """The pods that are judged stay the same, so that what is kept for them is used and must stay right."""
        draft = self.draft
        pod = draft.pending()
        pod["metadata"].update(name=f"pending{number}", uid=f"pod-pending{number}")
        if "ownerReferences" in draft.pod["metadata"]:
            pod["metadata"]["ownerReferences"] = draft.pod["metadata"]["ownerReferences"]
        if draft.chance(0.75):
            pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 2, SOFT: 1})
        return pod

    # What may happen.

    def _happen(self, into: list[Json]) -> None:
        acts: Mapping[Callable[[list[Json]], None], float] = {
            self._pod_comes: 20,
            self._pod_changes: 30,
            self._pod_goes: 14,
            self._pod_is_replaced: 5,
            self._pod_is_assumed: 14,
            self._binding_ends: 16,
            self._node_changes: 12,
            self._node_goes: 4,
            self._node_comes: 6,
            self._service_changes: 5,
            self._owner_changes: 3,
            self._list_anew: 2,
        }
        self.draft.weighted(acts)(into)

    def _do(self, into: list[Json], what: str, found: Json, **more: Any) -> None:
        """One event, and its effect on the world."""
        key, pod = key_of(found), found["kind"] == "Pod"
        if what in ("upsert", "delete"):
            known = self.world.pop(key, None)
            anew = known is not None and known["metadata"]["uid"] != found["metadata"]["uid"]
            if pod and (what == "delete" or anew or found["spec"].get("nodeName") or _is_finished(found)):
                self.assumed.pop(key, None)
            if what == "upsert":
                self.world[key] = found
        elif what == "assume":
            self.assumed[key] = more["node"]
        elif what == "forget":
            del self.assumed[key]
        into.append({"do": what, "object": found, **more})

    def _pods(self, into: list[Json]) -> list[Json]:
        """Unseen changes leave assumed pods alone: a list that lacks such a pod does not settle its binding."""
        unseen = self.assumed if into is not self.events else ()
        return [it for key, it in self.world.items() if key[0] == "Pod" and key not in unseen and not _is_finished(it)]

    def _is_waiting(self, pod: Json) -> bool:
        spec = pod["spec"]
        gone = "deletionTimestamp" in pod["metadata"]
        return (
            not gone and not spec.get("nodeName") and "schedulingGates" not in spec and key_of(pod) not in self.assumed
        )

    def _node_names(self) -> list[str]:
        return [key[2] for key in self.world if key[0] == "Node"]

    def _some_node(self) -> str:
        names = self._node_names()
        return self.random.choice(names) if names and self.draft.chance(0.95) else "gone"

    def _pod_comes(self, into: list[Json]) -> None:
        self._made += 1
        draft = self.draft
        name = f"q{self._made}"
        pod = draft.nominated(name) if draft.chance(0.4) else self._bound(name)
        self._do(into, "upsert", pod)

    def _bound(self, name: str) -> Json:
        draft = self.draft
        namespace = draft.other_namespace() if draft.chance(0.15) else draft.namespace
        pod = draft.any_pod(name, namespace, draft.other_labels())
        return _with(pod, spec={"nodeName": self._some_node()}, status={"phase": "Running"})

    def _pod_changes(self, into: list[Json]) -> None:
        pods = self._pods(into)
        if not pods:
            return
        pod = self.random.choice(pods)
        match self.draft.weighted({"labels": 6, "terminating": 1, "finished": 1, "nominated": 2, "nothing": 1}):
            case "labels":
                pod = _with(pod, metadata={"labels": self.draft.other_labels()})
            case "terminating":
                deleted = {"deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30}
                pod = _with(pod, metadata=deleted)
            case "finished":
                pod = _with(pod, status={"phase": self.random.choice(("Succeeded", "Failed"))})
            case "nominated":
                pod = _with(pod, status={"nominatedNodeName": self.random.choice(("", self._some_node()))})
        self._do(into, "upsert", pod)

    def _pod_goes(self, into: list[Json]) -> None:
        if pods := self._pods(into):
            self._do(into, "delete", self.random.choice(pods))

    def _pod_is_replaced(self, into: list[Json]) -> None:
        """As StatefulSets do: the deletion of the old one is not seen."""
        if pods := self._pods(into):
            old = self.random.choice(pods)
            self._made += 1
            labels = old["metadata"].get("labels", {}) if self.draft.chance(0.5) else self.draft.other_labels()
            new = self.draft.any_pod(old["metadata"]["name"], old["metadata"]["namespace"], labels)
            placed: Json = {"nodeName": self._some_node()} if self.draft.chance(0.5) else {}
            self._do(into, "upsert", _with(new, metadata={"uid": f"again-{self._made}"}, spec=placed))

    def _pod_is_assumed(self, into: list[Json]) -> None:
        names = self._node_names()
        if names and (pods := [it for it in self._pods(into) if self._is_waiting(it)]):
            pod, node = self.random.choice(pods), self.random.choice(names)
            self._do(into, "assume", pod, node=node)

    def _binding_ends(self, into: list[Json]) -> None:
        if not self.assumed:
            return
        key = self.random.choice(list(self.assumed))
        pod = self.world[key]
        match self.draft.weighted({"accept": 4, "bound": 8, "elsewhere": 1, "forget": 5}):
            case "accept":
                self._do(into, "accept", pod)
            case "forget":
                self._do(into, "forget", pod)
            case "bound":
                self._do(into, "upsert", _with(pod, spec={"nodeName": self.assumed[key]}))
            case _:
                self._do(into, "upsert", _with(pod, spec={"nodeName": self._some_node()}))

    def _node_changes(self, into: list[Json]) -> None:
        names = self._node_names()
        if not names:
            return
        node = self.world["Node", "", self.random.choice(names)]
        drawn = self.draft.node(node["metadata"]["name"])
        if self.draft.chance(0.6):
            node = _with(node, metadata={"labels": drawn["metadata"].get("labels", {})})
        if self.draft.chance(0.5):
            node = {**node, "spec": drawn["spec"]}
        self._do(into, "upsert", node)

    def _node_goes(self, into: list[Json]) -> None:
        names = self._node_names()
        if len(names) > 2:
            self._do(into, "delete", self.world["Node", "", self.random.choice(names)])

    def _node_comes(self, into: list[Json]) -> None:
        """Mostly one that had gone, with its pods still there."""
        absent = [f"n{number}" for number in range(12) if ("Node", "", f"n{number}") not in self.world]
        if absent:
            self._do(
                into, "upsert", self.draft.node(absent[0] if self.draft.chance(0.7) else self.random.choice(absent))
            )

    def _service_changes(self, into: list[Json]) -> None:
        service = self.draft.service(self.random.randrange(4))
        known = self.world.get(key_of(service))
        self._do(into, "delete" if known and self.draft.chance(0.5) else "upsert", service)

    def _owner_changes(self, into: list[Json]) -> None:
        owners = self.draft.pod["metadata"].get("ownerReferences")
        if not owners or owners[0]["kind"] == "Job":
            return
        kind = owners[0]["kind"]
        api = "v1" if kind == "ReplicationController" else "apps/v1"
        owner = self.draft.workload(api, kind, "owner")
        known = self.world.get(key_of(owner))
        self._do(into, "delete" if known and self.draft.chance(0.3) else "upsert", owner)

    def _list_anew(self, into: list[Json]) -> None:
        if into is not self.events:
            return
        missed: list[Json] = []
        for _ in range(self.random.randint(0, 6)):
            acts = (self._pod_comes, self._pod_changes, self._pod_goes, self._pod_is_replaced, self._node_changes)
            self.random.choice((*acts, self._node_goes, self._node_comes, self._service_changes))(missed)
        into.append({"do": "relist", "missed": missed})

    # What is asked.

    def _ask(self) -> None:
        name = f"{self.name}-{len(self.cases)}"
        pod = self.random.choice(self.pool)
        asked: Json = {"pod": pod, "dryRun": self._dry_run()}
        self.events.append({"do": "ask", "case": name, **asked})
        objects = [self._as_placed(key, found) for key, found in self.world.items()]
        self.cases.append({"name": name, "config": self.config, "objects": objects, **asked})

    def story(self) -> Json:
        """All of it but the cases, which follow from it."""
        return {"name": self.name, "config": self.config, "events": self.events}

    def _as_placed(self, key: Key, found: Json) -> Json:
        """The scheduler's cache has an assumed pod on its node."""
        node = self.assumed.get(key)
        return found if node is None else _with(found, spec={"nodeName": node})

    def _dry_run(self) -> Json | None:
        """Pods taken off a node one by one, some of them put back: what a preemption tries."""
        placed: dict[str, list[str]] = {}
        for key, found in self.world.items():
            if key[0] == "Pod" and not _is_finished(found):
                name = self.assumed.get(key) or found["spec"].get("nodeName", "")
                placed.setdefault(name, []).append(f"{key[1]}/{key[2]}")
        names = [name for name in self._node_names() if name in placed]
        if not names:
            return None
        node = self.random.choice(names)
        removed = self.draft.some(placed[node], 1, 5)
        back = self.draft.some(removed, 0, 3)
        return {"node": node, "steps": [*({"remove": it} for it in removed), *({"add": it} for it in back)]}


class NodeHistory(History):
    """The same for the plugins that look at one node at a time, beside PodTopologySpread: taints and cordons change."""

    topic: ClassVar = "node-histories"

    def _draft(self) -> Draft:
        return _on_some_nodes(lambda: NodeDraft(self.random, *POINTS, naming=0.1, odd=0)).populate()


class InterPodHistory(History):
    """The same for InterPodAffinity: pods with terms come and go, and namespaces change instead of services."""

    topic: ClassVar = "interpod-histories"
    draft: InterPodDraft

    def _draft(self) -> Draft:
        return _on_some_nodes(lambda: draw(self.random, odd=0)).populate()

    def _pending(self, number: int) -> Json:
        pod = self.draft.pending()
        pod["metadata"].update(name=f"pending{number}", uid=f"pod-pending{number}")
        return pod

    def _service_changes(self, into: list[Json]) -> None:
        namespace = self.draft.namespace_object(self.random.choice(NAMESPACES))
        known = self.world.get(key_of(namespace))
        self._do(into, "delete" if known and self.draft.chance(0.3) else "upsert", namespace)


HISTORIES: Final[Mapping[str, type[History]]] = {kind.topic: kind for kind in (History, NodeHistory, InterPodHistory)}


def _on_some_nodes(draw: Callable[[], D]) -> D:
    """A draft with 3 to 12 nodes."""
    found = draw()
    while not 3 <= len(found.nodes) <= 12:
        found = draw()
    return found


def _is_finished(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _with(found: Json, **parts: Json) -> Json:
    """A copy with some fields of some parts replaced."""
    return {**found, **{part: {**found[part], **fields} for part, fields in parts.items()}}


def key_of(found: Json) -> Key:
    """Kind, namespace and name."""
    return found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]
