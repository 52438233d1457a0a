"""Rules of object metadata, as far as the kinds that carry it do not test them already."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.kube.labels import NO_LABELS, label_set
from app.kube.meta_v1 import OwnerReference, PartialObject, decode_partial, precedes, shared, version_number
from tests.builders import controller, encoded


def test_any_object_can_be_read_by_its_metadata() -> None:
    found = decode_partial(
        encoded(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "metadata": {
                    "name": "vm-1",
                    "namespace": "shop",
                    "uid": "u-1",
                    "resourceVersion": "3",
                    "labels": {"app": "vm"},
                    "annotations": {"homeport.dev/home": "n1", "other": "x"},
                    "ownerReferences": [controller("Pool", "pool", api_version="kubevirt.io/v1")],
                },
                "spec": {"anything": ["goes"]},
            }
        )
    )

    assert (
        PartialObject(
            namespace="shop",
            name="vm-1",
            uid="u-1",
            resource_version="3",
            labels=label_set({"app": "vm"}),
            annotations={"homeport.dev/home": "n1"},
            owner=OwnerReference("Pool", "pool", "kubevirt.io/v1", "uid-pool", True),
        )
        == found
    )
    assert ("shop", "vm-1") == found.key


@pytest.mark.parametrize("others", [0, 2, 40_000])
def test_the_controller_is_found_among_any_number_of_owners(others: int) -> None:
    owners = [{"kind": "X", "apiVersion": "v1", "name": f"x{place}", "uid": "u"} for place in range(others)]
    controlled = [*owners, controller("Pool", "pool", api_version="kubevirt.io/v1"), *owners]

    def owner(references: list[dict[str, Any]]) -> OwnerReference | None:
        return decode_partial(encoded({"metadata": {"name": "vm-1", "ownerReferences": references}})).owner

    assert owner(controlled) == OwnerReference("Pool", "pool", "kubevirt.io/v1", "uid-pool", True)
    assert owner(owners) is None


def test_an_object_of_the_cluster_has_no_namespace() -> None:
    assert PartialObject("", "x", "", "", NO_LABELS, {}, None) == decode_partial(b'{"metadata": {"name": "x"}}')


@pytest.mark.parametrize("opaque", ["", "9" * 21, "9" * 5000, "\u0669", "-1", "1.5", "1e3", " 1", "1_0", "abc"])
def test_an_opaque_version_has_no_order(opaque: str) -> None:
    assert -1 == version_number(opaque)
    assert not any(precedes(*pair) for pair in ((opaque, "5"), ("5", opaque), (opaque, opaque)))


def test_versions_of_1_to_20_digits_compare_as_numbers() -> None:
    versions = ["0", "9", "10", "18446744073709551615", "9" * 20]

    assert sorted(versions, key=version_number) == versions
    assert all(precedes(*pair) for pair in pairwise(versions))
    assert not precedes("9", "9")


def test_identical_bytes_are_parsed_once() -> None:
    """Replicas of one workload send identical bytes."""
    parsed: list[bytes] = []

    def parse(data: bytes) -> list[object]:
        parsed.append(data)
        return [msgspec.json.decode(data)]

    read = shared("spec.part", parse)

    assert read(Raw(b'{"a": 1}')) is read(Raw(b'{"a": 1}'))
    assert [b'{"a": 1}'] == parsed


@pytest.mark.parametrize("raw", [Raw(), Raw(b"null")])
def test_an_absent_part_reads_as_null(raw: Raw) -> None:
    assert b"null" == shared("spec.part", bytes)(raw)


def test_a_large_part_is_parsed_and_not_remembered() -> None:
    large = Raw(b"[" + b" " * 5000 + b"]")
    read = shared("spec.part", lambda data: [msgspec.json.decode(data)])

    assert read(large) == read(large)
    assert read(large) is not read(large)


def test_an_error_in_a_part_carries_the_name_of_the_part() -> None:
    read = shared("spec.part", lambda data: msgspec.json.decode(data, type=int))

    with pytest.raises(msgspec.ValidationError) as raised:
        read(Raw(b'"one"'))

    assert "spec.part: Expected `int`, got `str`" == str(raised.value)
