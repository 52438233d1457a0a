"""The programs with which the chart is tested, built from their Go modules into the cache of `binaries`.

python -m tests.controlplane.tools                  # builds what is missing and prints where it is
python -m tests.controlplane.tools --document DIR   # makes the README of a chart from its values
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.controlplane.binaries import DEFAULT_KUBERNETES, KUBERNETES_MODULE, BuildError, cache_dir, sources, tool

HELM: Final[Mapping[str, tuple[str, str]]] = {
    "helm-3": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "helm-4": ("helm.sh/helm/v4/cmd/helm", "v4.3.1"),
}
_UNITTEST: Final = "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"
_YAML_JSONPATH: Final = {"github.com/vmware-labs/yaml-jsonpath": "github.com/helm-unittest/yaml-jsonpath v0.4.0"}
_SCHEMAS: Final = "schemas"
_REFERENCE: Final = "#/definitions/"
_KINDS: Final = "x-kubernetes-group-version-kind"
_EITHER: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ("string", "number"),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ("string", "integer"),
}
"""Types that the specification calls a text, and that are written as numbers too."""

Schema = dict[str, Any]


def helm(name: str) -> Path:
    """`helm-3` or `helm-4`."""
    return tool(*HELM[name])


def helm_docs() -> Path:
    """Makes the chart's README from its values."""
    return tool("github.com/norwoodj/helm-docs/cmd/helm-docs", "v1.14.2")


def helm_unittest() -> Path:
    """Runs the chart's suites; a program of its own, no plugin of Helm is needed."""
    return tool(_UNITTEST, "v1.1.2", _YAML_JSONPATH)


def kubeconform() -> Path:
    """Compares manifests with schemas."""
    return tool("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")


def schemas(kubernetes: str = DEFAULT_KUBERNETES) -> Path:
    """A folder of JSON schemas for kubeconform, one a kind of this release, made from its own specification."""
    target = cache_dir() / kubernetes / _SCHEMAS
    if not target.is_dir():
        unfinished = target.with_name(f".{_SCHEMAS}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        specification = sources(KUBERNETES_MODULE, f"v{kubernetes}") / "api" / "openapi-spec" / "swagger.json"
        for name, schema in _kinds(json.loads(specification.read_text())["definitions"]):
            (unfinished / name).write_text(json.dumps(schema))
        unfinished.rename(target)
    return target


def schema_name(group: str, version: str, kind: str) -> str:
    """What kubeconform looks for: it takes the group's first word alone."""
    words = [kind, *filter(None, (group.partition(".")[0],)), version]
    return "-".join(words).lower() + ".json"


def closed(schema: Any) -> Any:
    """The same with nothing allowed in an object beside its named properties."""
    if isinstance(schema, list):
        return [closed(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(it) for key, it in schema.items()}
    if isinstance(found.get("properties"), dict) and found.get("type", "object") == "object":
        found.setdefault("additionalProperties", False)
    return found


def _kinds(definitions: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    strict = {name: _either(name) or closed(it) for name, it in definitions.items()}
    for name, it in definitions.items():
        for kind in it.get(_KINDS, ()):
            used = _reachable(strict, name)
            schema = {"$ref": f"{_REFERENCE}{name}", "definitions": {each: strict[each] for each in used}}
            yield schema_name(kind["group"], kind["version"], kind["kind"]), schema


def _either(name: str) -> Schema | None:
    return {"oneOf": [{"type": it} for it in _EITHER[name]]} if name in _EITHER else None


def _reachable(definitions: Mapping[str, Schema], name: str) -> list[str]:
    found, waiting = {name: None}, [name]
    while waiting:
        for each in _references(definitions[waiting.pop()]):
            if each not in found:
                found[each] = None
                waiting.append(each)
    return list(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(_REFERENCE)
        for it in schema.values():
            yield from _references(it)
    elif isinstance(schema, list):
        for it in schema:
            yield from _references(it)


def document(chart: Path) -> None:
    """Make the README of a chart from its template and its values; raises `BuildError`."""
    command = [str(helm_docs()), f"--chart-search-root={chart}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr)


def main() -> int:
    """Build and make everything; one path a line."""
    parser = argparse.ArgumentParser("python -m tests.controlplane.tools", description="Programs to test the chart.")
    parser.add_argument("--document", metavar="DIR", type=Path, help="make the README of this chart, nothing else")
    chart = parser.parse_args().document
    try:
        if chart is not None:
            document(chart)
            return 0
        print(*map(helm, HELM), helm_docs(), helm_unittest(), kubeconform(), schemas(), sep="\n")
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
