"""Rules of the volumes of pods: those that matter are kept, in their order, and bounded."""

from typing import Any, Final

import msgspec
import pytest

from app.kube.core_decoding import CoreV1, core_v1
from app.kube.core_v1 import Pod
from app.kube.csi_migration import EBS, GCE, MigratedVolume
from app.kube.extras import Extra
from app.kube.volumes import MOST_VOLUMES, VOLUMES, Disk, Disks, PodVolume
from tests.builders import JsonObject, encoded, mounting, pod_object

CORE = core_v1([Extra.VOLUMES])


def pod(*volumes: JsonObject) -> Pod:
    return CORE.decode_pod(encoded(pod_object(more={"volumes": list(volumes)})))


def test_claims_and_disks_are_kept_and_nothing_else() -> None:
    found = pod(
        {"name": "token", "projected": {"sources": []}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "none", "persistentVolumeClaim": None},
        {"name": "disk", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
    )

    disk = Disk("gcePersistentDisk", "d", read_only=True)
    migrated = MigratedVolume(GCE, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d")
    assert (
        PodVolume("data", claim="data-0"),
        PodVolume("scratch", ephemeral=True),
        PodVolume("disk", disks=(disk,), migrated=migrated),
    ) == found.spec.volumes
    assert ["data-0", "web-1-scratch", None] == [it.claim_name(found.name) for it in found.spec.volumes]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({"persistentVolumeClaim": {}}, PodVolume("v", claim=""), id="a claim without a name"),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://z/strange"}},
            PodVolume(
                "v",
                disks=(Disk("awsElasticBlockStore", "aws://z/strange"),),
                untranslatable="failed to translate Kubernetes ID to EBS Volume ID"
                " Invalid format for AWS volume (aws://z/strange)",
            ),
            id="a disk that is none of the CSI driver",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "vol-1"}},
            PodVolume("v", disks=(Disk("awsElasticBlockStore", "vol-1"),), migrated=MigratedVolume(EBS, "vol-1")),
            id="a disk of EBS",
        ),
        pytest.param(
            {"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}},
            PodVolume("v", untranslatable="kind(Shared) is not supported in csi migration"),
            id="a disk of Azure that nobody manages",
        ),
        pytest.param(
            {"cinder": {"volumeID": "c"}},
            PodVolume("v", migrated=MigratedVolume("kubernetes.io/cinder", "c")),
            id="a volume of Cinder",
        ),
        pytest.param(
            {"iscsi": {"iqn": "iqn.a", "readOnly": None}}, PodVolume("v", disks=(Disk("iscsi", "iqn.a"),)), id="iSCSI"
        ),
        pytest.param(
            {"rbd": {"monitors": ["a", "b"], "image": "i", "pool": "p"}},
            PodVolume("v", disks=(Disk("rbd", "i", monitors=("a", "b"), pool="p"),)),
            id="RBD",
        ),
    ],
)
def test_each_source_is_read(source: JsonObject, expected: PodVolume) -> None:
    assert (expected,) == pod({"name": "v", **source}).spec.volumes


def gce(**fields: Any) -> Disk:
    return Disk("gcePersistentDisk", **{"name": "d", **fields})


def rbd(*monitors: str, **fields: Any) -> Disk:
    return Disk("rbd", **{"name": "i", "pool": "p", **fields}, monitors=monitors)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(gce(), gce(), True, id="the same disk"),
        pytest.param(gce(), gce(name="e"), False, id="another one"),
        pytest.param(gce(), Disk("iscsi", "d"), False, id="one of another sort"),
        pytest.param(gce(read_only=True), gce(), True, id="one of them writes"),
        pytest.param(gce(read_only=True), gce(read_only=True), False, id="both only read"),
        pytest.param(*[Disk("awsElasticBlockStore", "d", read_only=True)] * 2, True, id="EBS, however it is used"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), True, id="an image with a monitor in common"),
        pytest.param(rbd("a"), rbd("b"), False, id="without one"),
        pytest.param(rbd("a"), rbd("a", pool="q"), False, id="of another pool"),
    ],
)
def test_two_pods_cannot_have_one_disk(one: Disk, other: Disk, expected: bool) -> None:
    ours, theirs = (PodVolume("v", disks=(one,)),), (PodVolume("w", disks=(other,)),)
    assert (expected, expected) == (Disks(ours).conflict(theirs), Disks(theirs).conflict(ours))


def test_a_disk_that_is_named_twice_is_written_if_it_is_once() -> None:
    ours = (PodVolume("v", disks=(rbd("a", read_only=True), rbd("b"))),)

    assert not Disks(ours).conflict((PodVolume("w", disks=(rbd("a", read_only=True),)),))
    assert Disks(ours).conflict((PodVolume("w", disks=(rbd("b", read_only=True),)),))
    assert Disks(ours).conflict((PodVolume("w", disks=(rbd("a"),)),))
    assert (False, True) == (bool(Disks(())), bool(Disks(ours)))


def test_disks_are_looked_up_and_not_compared_in_pairs() -> None:
    """As many look-ups as the other pod has disks, however many this one has."""
    looked: list[str] = []

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            looked.append(self)
            return hash(str(self))

        def __eq__(self, other: object) -> bool:
            looked.append(self)
            return str(self) == other

    ours = Disks([PodVolume(f"v{it}", disks=(gce(name=f"ours-{it}"),)) for it in range(MOST_VOLUMES)])
    theirs = [PodVolume(f"w{it}", disks=(gce(name=Name(f"theirs-{it}")),)) for it in range(MOST_VOLUMES)]

    assert not ours.conflict(theirs)
    assert MOST_VOLUMES <= len(looked) <= 2 * MOST_VOLUMES


@pytest.mark.parametrize(
    ("count", "length", "expected"),
    [
        pytest.param(MOST_VOLUMES, 1, (MOST_VOLUMES, ()), id="as many as are read"),
        pytest.param(MOST_VOLUMES + 1, 1, (0, ("spec.volumes",)), id="more"),
        pytest.param(2, 40_000, (0, ("spec.volumes",)), id="longer than is read"),
    ],
)
def test_they_are_bounded(count: int, length: int, expected: tuple[int, tuple[str, ...]]) -> None:
    found = CORE.decode_pod(encoded(pod_object(more=mounting(*["x" * length] * count)))).spec

    assert expected == (len(found.volumes), found.oversized)


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param({"name": 7, "persistentVolumeClaim": {"claimName": "a"}}, id="a name that is a number"),
        pytest.param({"name": "v", "persistentVolumeClaim": {"claimName": []}}, id="a claim that is a list"),
        pytest.param({"name": "v", "rbd": {"monitors": "a"}}, id="monitors that are a text"),
    ],
)
def test_what_makes_no_sense_is_told_by_its_field(volume: JsonObject) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^spec\.volumes: "):
        pod(volume)


PENDING: Final = (core_v1([Extra.PENDING_VOLUMES]), core_v1([Extra.PENDING_VOLUMES, Extra.RESOURCES]))
"""Alone, then a pod is decoded as leanly as can be, and beside another."""


@pytest.mark.parametrize("core", PENDING, ids=["alone", "beside others"])
class TestPending:
    def test_claims_are_kept_of_a_pod_that_waits(self, core: CoreV1) -> None:
        more = mounting("data", ephemeral=["scratch"], gcePersistentDisk={"pdName": "d"}, emptyDir={})
        found = core.decode_pod(encoded(pod_object("db-0", more=more))).spec.pending_volumes

        assert ["data", "db-0-scratch"] == [it.claim_name("db-0") for it in found]

    def test_one_that_has_a_node_is_like_one_without_volumes(self, core: CoreV1) -> None:
        """Else a hundred thousand pods would each have a spec of their own."""
        mounts, plain = (core.decode_pod(encoded(pod_object(node="n1", more=it))).spec for it in (mounting("data"), {}))

        assert () == mounts.pending_volumes
        assert mounts is plain

    def test_they_are_bounded(self, core: CoreV1) -> None:
        found = core.decode_pod(encoded(pod_object(more=mounting(*map(str, range(MOST_VOLUMES + 1)))))).spec

        assert ((), (VOLUMES,)) == (found.pending_volumes, found.oversized)

    @pytest.mark.parametrize(
        "volumes",
        [
            pytest.param([{"persistentVolumeClaim": 7}], id="a claim"),
            pytest.param([{"persistentVolumeClaim": {"claimName": []}}], id="the name of a claim"),
            pytest.param({"persistentVolumeClaim": {}}, id="no list"),
        ],
    )
    def test_what_makes_no_sense_is_told_by_its_field(self, core: CoreV1, volumes: Any) -> None:
        with pytest.raises(msgspec.ValidationError, match=r"spec\.volumes"):
            core.decode_pod(encoded(pod_object(more={"volumes": volumes})))


def test_what_is_too_long_is_named_once() -> None:
    core = core_v1([Extra.VOLUMES, Extra.PENDING_VOLUMES])
    found = core.decode_pod(encoded(pod_object(more=mounting(*map(str, range(MOST_VOLUMES + 1)))))).spec

    assert (VOLUMES,) == found.oversized
