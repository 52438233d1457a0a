"""A plugin of somebody else, installed by pip, is as good as our own; one that cannot be had is said to be at fault."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.__main__ import main
from app.commands.plugins import installed
from app.config.loading import load_settings
from app.config.settings import Settings
from app.main import HomeportService
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject, node_object, pod_object
from tests.contract.venvs import cells, homeport, make_venv, python, site_packages
from tests.served import served

PROJECT: Final = Path(__file__).parent / "third_party"
RACK: Final = "racks.example/rack"
DRAINED: Final = "node(s) stand on a rack that is drained"
POD: Final = pod_object("web-1")
CONFIG: Final = """\
apiVersion: homeport.dev/v1alpha1
kind: HomeportConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: RackLabels}]}}
"""

FILTER: Final = {"Pod": POD, "NodeNames": ["n1", "n2", "n3"]}
BIND: Final = {"PodName": "web-1", "PodNamespace": "default", "PodUID": POD["metadata"]["uid"], "Node": "n2"}
PASSED: Final = {
    "Nodes": None,
    "NodeNames": ["n2", "n3"],
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {"n1": DRAINED},
    "Error": "",
}


def rack(name: str, **labels: str) -> JsonObject:
    return {"apiVersion": "racks.example/v1", "kind": "Rack", "metadata": {"name": name, "labels": labels}}


CLUSTER: Final = [
    node_object("n1", labels={RACK: "r1"}),
    node_object("n2", labels={RACK: "r2"}),
    node_object("n3"),
    rack("r1", **{"racks.example/drained": ""}),
    rack("r2"),
    POD,
]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with Homeport and the plugin."""
    return make_venv(tmp_path_factory.mktemp("venv"), PROJECT)


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, str]:
    """Command line for the cluster of racks and a profile with the plugin."""
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    (tmp_path / "homeport.yaml").write_text(CONFIG)
    return (f"--cluster={tmp_path / 'cluster.json'}", f"--config={tmp_path / 'homeport.yaml'}")


def lay_out(folder: Path, source: str) -> None:
    """Write what pip would install of a distribution with one module and one entry point."""
    (folder / "odd_plugins.py").write_text(source)
    metadata = folder / "odd_plugins-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-plugins\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[homeport.plugins]\nodd-plugins = odd_plugins:SPEC\n")


class TestInstalled:
    def test_it_is_listed_with_its_points_arguments_and_origin(self, venv: Path, tmp_path: Path) -> None:
        listed = homeport(venv, "plugins", cwd=tmp_path).stdout.splitlines()

        assert ["RackLabels", "filter, preBind", "label", "-", "-", "rack_labels"] == cells(listed[-1])

    def test_it_judges_and_binds_by_the_kind_it_declares(
        self, venv: Path, tmp_path: Path, flags: Sequence[str]
    ) -> None:
        with served(tmp_path, *flags, python=python(venv)) as http:
            filtered, bound = (http.post(path, json=it).json() for path, it in (("/filter", FILTER), ("/bind", BIND)))
            status = http.get("/api/v1/status").json()

        assert (PASSED, {"Error": ""}) == (filtered, bound)
        assert 2 == status["feeds"]["racks.example/v1 Rack"]["objects"]
        assert ["PodTopologySpread", "StickyNode", "RackLabels"] == status["profiles"][0]["points"]["filter"]

    async def test_its_annotation_is_on_the_bound_pod(self, borrowed: None, flags: Sequence[str]) -> None:
        service = HomeportService(_settings(*flags), (*SHIPPED, *installed()), DEFAULT_WEIGHTS, version="1")
        web = service.web()
        async with (
            web.router.lifespan_context(web),
            httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http,
        ):
            answer = (await http.post("/bind", json=BIND)).json()

        pod = service._cluster.pod("default", "web-1")
        assert pod is not None
        assert ({"Error": ""}, "n2", {RACK: "r2"}) == (answer, pod.node_name, pod.annotations)


@pytest.fixture
def borrowed(venv: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process sees what is installed in the virtual environment."""
    monkeypatch.syspath_prepend(site_packages(venv))
    yield
    sys.modules.pop("rack_labels", None)


DUPLICATE: Final = """\
from plugins.in_tree.priority_sort import PrioritySort, PrioritySortArgs
from app.framework.spec import PluginSpec
SPEC = PluginSpec("PrioritySort", PrioritySortArgs, PrioritySort)
"""


@pytest.mark.parametrize(
    ("source", "commands", "sentence"),
    [
        pytest.param(
            "import no_such_library",
            ("plugins", "serve", "evaluate"),
            "homeport: plugin odd-plugins (odd_plugins:SPEC) of odd-plugins cannot be loaded: "
            "ModuleNotFoundError: No module named 'no_such_library'\n",
            id="a library it needs is not there",
        ),
        pytest.param(
            "",
            ("plugins",),
            "homeport: plugin odd-plugins (odd_plugins:SPEC) of odd-plugins cannot be loaded: "
            "AttributeError: module 'odd_plugins' has no attribute 'SPEC'\n",
            id="the entry point names nothing",
        ),
        pytest.param(
            "SPEC = 'RackLabels'",
            ("plugins",),
            "homeport: plugin odd-plugins (odd_plugins:SPEC) of odd-plugins is neither a PluginSpec nor a sequence of "
            "them\n",
            id="the entry point names something else",
        ),
        pytest.param(
            DUPLICATE,
            ("serve", "evaluate"),
            'homeport: plugin "PrioritySort" is registered twice\n',
            id="its name is taken",
        ),
    ],
)
def test_a_plugin_that_cannot_be_had_is_said_to_be_at_fault(
    tmp_path: Path,
    flags: Sequence[str],
    source: str,
    commands: Sequence[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lay_out(tmp_path, source)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = {"plugins": (), "serve": flags, "evaluate": (os.devnull,)}

    for command in commands:
        assert (2, ("", sentence)) == (main([command, *arguments[command]]), capsys.readouterr())
        sys.modules.pop("odd_plugins", None)


def _settings(*flags: str) -> Settings:
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    return load_settings({"cluster": given["cluster"]}, config=given["config"])
