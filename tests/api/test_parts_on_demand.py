"""A plugin that names requests, ports and images gets them of every pod and node, whatever way these came."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Unpack

import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import serving
from tests.builders import JsonObject, PodFields, container, mounting, node_object, pod_object


class Fits(FilterPlugin):
    """A plugin that asks for cpu, host ports and images."""

    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        pass

    def filter(self, _state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        left = node.allocatable.get("cpu", 0) - node.requested.get("cpu", 0)
        if pod.spec.resources.requests.get("cpu", 0) > left:
            return unschedulable(f"{left} left")
        if node.ports.conflicts(pod.spec.ports):
            return unschedulable("port taken")
        return SUCCESS if node.images.keys() >= set(pod.spec.images.names) else unschedulable("no image")


SPEC: Final = PluginSpec("Fits", PluginArgs, Fits, parts=(Part.RESOURCES, Part.PORTS, Part.IMAGES))
IMAGE: Final = "registry.example/web:1"


def node(name: str, cpu: str, *images: str, version: str = "1") -> JsonObject:
    status = {"allocatable": {"cpu": cpu}, "images": [{"names": [image], "sizeBytes": 1} for image in images]}
    return node_object(name, resource_version=version, status=status)


def pod(name: str, cpu: str, port: int, **fields: Unpack[PodFields]) -> JsonObject:
    fields["containers"] = [container(requests={"cpu": cpu}, ports=[{"hostPort": port}])]
    return pod_object(name, **fields)


NODES: Final = [node("n1", "2", IMAGE), node("n2", "2", IMAGE), node("n3", "2"), node("n4", "4", IMAGE)]
RUNNING: Final = [pod("a", "1", 80, node="n1"), pod("b", "1", 81, node="n2"), pod("c", "1500m", 82, node="n4")]
WAITING: Final = [pod("small", "1", 80), pod("large", "2500m", 83)]
REJECTED: Final = "FailedAndUnresolvableNodes"
NAMES: Final = ["n1", "n2", "n3", "n4"]


def settings(folder: Path, *names: str) -> Settings:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *RUNNING, *WAITING]}))
    enabled = [{"name": name} for name in (*names, "PrioritySort", "DefaultBinder")]
    plugins = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}
    return Settings(cluster=str(path), profiles=(Profile.model_validate({"plugins": plugins}),))


def named(found: JsonObject, names: Iterable[str] = NAMES) -> JsonObject:
    return {"Pod": found, "Nodes": None, "NodeNames": list(names)}


def sent(found: JsonObject, *nodes: JsonObject) -> JsonObject:
    return {"Pod": found, "Nodes": {"items": list(nodes)}, "NodeNames": None}


async def test_it_judges_by_what_pods_take_and_ask_for(tmp_path: Path) -> None:
    async with serving(settings(tmp_path, "Fits"), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        small = await api.post("filter", named(WAITING[0]))
        assert (["n2", "n4"], {"n1": "port taken", "n3": "no image"}) == (
            small.answer["NodeNames"],
            small.answer[REJECTED],
        )

        bound = await api.post(
            "bind", {"PodName": "small", "PodNamespace": "default", "PodUID": "uid-default-small", "Node": "n4"}
        )
        large = await api.post("filter", named(WAITING[1]))
        assert {"Error": ""} == bound.answer
        left = {"n1": "1000 left", "n2": "1000 left", "n3": "2000 left", "n4": "1500 left"}
        assert left == large.answer[REJECTED]


async def test_a_node_that_is_sent_has_the_pods_that_the_picture_knows(tmp_path: Path) -> None:
    async with serving(settings(tmp_path, "Fits"), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        nodes = (node("n1", "8", IMAGE, version="2"), node("n2", "1", IMAGE, version="2"), node("new", "2", IMAGE))
        found = await api.post("filter", sent(WAITING[0], *nodes, NODES[3]))

        assert {"n1": "port taken", "n2": "0 left"} == found.answer[REJECTED]
        assert ["new", "n4"] == [it["metadata"]["name"] for it in found.answer["Nodes"]["items"]]


async def test_victims_give_back_what_they_take(tmp_path: Path) -> None:
    async with serving(settings(tmp_path, "Fits"), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        victims = {
            name: {"Pods": [{"UID": f"uid-default-{victim}"}], "NumPDBViolations": 0}
            for name, victim in (("n1", "a"), ("n2", "b"), ("n4", "c"))
        }
        small, large = [await api.post("preempt", {"Pod": it, "NodeNameToMetaVictims": victims}) for it in WAITING]

        assert {"n1", "n2", "n4"} == set(small.answer["NodeNameToMetaVictims"])
        assert {"n4"} == set(large.answer["NodeNameToMetaVictims"])


@pytest.mark.parametrize("known", [True, False])
async def test_a_pod_is_read_as_a_whole_wherever_it_is_sent(tmp_path: Path, known: bool) -> None:
    asked = {"name": "large"} if known else {"pod": WAITING[1]}
    async with serving(settings(tmp_path, "Fits"), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        found = (await api.http.post("/api/v1/cycle", json=asked)).json()

    assert "n4" == found["node"]


async def test_without_it_nothing_of_that_is_kept(tmp_path: Path) -> None:
    async with serving(settings(tmp_path), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        found = await api.post("filter", named(WAITING[1]))

        assert NAMES == found.answer["NodeNames"]


class Waits(FilterPlugin):
    """A plugin that asks for claims of waiting pods, and for how nodes are: one after the other, as its reason."""

    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        pass

    def filter(self, _state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        claims = ",".join(it.claim_name(pod.name) or "" for it in pod.spec.pending_volumes)
        others = ",".join(it.claim_name(on.name) or "" for on in node.pods.values() for it in on.spec.pending_volumes)
        found = node.node
        return unschedulable(f"{claims} {others or '-'} {found.state.ready} {found.annotations.get(MARK, '-')}")


MARK: Final = "example.com/maintenance"
LEAN: Final = PluginSpec(
    "Waits",
    PluginArgs,
    Waits,
    parts=(Part.PENDING_VOLUMES, Part.NODE_STATE),
    needs=lambda _: Needs(node_annotations=(MARK,)),
)
WHOLE: Final = PluginSpec("Waits", PluginArgs, Waits, parts=(*Part,), needs=lambda _: Needs(node_annotations=(MARK,)))


@pytest.mark.parametrize("spec", [LEAN, WHOLE], ids=["alone", "beside all others"])
async def test_claims_of_what_waits_and_how_nodes_are_are_read_wherever_they_come_from(
    tmp_path: Path, spec: PluginSpec[Any]
) -> None:
    well, marked = node("n1", "2"), node("n2", "2")
    well["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    marked["metadata"]["annotations"] = {MARK: "yes", "example.com/other": "x"}
    running, waiting = pod("a", "1", 80, node="n1", more=mounting("a")), pod("b", "1", 81, more=mounting("b"))
    found = settings(tmp_path, "Waits")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [well, marked, running, waiting]}))
    newer = {**marked, "metadata": {**marked["metadata"], "resourceVersion": "2", "annotations": {}}}
    async with serving(found, (*SHIPPED, spec), DEFAULT_WEIGHTS) as api:
        by_name = await api.post("filter", named(waiting, ("n1", "n2")))
        by_object = await api.post("filter", sent(waiting, well, newer))
        cycle = (await api.http.post("/api/v1/cycle", json={"name": "b"})).json()
        victims = {"n1": {"Pods": [{"UID": "uid-default-a"}], "NumPDBViolations": 0}}
        preempt = await api.post("preempt", {"Pod": waiting, "NodeNameToMetaVictims": victims})

    rejected = {"n1": "b - True -", "n2": "b -  yes"}
    assert rejected == by_name.answer[REJECTED]
    assert {**rejected, "n2": "b -  -"} == by_object.answer[REJECTED]
    assert (None, "") == (cycle["node"], preempt.answer.get("Error", ""))
    assert not preempt.answer["NodeNameToMetaVictims"]
