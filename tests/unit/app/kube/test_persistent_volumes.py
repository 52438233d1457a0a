"""Rules of claims and volumes: what of them is read, and what nobody may make of them."""

from typing import Any

import msgspec
import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.kube.persistent_volumes import ClaimReference, decode_claim, decode_volume
from app.kube.quantity import ZERO, Quantity
from app.kube.selectors import EVERYTHING
from app.kube.volume_affinity import without_match_fields
from tests.builders import ZONE, claim_object, encoded, expression, storage_object, term, volume_object

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


def claim(**fields: Any) -> Any:
    return decode_claim(encoded(claim_object(**fields)))


def volume(**fields: Any) -> Any:
    return decode_volume(encoded(volume_object(**fields)))


def test_a_claim_is_bound_once_both_sides_agree() -> None:
    named = claim(more={"volumeName": "pv-1"})

    assert [False, False, True] == [it.is_bound for it in (claim(), named, claim(volume="pv-1"))]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"class_name": "fast"}, "fast", id="by its field"),
        pytest.param({"class_name": "fast", "annotations": {BETA_CLASS: "slow"}}, "slow", id="by an annotation of old"),
        pytest.param({"class_name": "fast", "annotations": {BETA_CLASS: ""}}, "", id="by an empty one"),
        pytest.param({"class_name": "x" * 254}, "x" * 253 + "…", id="by what is no name"),
    ],
)
def test_a_claim_has_a_class(fields: dict[str, Any], expected: str) -> None:
    assert expected == claim(**fields).class_name


def test_of_a_claim_is_read_what_it_asks_for() -> None:
    found = claim(
        size="1Ki",
        node="n1",
        modes=("ReadWriteOnce", "ReadWriteOnce"),
        more={"selector": {}, "volumeMode": "Block", "volumeAttributesClassName": "gold"},
        phase="Lost",
        deletionTimestamp="2026-01-01T00:00:00Z",
    )

    assert (Quantity(1024), "n1", ("ReadWriteOnce",), EVERYTHING) == (
        found.request,
        found.selected_node,
        found.access_modes,
        found.selector,
    )
    assert ("Block", "gold", True, True) == (found.volume_mode, found.attributes_class, found.lost, found.terminating)
    assert (None, None, "Filesystem") == (claim(size=None).request, claim().selected_node, claim().volume_mode)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"more": {"selector": {"matchLabels": {"a": "x" * LARGEST_PART}}}}, "65536 bytes", id="a selector"
        ),
        pytest.param({"size": "0." + "1" * 99}, "quantity that is too long", id="a size"),
        pytest.param({"more": {"selector": {"matchLabels": {"-": ""}}}}, "not a valid label key", id="a key"),
    ],
)
def test_a_claim_that_asks_for_what_is_not_read_is_there_nevertheless(fields: dict[str, Any], expected: str) -> None:
    """Others count it: a tenant must not be able to hide it."""
    found = claim(volume="pv-1", **fields)

    assert found.is_bound
    assert expected in found.invalid


def test_what_decides_is_in_the_identity_of_a_claim() -> None:
    later = claim(resourceVersion="2")

    assert claim().identity == later.identity
    assert hash(claim().identity) == hash(later.identity)
    assert 1 == len({claim().identity, later.identity})
    assert claim().identity != claim(size="2Gi").identity


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(ClaimReference("default", "data", "uid-data"), True, id="by name and UID"),
        pytest.param(ClaimReference("default", "data", "another"), False, id="one of that name before"),
        pytest.param(ClaimReference("shop", "data", ""), False, id="of another namespace"),
    ],
)
def test_a_volume_is_kept_for_a_claim(reference: ClaimReference, expected: bool) -> None:
    assert expected is reference.is_to(claim())


def test_of_a_volume_is_read_what_it_has_to_give() -> None:
    found = volume(size="2Ki", claim="data", labels={"tier": "gold"}, class_name="fast")

    assert (Quantity(2048), ClaimReference("default", "data", "uid-data"), {"tier": "gold"}, "fast") == (
        found.capacity,
        found.claim,
        found.labels,
        found.class_name,
    )
    assert ("a.example.com", "handle-pv-1", False) == (found.driver, found.handle, found.available)
    assert (True, None) == (volume().available, volume().claim)


def test_a_volume_without_a_spec_is_one() -> None:
    found = decode_volume(encoded(storage_object("v1", "PersistentVolume", "pv-1")))

    assert (ZERO, None, "", False) == (found.capacity, found.affinity, found.driver, found.available)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"size": "1" * 65}, id="a capacity that is too long"),
        pytest.param({"labels": {"a": "x" * LARGEST_PART}}, id="labels that are too long"),
        pytest.param({"size": "much"}, id="a capacity that is none"),
    ],
)
def test_a_volume_that_is_not_read_is_told_by_its_field(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^(spec\.capacity|metadata\.labels)"):
        volume(**fields)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([], [], id="no term"),
        pytest.param([term(expression(ZONE, "In", "a"))], ["a"], id="a zone"),
        pytest.param([term(fields=[expression("metadata.name", "In", "n1")])], ["a", "b"], id="a name alone"),
        pytest.param(
            [term(expression(ZONE, "In", "a"), fields=[expression("metadata.name", "In", "n1")])], ["a"], id="both"
        ),
        pytest.param([term(fields=[expression("metadata.name", "Exists")])], [], id="what makes no sense"),
    ],
)
def test_the_name_of_a_node_plays_no_part(terms: list[Any], expected: list[str]) -> None:
    found = volume(more={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}).affinity

    assert expected == [zone for zone in ("a", "b") if found is None or found.matches("", {ZONE: zone})]
    assert None is without_match_fields(None)


def test_the_volume_of_an_in_tree_driver_is_one_of_the_csi_driver() -> None:
    found = volume(more={"awsElasticBlockStore": {"volumeID": "vol-1"}}, labels={ZONE: "a"})
    strange = volume(more={"awsElasticBlockStore": {"volumeID": "aws://a/b"}})

    assert ("kubernetes.io/aws-ebs", "vol-1", None) == (found.in_tree_plugin, found.migrated.handle, found.affinity)
    assert found.migrated_affinity.matches("", {"topology.ebs.csi.aws.com/zone": "a"})
    assert (None, True) == (strange.migrated, strange.untranslatable.endswith("(aws://a/b)"))
    assert [
        "kubernetes.io/gce-pd",
        "kubernetes.io/azure-disk",
        "kubernetes.io/cinder",
        "kubernetes.io/portworx-volume",
        "",
    ] == [
        volume(more=it).in_tree_plugin
        for it in (
            {"gcePersistentDisk": {"pdName": "d"}},
            {"azureDisk": {"diskURI": "u"}},
            {"cinder": {"volumeID": "c"}},
            {"portworxVolume": {"volumeID": "p"}},
            {"nfs": {"server": "s", "path": "/"}},
        )
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"app": "db"}, {"app": "db"}, id="as they are"),
        pytest.param({f"key-{number}": "x" * 60 for number in range(LARGEST_PART // 60)}, {}, id="none of too many"),
    ],
)
def test_a_claim_has_labels(labels: dict[str, str], expected: dict[str, str]) -> None:
    assert expected == dict(claim(labels=labels).labels)
