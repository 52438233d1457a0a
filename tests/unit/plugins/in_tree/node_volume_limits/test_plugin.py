"""Rules of NodeVolumeLimits."""

from random import Random
from typing import Any, Final

import pytest

import plugins.in_tree.node_volume_limits.attachment_counts as counting
from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.resources import Mounts
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, VOLUME_ATTACHMENTS
from app.runtime.guard import PluginError
from plugins.in_tree.node_volume_limits.volume_resolver import NO_NODE, VolumeResolver
from tests.builders import (
    JsonObject,
    claim_object,
    class_object,
    csi_node_object,
    mounting,
    node_object,
    pod_object,
    storage_object,
    volume_object,
)
from tests.harness import Answer, World, answer_of, only

NAME: Final = "NodeVolumeLimits"
FULL: Final[Answer] = ("Unschedulable", NAME, ("node(s) exceed max volume count",))


def stored(*names: str) -> list[JsonObject]:
    """Claims with a volume each, of ``a.example.com``."""
    pairs = [(claim_object(it, volume=f"pv-{it}"), volume_object(f"pv-{it}", claim=it)) for it in names]
    return [each for pair in pairs for each in pair]


def running(name: str, *claims: str, node: str = "n1", **fields: Any) -> JsonObject:
    return pod_object(name, node=node, more=mounting(*claims, **fields))


def attached(volume: str, node: str = "n1", attacher: str = "a.example.com") -> JsonObject:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return storage_object("storage.k8s.io/v1", "VolumeAttachment", f"attachment-{volume}", spec=spec)


def world(*objects: JsonObject, **limits: Any) -> World:
    """A node with ``limits``, underscores for dots; and one that tells of no driver."""
    nodes = (node_object("n1"), node_object("n2"), csi_node_object("n1", **limits))
    return World(*nodes, *stored("a", "b", "c"), *objects, profile=only(NAME))


def test_volumes_that_are_not_read_or_have_no_name() -> None:
    found = world(a_example_com=1)
    reason = "node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB"

    assert {("UnschedulableAndUnresolvable", NAME, (reason,))} == set(
        found.filter(found.pod(more=mounting("x" * 70_000))).values()
    )
    with pytest.raises(PluginError, match="PersistentVolumeClaim had no name"):
        found.filter(found.pod(more=mounting("")))


class TestCertainty:
    def in_flight(self, *claims: str, **limits: int) -> World:
        found = world(attached("pv-c"), **limits)
        found.cluster.assume(found.pod("first", more=mounting(*claims)), "n1")
        return found

    @pytest.mark.parametrize(
        ("theirs", "ours", "limit", "expected"),
        [
            pytest.param(["b"], ["a"], 3, True, id="room for both"),
            pytest.param(["a"], ["a"], 2, True, id="the same volume, whoever comes"),
            pytest.param(["c"], ["c"], 1, False, id="room only while the other one has the volume that is attached"),
            pytest.param(["c"], ["c"], 2, True, id="room for it in any case"),
        ],
    )
    def test_a_bind_holds_whatever_becomes_of_the_others(
        self, theirs: list[str], ours: list[str], limit: int, expected: bool
    ) -> None:
        found = self.in_flight(*theirs, a_example_com=limit)
        recheck = found.recheck(found.pod(more=mounting(*ours)), "n1")

        assert (True, expected) == (recheck.status.is_success, recheck.certain)

    def test_who_has_volumes_matters_to_who_has(self) -> None:
        found = world()
        plugin: Any = found.framework.plugins[NAME]
        with_volume, plain = found.pod(more=mounting("a")), found.pod("plain")

        assert [True, False, False] == [
            plugin.depends_on(*it) for it in ((with_volume, with_volume), (plain, with_volume), (with_volume, plain))
        ]

    def test_a_refusal_stands_as_long_as_what_is_attached(self) -> None:
        found = world(a_example_com=0)
        plugin: Any = found.framework.plugins[NAME]
        pod = found.pod(more=mounting("a"))
        signed = [plugin.signature(pod)]
        found.add(pod_object("plain", node="n1"))
        signed.append(plugin.signature(pod))
        found.add(running("one", "b"))
        signed.append(plugin.signature(pod))
        found.add(attached("pv-b"))
        signed.append(plugin.signature(pod))

        assert signed[0] == signed[1]
        assert 3 == len({*signed})
        assert plugin.signature(found.pod("plain")) == plugin.signature(found.pod("other"))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes for which a pod's volumes are looked up, from now on; not those of new pods."""
    found: list[str] = []
    of_pod = VolumeResolver.of_pod

    def looked(self: VolumeResolver, pod: Mounts, node: str, **more: bool) -> Any:
        if node != NO_NODE:
            found.append(node)
        return of_pod(self, pod, node, **more)

    monkeypatch.setattr(VolumeResolver, "of_pod", looked)
    return found


def crowd(nodes: int = 20, *claims: str) -> World:
    """Nodes with a limit, on each a pod with a claim of its own and ``claims``."""
    found = World(*stored(*claims, "a"), profile=only(NAME))
    for it in range(nodes):
        found.add(node_object(f"n{it}"), csi_node_object(f"n{it}", a_example_com=2 + len(claims)), *stored(f"c{it}"))
        found.add(running(f"p{it}", f"c{it}", *claims, node=f"n{it}"))
    return found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(claim_object("c3", volume="pv-a", resourceVersion="2"), ["n3"], id="a claim that is on a node"),
        pytest.param(claim_object("new"), [], id="a claim that is on none"),
        pytest.param(volume_object("pv-c3", claim="c3", size="9Gi", resourceVersion="2"), ["n3"], id="a volume"),
        pytest.param(volume_object("pv-new"), [], id="a volume of nobody"),
        pytest.param(class_object("now"), [], id="a class of nobody"),
        pytest.param(attached("pv-c3", "n3"), [], id="an attachment, whose node's pods are the same"),
        pytest.param(running("more", "c4", node="n5"), ["n5"], id="a pod, and none that was there before"),
    ],
)
def test_a_change_touches_the_nodes_that_rest_on_it(
    monkeypatch: pytest.MonkeyPatch, change: JsonObject, expected: list[str]
) -> None:
    found = crowd()
    looked = counted(monkeypatch)
    pod = found.pod(more=mounting("a"))
    found.filter(pod)
    assert 20 == len(looked)

    looked.clear()
    found.add(change)
    found.filter(pod)
    assert expected == looked


def test_a_shared_claim_touches_its_nodes_only_when_it_leads_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may change his claim many times a second."""
    found = crowd(20, "b")
    pod = found.pod(more=mounting("a"))
    said = [set(found.filter(pod).values())]
    looked = counted(monkeypatch)
    for version in range(2, 9):
        found.add(claim_object("b", volume="pv-b", node=f"n{version}", resourceVersion=str(version)))
        said.append(set(found.filter(pod).values()))
    assert ([{"Success"}] * 8, []) == (said, looked)

    found.add(claim_object("b", volume="pv-a", resourceVersion="10"))
    found.filter(pod)
    assert 20 == len(looked)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(volume_object("pv-late", claim="late"), FULL, id="its volume comes"),
        pytest.param(class_object("now"), FULL, id="its class comes"),
        pytest.param(claim_object("late", volume="pv-a", resourceVersion="2"), "Success", id="it is another volume"),
    ],
)
def test_a_claim_that_led_nowhere_is_found_again(change: JsonObject, expected: Answer) -> None:
    waiting = claim_object("late", volume="pv-late", class_name="now")
    found = world(waiting, running("one", "late"), a_example_com=1)
    pod = found.pod(more=mounting("a"))
    assert "Success" == found.filter(pod)["n1"]

    found.add(change)
    assert expected == found.filter(pod)["n1"]


def test_a_node_that_cannot_be_counted_is_counted_once_it_can() -> None:
    ephemeral = running("one", ephemeral=["v"])
    found = world(claim_object("one-v", volume="pv-b"), ephemeral, running("two", "c"), a_example_com=2)
    pod = found.pod(more=mounting("a"))
    for _ in range(2):
        with pytest.raises(PluginError, match="was not created for pod"):
            found.filter(pod)

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "default/one", "controller": True}
    uid = found.cluster.pod("default", "one")
    assert uid is not None
    made = claim_object("one-v", volume="pv-b", ownerReferences=[{**owner, "uid": uid.uid}], resourceVersion="2")
    assert FULL == found.add(made).filter(pod)["n1"]
    found.cluster.delete_pod(("default", "one"))
    assert "Success" == found.filter(pod)["n1"]


def test_many_nodes_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_VOLUMES_PER_SEARCH", 10)
    found = crowd(60)
    pod, looked = found.pod(more=mounting("a")), counted(monkeypatch)
    with pytest.raises(Unprepared) as missing:
        found.framework.search.find_nodes_that_fit(pod, found.candidates())
    first = len(looked)
    each = [len(looked) for _ in missing.value.steps]

    assert first < 15
    assert list(range(first + 1, 61)) == each
    assert 60 == len(found.framework.search.find_nodes_that_fit(pod, found.candidates()).passed)
    assert 60 == len(looked)


def test_a_victim_that_goes_costs_the_look_at_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run takes pods away one by one and puts some back."""
    found = world(*(running(f"p{it}", "b" if it else "c") for it in range(30)), a_example_com=2)
    framework, pod, state = found.framework, found.pod(more=mounting("a")), CycleState()
    framework.filters.pre_filter(state, pod)
    node = found.cluster.nodes["n1"].with_pods(())
    said, looked = [framework.filters.filter_node(state, pod, node).is_success], counted(monkeypatch)
    for victim in tuple(node.pods.values()):
        node.drop(victim.uid)
        said.append(framework.filters.filter_node(state, pod, node).is_success)
        if victim.name != "p0":
            node.put(victim)
            framework.filters.filter_node(state, pod, node)

    assert [False, *[True] * 30] == said
    assert 29 == len(looked)


def test_what_pods_left_behind_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that never were are named by pod after pod; those that are there count as before."""
    monkeypatch.setattr(counting, "MAX_TRACKED_OBJECTS", 100)
    found = crowd(5)
    plugin: Any = found.framework.plugins[NAME]
    pod, most, looked = found.pod(more=mounting("a")), 0, counted(monkeypatch)
    for it in range(60):
        found.add(running(f"late-{it}", *(f"gone-{it}-{each}" for each in range(10)), node="n1"))
        assert {"Success"} == set(found.filter(pod).values())
        found.cluster.delete_pod(("default", f"late-{it}"))
        most = max(most, len(plugin._resolver))

    assert 100 < most < 200
    assert len(looked) < 60 + 5 * 10


def test_pods_with_many_claims_that_lead_nowhere_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_TRACKED_OBJECTS", 100)
    found = crowd(5)
    found.add(*(running(f"odd-{it}", *(f"gone-{it}-{each}" for each in range(100)), node="n1") for it in range(5)))
    pod, looked = found.pod(more=mounting("a")), counted(monkeypatch)
    for _ in range(3):
        found.filter(pod)

    assert 10 == len(looked)


CLAIMS: Final = ("a", "b", "c", "p1-a")


def changed(draw: Random, version: int) -> JsonObject:
    """One of the objects that count, as it may be next."""
    claim, number, node = draw.choice(CLAIMS), draw.randrange(4), draw.choice(("n1", "n2", "n3"))
    volume = draw.choice(("", f"pv-{draw.choice(CLAIMS)}"))
    fields: dict[str, Any] = {"resourceVersion": str(version)}
    return draw.choice(
        (
            claim_object(claim, volume=volume, class_name=draw.choice(("now", "other")), **fields),
            volume_object(f"pv-{claim}", claim=claim, more={"csi": csi(draw)} if number else {}, **fields),
            class_object(draw.choice(("now", "other")), provisioner=draw.choice(DRIVERS), **fields),
            {**attached(f"pv-{claim}", node, draw.choice(DRIVERS)), "metadata": {"name": f"va-{number}", **fields}},
            csi_node_object(node, a_example_com=draw.choice((None, 1, 2)), b_example_com=draw.choice((1, 3))),
            pod_object(
                f"p{draw.randrange(6)}",
                node=node,
                uid=f"uid-{version}",
                resource_version=str(version),
                more=mounting(*draw.sample(CLAIMS, draw.randrange(3)), ephemeral=["a"] if number else []),
            ),
        )
    )


DRIVERS: Final = ("a.example.com", "b.example.com")


def csi(draw: Random) -> JsonObject:
    return {"driver": draw.choice(DRIVERS), "volumeHandle": f"handle-{draw.randrange(3)}"}


def gone(draw: Random, cluster: Cluster) -> None:
    """One of the objects that count is deleted."""
    kind = draw.choice((PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, PODS))
    if kind is PODS:
        cluster.delete_pod(("default", f"p{draw.randrange(6)}"))
        return
    keys = sorted(cluster.others.keys(kind))
    if keys:
        cluster.others.delete(kind, draw.choice(keys))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_is_counted_afresh(seed: int) -> None:
    draw = Random(seed)
    said: set[str] = set()
    found = World(*(node_object(it) for it in ("n1", "n2", "n3")), profile=only(NAME))
    for version in range(1, 300):
        if draw.random() < 0.25:
            gone(draw, found.cluster)
        else:
            found.add(changed(draw, version))
        pod = found.pod(more=mounting(*draw.sample(CLAIMS, 1 + draw.randrange(2))))
        fresh = World(cluster=found.cluster, profile=only(NAME))
        verdict = said_of(found, pod)
        assert said_of(fresh, pod) == verdict
        said.update(map(str, verdict.values()))

    assert {"Success", str(FULL), "fault"} < said


def said_of(found: World, pod: Pod) -> dict[str, Answer | str]:
    """What is said of each node by itself: a fault of one does not hide the others."""
    verdicts: dict[str, Answer | str] = {}
    for name, node in found.cluster.nodes.items():
        state = CycleState()
        try:
            status = found.framework.filters.pre_filter(state, pod).status
            status = found.framework.filters.filter_node(state, pod, node) if status.is_success else status
            verdicts[name] = answer_of(status)
        except PluginError:
            verdicts[name] = "fault"
    return verdicts
