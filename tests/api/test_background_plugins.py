"""Plugins with work of their own have it going in a service, and in nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import ClassVar, Final

import pytest

from app.analysis.evaluate import Evaluator
from app.config.profile import Profile
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import BackgroundPlugin, FilterPlugin
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import serving
from tests.api.small import NEW, saved
from tests.api.virtual import settle
from tests.builders import JsonObject, node_object
from tests.fakes import FromSpec, spec_of
from tests.harness import only

CALLED: Final[JsonObject] = {"plugins": {"multiPoint": {"enabled": [{"name": "Works"}]}}}


class Works(FromSpec, FilterPlugin, BackgroundPlugin):
    """Says of all of its kind what they do."""

    seen: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.seen.append("filter")
        return SUCCESS

    async def run(self) -> None:
        picture = len([*self.handle.nodes.list()])
        self.seen.append(f"begun, {picture} nodes")
        try:
            await asyncio.Event().wait()
        finally:
            self.seen.append("ended")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Works.seen.clear()


async def test_a_service_runs_one_of_each_profile_until_it_ends(tmp_path: Path) -> None:
    profiles = tuple(Profile.model_validate({"schedulerName": name, **CALLED}) for name in ("one", "other"))
    settings = Settings(cluster=saved(tmp_path), profiles=profiles)

    async with serving(settings, (*SHIPPED, spec_of(Works)), DEFAULT_WEIGHTS) as api:
        await settle()
        assert ["begun, 3 nodes"] * 2 == Works.seen
        faults = await api.samples("homeport_plugin_faults_total")

    assert ["ended"] * 2 == Works.seen[2:]
    assert 0 == faults['{extension_point="Run",plugin="Works"}']


def test_evaluate_runs_none() -> None:
    evaluator = Evaluator(Registry([*SHIPPED, spec_of(Works)], KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    case = {"pod": NEW, "config": only("Works"), "objects": [node_object("n1")]}

    assert "Success" == json.loads(evaluator.evaluate(json.dumps(case).encode()))["filter"]["n1"]["code"]
    assert ["filter"] == Works.seen
