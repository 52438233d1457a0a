"""Rules of VolumeRestrictions."""

from typing import Any, Final

import pytest

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.kube.volumes import Disks
from plugins.in_tree import volume_restrictions
from plugins.in_tree.volume_restrictions import REASON_IN_USE
from tests.builders import JsonObject, claim_object, mounting, node_object, pod_object
from tests.harness import Answer, World, only

NAME: Final = "VolumeRestrictions"
ONE: Final = ("ReadWriteOncePod",)

DISK: Final[Answer] = ("Unschedulable", NAME, ("node(s) had no available disk",))
IN_USE: Final[Answer] = ("Unschedulable", NAME, (REASON_IN_USE,))


def running(name: str, node: str = "n1", *claims: str, **sources: Any) -> JsonObject:
    return pod_object(name, node=node, more=mounting(*claims, **sources))


def world(*objects: JsonObject) -> World:
    return World(node_object("n1"), node_object("n2"), *objects, profile=only(NAME))


def gce(name: str = "d") -> JsonObject:
    return {"pdName": name, "readOnly": False}


def test_volumes_that_are_not_read() -> None:
    found = world()
    reason = "node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB"

    refused = ("UnschedulableAndUnresolvable", NAME, (reason,))
    assert {"n1": refused, "n2": refused} == found.filter(found.pod(more=mounting("x" * 70_000)))


def test_a_claim_is_free_once_its_holder_would_be_gone() -> None:
    """What a preemption tries: evicting the pod that has it helps on every node."""
    found = world(claim_object(modes=ONE), running("one", "n1", "data"))
    pod, holder = found.pod(more=mounting("data")), found.cluster.pod("default", "one")
    assert holder is not None
    state, framework, node = CycleState(), found.framework, found.cluster.nodes["n2"]
    framework.filters.pre_filter(state, pod)
    dry_run = state.clone()
    said = [framework.filters.filter_node(dry_run, pod, node)]
    framework.filters.remove_pods(dry_run, pod, [holder], node)
    said.append(framework.filters.filter_node(dry_run, pod, node))
    framework.filters.add_pods(dry_run, pod, [holder], node)
    said.append(framework.filters.filter_node(dry_run, pod, node))

    assert [False, True, False] == [it.is_success for it in said]
    assert not framework.filters.filter_node(state, pod, node).is_success


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param(mounting("data"), True, id="the same claim"),
        pytest.param(mounting("logs"), False, id="another claim"),
        pytest.param(mounting(gcePersistentDisk=gce()), True, id="the same disk"),
        pytest.param(mounting(gcePersistentDisk=gce("e")), False, id="another disk"),
        pytest.param({}, False, id="no volume"),
    ],
)
def test_who_shares_a_volume_matters(more: JsonObject, expected: bool) -> None:
    found = world()
    plugin: Any = found.framework.plugins[NAME]
    pod = found.pod(more=mounting("data", gcePersistentDisk=gce()))

    assert expected is plugin.depends_on(pod, found.pod("other", more=more))


def test_a_bind_under_way_holds_the_claim() -> None:
    found = world(claim_object(modes=ONE))
    found.cluster.assume(found.pod("first", more=mounting("data")), "n1")

    recheck = found.recheck(found.pod(more=mounting("data")), "n2")
    assert IN_USE == ("Unschedulable", recheck.status.plugin, recheck.status.reasons)
    assert found.recheck(found.pod(more=mounting(gcePersistentDisk=gce())), "n1").certain


def test_a_refusal_stands_as_long_as_the_claim_is_in_use() -> None:
    found = world(claim_object(modes=ONE), running("one", "n1", "data"))
    plugin: Any = found.framework.plugins[NAME]
    pod, disk = found.pod(more=mounting("data")), found.pod(more=mounting(gcePersistentDisk=gce()))
    before = plugin.signature(pod), plugin.signature(disk)

    found.add(running("two", "n1", "data"))
    assert before[0] == plugin.signature(pod)
    assert before[1] != plugin.signature(disk)
    found.cluster.delete_pod(("default", "one"))
    found.cluster.delete_pod(("default", "two"))
    assert before[0] != plugin.signature(pod)
    assert plugin.signature(found.pod("plain")) == plugin.signature(found.pod("other"))


def test_many_disks_are_looked_at_in_steps_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_STEPS_PER_EVALUATION", "_STEPS_BETWEEN_YIELDS"):
        monkeypatch.setattr(volume_restrictions, name, 3)
    pods = [running(f"p{it}", f"n{1 + it % 2}", gcePersistentDisk=gce(f"d{it}")) for it in range(20)]
    found = world(*pods)
    ours = found.pod(more=mounting(gcePersistentDisk=gce("d5")))
    with pytest.raises(Unprepared) as missing:
        found.framework.search.find_nodes_that_fit(ours, found.candidates())

    assert 5 <= sum(1 for _ in missing.value.steps), "some disks in each"
    monkeypatch.setattr(Disks, "conflict", lambda *_: pytest.fail("looked at once more"))
    assert {"n1": "Success", "n2": DISK} == found.filter(ours)


def test_of_pods_that_come_and_go_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no pod that runs has a volume to look at."""
    monkeypatch.setattr(volume_restrictions, "_MAX_CACHED_STEPS", 100)
    found = world()
    disks: JsonObject = {"rbd": {"monitors": [f"m{it}" for it in range(9)], "image": "i"}}
    for number in range(50):
        found.filter(found.pod(f"web-{number}", more=mounting(**disks)))

    plugin: Any = found.framework.plugins[NAME]
    assert 10 == len(plugin._cached)
