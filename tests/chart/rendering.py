"""The chart as Helm renders it."""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

import yaml

from tests.controlplane import tools
from tests.controlplane.binaries import DEFAULT_KUBERNETES
from tests.controlplane.client import Json

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "homeport"
CI_VALUES: Final = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASES: Final = sorted((Path(__file__).parent / "releases").glob("*-values.yaml"))
HELMS: Final = tuple(tools.HELM)
NAMESPACE: Final = "scheduling"
CLUSTER: Final = f"v{DEFAULT_KUBERNETES}"


ALLOW_LOCAL: Final = ("--set=image.allowLocal=true",)
"""The defaults name an image that no registry has."""


class RefusedError(Exception):
    """Helm ended with an error; the message is what it said."""


def run_helm(name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What Helm says; raises `RefusedError`. Nothing of the user's own Helm or cluster is looked at."""
    with tempfile.TemporaryDirectory(prefix="homeport-helm-") as home:
        own = {"HOME": home, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home, "HELM_DATA_HOME": home}
        nowhere = {"KUBECONFIG": f"{home}/none", "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [str(tools.helm(name)), *arguments],
            capture_output=True,
            text=True,
            env={**nowhere, **own, **(environment or {})},
            check=False,
        )
    if done.returncode:
        raise RefusedError(done.stderr + done.stdout)
    return done.stdout


class Rendering(TypedDict, total=False):
    """What is rendered otherwise than usual."""

    helm: str
    cluster: str
    api_versions: Sequence[str]
    chart: Path
    release: str
    namespace: str


def rendered(values: Path | Mapping[str, Any] | None = None, **otherwise: Unpack[Rendering]) -> list[Json]:
    """All objects for a file of values or for values, in a cluster of that version; tests of the release included."""
    return [it for it in yaml.safe_load_all(rendered_text(values, **otherwise)) if it]


def rendered_text(values: Path | Mapping[str, Any] | None, **otherwise: Unpack[Rendering]) -> str:
    """The same as Helm writes it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        if isinstance(values, Mapping):
            json.dump(dict(values), file)  # with quotes around what Go would read as something else than Python
            file.flush()
            values = Path(file.name)
        return run_helm(
            otherwise.get("helm", "helm-3"),
            "template",
            otherwise.get("release", "homeport"),
            str(otherwise.get("chart", CHART)),
            f"--namespace={otherwise.get('namespace', NAMESPACE)}",
            f"--kube-version={otherwise.get('cluster', CLUSTER)}",
            *(f"--api-versions={it}" for it in otherwise.get("api_versions", ())),
            *([f"--values={values}"] if values is not None else []),
            *ALLOW_LOCAL,
        )


@functools.cache
def rendered_once(values: Path, helm: str = "helm-3") -> tuple[Json, ...]:
    """The same for a file of the chart, made once; not to be changed."""
    return tuple(rendered(values, helm=helm))


def of_kind(found: Sequence[Json], kind: str) -> list[Json]:
    """Those of a kind."""
    return [it for it in found if it["kind"] == kind]


def the(found: Sequence[Json], kind: str, name: str = "") -> Json:
    """The only one of a kind, or the one of a name."""
    (one,) = [it for it in of_kind(found, kind) if name in ("", it["metadata"]["name"])]
    return one


def files(found: Sequence[Json]) -> Mapping[str, str]:
    """What the ConfigMap of the configuration holds, by name."""
    (one,) = [it["data"] for it in of_kind(found, "ConfigMap") if "homeport.yaml" in it.get("data", {})]
    held: Mapping[str, str] = one
    return held


def pod_of(found: Sequence[Json]) -> Json:
    """The Deployment's pod."""
    pod: Json = the(found, "Deployment")["spec"]["template"]
    return pod


def containers(pod: Json) -> dict[str, Json]:
    """The containers of a pod by name, those that begin with it included."""
    return {it["name"]: it for it in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])}
