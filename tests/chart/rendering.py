"""The chart as Helm renders it."""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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


def rendered(
    values: Path | Mapping[str, Any] | None = None,
    *,
    helm: str = "helm-3",
    cluster: str = CLUSTER,
    api_versions: Sequence[str] = (),
    chart: Path = CHART,
    release: str = "homeport",
    namespace: str = NAMESPACE,
) -> list[Json]:
    """All objects for a file of values or for values, in a cluster of that version; tests of the release included."""
    text = rendered_text(
        values,
        helm=helm,
        cluster=cluster,
        api_versions=api_versions,
        chart=chart,
        release=release,
        namespace=namespace,
    )
    return [it for it in yaml.safe_load_all(text) if it]


def rendered_text(
    values: Path | Mapping[str, Any] | None,
    *,
    helm: str = "helm-3",
    cluster: str = CLUSTER,
    api_versions: Sequence[str] = (),
    chart: Path = CHART,
    release: str = "homeport",
    namespace: str = NAMESPACE,
) -> str:
    """The same as Helm writes it."""
    if isinstance(values, Mapping):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(dict(values), file)  # with quotes around what Go would read as something else than Python
            file.flush()
            return rendered_text(
                Path(file.name),
                helm=helm,
                cluster=cluster,
                api_versions=api_versions,
                chart=chart,
                release=release,
                namespace=namespace,
            )
    given = [f"--values={values}"] if values is not None else []
    return run_helm(
        helm,
        "template",
        release,
        str(chart),
        f"--namespace={namespace}",
        f"--kube-version={cluster}",
        *(f"--api-versions={it}" for it in api_versions),
        *given,
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
