"""Rules of NodeVolumeLimits."""

from typing import Any, Final

import pytest

from app.runtime.guard import PluginError
from plugins.node_volume_limits.plugin import NodeVolumeLimits, NodeVolumeLimitsArgs
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
from tests.harness import Answer, World, only

NAME: Final = "NodeVolumeLimits"
FULL: Final[Answer] = ("Unschedulable", NAME, ("node(s) exceed max volume count",))
EBS: Final[JsonObject] = {"volumeID": "vol-1"}


def refused(reason: str) -> Answer:
    return ("UnschedulableAndUnresolvable", NAME, (reason,))


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


@pytest.mark.parametrize(
    ("objects", "claims", "limit", "expected"),
    [
        pytest.param([], ["a"], 1, "Success", id="room for one"),
        pytest.param([], ["a", "b"], 1, FULL, id="no room for two"),
        pytest.param([], ["a", "b"], None, "Success", id="no limit"),
        pytest.param([], ["a", "a"], 1, "Success", id="one volume twice"),
        pytest.param([running("one", "b")], ["a"], 1, FULL, id="another pod has one"),
        pytest.param([running("one", "a")], ["a"], 1, "Success", id="another pod has the same"),
        pytest.param([running("one", "a", "b")], ["a"], 1, "Success", id="nothing is added to what is too much"),
        pytest.param([running("one", "b", node="n2")], ["a"], 1, "Success", id="a pod of another node"),
        pytest.param([running("one", "gone")], ["a"], 1, "Success", id="another pod's claim is gone"),
        pytest.param([attached("pv-b")], ["a"], 1, FULL, id="one is attached that no pod has"),
        pytest.param([attached("pv-b"), running("one", "b")], ["a"], 2, "Success", id="one is attached for a pod"),
        pytest.param([attached("pv-a")], ["a"], 1, FULL, id="the same is attached, and counts twice as in-tree"),
        pytest.param([attached("pv-b", "n2")], ["a"], 1, "Success", id="one is attached elsewhere"),
        pytest.param([attached("pv-b", attacher="other")], ["a"], 1, "Success", id="one of another driver"),
        pytest.param([attached("gone")], ["a"], 1, "Success", id="one that is gone"),
    ],
)
def test_a_node_takes_so_many_volumes_of_a_driver(
    objects: list[JsonObject], claims: list[str], limit: int | None, expected: Answer
) -> None:
    found = world(*objects, a_example_com=limit)

    assert {"n1": expected, "n2": "Success"} == found.filter(found.pod(more=mounting(*claims)))


@pytest.mark.parametrize(
    ("storage_class", "expected"),
    [
        pytest.param([], "Success", id="no class"),
        pytest.param([class_object("now")], FULL, id="its driver is full"),
        pytest.param([class_object("now", provisioner="b.example.com")], "Success", id="another driver"),
        pytest.param([class_object("now", provisioner="kubernetes.io/aws-ebs")], FULL, id="a driver of old"),
        pytest.param([class_object("now", provisioner="kubernetes.io/azure-file")], "Success", id="one not counted"),
    ],
)
def test_a_volume_that_is_to_be_made_counts_for_its_class(storage_class: list[JsonObject], expected: Answer) -> None:
    limits: dict[str, Any] = {"a_example_com": 0, "ebs_csi_aws_com": 0}
    found = world(claim_object("new", class_name="now"), *storage_class, **limits)

    assert {"n1": expected, "n2": "Success"} == found.filter(found.pod(more=mounting("new")))


def test_a_disk_of_an_in_tree_driver_is_a_volume_of_the_csi_driver() -> None:
    in_tree = volume_object("pv-x", claim="x", more={"awsElasticBlockStore": EBS})
    found = world(claim_object("x", volume="pv-x"), in_tree, ebs_csi_aws_com=0)

    assert {"n1": FULL, "n2": "Success"} == found.filter(found.pod(more=mounting("x")))
    assert {"n1": FULL, "n2": "Success"} == found.filter(found.pod(more=mounting(awsElasticBlockStore=EBS)))


def test_a_claim_has_to_be_there() -> None:
    reason = 'looking up PVC default/x: persistentvolumeclaim "x" not found'
    too_long = "node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB"
    found = world(a_example_com=1)

    assert {refused(reason)} == set(found.filter(found.pod(more=mounting("x"))).values())
    assert {refused(too_long)} == set(found.filter(found.pod(more=mounting("x" * 70_000))).values())


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param(mounting(""), "PersistentVolumeClaim had no name", id="a claim without a name"),
        pytest.param(
            mounting(ephemeral=["v"]), "PVC default/web-1-v was not created for pod default/web-1", id="another's claim"
        ),
        pytest.param(
            mounting(awsElasticBlockStore={"volumeID": "aws://a/b"}),
            r"converting volume\(in-line-0\) from inline to csi: failed to translate",
            id="a disk that the CSI driver does not know",
        ),
    ],
)
def test_what_cannot_be_counted_is_an_error(more: JsonObject, expected: str) -> None:
    found = world(claim_object("web-1-v"), a_example_com=1)

    with pytest.raises(PluginError, match=expected):
        found.filter(found.pod(more=more))


def test_pods_without_such_volumes_are_not_looked_at() -> None:
    found = world(a_example_com=0)

    assert {"Success"} == set(found.filter(found.pod(more=mounting(iscsi={"iqn": "i"}))).values())


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

        assert isinstance(plugin, NodeVolumeLimits)
        assert NodeVolumeLimitsArgs() == NodeVolumeLimitsArgs.model_validate({})
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


def test_what_is_attached_is_counted_anew_when_something_changes() -> None:
    found = world(running("one", "b"), a_example_com=1)
    pod = found.pod(more=mounting("a"))
    said = [found.filter(pod)["n1"]]
    found.cluster.delete_pod(("default", "one"))
    said.append(found.filter(pod)["n1"])
    found.add(attached("pv-b"))
    said.append(found.filter(pod)["n1"])

    assert [FULL, "Success", FULL] == said
