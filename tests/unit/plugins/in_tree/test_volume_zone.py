"""What topic ``zones`` of ``tests/conformance`` does not ask: pods that no API server stores, and kept verdicts."""

from typing import Final

import pytest

from plugins.in_tree.volume_zone import VolumeZone
from tests.builders import ZONE, claim_object, class_object, mounting, node_object, volume_object
from tests.harness import World, only

NAME: Final = "VolumeZone"


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("", "PersistentVolumeClaim had no name"),
        ("x" * 70_000, "node(s) can't be judged: the pod's spec.volumes is longer than 64 KiB"),
        ("data", 'VolumeBindingMode not set for StorageClass "later"'),
    ],
)
def test_a_pod_is_refused_on_all_nodes(claim: str, reason: str) -> None:
    waiting = claim_object(class_name="later"), class_object(mode=None)
    found = World(node_object("a"), *waiting, profile=only(NAME))

    assert {"a": ("UnschedulableAndUnresolvable", NAME, (reason,))} == found.filter(found.pod(more=mounting(claim)))


def test_no_other_pod_matters_and_a_refusal_stands_as_long_as_what_it_rests_on() -> None:
    volume = volume_object(claim="data", labels={ZONE: "a"})
    found = World(node_object("a"), claim_object(volume="pv-1"), volume, profile=only(NAME))
    plugin = found.framework.plugins[NAME]
    pod, plain = found.pod(more=mounting("data")), found.pod("plain")
    before = plugin.signature(pod)

    assert isinstance(plugin, VolumeZone)
    assert not plugin.depends_on(pod, pod)
    assert plugin.signature(plain) == plugin.signature(found.pod("other"))
    found.add(claim_object("another"))
    assert before == plugin.signature(pod)
    found.add(volume_object(claim="data", labels={ZONE: "b"}, resourceVersion="2"))
    assert before != plugin.signature(pod)
