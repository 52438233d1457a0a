"""A bind that meets a conflict is tried again unless something changed that its decision read, whatever is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import PodSpec, is_same_spec
from app.kube.extras import Extra, PodParts
from app.kube.requests import PodResources
from app.writes.api_writes import ApiBinder
from app.writes.bind_guard import BindGuard, passed_down
from tests.apiserver import ApiServer, client_of
from tests.builders import JsonObject, encoded, pod_object

CONFLICT: Final = unschedulable("the pod changed while it was being bound: Precondition failed: resourceVersion")
STORM: Final = 6
"""Conflicts in a row."""


def rich_pod() -> JsonObject:
    """A pod that has something of all that can be decoded."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    preferred = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    container = {
        "name": "main",
        "image": "registry.example/web:1",
        "ports": [{"hostPort": 80}],
        "resources": {"requests": {"cpu": "1"}},
    }
    more = {
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        "schedulingGates": [{"name": "example.com/one"}],
        "hostNetwork": True,
        "preemptionPolicy": "Never",
    }
    return pod_object("web-1", labels={"app": "web"}, containers=[container], more=more)


def _container(key: str, value: Any) -> Callable[[JsonObject], object]:
    return lambda pod: pod["spec"]["containers"][0].update({key: value})


def _spec(key: str, value: Any) -> Callable[[JsonObject], object]:
    return lambda pod: pod["spec"].update({key: value})


def _affinity(key: str) -> Callable[[JsonObject], object]:
    return lambda pod: pod["spec"]["affinity"].pop(key)


Change = Callable[[JsonObject], object]

UNREAD: Final[dict[str, Change]] = {
    "a condition": lambda pod: pod["status"].update(conditions=[{"type": "PodScheduled", "status": "False"}]),
    "a nomination": lambda pod: pod["status"].update(nominatedNodeName="n2"),
    "an address": lambda pod: pod["status"].update(podIP="10.0.0.1", startTime="2026-01-01T00:00:00Z"),
    "somebody's annotation": lambda pod: pod["metadata"].update(annotations={"example.com/x": "y"}),
    "the manager of a field": lambda pod: pod["metadata"].update(managedFields=[{"manager": "somebody"}]),
}
READ: Final[dict[str, tuple[Change, Collection[Extra]]]] = {
    "requests": (_container("resources", {"requests": {"cpu": "2"}}), {Extra.RESOURCES}),
    "a host port": (_container("ports", [{"hostPort": 81}]), {Extra.PORTS}),
    "an image": (_container("image", "registry.example/web:2"), {Extra.IMAGES}),
    "a preference": (_affinity("nodeAffinity"), {Extra.PREFERRED_AFFINITY}),
    "a term about pods": (_affinity("podAntiAffinity"), {Extra.POD_AFFINITY}),
    "a gate": (_spec("schedulingGates", [{"name": "example.com/other"}]), {Extra.SCHEDULING_GATES}),
    "a feature": (_spec("hostUsers", False), {Extra.FEATURES}),
    "a volume": (
        _spec("volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}]),
        {Extra.VOLUMES, Extra.PENDING_VOLUMES},
    ),
    "a device": (_spec("resourceClaims", [{"name": "gpu", "resourceClaimName": "other"}]), {Extra.CLAIMS}),
    "a resize": (
        lambda pod: pod["status"].update(containerStatuses=[{"name": "main", "resources": {"requests": {"cpu": "4"}}}]),
        {Extra.RESOURCES},
    ),
    "a home": (lambda pod: pod["metadata"].update(annotations={"homeport.dev/home": "n2"}), set(Extra)),
    "a label": (lambda pod: pod["metadata"].update(labels={"app": "db"}), set(Extra)),
}


async def bound(extras: Collection[Extra], *changes: Change) -> Status:
    """What is answered where each change is written just before a Binding arrives."""
    server = ApiServer(rich_pod())
    left = iter(changes)

    def change_next() -> None:
        change = next(left, None)
        if change is not None:
            found = server.get("Pod", "web-1")
            assert found is not None
            change(found)
            found["metadata"]["generation"] = server.version  # no change is without effect
            server.put(found)
            server.meanwhile("POST", change_next)

    server.meanwhile("POST", change_next)
    async with client_of(server) as client:
        decode = core_v1(extras).decode_pod
        pod = decode(encoded(server.get("Pod", "web-1")))
        with passed_down(pod, "n1", lambda: None):
            return await ApiBinder(client, decode, BindGuard()).bind(pod, "n1", {})


@pytest.mark.parametrize("name", READ)
async def test_what_is_decoded_of_it_and_changes_is_a_conflict(name: str) -> None:
    """So each change is one, and the property below is not empty."""
    change, extras = READ[name]

    assert CONFLICT == await bound(extras, change)


@given(
    st.frozensets(st.sampled_from(sorted(Extra, key=repr))),
    st.lists(st.sampled_from(sorted(UNREAD)), max_size=STORM),
    st.none() | st.sampled_from(sorted(READ)),
)
def test_it_is_tried_again_unless_something_changed_that_was_read(
    extras: frozenset[Extra], unread: list[str], read: str | None
) -> None:
    changes = [UNREAD[it] for it in unread]
    always = read in ("a home", "a label")
    if read is not None:
        changes.append(READ[read][0])
    expected = CONFLICT if read is not None and (always or extras & set(READ[read][1])) else SUCCESS

    assert expected == asyncio.run(bound(extras, *changes))


def test_specs_are_compared_by_value() -> None:
    """Interned ones are one object, so these are not."""
    spec = core_v1(set(Extra)).decode_pod(encoded(rich_pod())).spec
    parts = replace(spec.parts, resources=PodResources(*astuple(spec.resources)))
    other = PodSpec(*astuple(replace(spec, parts=PodParts(*astuple(parts)))))

    assert spec is not other
    assert spec.parts is not other.parts
    assert is_same_spec(spec, other)
    assert not is_same_spec(spec, replace(other, priority=1))
    assert not is_same_spec(spec, replace(other, parts=replace(parts, ports=())))
    assert not is_same_spec(spec, replace(other, parts=replace(parts, resources=PodResources({}, {}, {}, {}, {}))))
