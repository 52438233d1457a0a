"""DeviceClasses: the extended resource that their devices stand for."""

import msgspec
import pytest

from app.kube.device_classes import DeviceClass, decode_device_class
from tests.builders import JsonObject, encoded


@pytest.mark.parametrize(
    ("spec", "resource"),
    [
        ({"spec": {"extendedResourceName": "example.com/gpu", "selectors": [{}]}}, "example.com/gpu"),
        ({"spec": {}}, ""),
        ({"spec": None}, ""),
        ({"spec": {"extendedResourceName": "x" * 318}}, ""),
    ],
)
def test_a_class_stands_for_a_resource(spec: JsonObject, resource: str) -> None:
    found = decode_device_class(encoded({"metadata": {"name": "fast", "uid": "u1"}, **spec}))

    assert DeviceClass("fast", "u1", resource) == found
    assert ("", "fast") == found.key


def test_a_class_without_a_name_is_none() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"metadata\.name: required"):
        decode_device_class(b'{"metadata": {}}')
