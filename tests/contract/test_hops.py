"""How often a reader who follows one filter request opens a module: at most twice, at its door and where it decides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState
from app.framework.filter_result import FilterResult
from app.framework.interface import (
    ClusterFilterPlugin,
    Handle,
    PluginArgs,
    PluginSpec,
    PreFilterPlugin,
)
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SUCCESS, Status, unresolvable
from app.kube.core_v1 import Pod
from tests.builders import constraint, node_object, pod_object
from tests.filtering import Filter
from tests.harness import World

ROOMS: Final = ("app.server", "app.verbs", "app.memory", "app.runtime", "plugins")
"""Those with logic. The others (wire, kube, framework, cache) are the words in which they speak."""

WAYS: Final = ("app.runtime.guard", "app.runtime.runner", "app.runtime.slots")
"""Through these each plugin is called; whoever has read them once need not open them again."""

NODES: Final = tuple(f"n{number}" for number in range(6))


def entered(ask: Callable[[], object]) -> dict[str, set[str]]:
    """By module, the functions by which another module called into it."""
    found: dict[str, set[str]] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        module = _module(frame)
        if event == "call" and module.startswith(ROOMS) and module not in WAYS:
            caller = next((it for it in _callers(frame) if it.startswith(ROOMS) and it not in WAYS), "")
            if caller != module and not frame.f_code.co_name.startswith("<"):
                found.setdefault(module, set()).add(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return found


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _callers(frame: FrameType) -> Iterator[str]:
    caller = frame.f_back
    while caller is not None:
        yield _module(caller)
        caller = caller.f_back


def world(*bound: str) -> World:
    nodes = [node_object(name, zone=f"z{number % 3}") for number, name in enumerate(NODES)]
    pods = [pod_object(f"web-{name}", labels={"app": "web"}, node=name) for name in bound]
    return World(*nodes, *pods)


@pytest.mark.parametrize(
    ("bound", "refused"),
    [pytest.param((), 0, id="all pass"), pytest.param(("n0",), 2, id="some"), pytest.param(("n0", "n1"), 4, id="more")],
)
def test_each_module_is_entered_at_most_twice(bound: tuple[str, ...], refused: int) -> None:
    asking = Filter(world(*bound))
    pod = pod_object("new", labels={"app": "web"}, spread=[constraint(app="web")])
    asking.answer(pod, NODES)  # counts are made

    following = pod_object("next", labels={"app": "web"}, spread=[constraint(app="web")])
    found = entered(lambda: asking.answer(following, NODES))

    assert refused == len(asking.refused(pod, NODES))
    assert {"app.verbs.filter", "app.runtime.filtering", "plugins.in_tree.pod_topology_spread.plugin"} <= found.keys()
    assert {} == {module: names for module, names in found.items() if len(names) > 2}


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
