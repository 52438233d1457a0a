"""Objects and events that no watch should bring, and some that a tenant can make it bring: the same for a seed.

``@V@`` in what is sent is the version that the API server gives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from msgspec import Struct

from tests.api import test_generated_input as generated
from tests.api.mutations import mutated
from tests.apiserver import RESOURCES, event
from tests.builders import (
    JsonObject,
    claim_object,
    constraint,
    controller,
    encoded,
    mounting,
    node_object,
    pod_object,
    volume_object,
)
from tests.fuzz.world import MORE_NODES, VERSION, WAITS_IN, cluster

KINDS: Final = tuple(map(str, RESOURCES))
_CLUSTER_WIDE: Final = frozenset(str(it) for it in RESOURCES if not it.namespaced)
NAMES: Final = 300
"""So many names are used in turn: an object comes, changes and goes."""

_NAMESPACE: Final = "fuzzed"
_LARGEST: Final = 1_500_000
"""Bytes that etcd takes."""


class Case(Struct, frozen=True):
    """``line`` is what the watch of ``kind`` brings. ``item``: the same object for a list, if that can be.

    ``hopeless``: nobody could read an object out of it, so it must be counted. ``once``: it ends the watch.
    """

    number: int
    family: str
    kind: str
    line: bytes
    item: bytes | None = None
    hopeless: bool = False
    once: bool = False


class _Made(Struct):
    """What a family makes of a base object: its bytes, or a whole line. ``listable``: it is JSON."""

    raw: bytes
    listable: bool = True
    hopeless: bool = False
    line: bytes | None = None
    once: bool = False


Family = Callable[[Random, JsonObject], _Made]


def _bases() -> dict[str, list[JsonObject]]:
    """Good objects of each kind: those of the world, and such as it lacks."""
    found: dict[str, list[JsonObject]] = {kind: [] for kind in KINDS}
    for made in cluster():
        found[f"{made['apiVersion']} {made['kind']}"].append(made)
    selector = {"matchLabels": {"app": "app-1"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}
    for it in RESOURCES:
        metadata = {
            "labels": {"app": "app-1"},
            "annotations": {"homeport.dev/home": "more-1", "homeport.dev/home-pod": "u"},
            "ownerReferences": [controller("VirtualMachine", "db01", api_version="kubevirt.io/v1")],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        }
        spec = {"selector": selector if it.api_version == "apps/v1" else {"app": "app-1"}, "running": True}
        if it.kind not in ("Pod", "Node"):
            made = {"apiVersion": it.api_version, "kind": it.kind, "metadata": metadata, "spec": spec}
            found[str(it)] += [{**made, "status": {"nodeName": "more-1", "phase": "Running"}}] * 3
    found["v1 Node"] += [
        node_object("x", zone="eu-1a", labels={"a": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        _marked_node(),
    ]
    found["v1 PersistentVolumeClaim"].append(claim_object(volume="pv-1", class_name="local", node="more-1"))
    found["v1 PersistentVolume"].append(volume_object(claim="data", zone="eu-1a", class_name="local"))
    found["v1 Pod"] += [
        pod_object(
            namespace=WAITS_IN,
            labels={"app": "app-1"},
            annotations={"homeport.dev/home": "more-2"},
            owner=controller("VirtualMachineInstance", "db01", api_version="kubevirt.io/v1"),
            spread=[constraint(app="app-1", min_domains=2, match_label_keys=["app"])],
            node=f"more-{place}",
            node_selector={"kubernetes.io/os": "linux"},
            tolerations=[{"key": "k", "operator": "Exists"}],
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        )
        for place in range(3)
    ]
    found["v1 Pod"].append(pod_object(namespace=WAITS_IN, more=mounting("data", ephemeral=["scratch"])))
    return found


def _marked_node() -> JsonObject:
    """One with all that is read of how a node is."""
    status = {
        "conditions": [{"type": it, "status": "True"} for it in ("Ready", "MemoryPressure", "NetworkUnavailable")],
        "nodeInfo": {"systemUUID": "4C4C4544-0042-3510-8052-B4C04F4D4E31"},
    }
    found = node_object("x", unschedulable=True, taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    found["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"harvesterhci.io/maintain-status": "running", "kubevirt.io/heartbeat": "now"},
    }
    return {**found, "status": status}


_BASES: Final = _bases()


def _base(random: Random, kind: str, number: int) -> JsonObject:
    """One of them under a name of ours."""
    made: JsonObject = json.loads(json.dumps(random.choice(_BASES[kind])))
    name = f"fuzzed-{number % NAMES}"
    made["metadata"] |= {"name": name, "uid": f"uid-{name}-{number % (3 * NAMES)}", "resourceVersion": VERSION}
    if kind not in _CLUSTER_WIDE:
        made["metadata"]["namespace"] = _NAMESPACE
    return made


def _json(found: Any) -> bytes:
    return json.dumps(found, ensure_ascii=False).encode()


# families


def good(random: Random, base: JsonObject) -> _Made:
    """Ordinary life: an object moves."""
    if base["kind"] == "Pod":
        base["spec"]["nodeName"] = f"more-{random.randrange(MORE_NODES)}"
        base["status"] = {"phase": random.choice(("Pending", "Running", "Succeeded"))}
    elif base["kind"] == "Node":
        base["metadata"]["labels"] = {"topology.kubernetes.io/zone": f"eu-1{random.choice('abcd')}"}
    return _Made(encoded(base))


def spoiled(random: Random, base: JsonObject) -> _Made:
    """What is no UTF-8 is a family of its own: no API server sends that."""
    raw = mutated(random, encoded(base), deep=False).replace(b"\n", b" ").decode(errors="replace").encode()
    return _Made(raw, listable=_is_json(raw))


def no_utf8(random: Random, base: JsonObject) -> _Made:
    raw = bytearray(_json(base))
    for _ in range(random.randint(1, 3)):
        raw[random.randrange(len(raw))] = random.randrange(0x80, 0x100)
    return _Made(bytes(raw), listable=False)


def grown(random: Random, base: JsonObject) -> _Made:
    """Some field, outer or of ``metadata``, ``spec`` or ``status``, is anything at all."""
    place = random.choice([base, *(it for it in (base.get("metadata"), base.get("spec"), base.get("status")) if it)])
    key = random.choice(list(place))
    place[key] = generated.grown(random, 1)
    return _Made(_json(base))


def repeated(random: Random, base: JsonObject) -> _Made:
    """A key comes twice, with different values."""
    raw = _json(base)
    places = [index for index, byte in enumerate(raw) if byte == ord("{") and raw[index + 1] != ord("}")]
    at = random.choice(places) + 1
    key = random.choice(("name", "namespace", "uid", "labels", "metadata", "spec", "nodeName", "annotations"))
    again = _json({key: random.choice((None, 1, "x", {}, [], {"name": "twice"}))})[1:-1]
    return _Made(raw[:at] + again + b"," + raw[at:] if random.random() < 0.5 else raw[:-1] + b"," + again + b"}")


def huge(random: Random, base: JsonObject) -> _Made:
    """As large as the API server stores, in one text, in many labels, in a list, or in numbers."""
    metadata = base["metadata"]
    size = random.choice((100_000, _LARGEST))
    match random.randrange(6):
        case 0:
            metadata["annotations"] = {"example.com/large": "x" * size}
        case 1:
            metadata["annotations"] = {"homeport.dev/home": "n" * size}
        case 2:
            metadata["labels"] = {f"label-{place}": "v" for place in range(size // 20)}
        case 3:
            metadata["managedFields"] = [{"manager": f"m{place}"} for place in range(size // 20)]
        case 4:
            metadata["ownerReferences"] = [{"kind": "X", "name": f"o{place}"} for place in range(size // 30)]
        case _:
            base["spec"] = {**(base.get("spec") or {}), "more": [10**20] * (size // 24)}
    return _Made(_json(base))


def nested(random: Random, base: JsonObject) -> _Made:
    """Up to 10,000 levels, as a rule where the API server keeps what it does not know."""
    depth = random.choice((50, 200, 1200, 5000, 10_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"f:a":', b"}")))
    where = random.random()
    if where < 0.6:
        base["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": "DEEP"}]
    elif where < 0.8:
        base["spec"] = {**(base.get("spec") or {}), "template": "DEEP"}
    else:
        place = random.choice([it for it in (base, base["metadata"], base.get("spec")) if it])
        place[random.choice(list(place))] = "DEEP"
    return _Made(_json(base).replace(b'"DEEP"', opening * depth + b"1" + closing * depth))


def wide(random: Random, base: JsonObject) -> _Made:
    """A pod with thousands of constraints, selectors or terms; a workload with a large selector."""
    count = random.choice((1000, 4500))
    many = [{"key": f"k{place}", "operator": "NotIn", "values": ["a", "b"]} for place in range(count)]
    if base["kind"] != "Pod":
        base["spec"] = {"selector": {"matchExpressions": many}}
        return _Made(_json(base))
    match random.randrange(3):
        case 0:
            base["spec"]["topologySpreadConstraints"] = [constraint(f"k{place}", app="a") for place in range(count)]
        case 1:
            base["spec"]["topologySpreadConstraints"] = [constraint(selector={"matchExpressions": many})]
        case _:
            terms = {"nodeSelectorTerms": [{"matchExpressions": [it]} for it in many]}
            base["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return _Made(_json(base))


def hopeless(random: Random, base: JsonObject) -> _Made:
    """Not even a name can be read."""
    nameless = {**base, "metadata": {**base["metadata"], "name": random.choice((None, "", 7, [], {}))}}
    found: Any = random.choice(
        (nameless, None, [], "x", 1, True, {}, {"metadata": None}, {"metadata": {}}, {**base, "metadata": []})
    )
    return _Made(_json(found), hopeless=True)


_LINES: Final = (
    b"",
    b"{}",
    b"null",
    b"[]",
    b"{",
    b"\x00\x00",
    b'{"type":null,"object":null}',
    b'{"type":"ADDED"}',
    b'{"type":"ADDED","object":null}',
    b'{"type":7,"object":{}}',
    b'{"type":"NEW","object":{"metadata":{"name":"x"}}}',
    b'{"object":{"metadata":{"name":"x"}}}',
    b'{"type":"BOOKMARK","object":null}',
    b'{"type":"BOOKMARK","object":{}}',
    b'{"type":"BOOKMARK","object":{"metadata":null}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":null}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":""}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}',
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"@V@","annotations":null}}}',
    b'{"type":"DELETED","object":{}}',
    b'{"type":"DELETED","object":{"metadata":{"name":"nobody"}}}',
    b'{"type":"ADDED","object":{"metadata":{"name":"x"}}}{"type":"ADDED","object":{}}',
)
_ENDS: Final = (
    b'{"type":"ERROR","object":null}',
    b'{"type":"ERROR","object":{}}',
    b'{"type":"ERROR","object":"x"}',
    b'{"type":"ERROR","object":{"code":"x"}}',
    b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}',
    b'{"type":"ERROR","object":{"code":500,"message":null,"details":{"retryAfterSeconds":-1}}}',
)


def bad_events(random: Random, _: JsonObject) -> _Made:
    return _Made(b"", listable=False, line=random.choice(_LINES))


def errors(random: Random, _: JsonObject) -> _Made:
    """The watch is over, for better or worse reasons."""
    return _Made(b"", listable=False, line=random.choice(_ENDS), once=True)


FAMILIES: Final[Mapping[str, tuple[float, Family]]] = {
    "good": (20, good),
    "mutated": (35, spoiled),
    "no-utf8": (1, no_utf8),
    "grown": (15, grown),
    "repeated": (10, repeated),
    "hopeless": (6, hopeless),
    "bad-events": (5, bad_events),
    "errors": (0.3, errors),
    "huge": (0.3, huge),
    "nested": (2, nested),
    "wide": (0.2, wide),
}
"""How often, and how."""


def made(seed: int, number: int, families: Mapping[str, tuple[float, Family]] = FAMILIES) -> Case:
    """The case of this number, whatever was made before. ``families``: to choose from; which it is decides it."""
    weights = [weight for weight, _ in families.values()]
    (name,) = Random(f"objects {seed} {number}").choices(tuple(families), weights)
    random = Random(f"objects {seed} {number} {name}")
    kind = random.choice(KINDS)
    it = families[name][1](random, _base(random, kind, number))
    how = random.choices(("ADDED", "MODIFIED", "DELETED"), (5, 4, 2))[0]
    line = event(how, it.raw) if it.line is None else it.line
    item = it.raw if it.listable else None
    return Case(number, name, kind, line, item, it.hopeless and how != "DELETED", it.once)


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)
