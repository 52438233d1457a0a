"""The chart, installed as a user installs it, in a namespace that enforces the restricted Pod Security Standard."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tests.cluster.cluster import Cluster
from tests.integration.service import counted

CHART: Final = Path(__file__).parents[2] / "helm" / "homeport"
IMAGE_VALUES: Final = (
    "--set=image.registry=localhost",
    "--set=image.repository=homeport",
    "--set=image.tag=cluster",
    "--set=image.allowLocal=true",
)
"""The image of `images.HOMEPORT`, which every node has."""

_WAIT: Final = "120s"
Json = dict[str, Any]


class Release:
    """One installed release; as a context manager it is uninstalled at the end, and its namespace deleted."""

    def __init__(self, cluster: Cluster, name: str, *flags: str, helm: int = 3) -> None:
        """`flags` are further ones of `helm upgrade`; the namespace has the name of the release."""
        self.cluster = cluster
        self.name = self.namespace = name
        self.installed_in = 0.0
        self._flags = flags
        self._helm = helm

    def __enter__(self) -> Self:
        enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": enforced}
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        started = time.monotonic()
        self.upgrade()
        self.installed_in = time.monotonic() - started
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait")

    def upgrade(self, *flags: str) -> str:
        """Install or upgrade, and wait until everything is ready."""
        asked = ("upgrade", "--install", "--wait", f"--timeout={_WAIT}", "--namespace", self.namespace)
        return self.cluster.helm(*asked, self.name, str(CHART), *IMAGE_VALUES, *self._flags, *flags, major=self._helm)

    def uninstall(self) -> str:
        """Remove it, and wait until its pods are gone."""
        asked = ("uninstall", "--ignore-not-found", "--wait", f"--timeout={_WAIT}", "--namespace", self.namespace)
        return self.cluster.helm(*asked, self.name, major=self._helm)

    def pods(self) -> list[Json]:
        """Its pods that are not ending."""
        found = self.cluster.client.list("Pod", self.namespace, labels=f"app.kubernetes.io/instance={self.name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """The pod that decides."""
        return _pod_of(self.cluster.client.get("Lease", self.name, self.namespace))

    def scheduler_leader(self) -> str:
        """The pod whose kube-scheduler schedules."""
        return _pod_of(self.cluster.client.get("Lease", f"{self.name}-scheduler", self.namespace))

    def wait_ready(self) -> None:
        """Until all replicas are, and none is ending."""
        self.cluster.kubectl(
            "rollout", "status", f"deployment/{self.name}", "--namespace", self.namespace, f"--timeout={_WAIT}"
        )

    def get(self, pod: str, path: str) -> Any:
        """What a pod's Homeport answers over loopback, as an operator asks it: `kubectl exec`."""
        script = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8889{path}').read().decode())"
        told = self.cluster.kubectl(
            "exec", pod, "--namespace", self.namespace, "--container=homeport", "--", "python", "-c", script
        )
        return json.loads(told)

    def outcomes(self, pod: str, verb: str) -> dict[str, int]:
        """How often each outcome of a verb was counted there; metrics are open to whoever reaches the pod."""
        (address,) = [it["status"]["podIP"] for it in self.pods() if it["metadata"]["name"] == pod]
        text = httpx.get(f"http://{address}:8889/metrics", trust_env=False, timeout=5).raise_for_status().text
        return counted(text, verb)

    def log(self, pod: str, container: str = "homeport") -> str:
        """All a container of it has written."""
        return self.cluster.kubectl("logs", pod, "--namespace", self.namespace, f"--container={container}")

    def delete(self, *pods: str, grace_seconds: int | None = None) -> None:
        """Delete pods and do not wait; without seconds as long as they may take."""
        grace = [] if grace_seconds is None else [f"--grace-period={grace_seconds}", "--force"]
        self.cluster.kubectl("delete", "pod", *pods, "--namespace", self.namespace, "--wait=false", *grace)


def _pod_of(lease: Mapping[str, Any]) -> str:
    """Holders are called after their pod, and something random after a `_`."""
    holder: str = lease["spec"].get("holderIdentity") or ""
    return holder.partition("_")[0]
