"""Rules of what is read of a Node beside labels, taints and the cordon: heartbeats are no change of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from app.kube.core_decoding import PLAIN, core_v1, decode_node, decode_pod
from app.kube.core_v1 import Node, is_same
from app.kube.extras import Extra, NotDecoded
from app.kube.node_state import PRESSURE, NodeState, UndeclaredAnnotation
from tests.builders import JsonObject, encoded, node_object, pod_object

MARK: Final = "example.com/maintenance"
OTHER: Final = "example.com/reboot"
CORE: Final = core_v1([Extra.NODE_STATE], [MARK, OTHER])


def node(metadata: JsonObject | None = None, **status: Any) -> Node:
    found = node_object(status=status)
    found["metadata"] |= metadata or {}
    return CORE.decode_node(encoded(found))


def condition(kind: str, status: Any, **more: Any) -> JsonObject:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", **more}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([condition("Ready", "True")], NodeState(ready="True"), id="ready"),
        pytest.param([condition("Ready", "perhaps")], NodeState(ready="Unknown"), id="a status that is none"),
        pytest.param([condition("Ready", None)], NodeState(ready="Unknown"), id="a status of null"),
        pytest.param([], NodeState(), id="nobody has said anything"),
        pytest.param(
            [condition("Ready", "False"), condition("Ready", "True")], NodeState(ready="False"), id="the first counts"
        ),
        pytest.param(
            [condition(it, "True") for it in (*reversed(PRESSURE), "Ready", "KernelDeadlock")],
            NodeState(ready="True", pressure=PRESSURE),
            id="all that can press, in one order",
        ),
        pytest.param(
            [condition(it, status) for it, status in zip(PRESSURE, ("False", "Unknown", "", None), strict=True)],
            NodeState(),
            id="what is not true does not press",
        ),
    ],
)
def test_of_conditions_it_is_kept_what_says_whether_pods_can_come(
    conditions: list[JsonObject] | None, expected: NodeState
) -> None:
    assert expected == node(conditions=conditions).state


def test_conditions_are_read_however_long_they_are() -> None:
    many = [condition(f"Custom{number}", "True", message="x" * 1000) for number in range(200)]

    assert NodeState(ready="True") == node(conditions=[*many, condition("Ready", "True")]).state


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param({"systemUUID": "4C4C4544-0042"}, "4c4c4544-0042", id="in lower case"),
        pytest.param({"machineID": "7"}, "", id="none"),
        pytest.param({"systemUUID": "x" * 254}, "", id="longer than any"),
    ],
)
def test_the_machine_is_its_system_uuid(info: JsonObject | None, expected: str) -> None:
    assert expected == node(nodeInfo=info).state.machine


def test_a_node_that_is_being_deleted_is_still_there() -> None:
    assert NodeState(terminating=True) == node({"deletionTimestamp": "2026-01-01T00:00:00Z"}).state


def test_a_heartbeat_is_no_change() -> None:
    """Nor is an annotation that nobody named."""

    def at(minute: int) -> Node:
        beat = f"2026-01-01T00:{minute:02}:00Z"
        annotations = {"kubevirt.io/heartbeat": beat, MARK: "yes"}
        return node(
            {"annotations": annotations, "resourceVersion": str(minute)},
            conditions=[condition("Ready", "True", lastHeartbeatTime=beat)],
            nodeInfo={"systemUUID": "a", "bootID": "b"},
        )

    assert is_same(at(1), at(2))
    assert not is_same(at(1), node({"annotations": {MARK: "no"}}, conditions=[condition("Ready", "True")]))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({MARK: "yes", "other": "x"}, {MARK: "yes"}, id="one that is named"),
        pytest.param({OTHER: "", MARK: None}, {MARK: "", OTHER: ""}, id="without a value"),
        pytest.param({"other": MARK}, {}, id="its name somewhere else"),
        pytest.param({MARK: "x" * 5000}, {MARK: "x" * 1024}, id="of a long one the beginning"),
        pytest.param(None, {}, id="null"),
    ],
)
def test_annotations_are_kept_that_a_plugin_names(annotations: JsonObject | None, expected: JsonObject) -> None:
    found = node({"annotations": annotations})

    assert expected == found.annotations
    assert sorted(expected) == list(found.annotations)


def test_where_nobody_names_any_none_is_kept() -> None:
    found = node_object()
    found["metadata"]["annotations"] = {MARK: "yes"}

    assert {} == PLAIN.decode_node(encoded(found)).annotations
    assert {} == core_v1([Extra.NODE_STATE]).decode_node(encoded(found)).annotations
    kept = core_v1((), [MARK])
    assert {MARK: "yes"} == kept.decode_node(encoded(found)).annotations
    with pytest.raises(NotDecoded):
        _ = kept.decode_node(encoded(found)).state


@pytest.mark.parametrize("read", [lambda it: it["other"], lambda it: it.get("other"), lambda it: "other" in it])
def test_an_annotation_that_nobody_declares_is_a_fault(read: Callable[[Mapping[str, str]], object]) -> None:
    """It was not decoded: absent is not what it is."""
    for found in (node({"annotations": {"other": "x", MARK: "yes"}}), PLAIN.decode_node(encoded(node_object()))):
        with pytest.raises(UndeclaredAnnotation, match=r'"other" .* name it in Needs\.node_annotations'):
            read(found.annotations)


def test_decoders_for_tests_keep_all() -> None:
    """The test of a plugin says nothing of what other plugins declare."""
    found = node_object(status={"allocatable": {"cpu": "4"}})
    found["metadata"]["annotations"] = {MARK: "yes", "other": "x"}

    decoded = decode_node(encoded(found))

    assert {MARK: "yes", "other": "x"} == decoded.annotations
    assert None is decoded.annotations.get("absent")
    assert (PLAIN.decode_node(encoded(found)) != decoded, "") == (True, decoded.state.ready)
    assert decoded.allocatable
    assert () == decode_pod(encoded(pod_object())).spec.volumes


def test_pods_are_read_as_without_it() -> None:
    """What is asked for of nodes alone costs a pod nothing."""
    assert (PLAIN.pod_object, PLAIN.slim_pod) == (CORE.pod_object, CORE.slim_pod)
