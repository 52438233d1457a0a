"""The image, before any chart: what is in it and what is not, and that it runs where nothing may be written."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster import images
from tests.cluster.cluster import Cluster
from tests.cluster.image import version
from tests.controlplane import objects

PLAIN = "plain"
SAMPLE = "/usr/share/homeport/sample-cluster.yaml"
ABSENT = ("pip", "pip3", "ensurepip", "gcc", "cc", "g++", "make", "curl")
LOOK = """
import glob, importlib.util, json, os, shutil, sys
found = [name for name in sys.argv[1:] if shutil.which(name) or importlib.util.find_spec(name)]
library = os.path.dirname(importlib.util.find_spec("app").origin)
sources = {path for path in glob.glob(f"{library}/**/*.py", recursive=True)}
compiled = {path for path in sources if os.path.exists(importlib.util.cache_from_source(path))}
settings = [path for path in ("/etc/pip.conf", "/etc/pip.pem", "/etc/xdg/pip") if os.path.exists(path)]
listed = os.listdir("/var/lib/apt/lists") if os.path.exists("/var/lib/apt/lists") else []
pip = sorted(name for name in os.environ if name.startswith("PIP_"))
print(json.dumps([found, len(sources - compiled), len(sources) > 100, settings, listed, pip, sys.version_info[:2]]))
"""


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """One that enforces restricted."""
    cluster.apply(objects.namespace(PLAIN, {"pod-security.kubernetes.io/enforce": "restricted"}))
    yield PLAIN
    cluster.kubectl("delete", "namespace", PLAIN, "--wait")


def pod(name: str, *arguments: str) -> dict[str, object]:
    """The image with nothing to write to, and the probes that the chart gives it."""
    probe = {"httpGet": {"path": "/readyz", "port": 8889}, "periodSeconds": 1}
    container = {
        "name": "homeport",
        "image": images.HOMEPORT,
        "args": list(arguments),
        "readinessProbe": probe,
        "livenessProbe": {**probe, "httpGet": {"path": "/livez", "port": 8889}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    made = objects.pod(name, namespace=PLAIN)
    made["spec"] |= {
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return made


def test_it_runs_on_the_sample_cluster_with_nothing_to_write_to(cluster: Cluster, namespace: str) -> None:
    """Nobody says who it runs as: the image does, by a number that `runAsNonRoot` can judge."""
    cluster.apply(pod("sample", "serve", f"--cluster={SAMPLE}", "--operator-host=0.0.0.0", "--operator-port=8889"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/sample", "--namespace", namespace, "--timeout=60s")
    asked = (
        "exec",
        "sample",
        "--namespace",
        namespace,
        "--",
        "python",
        "-c",
        "import os; print(os.getuid(), os.getgid())",
    )

    assert "65532 65532\n" == cluster.kubectl(*asked)


def test_tracing_needs_nothing_more_than_an_endpoint(cluster: Cluster, namespace: str) -> None:
    """A collector that is not there costs spans and nothing else."""
    serve = ("serve", f"--cluster={SAMPLE}", "--operator-host=0.0.0.0", "--operator-port=8889")
    cluster.apply(pod("traced", *serve, "--tracing-endpoint=http://127.0.0.1:4318"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/traced", "--namespace", namespace, "--timeout=60s")


def test_there_is_no_tool_to_build_with_no_setting_of_the_builder_and_bytecode_of_all(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(pod("look", "serve", f"--cluster={SAMPLE}", "--operator-host=0.0.0.0", "--operator-port=8889"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/look", "--namespace", namespace, "--timeout=60s")
    told = cluster.kubectl("exec", "look", "--namespace", namespace, "--", "python", "-c", LOOK, *ABSENT)

    assert [[], 0, True, [], [], [], [3, 13]] == json.loads(told)


def test_it_says_what_it_is(cluster: Cluster) -> None:
    """Labels as the OCI names them; no health check of its own, which Kubernetes would not look at."""
    asked = ["buildah", "inspect", "--type=image", images.HOMEPORT]
    found = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)["Docker"]["config"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in found["Labels"].items()}

    assert {"Homeport", "Apache-2.0", version()} <= set(labels.values())
    assert 40 == len(labels["revision"].partition("-")[0])
    assert ("65532:65532", ["homeport"], ["serve"]) == (found["User"], found["Entrypoint"], found["Cmd"])
    assert "Healthcheck" not in found
