"""How far a reader goes who follows one request: files to open, and switches from one file to another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin
from app.framework.spec import PluginArgs, PluginSpec
from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from tests.api.virtual import virtual_time
from tests.builders import constraint, node_object, pod_object
from tests.filtering import Filter
from tests.harness import World
from tests.unit.app.verbs.bench import BOUND, Bench, web, zones

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = tuple(str(ROOT / it) + "/" for it in ("app", "plugins", "homeport"))
"""All that is ours. No module is left out, however often it is used."""

NODES: Final = tuple(f"n{number}" for number in range(6))


class Followed:
    """Path of a reader: ``files`` that are opened, in order, and the number of ``switches`` between them.

    A switch is a call of a function in another file than that of the call before; the first call is one, too.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.switches = 0
        self._open = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file != self._open and file.startswith(PACKAGES):
            self._open = file
            self.files[file] = None
            self.switches += 1


@contextmanager
def followed() -> Iterator[Followed]:
    path = Followed()
    sys.setprofile(path)
    try:
        yield path
    finally:
        sys.setprofile(None)


def world(*bound: str) -> World:
    nodes = [node_object(name, zone=f"z{number % 3}") for number, name in enumerate(NODES)]
    pods = [pod_object(f"web-{name}", labels={"app": "web"}, node=name) for name in bound]
    return World(*nodes, *pods)


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize(
    ("bound", "refused", "files", "switches"),
    [pytest.param((), 0, 33, 65, id="all pass"), pytest.param(("n0",), 2, 35, 92, id="some are refused")],
)
def test_the_path_of_a_filter(bound: tuple[str, ...], refused: int, files: int, switches: int, lean: bool) -> None:
    asking = Filter(world(*bound), lean=lean)
    pods = [pod_object(name, labels={"app": "web"}, spread=[constraint(app="web")]) for name in ("first", "next")]
    asking.answer(pods[0], NODES)  # counts are made

    with followed() as path:
        answer = asking.answer(pods[1], NODES)

    assert len(NODES) - refused == len(answer["NodeNames"])
    assert len(path.files) <= files, list(path.files)
    assert path.switches <= switches


@virtual_time
async def test_the_path_of_a_bind() -> None:
    bench = Bench(*zones(), web("web-0"), web("web-1"))
    first = await bench.start("web-0", "n1")
    bench.binder.answer("web-0")
    assert await first == BOUND  # counts are made

    with followed() as path:
        second = await bench.start("web-1", "n2")
        bench.binder.answer("web-1")
        assert await second == BOUND

    assert len(path.files) <= 38, list(path.files)
    assert path.switches <= 141


class Counts(PreFilterPlugin, ClusterFilterPlugin):
    """Counts how often it prepares, and rejects the first node."""

    def __init__(self, _args: PluginArgs, _handle: Handle) -> None:
        self.prepared = 0

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        self.prepared += 1
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return unresolvable("first") if node.name == NODES[0] else SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: Candidates) -> FilterResult:
        rejected = {it.name: self.filter(state, pod, it) for it in nodes if it.name == NODES[0]}
        return FilterResult([name for name in nodes.names if name not in rejected], rejected)


def test_a_call_with_refused_nodes_prepares_once() -> None:
    spec = PluginSpec("Counts", PluginArgs, Counts)
    nodes = [node_object(name) for name in NODES]
    found = World(*nodes, profile={"plugins": {"multiPoint": {"enabled": [{"name": "Counts"}]}}}, specs=[spec])

    assert {NODES[0]: "first"} == Filter(found).refused(pod_object("new"), NODES)
    assert 1 == found.framework.plugins["Counts"].prepared
