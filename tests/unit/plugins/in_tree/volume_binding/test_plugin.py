"""Rules of VolumeBinding, up to the choice of a node."""

from collections.abc import Callable, Mapping
from itertools import count, islice
from random import Random
from typing import Any, Final

import pytest
from pydantic import ValidationError

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.following import AT_ONCE
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUMES
from app.kube.node_affinity import NodeMatcher
from app.runtime.guard import PluginError
from plugins.in_tree.volume_binding import capacity_index, changes, evaluation, free_volumes
from plugins.in_tree.volume_binding.args import VolumeBindingArgs
from plugins.in_tree.volume_binding.capacity_index import CapacityIndex
from plugins.in_tree.volume_binding.evaluation import MAX_STEPS_PER_EVALUATION, REASON_STEPS
from plugins.in_tree.volume_binding.free_volumes import LocatedVolume
from plugins.in_tree.volume_binding.volume_index import VolumeIndex
from tests.builders import (
    ZONE,
    JsonObject,
    claim_object,
    class_object,
    expression,
    mounting,
    node_object,
    storage_object,
    term,
    volume_object,
)
from tests.harness import Answer, World, answer_of, only

NAME: Final = "VolumeBinding"
AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
NO_ROOM: Final = "node(s) did not have enough free storage"
STATIC: Final = class_object("static", provisioner="kubernetes.io/no-provisioner")
LATER: Final = class_object("later")
DRIVER: Final = storage_object("storage.k8s.io/v1", "CSIDriver", "a.example.com", spec={"storageCapacity": True})


def refused(*reasons: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, reasons)


def world(*objects: JsonObject) -> World:
    """A node in each of two zones, and the classes."""
    nodes = (node_object("a", labels={ZONE: "a"}), node_object("b", labels={ZONE: "b"}))
    return World(*nodes, STATIC, LATER, *objects, profile=only(NAME))


def judged(*objects: JsonObject, claims: tuple[str, ...] = ("data",), **more: Any) -> list[Answer]:
    """What is said of both nodes."""
    found = world(*objects)
    return list(found.filter(found.pod(more=mounting(*claims, **more))).values())


def capacities(class_name: str = "later", zone: str = "a", **fields: Any) -> JsonObject:
    topology = {"matchLabels": {ZONE: zone}}
    name = f"room-{zone}"
    more = {"storageClassName": class_name, "nodeTopology": topology, **fields}
    return storage_object("storage.k8s.io/v1", "CSIStorageCapacity", name, namespace="x", **more)


def open_claim(class_name: str = "static", **fields: Any) -> JsonObject:
    return claim_object(class_name=class_name, **fields)


def test_volumes_that_are_not_read() -> None:
    reason = "node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB"

    assert [refused(reason)] * 2 == judged(claims=("x" * 70_000,))


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            [claim_object(class_name="x"), class_object("x", mode=None)],
            'VolumeBindingMode not set for StorageClass "x"',
        ),
        (
            [
                open_claim(more={"selector": {"matchLabels": {"-": ""}}}),
                volume_object(class_name="static"),
            ],
            "error creating internal label selector for claim: default/data: key",
        ),
    ],
)
def test_what_makes_no_sense_is_an_error(objects: list[JsonObject], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        judged(*objects)


def test_a_claim_that_requests_no_size_needs_no_room() -> None:
    assert ["Success"] * 2 == judged(open_claim("later", size=None), DRIVER)


def test_a_refusal_stands_as_long_as_what_it_rests_on() -> None:
    found = world(open_claim())
    plugin: Any = found.framework.plugins[NAME]
    pod = found.pod(more=mounting("data"))
    signed = [plugin.signature(pod)]
    found.add(claim_object("another"))
    signed.append(plugin.signature(pod))
    found.add(volume_object(class_name="static"))
    signed.append(plugin.signature(pod))
    found.add(open_claim(node="a", resourceVersion="2"))
    signed.append(plugin.signature(pod))

    assert (signed[0], 3) == (signed[1], len({*signed}))
    assert plugin.signature(found.pod("plain")) == plugin.signature(found.pod("other"))
    assert not plugin.depends_on(pod, pod)


def looks(monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str) -> list[object]:
    """What a method is called with from now on."""
    found: list[object] = []
    method = getattr(owner, name)

    def looked(self: object, *asked: object) -> object:
        found.append(asked)
        return method(self, *asked)

    monkeypatch.setattr(owner, name, looked)
    return found


def test_volumes_of_one_zone_are_looked_at_once_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{it}" for it in range(50)]
    stored = [(claim_object(it, volume=f"pv-{it}"), volume_object(f"pv-{it}", claim=it, zone="b")) for it in names]
    found = world(*(it for pair in stored for it in pair))
    matched = looks(monkeypatch, NodeMatcher, "matches")

    assert [refused(AFFINITY), "Success"] == list(found.filter(found.pod(more=mounting(*names))).values())
    assert 2 == len(matched)


def test_room_is_looked_for_once_a_class_and_node(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{it}" for it in range(50)]
    claims = [open_claim("later", name=it, size=f"{index + 1}Gi") for index, it in enumerate(names)]
    found = world(*claims, DRIVER, capacities(capacity="50Gi"), capacities(zone="b", capacity="49Gi"))
    asked = looks(monkeypatch, CapacityIndex, "max_size")

    assert ["Success", refused(NO_ROOM)] == list(found.filter(found.pod(more=mounting(*names))).values())
    assert 2 == len(asked)


def test_an_open_claim_takes_a_volume_for_each_of_its_mentions() -> None:
    """As kube-scheduler has it, though one would do."""
    one, two = volume_object("one", class_name="static"), volume_object("two", class_name="static")
    twice = ("data", "data")

    assert [refused(NO_VOLUME)] * 2 == judged(open_claim(), one, claims=twice)
    assert ["Success"] * 2 == judged(open_claim(), one, two, claims=twice)
    assert ["Success"] * 2 == judged(open_claim("later"), claims=twice)


def test_volumes_of_one_place_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{it}" for it in range(30)]
    nowhere: JsonObject = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term(expression("missing", "Exists"))]}}}
    far = [volume_object(f"far-{it}", class_name="static", more=nowhere) for it in range(40)]
    near = [volume_object(f"near-{it}", class_name="static", size="9Gi") for it in range(29)]
    found = world(*(open_claim(name=it) for it in names), *far, *near)
    looked = looks(monkeypatch, LocatedVolume, "is_usable_from")

    assert [refused(NO_VOLUME)] * 2 == list(found.filter(found.pod(more=mounting(*names))).values())
    assert 2 == len(looked), "those far and those near; and the nodes differ in no label that matters"


def test_a_volume_that_changes_is_all_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are."""
    many = [volume_object(f"pv-{it}", class_name="static", size="1Ki") for it in range(500)]
    found = world(open_claim(), *many)
    pod = found.pod(more=mounting("data"))
    said = [found.filter(pod)["a"]]
    looked = looks(monkeypatch, VolumeIndex, "located")
    found.add(volume_object("pv-7", class_name="static", size="9Gi", resourceVersion="2"))
    said.append(found.filter(pod)["a"])
    found.cluster.others.delete(PERSISTENT_VOLUMES, ("", "pv-7"))
    said.append(found.filter(pod)["a"])

    assert [refused(NO_VOLUME), "Success", refused(NO_VOLUME)] == said
    assert 1 == len(looked)


def test_volumes_are_taken_in_by_steps_where_there_are_many() -> None:
    many = [volume_object(f"pv-{it}", class_name="static", size="1Ki") for it in range(AT_ONCE + 100)]
    found = world(open_claim(), *many)
    pod = found.pod(more=mounting("data"))
    with pytest.raises(Unprepared) as missing:
        found.framework.search.find_nodes_that_fit(pod, found.candidates())
    found.add(volume_object("pv-7", class_name="static", size="9Gi", resourceVersion="2"))

    assert 2 == sum(1 for _ in missing.value.steps), "a hundred volumes, 64 in a step"
    assert {"Success"} == set(found.filter(pod).values())


def changed(draw: Random, version: int) -> JsonObject:
    """A volume, or room for some, as it may be next."""
    number = draw.randrange(12)
    fields: dict[str, Any] = {"resourceVersion": str(version)}
    if number > 9:
        limit = {"capacity": draw.choice(("1Gi", "2Gi", "9Gi"))}
        return capacities(draw.choice(("later", "other")), draw.choice("abc"), **limit, **fields)
    nowhere: JsonObject = {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}} if draw.random() < 0.1 else {}
    return volume_object(
        f"pv-{number}",
        class_name=draw.choice(("static", "later")),
        size=draw.choice(("1Gi", "1500Mi", "2Gi", "3Gi")),
        modes=draw.choice((("ReadWriteOnce",), ("ReadWriteMany", "ReadWriteOnce"))),
        claim=draw.choice(("", "", "", "s1")),
        zone=draw.choice(("", "a", "b")),
        phase=draw.choice(("", "", "Released")),
        labels={"disk": draw.choice(("fast", "slow"))},
        more=nowhere,
        **fields,
    )


def judged_between_changes(found: World, pod: Pod, change: Callable[[], object], draw: Random) -> dict[str, Answer]:
    """What is said in the end where objects change between steps."""
    while True:
        try:
            verdict = found.framework.filters.feasible(CycleState(), pod, found.candidates())
        except Unprepared as missing:
            for _ in islice(missing.steps, draw.randrange(8)):
                pass
            if draw.random() < 0.2:
                change()
        else:
            return {name: answer_of(verdict.rejected.get(name, SUCCESS)) for name in found.cluster.nodes}


@pytest.mark.parametrize("at_once", [1, 40, MAX_STEPS_PER_EVALUATION])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_volumes_is_what_is_found_afresh(
    monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    for name, steps in (("MAX_STEPS_PER_EVALUATION", at_once), ("_STEPS_BETWEEN_PAUSES", 1)):
        monkeypatch.setattr(evaluation, name, steps)
    for module in (free_volumes, capacity_index):
        monkeypatch.setattr(module, "STEPS_BETWEEN_YIELDS", 1)
    monkeypatch.setattr(free_volumes, "_MAX_REPLAYED_CHANGES", 3)
    monkeypatch.setattr(changes, "_MAX_CHANGES_PER_CLASS", 3)
    draw = Random(seed)
    fast = {"selector": {"matchLabels": {"disk": "fast"}}}
    found = world(
        DRIVER,
        *(open_claim(name=f"s{it}", size=size) for it, size in enumerate(("1Gi", "2Gi", "2Gi"))),
        open_claim(name="fast", more=fast),
        open_claim(name="shared", modes=("ReadWriteMany",)),
        *(open_claim("later", name=f"l{it}", size=f"{it}Gi") for it in range(1, 4)),
    )
    claims = ("s0", "s1", "s2", "fast", "shared", "l1", "l2", "l3")
    said: set[str] = set()
    versions = count()

    def change() -> None:
        if draw.random() < 0.3:
            found.cluster.others.delete(PERSISTENT_VOLUMES, ("", f"pv-{draw.randrange(10)}"))
        else:
            found.add(changed(draw, next(versions)))

    mounts = [mounting(*draw.choices(claims, k=draw.randrange(1, 5))) for _ in range(12)]
    pods = [found.pod(f"web-{number % 8}", more=it) for number, it in enumerate(mounts)]
    for _ in range(250):
        change()
        pod = draw.choice(pods)
        verdict = judged_between_changes(found, pod, change, draw)
        assert World(cluster=found.cluster, profile=only(NAME)).filter(pod) == verdict
        said.update(map(str, verdict.values()))

    assert {"Success", str(refused(NO_VOLUME)), str(refused(NO_ROOM))} <= said


def test_a_pod_is_decided_on_though_room_changes_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes on one node does not undo what was worked out for others."""
    monkeypatch.setattr(evaluation, "MAX_STEPS_PER_EVALUATION", 40)
    monkeypatch.setattr(evaluation, "_STEPS_BETWEEN_PAUSES", 10)
    names = [f"n{it}" for it in range(100)]
    versions = count()

    def room_of(name: str) -> JsonObject:
        version = str(next(versions))
        topology = {"matchLabels": {"disk": name}}
        more: Any = {"storageClassName": "later", "capacity": f"{version}9Gi", "nodeTopology": topology}
        kind = ("storage.k8s.io/v1", "CSIStorageCapacity", name)
        return storage_object(*kind, namespace="x", resourceVersion=version, **more)

    nodes = (node_object(name, labels={"disk": name}) for name in names)
    found = World(*nodes, LATER, DRIVER, open_claim("later"), *map(room_of, names), profile=only(NAME))
    pod = found.pod(more=mounting("data"))
    said: Mapping[str, Status] | None = None
    evaluations = 0
    while said is None and evaluations < len(names):
        evaluations += 1
        try:
            said = found.framework.filters.feasible(CycleState(), pod, found.candidates()).rejected
        except Unprepared as missing:
            next(missing.steps, None)
            found.add(room_of(names[evaluations % len(names)]))

    assert (True, {}) == (evaluations > 2, said)


class TestBounds:
    """A search has steps: more than these are a reason, the same whenever it is asked for."""

    TOO_MANY: Final = refused(REASON_STEPS)

    @staticmethod
    def some_volumes(**fields: Any) -> list[JsonObject]:
        nowhere = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term(expression("missing", "Exists"))]}}}
        return [volume_object(f"pv-{it}", class_name="static", more=nowhere, **fields) for it in range(20)]

    @pytest.mark.parametrize(("most", "expected"), [(20, TOO_MANY), (2000, refused(NO_VOLUME))])
    def test_free_volumes_of_a_node(self, monkeypatch: pytest.MonkeyPatch, most: int, expected: Answer) -> None:
        monkeypatch.setattr(evaluation, "MAX_STEPS_PER_NODE", most)
        found = world(open_claim(), *self.some_volumes())
        pod = found.pod(more=mounting("data"))

        assert [{"a": expected, "b": expected}] * 2 == [found.filter(pod), found.filter(pod)]

    @pytest.mark.parametrize(("most", "expected"), [(39, TOO_MANY), (40, refused(NO_VOLUME))])
    def test_looks_of_selectors(self, monkeypatch: pytest.MonkeyPatch, most: int, expected: Answer) -> None:
        monkeypatch.setattr(evaluation, "MAX_SELECTOR_MATCHES", most)
        claims = [open_claim(name=it, more={"selector": {"matchLabels": {"a": it}}}) for it in ("x", "y")]
        found = world(*claims, *self.some_volumes(labels={"a": "x"}))
        pod = found.pod(more=mounting("x", "y", "x"))

        assert [{"a": expected, "b": expected}] * 2 == [found.filter(pod), found.filter(pod)]

    def test_places_of_bound_volumes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(evaluation, "MAX_STEPS_PER_NODE", 10)
        monkeypatch.setattr(free_volumes, "STEPS_BETWEEN_YIELDS", 1)
        names = [f"c{it}" for it in range(20)]
        claims = [claim_object(it, volume=f"pv-{it}") for it in names]
        volumes = [volume_object(f"pv-{it}", claim=it, more=self.elsewhere(it)) for it in names]

        assert [self.TOO_MANY] * 2 == judged(*claims, *volumes, claims=tuple(names))

    @staticmethod
    def elsewhere(name: str) -> JsonObject:
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term(expression(ZONE, "NotIn", name))]}}}


def test_one_node_is_judged_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a bind, which waits for no more than it needs."""
    monkeypatch.setattr(evaluation, "MAX_STEPS_PER_EVALUATION", 1)
    found = world(open_claim(), volume_object(class_name="static", zone="b"))
    pod, node = found.pod(more=mounting("data")), found.cluster.nodes["a"]
    with pytest.raises(Unprepared) as missing:
        found.framework.at_bind.recheck(CycleState(), pod, node, [])
    looked = looks(monkeypatch, NodeMatcher, "matches")

    for _ in missing.value.steps:
        pass

    assert 1 >= len(looked)


def test_a_shape_is_refused_with_a_reason() -> None:
    assert VolumeBindingArgs() == VolumeBindingArgs.model_validate({"shape": None})
    with pytest.raises(ValidationError, match="feature gate StorageCapacityScoring"):
        VolumeBindingArgs.model_validate({"shape": [{"utilization": 0, "score": 0}]})
