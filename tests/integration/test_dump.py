"""A dump of a real API server gives the answers of the live cluster, and holds nothing that Homeport does not read."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from httpx import codes

from app.__main__ import main
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport
from tests.integration.test_home_stories import HOME, install_kubevirt
from tests.integration.test_spread_stories import WEB, make_zones

SECRET = "s3cr3t"
PROFILES = [
    {"schedulerName": "default-scheduler", "preset": "complete"},
    {"schedulerName": "delegated"},
]


def with_secrets(pod: Json) -> Json:
    """Whatever a pod can carry that is nobody else's business."""
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
    }
    for container in spec["containers"]:
        container |= {"env": [{"name": "PASSWORD", "value": SECRET}], "command": ["sh", "-c", SECRET], "args": [SECRET]}
    spec["volumes"] = [*spec.get("volumes", ()), {"name": "key", "secret": {"secretName": SECRET}}]
    return pod


def test_a_dump_answers_as_the_live_cluster_does(
    plane: ControlPlane,
    start_homeport: Callable[..., Homeport],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = plane.client
    install_kubevirt(client)
    zones = make_zones(plane, {"zone-a": 3, "zone-b": 2}, cpu="4")
    client.patch("Node", "zone-b-1", {"spec": {"unschedulable": True}})
    client.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"key": SECRET}})
    machine = objects.virtual_machine("db01")
    machine["metadata"]["annotations"] = {HOME: "zone-a-1", "example.com/note": SECRET}
    machine = client.create(machine)
    instance = client.create(objects.virtual_machine_instance("db01", machine["metadata"]["uid"]))
    client.create(with_secrets(objects.launcher_pod(instance, suffix="first")))
    launcher = "virt-launcher-db01-first"
    for number, node in enumerate(("zone-a-0", "zone-a-1", "zone-b-0")):
        client.create(with_secrets(pod(f"web-{number}", node_name=node)))
    client.create(with_secrets(pod("web-new")))
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    client.create(high)
    client.create(with_secrets(pod("big", requests={"cpu": "64"})))
    client.create(with_secrets(pod("other", scheduler_name="delegated")))
    config = tmp_path / "homeport.json"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config.write_text(json.dumps({**head, "profiles": PROFILES, "explain": "complete"}))
    homeport = start_homeport("--config", str(config))
    monkeypatch.setattr("app.feeds.dump._PAGE", 2)

    file = tmp_path / "cluster.json"
    assert 0 == main(["dump", "-o", str(file), "--config", str(config), "--kubeconfig", str(plane.kubeconfig)])

    out = capsys.readouterr().out
    assert f"{len(zones)} Node" in out.splitlines()[0]
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    text = file.read_text()
    assert SECRET not in text
    kinds = {it["kind"] for it in json.loads(text)["items"]}
    assert ({"Pod", "Node", "VirtualMachine", "Namespace", "PriorityClass"}, False) == (
        kinds & {"Pod", "Node", "VirtualMachine", "Namespace", "PriorityClass", "Secret"},
        "managedFields" in text,
    )
    for name in ("web-0", "web-new", "big", "other", launcher):
        asked = {"namespace": "default", "name": name}
        live = explained(homeport, asked)
        arguments = ["explain", name, "-n", "default", "--saved", str(file), "--config", str(config), "-o", "json"]
        assert (live["verdict"] == "NoNodeFits") == main(arguments)
        saved: Any = json.loads(capsys.readouterr().out)
        assert all(isinstance(it.pop("judgedAt"), str) for it in (live, saved))  # two moments
        assert live == saved


def explained(homeport: Homeport, asked: Json) -> Json:
    """Wait until the snapshot of explain is complete, and return the explanation."""
    ends_at = monotonic() + 30
    while True:
        answer = HTTP.post(f"{homeport.url}/api/v1/explain", json=asked)
        if answer.status_code == codes.OK and not answer.json()["notJudged"]:
            return dict(answer.json())
        assert monotonic() < ends_at, answer.text
        sleep(0.2)


def pod(name: str, **fields: Any) -> Json:
    """A pod of the workload that is spread over zones."""
    return objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)], **fields)
