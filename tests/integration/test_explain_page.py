"""The ten pods of docs/explain.md on a real control plane: kube-scheduler and Homeport say what the page shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.__main__ import main
from tests.api.stuck_pods import CONFIG, NODES, STUCK
from tests.api.test_explain_page import shown
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration import stuck
from tests.integration.explains import Explains
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_home_stories import install_kubevirt


@pytest.fixture(scope="module")
def homeport(running: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homeport]:
    folder: Path = tmp_path_factory.mktemp("page")
    (file := folder / "homeport.yaml").write_text(json.dumps(CONFIG))
    install_kubevirt(running.client)
    with Homeport(running.kubeconfig, folder, [f"--config={file}"]) as homeport, start_scheduler(running, homeport):
        yield homeport


@pytest.fixture
def stage(plane: ControlPlane, homeport: Homeport) -> Iterator[Explains]:
    yield Explains(plane.client, homeport)
    stuck.clear(plane.client)


def lines(text: str) -> list[str]:
    """Lines without times, in alphabetical order: that of equally good changes depends on the order of the nodes."""
    return sorted(re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text).splitlines())


@pytest.mark.parametrize("title", STUCK)
def test_the_page_is_right(title: str, stage: Explains, capsys: pytest.CaptureFixture[str]) -> None:
    make, pod = STUCK[title]
    expected = shown(title, pod)

    def create(thing: Json) -> Json:
        made = stage.client.create(thing)
        if thing["kind"] in ("PersistentVolume", "PersistentVolumeClaim"):
            stage.client.patch_status(thing["kind"], thing["metadata"]["name"], thing["status"])
        return made

    make(create)
    if expected.condition.startswith("0/"):
        stage.refused(pod, len(NODES))
    elif expected.condition:
        stage.explained(pod, len(NODES))
    else:
        stage.client.wait_for(lambda: stage.ask(pod).status_code == 404, what="the pod to be read")
    main(["explain", pod, "-n", "default", "--server", stage.homeport.url])

    assert expected.condition == stage.condition(pod)
    assert lines(expected.explained) == lines("".join(capsys.readouterr()))
