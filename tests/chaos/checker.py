"""Judges what the API server says happened. Shares no code with the product: it imports nothing of it.

Its only input is a history: the events of watches on pods, nodes and leases, in the order of
``resourceVersion``, which is the order in which the API server accepted the writes.

*At rest* (no bind under way): in every group of pods with the same hard constraint, the fullest domain has at most
maxSkew pods more than the emptiest. Counted as kube-scheduler counts: pods in the namespace that match the selector,
are bound, not finished and not terminating, on eligible nodes.

*In the order of acceptance*: at each accepted binding, was the constraint kept by everything accepted before it? A
binding is decided a moment before it is accepted. Whatever is bound in that moment only ever makes the judgement
stricter for the one who comes second, so bindings need no allowance. A deletion does: it may lower the minimum after
the decision. So a binding is a violation if it is one in *every* view that its decision may have had: the state at its
acceptance, with the pods put back that went away since its pod was created, one after the other, newest first. Where
nothing went away meanwhile there is one view, and the judgement is exact. What is put back is reported as excused.

Nodes and the labels of bound pods are expected to stay as they are; a history in which they do not is refused.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal[
    "Pod", "Node", "Lease", "VirtualMachine", "VirtualMachineInstance", "StatefulSet", "Home", "PodDisruptionBudget"
]
Change: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

HARD: Final = "DoNotSchedule"
HOME: Final = "homeport.dev/home"
ADDRESS: Final = "homeport.dev/address"
FENCE: Final = "homeport.dev/unclear-bind"
NO_OPTIONS: Final[Json] = {}
FINISHED: Final = ("Succeeded", "Failed")
_MATCH_FIELDS: Final = "matchFields"


class UnsupportedHistory(Exception):
    """The history holds something this checker does not judge: better to say so than to wave it through."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change as the API server told it. ``received``: when it was seen here, monotonic seconds."""

    kind: Kind
    change: Change
    found: Json
    received: float = 0.0

    @property
    def revision(self) -> int:
        return int(self.found["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.found["metadata"]["uid"])


@dataclass(frozen=True, slots=True)
class Violation:
    """``revision``: of the binding, or of the last event where the state at rest is judged."""

    revision: int
    pod: str
    node: str
    constraint: str
    counts: Mapping[str, int]


@dataclass(slots=True)
class OrderJudgement:
    """``excused``: broken at acceptance, and kept in a view from before a deletion."""

    binds: int = 0
    violations: list[Violation] = field(default_factory=list)
    excused: list[Violation] = field(default_factory=list)


def ordered(events: Iterable[Event]) -> list[Event]:
    """Events of several watches in the order of acceptance."""
    return sorted(events, key=lambda it: it.revision)


@dataclass(slots=True)
class _State:
    """Pods and nodes at one revision. ``gone``: pods that counted and went away, oldest first."""

    pods: dict[str, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    gone: list[tuple[int, Json]] = field(default_factory=list)

    def apply(self, event: Event) -> Json | None:
        """Take one event in; returns the pod if this was its binding."""
        if event.kind == "Node":
            self._apply_node(event)
        elif event.kind == "Pod":
            return self._apply_pod(event)
        return None

    def _apply_pod(self, event: Event) -> Json | None:
        before = self.pods.get(event.uid)
        self.created.setdefault(event.uid, event.revision)
        if before is not None and _counts(before) and (event.change == "DELETED" or not _counts(event.found)):
            self.gone.append((event.revision, before))
        if event.change == "DELETED":
            self.pods.pop(event.uid, None)
            return None
        # A binding itself brings labels along: the API server copies the node's topology onto the pod.
        if before is not None and _node_of(before) and _labels(before) != _labels(event.found):
            raise UnsupportedHistory(f"{_name(event.found)} was relabelled")
        self.pods[event.uid] = event.found
        was_waiting = before is not None and not _node_of(before)
        return event.found if was_waiting and _node_of(event.found) else None

    def _apply_node(self, event: Event) -> None:
        name = event.found["metadata"]["name"]
        before = self.nodes.pop(name, None)
        if event.change != "DELETED":
            self.nodes[name] = event.found
        unchanged = before is not None and event.change != "DELETED" and _place(before) == _place(event.found)
        if not unchanged and any(_node_of(pod) for pod in self.pods.values()):
            raise UnsupportedHistory(f"node {name} changed while pods were bound")


def judge_order(history: Iterable[Event], beyond: Json = NO_OPTIONS) -> OrderJudgement:
    """Judge every binding of a pod that was seen waiting. Raises ``UnsupportedHistory``.

    ``beyond``: options of the profile that change the rule, as in Homeport's configuration.
    """
    state, judgement = _State(), OrderJudgement()
    for event in ordered(history):
        bound = state.apply(event)
        if bound is None:
            continue
        judgement.binds += 1
        for constraint in hard_constraints(bound):
            _judge_binding(state, event, _filled(constraint, beyond), judgement, beyond)
    return judgement


def _filled(constraint: Json, beyond: Json) -> Json:
    """The constraint with the profile's values of fields that it leaves out."""
    missing: Json = beyond.get("defaults") or {}
    return {**missing, **{field: value for field, value in constraint.items() if value}}


def _judge_binding(state: _State, event: Event, constraint: Json, judgement: OrderJudgement, beyond: Json) -> None:
    pod, others = event.found, [it for uid, it in state.pods.items() if uid != event.uid]
    counts = _counted(pod, constraint, state.nodes.values(), others)
    if _kept(pod, constraint, counts, state.nodes, beyond):
        return
    found = Violation(event.revision, _name(pod), _node_of(pod), _described(constraint), dict(counts))
    since = state.created[event.uid]
    for revision, put_back in reversed(state.gone):
        if revision < since:
            break
        others.append(put_back)
        if _kept(pod, constraint, _counted(pod, constraint, state.nodes.values(), others), state.nodes, beyond):
            judgement.excused.append(found)
            return
    judgement.violations.append(found)


def _kept(pod: Json, constraint: Json, counts: Mapping[str, int], nodes: Mapping[str, Json], beyond: Json) -> bool:
    """kube-scheduler's rule for one pod on one node: matching pods there, with it, less the minimum over domains.

    With options, the minimum is that of the open domains, and a domain can grow to the size of the largest one.
    """
    node = nodes.get(_node_of(pod))
    domain = None if node is None else _node_labels(node).get(constraint["topologyKey"])
    if domain is None:
        return False
    here = counts.get(domain, 0) + int(_matches(constraint, pod, pod))
    compared = counts
    if beyond.get("untoleratedDomains") == "Ignore":
        key = constraint["topologyKey"]
        open_domains = {_node_labels(it).get(key) for it in nodes.values() if _is_open(pod, it)}
        compared = {name: count for name, count in counts.items() if name in open_domains} or counts
    minimum = _minimum(constraint, compared, len(counts))
    most = max(compared.values(), default=0) if beyond.get("onViolation") == "AllowNotWorse" else 0
    return here <= max(int(constraint["maxSkew"]) + minimum, most)


def fits(pod: Json, node: Json, nodes: Mapping[str, Json], others: Iterable[Json]) -> bool:
    """Return true if the pod can be bound to the node beside these pods, as far as this checker judges it."""
    if not _is_open(pod, node) or not _wants(pod, node):
        return False
    placed = {**pod, "spec": {**pod["spec"], "nodeName": node["metadata"]["name"]}}
    others = list(others)
    return all(
        _kept(placed, it, _counted(placed, it, nodes.values(), others), nodes, NO_OPTIONS)
        for it in hard_constraints(pod)
    )


def _is_open(pod: Json, node: Json) -> bool:
    return not node["spec"].get("unschedulable") and _tolerates(pod, node)


def judge_rest(history: Iterable[Event]) -> list[Violation]:
    """Every hard constraint of every bound pod, in the state after the last event, on the nodes as they are then."""
    events = ordered(history)
    state = _State()
    for event in sorted(events, key=lambda it: it.kind != "Node"):
        state.apply(event)
    found = []
    for pod, constraint in _groups(state.pods.values()):
        counts = _counted(pod, constraint, state.nodes.values(), state.pods.values())
        if counts and max(counts.values()) - _minimum(constraint, counts) > int(constraint["maxSkew"]):
            found.append(Violation(events[-1].revision, _name(pod), "", _described(constraint), dict(counts)))
    return found


def _groups(pods: Iterable[Json]) -> Iterator[tuple[Json, Json]]:
    """One pod for all that have the same constraint over the same pods and nodes."""
    seen = set()
    for pod in pods:
        if not _counts(pod):
            continue
        for constraint in hard_constraints(pod):
            keys = [_labels(pod).get(key) for key in constraint.get("matchLabelKeys") or ()]
            where = (pod["spec"].get("nodeSelector"), pod["spec"].get("affinity"), pod["spec"].get("tolerations"))
            group = json.dumps([pod["metadata"]["namespace"], constraint, keys, where], sort_keys=True)
            if group not in seen:
                seen.add(group)
                yield pod, constraint


def hard_constraints(pod: Json) -> list[Json]:
    """Those of the pod's spread constraints that forbid."""
    return [it for it in pod["spec"].get("topologySpreadConstraints") or () if it["whenUnsatisfiable"] == HARD]


def _counted(pod: Json, constraint: Json, nodes: Iterable[Json], pods: Iterable[Json]) -> Counter[str]:
    """Matching pods by domain; domains without any are there with 0."""
    key = constraint["topologyKey"]
    every_key = {it["topologyKey"] for it in hard_constraints(pod)}
    domains = {
        node["metadata"]["name"]: _node_labels(node)[key]
        for node in nodes
        if every_key <= _node_labels(node).keys() and _eligible(pod, constraint, node)
    }
    counts = Counter(dict.fromkeys(domains.values(), 0))
    for other in pods:
        domain = domains.get(_node_of(other))
        if domain is not None and _counts(other) and _matches(constraint, pod, other):
            counts[domain] += 1
    return counts


def _minimum(constraint: Json, counts: Mapping[str, int], domains: int | None = None) -> int:
    """The smallest count; ``domains``: how many domains count for ``minDomains``, if not those of ``counts``."""
    if (len(counts) if domains is None else domains) < int(constraint.get("minDomains") or 1):
        return 0
    return min(counts.values(), default=0)


def _counts(pod: Json) -> bool:
    """Bound, not on its way out, not finished: kube-scheduler sees no others."""
    terminating = pod["metadata"].get("deletionTimestamp") is not None
    return bool(_node_of(pod)) and not terminating and pod.get("status", {}).get("phase") not in FINISHED


def _matches(constraint: Json, pod: Json, other: Json) -> bool:
    """Whether ``other`` is one of the pods that ``pod``'s constraint is about."""
    if pod["metadata"]["namespace"] != other["metadata"]["namespace"]:
        return False
    selector = constraint.get("labelSelector")
    if selector is None:
        return False
    mine, theirs = _labels(pod), _labels(other)
    same = all(mine[key] == theirs.get(key) for key in constraint.get("matchLabelKeys") or () if key in mine)
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    return same and wanted.items() <= theirs.items() and all(_satisfies(it, theirs) for it in expressions)


def _eligible(pod: Json, constraint: Json, node: Json) -> bool:
    honors_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
    honors_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    return (not honors_affinity or _wants(pod, node)) and (not honors_taints or _tolerates(pod, node))


def _wants(pod: Json, node: Json) -> bool:
    """nodeSelector and required node affinity."""
    labels = _node_labels(node)
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required["nodeSelectorTerms"]
    if any(term.get(_MATCH_FIELDS) for term in terms):
        raise UnsupportedHistory(f"{_name(pod)} selects nodes by field")
    return any(all(_satisfies(it, labels) for it in term["matchExpressions"]) for term in terms)


def _tolerates(pod: Json, node: Json) -> bool:
    tolerations = pod["spec"].get("tolerations") or ()
    taints = [it for it in node["spec"].get("taints") or () if it["effect"] != "PreferNoSchedule"]
    return all(any(_tolerated(taint, it) for it in tolerations) for taint in taints)


def _tolerated(taint: Json, toleration: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def _satisfies(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise UnsupportedHistory(f"operator {other}")


def bound_twice(history: Iterable[Event]) -> list[str]:
    """Pods whose node changed after they had one."""
    nodes: defaultdict[str, dict[str, None]] = defaultdict(dict)
    names: dict[str, str] = {}
    for event in ordered(history):
        if event.kind == "Pod" and _node_of(event.found):
            nodes[event.uid][_node_of(event.found)] = None
            names[event.uid] = _name(event.found)
    return [f"{names[uid]} on {', '.join(found)}" for uid, found in nodes.items() if len(found) > 1]


def late_bindings(
    history: Iterable[Event], lease: str, bound_by: Mapping[str, str], holders: Mapping[str, str]
) -> list[str]:
    """Bindings accepted from one who did not hold the Lease at that revision.

    ``bound_by``: who bound a pod, by its name, as the API server's audit log says. ``holders``: who is at an address,
    which the holder of the Lease keeps in an annotation on it.
    """
    holder, found = "", []
    waiting: set[str] = set()
    for event in ordered(history):
        if event.kind == "Lease" and _name(event.found) == lease:
            told = (event.found["metadata"].get("annotations") or {}).get(ADDRESS, "")
            holder = holders.get(told, "") if event.found["spec"].get("holderIdentity") else ""
        elif event.kind == "Pod":
            name = _name(event.found)
            if not _node_of(event.found):
                waiting.add(name)
            elif name in waiting:
                waiting.remove(name)
                if bound_by.get(name) not in (None, holder):
                    found.append(f"{name} bound by {bound_by[name]} while {holder or 'nobody'} held the lease")
    return found


def bound_after_fence(history: Iterable[Event], bound_by: Mapping[str, str], ended: Mapping[str, float]) -> list[str]:
    """Bindings of an ended process that were accepted after its pod had been fenced, which was after its end.

    ``bound_by``: who bound a pod, by its name. ``ended``: when a process had ended, on the clock of the events.
    """
    fences: dict[str, tuple[str, float]] = {}
    bound: set[str] = set()
    found = []
    for event in ordered(it for it in history if it.kind == "Pod"):
        name = _name(event.found)
        if _node_of(event.found):
            sender = bound_by.get(name, "")
            fenced_at = fences.get(event.uid, ("", float("-inf")))[1]
            if event.uid not in bound and fenced_at > ended.get(sender, float("inf")):
                found.append(f"{name} bound by {sender} after it was fenced")
            bound.add(event.uid)
            continue
        fence = (event.found["metadata"].get("annotations") or {}).get(FENCE, "")
        if fence and fence != fences.get(event.uid, ("", 0.0))[0]:
            fences[event.uid] = (fence, event.received)
    return found


def seconds(timestamp: str) -> float:
    """Seconds since the epoch of a time as the API server writes it."""
    return datetime.fromisoformat(timestamp).timestamp()


def waiting_pods(history: Sequence[Event]) -> list[str]:
    """Pods that are there and have no node after the last event."""
    pods: dict[str, Json] = {}
    for event in ordered(history):
        if event.kind == "Pod":
            pods[event.uid] = event.found
            if event.change == "DELETED":
                del pods[event.uid]
    return [_name(pod) for pod in pods.values() if not _node_of(pod)]


def _name(found: Json) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def _node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _labels(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


_node_labels = _labels


def _place(node: Json) -> object:
    return (_node_labels(node), node["spec"].get("taints"))


def _described(constraint: Json) -> str:
    selector = json.dumps(constraint.get("labelSelector"), sort_keys=True)
    return f"{constraint['topologyKey']} maxSkew {constraint['maxSkew']} {selector}"
