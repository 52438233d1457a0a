"""Questions change nothing: explain, figures and pages tell no Event and write nothing, whatever a plugin does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, Final

import pytest

from app import main
from app.config.loading import load_settings
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.events import Reference
from app.framework.explanation import Explanation, Figure
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind, owner_kind
from app.kube.labels import label_set
from app.kube.meta_v1 import PartialObject
from app.runtime.read_only import ReadOnlyWriter, read_only
from app.server.pages import WHAT_IFS
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import SAMPLE, example, serving
from tests.fakes import RecordingRecorder

MACHINES: Final = owner_kind("kubevirt.io/v1", "VirtualMachine")
ASKED: Final = {"namespace": "shop", "name": "web-7d4b9c-new01"}


class Meddler(PreFilterPlugin, FilterPlugin):
    """Raises an Event, writes an annotation and binds a pod wherever it is asked for anything."""

    def __init__(self, _args: PluginArgs, handle: Handle) -> None:
        self._handle = handle
        self.asked: set[str] = set()
        self.tasks: list[asyncio.Task[Any]] = []
        made.append(self)

    def _meddle(self, where: str, pod: Pod | None = None) -> None:
        self.asked.add(where)
        about = Reference("v1", "Node", "", "node-a1")
        self._handle.event_recorder.event(about, None, "Normal", "Meddled", where, "it did")
        self.tasks.append(asyncio.get_running_loop().create_task(self._write()))
        if pod is not None:
            self.tasks.append(asyncio.get_running_loop().create_task(self._handle.binder.bind(pod, "node-a1", {})))

    async def _write(self) -> None:
        await asyncio.sleep(0)
        (machine, *_) = self._handle.objects.every(MACHINES)
        await self._handle.writer.annotate(MACHINES, machine, {"homeport.dev/meddled": "yes"})

    def required_objects(self, pod: Pod) -> Iterable[tuple[Kind[Any], str, str]]:
        self._meddle("RequiredObjects", pod)
        return ()

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        self._meddle("PreFilter", pod)
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self._meddle("Filter", pod)
        return SUCCESS

    def explain(self, pod: Pod, nodes: Candidates) -> Explanation:
        self._meddle("Explain", pod)
        return Explanation()

    def figures(self) -> Iterator[Figure | None]:
        self._meddle("Figures")
        yield None
        self._meddle("Figures")


made: list[Meddler] = []
SPEC: Final = PluginSpec("Meddler", PluginArgs, Meddler, needs=lambda _: Needs(kinds=(MACHINES,)))
PROFILE: Final = {"plugins": {"multiPoint": {"enabled": [{"name": "Meddler"}]}}}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> RecordingRecorder:
    """In the place of the one that writes."""
    made.clear()
    found = RecordingRecorder()
    monkeypatch.setattr(main, "NO_EVENTS", found)
    return found


def settings() -> Settings:
    return load_settings({"cluster": str(SAMPLE), "profiles": [PROFILE]})


async def outcomes() -> set[str]:
    """What became of all that the plugin tried."""
    found = await asyncio.gather(*(it for plugin in made for it in plugin.tasks), return_exceptions=True)
    return {str(getattr(it, "message", it)) for it in found}


async def test_a_question_tells_nothing_and_writes_nothing(events: RecordingRecorder) -> None:
    async with serving(settings(), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        (await api.http.post("/api/v1/explain", json=ASKED)).raise_for_status()
        paths = (await api.get("/openapi.json"))["paths"]
        read = {path for path, methods in paths.items() if "get" in methods and "{" not in path}
        pages = sorted(read - WHAT_IFS)  # what-ifs have plugins of their own, in a child process
        assert {"/metrics", "/readyz", "/api/v1/status"} <= read
        for path in pages:
            query = {"labelSelector": "app"} if path == "/api/v1/explain" else {}
            (await api.http.get(path, params=query)).raise_for_status()

        assert {"RequiredObjects", "PreFilter", "Filter", "Explain", "Figures"} == {
            it for plugin in made for it in plugin.asked
        }
        assert {"a read-only request changes nothing"} == await outcomes()
        assert set() == {it.reason for it in events.told} - {"HomeAway"}  # the reconciler writes this one


async def test_a_decision_does_in_the_same_process(events: RecordingRecorder) -> None:
    """Else the test above would hold of a plugin that can do nothing at all."""
    async with serving(settings(), (*SHIPPED, SPEC), DEFAULT_WEIGHTS) as api:
        (await api.http.post("/api/v1/explain", json=ASKED)).raise_for_status()
        await outcomes()
        await api.post("filter", example("filter-spread"))

        assert {"RequiredObjects", "PreFilter", "Filter"} <= {it.action for it in events.told}
        assert "None" in await outcomes()


class Written:
    """A writer that keeps what it is told to do."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def annotate(self, kind: Kind[Any], found: Any, annotations: Mapping[str, str | None]) -> None:
        self.told.append("annotate")

    async def create(self, kind: Kind[Any], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        self.told.append("create")

    async def change(self, kind: Kind[Any], found: Any, spec: Mapping[str, Any]) -> None:
        self.told.append("change")

    async def delete(self, kind: Kind[Any], found: Any) -> None:
        self.told.append("delete")


async def test_no_object_is_written_within_a_question_in_any_way() -> None:
    written = Written()
    writer = ReadOnlyWriter(written)
    machine: Any = PartialObject("default", "db", "uid", "1", label_set(None), {}, None)

    def all_ways() -> list[Coroutine[Any, Any, None]]:
        return [
            writer.annotate(MACHINES, machine, {}),
            writer.create(MACHINES, "default", "db", {}),
            writer.change(MACHINES, machine, {}),
            writer.delete(MACHINES, machine),
        ]

    with read_only():
        refused = await asyncio.gather(*all_ways(), return_exceptions=True)
    assert ([PermissionError] * 4, []) == ([type(it) for it in refused], written.told)

    for way in all_ways():
        await way
    assert ["annotate", "create", "change", "delete"] == written.told
