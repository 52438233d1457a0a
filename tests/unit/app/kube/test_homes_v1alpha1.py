"""Rules of Homes: whose home it is and where."""

from __future__ import annotations

import pytest

from app.kube.homes_v1alpha1 import HomeRecord, RecordedKeeper, decode_home, memory_name
from tests.builders import JsonObject, encoded

METADATA = {"name": "virtualmachine-db-1", "namespace": "shop", "uid": "u-1", "resourceVersion": "9"}
OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "db", "uid": "u-2", "slot": "3"}
SPEC = {"owner": OWNER, "node": "n1", "machine": "m1", "since": "2026-11-21T10:00:00Z"}
NOTHING = HomeRecord(
    "shop", "virtualmachine-db-1", "u-1", "9", {}, None, RecordedKeeper("", "", "", "", ""), "", "", ""
)


def test_all_of_it_is_read() -> None:
    keeper = RecordedKeeper("kubevirt.io/v1", "VirtualMachine", "db", "u-2", "3")
    expected = HomeRecord(*METADATA_FIELDS, {}, None, keeper, "n1", "m1", "2026-11-21T10:00:00Z")
    found = decode_home(encoded({"metadata": METADATA, "spec": SPEC}))

    assert expected == found
    assert ("shop", "virtualmachine-db-1") == found.key


METADATA_FIELDS = ("shop", "virtualmachine-db-1", "u-1", "9")


@pytest.mark.parametrize("spec", [None, {}, {"owner": None, "node": None}, {"owner": {"name": None}, "since": None}])
def test_what_is_not_there_is_empty(spec: JsonObject | None) -> None:
    assert NOTHING == decode_home(encoded({"metadata": METADATA, "spec": spec}))


def test_names_are_short_and_tell_all_apart() -> None:
    longest = "a" * 253
    names = {
        memory_name("kubevirt.io/v1", "VirtualMachine", "db", ""),
        memory_name("kubevirt.io/v1", "VirtualMachine", "db-3", ""),
        memory_name("kubevirt.io/v1", "VirtualMachine", "db", "3"),
        memory_name("example.com/v1", "VirtualMachine", "db", ""),
        memory_name("kubevirt.io/v1", "VirtualMachine", longest, "3"),
        memory_name("kubevirt.io/v1", "VirtualMachine", longest, "4"),
    }

    assert 6 == len(names)
    assert max(map(len, names)) <= 253
    assert any(it.startswith("virtualmachine-db-3-") for it in names)
