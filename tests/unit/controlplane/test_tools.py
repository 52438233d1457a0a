"""What the tools of the chart are found by, and the schemas that are made for one of them."""

import json
import os
from pathlib import Path

import pytest

from tests.controlplane import binaries, tools
from tests.controlplane.binaries import BuildError

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit 0; fi
if [ "$2" = download ]; then echo '{"Dir": "%(sources)s"}'; exit 0; fi
pwd; cat go.mod 2>/dev/null; echo "$@"
exit 1
"""
SPECIFICATION = {
    "definitions": {
        "Thing": {
            "type": "object",
            "properties": {"size": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"}},
            "x-kubernetes-group-version-kind": [{"group": "apps.example.com", "version": "v1", "kind": "Thing"}],
        },
        "Other": {"type": "object"},
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    }
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a Go that has one module's sources and builds nothing."""
    monkeypatch.setenv("CONTROL_PLANE_CACHE", str(tmp_path / "cache"))
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO % {"sources": tmp_path / "sources"})
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "cache"


def test_a_tool_that_is_there_is_left_alone(cache: Path) -> None:
    expected = cache / "tools" / "helm-v4.3.1" / "helm"
    expected.parent.mkdir(parents=True)
    expected.touch()

    assert expected == tools.helm("helm-4")


def test_a_tool_is_installed_as_it_is_published(cache: Path) -> None:
    with pytest.raises(BuildError, match=r"install helm\.sh/helm/v3/cmd/helm@v3\.22\.0"):
        tools.helm("helm-3")


def test_a_tool_whose_module_replaces_others_is_built_in_one_that_does_too(cache: Path) -> None:
    with pytest.raises(BuildError, match=r"get example\.com/it/cmd/it@v1\.0\.0") as failed:
        binaries.tool("example.com/it/cmd/it", "v1.0.0", {"example.com/old": "example.com/new v2.0.0"})

    assert "replace example.com/old => example.com/new v2.0.0" in str(failed.value)
    assert f"{cache}/tools/it-v1.0.0/module" in str(failed.value)


def test_schemas_are_made_once_and_allow_nothing_more(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "sources" / "api" / "openapi-spec" / "swagger.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(SPECIFICATION))
    folder = tools.schemas()
    file.unlink()

    assert folder == tools.schemas()
    (made,) = folder.iterdir()
    schema = json.loads(made.read_text())
    assert "thing-apps-v1.json" == made.name
    assert {"Thing", "io.k8s.apimachinery.pkg.api.resource.Quantity"} == schema["definitions"].keys()
    assert schema["definitions"]["Thing"]["additionalProperties"] is False
    quantity = {"oneOf": [{"type": "string"}, {"type": "number"}]}
    assert quantity == schema["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]


def test_kinds_of_the_core_group_have_no_group_in_their_name() -> None:
    assert "service-v1.json" == tools.schema_name("", "v1", "Service")
