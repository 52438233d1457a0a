"""``kubectl homeport lint`` against a real API server, where no Homeport runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.builders import ZONE, constraint
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.test_kubectl import Person


def test_lint_of_a_cluster_in_which_nothing_is_installed(plane: ControlPlane, tmp_path: Path) -> None:
    """kube-apiserver completes the objects with its defaults, and does not serve KubeVirt's kinds."""
    plane.client.create_node(objects.node("n1", zone="a"))
    deployment: dict[str, Any] = objects.deployment("web", labels={"app": "web"}, replicas=2)
    spread = constraint(ZONE, app="wep", soft=True)
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = [spread]
    plane.client.create(deployment)

    code, out, err = Person(tmp_path, plane.kubeconfig).runs("lint", "-q", "-A", "-o", "json")

    told = json.loads(out)
    assert (1, "", []) == (code, err, told["broken"])
    assert [("selector-mismatch", "Deployment", "default", "web")] == [
        (it["id"], it["kind"], it["namespace"], it["name"]) for it in told["findings"]
    ]
