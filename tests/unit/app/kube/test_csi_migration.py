"""Rules of volumes of in-tree drivers: what they are to the CSI drivers that do their work."""

import pytest

from app.kube.csi_migration import (
    BETA_REGION,
    BETA_ZONE,
    EBS,
    GCE,
    PORTWORX,
    REGION,
    ZONE,
    MigratedVolume,
    Untranslatable,
    azure_disk,
    ebs_disk,
    gce_disk,
    migrated_affinity,
    zones_label_of,
)
from app.kube.node_affinity import NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity

EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def affinity(*terms: dict[str, str]) -> RequiredNodeAffinity:
    """Each term asks for some labels, values separated by commas."""
    return RequiredNodeAffinity(
        terms=tuple(
            NodeSelectorTerm(
                tuple(NodeSelectorRequirement(key, "In", tuple(text.split(","))) for key, text in it.items())
            )
            for it in terms
        )
    )


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        pytest.param("", "zones/UNSPECIFIED", id="no zone"),
        pytest.param("us-east-a", "zones/us-east-a", id="one zone"),
        pytest.param("us-east-a__us-east-b", "regions/us-east", id="two of one region"),
    ],
)
def test_a_gce_disk_is_in_a_zone_or_a_region(label: str, expected: str) -> None:
    assert f"projects/UNSPECIFIED/{expected}/disks/d" == gce_disk("d", label).handle


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        pytest.param("a__b", "zone in unexpected format, expected: {locale}-{region}-{zone}, got: a", id="no zones"),
        pytest.param(
            "us-west-a__us-east-a",
            "multiple or no regions gotten from zones, got: map[us-east:{} us-west:{}]",
            id="of two regions",
        ),
    ],
)
def test_a_gce_disk_in_strange_zones_is_none_of_the_driver(label: str, expected: str) -> None:
    with pytest.raises(Untranslatable) as raised:
        gce_disk("d", label)

    assert f"failed to get region from zones: {expected}" == str(raised.value)


@pytest.mark.parametrize(
    ("volume_id", "expected"),
    [
        pytest.param("vol-1", "vol-1", id="by its id"),
        pytest.param("aws://us-east-1a/vol-1", "vol-1", id="by a URL"),
        pytest.param("aws:///vol-1/", "vol-1", id="by a URL without a zone"),
    ],
)
def test_an_ebs_volume_goes_by_its_id(volume_id: str, expected: str) -> None:
    assert MigratedVolume(EBS, expected) == ebs_disk(volume_id)


@pytest.mark.parametrize("volume_id", ["aws://z/disk-1", "aws://z/vol-1/more", "aws://[z/vol-1"])
def test_an_ebs_volume_with_a_strange_url_is_none_of_the_driver(volume_id: str) -> None:
    with pytest.raises(Untranslatable, match="failed to translate Kubernetes ID to EBS Volume ID Invalid"):
        ebs_disk(volume_id)


@pytest.mark.parametrize("kind", [None, "Managed", "managed"])
def test_a_managed_azure_disk_goes_by_its_uri(kind: str | None) -> None:
    assert ("u", "disk.csi.azure.com") == (azure_disk("u", kind).handle, azure_disk("u", kind).driver)


@pytest.mark.parametrize(
    ("plugin", "found", "labels", "expected"),
    [
        pytest.param(EBS, None, {}, None, id="nothing is known"),
        pytest.param(EBS, None, {ZONE: "a"}, affinity({EBS_ZONE: "a"}), id="a zone in a label"),
        pytest.param(EBS, None, {BETA_ZONE: "b__a"}, affinity({EBS_ZONE: "a,b"}), id="zones in a label of old"),
        pytest.param(EBS, None, {ZONE: "____"}, None, id="a label without a zone"),
        pytest.param(
            EBS, affinity({ZONE: "a"}), {ZONE: "b"}, affinity({EBS_ZONE: "a"}), id="affinity before the label"
        ),
        pytest.param(
            EBS,
            affinity({"disk": "ssd"}, {"disk": "hdd"}),
            {ZONE: "a"},
            affinity({"disk": "ssd", EBS_ZONE: "a"}, {"disk": "hdd", EBS_ZONE: "a"}),
            id="a zone in a label, for every term",
        ),
        pytest.param(
            GCE,
            affinity({BETA_ZONE: "a", BETA_REGION: "r"}),
            {},
            affinity({"topology.gke.io/zone": "a", REGION: "r"}),
            id="names of old",
        ),
        pytest.param(PORTWORX, affinity({ZONE: "a"}), {}, affinity({ZONE: "a"}), id="of a driver without zones"),
    ],
)
def test_where_a_volume_can_be_used_is_told_in_the_drivers_labels(
    plugin: str, found: RequiredNodeAffinity | None, labels: dict[str, str], expected: RequiredNodeAffinity | None
) -> None:
    assert expected == migrated_affinity(plugin, found, labels)


def test_a_label_of_old_comes_before_a_new_one() -> None:
    assert ["a", "b", ""] == [zones_label_of(it) for it in ({BETA_ZONE: "a", ZONE: "b"}, {ZONE: "b"}, {})]
