"""``POST /api/v1/simulate`` and ``homeport simulate``: where pods would go, and what is wrong with a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.__main__ import main as homeport
from app.config.settings import Settings
from app.whatif import running
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import Api, serving
from tests.builders import ZONE, JsonObject, container, controller, node_object, pod_object

HASH: Final = "abc12"
WEB: Final = {"app": "web", "pod-template-hash": HASH}
SPREAD: Final = [
    {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def node(name: str, zone: str, cpu: str = "4") -> JsonObject:
    return node_object(name, zone=zone, status={"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}})


def containers(cpu: str) -> list[JsonObject]:
    return [container(resources={"requests": {"cpu": cpu}})]


def web(number: int, on: str) -> JsonObject:
    owner = controller("ReplicaSet", f"web-{HASH}")
    return pod_object(
        f"web-{HASH}-{number}", labels=WEB, owner=owner, spread=SPREAD, node=on, containers=containers("1")
    )


def deployment(replicas: int = 3, cpu: str = "1") -> JsonObject:
    template = {
        "metadata": {"labels": {"app": "new"}},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "new"}}, "template": template},
    }


OBJECTS: Final = [node("a1", "a"), node("b1", "b"), node("c1", "c", cpu="1"), web(0, "a1"), web(1, "b1")]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    return path


@pytest.fixture
async def api(saved: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=str(saved)), SHIPPED, DEFAULT_WEIGHTS) as api:
        yield api


async def simulated(api: Api, **request: Any) -> JsonObject:
    answer = await api.http.post("/api/v1/simulate", json=request)
    assert answer.is_success, answer.text
    found: JsonObject = answer.json()
    return found


async def test_the_pods_of_a_manifest(api: Api) -> None:
    answer = await simulated(api, objects=[deployment(3)])

    assert ("homeport.dev/v1alpha1", "Simulation") == (answer["apiVersion"], answer["kind"])
    assert (3, 0, 0) == (answer["placed"], answer["waiting"], answer["notReached"])
    assert {"Deployment/default/new"} == {it["workload"] for it in answer["pods"]}
    assert ([], "", False) == (answer["notJudged"], answer["stale"], answer["incomplete"])


async def test_pods_that_wait_have_reasons_and_remedies(api: Api) -> None:
    answer = await simulated(api, objects=[deployment(1, cpu="7")])

    (group,) = answer["waitingGroups"]
    assert (1, 3) == (group["count"], group["reasons"][0]["count"])
    assert ["Insufficient cpu"] == group["reasons"][0]["reasons"]
    assert ["RequestLess"] == [it["sort"] for it in group["remedies"]]


async def test_a_scale_up_is_spread(api: Api) -> None:
    """The third replica goes to the third zone, and the fourth to any other: there is no room in zone c."""
    scale = {"namespace": "default", "kind": "Deployment", "name": "web", "replicas": 4}

    answer = await simulated(api, scale=[scale])

    assert ["c1", True] == [answer["pods"][0]["nodeName"], answer["pods"][1]["nodeName"] in ("a1", "b1")]
    (spread,) = answer["spread"]
    assert ({"a": 1, "b": 1, "c": 0}, 1, 1) == (spread["before"], spread["skewBefore"], spread["skewAfter"])
    assert 4 == sum(spread["after"].values())
    assert ["c1"] == [it["name"] for it in answer["fullNodes"]]


async def test_pods_of_the_workload_that_wait_already_are_tried_first(tmp_path: Path) -> None:
    waits = pod_object(
        f"web-{HASH}-9", labels=WEB, owner=controller("ReplicaSet", f"web-{HASH}"), containers=containers("1")
    )
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*OBJECTS, waits]}))
    async with serving(Settings(cluster=str(path)), SHIPPED, DEFAULT_WEIGHTS) as api:
        scale = {"namespace": "default", "kind": "Deployment", "name": "web", "replicas": 4}

        pods = (await simulated(api, scale=[scale]))["pods"]

    assert (2, f"web-{HASH}-9", "exists and waits now") == (len(pods), pods[0]["pod"], pods[0]["approximate"])


async def test_pods_that_could_take_the_same_volume_are_marked(api: Api) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pods = [pod_object(name, containers=containers("1"), more={"volumes": [volume]}) for name in ("one", "two")]

    answer = await simulated(api, objects=pods)

    assert ["as if no other new pod took its volumes or devices"] * 2 == [it["approximate"] for it in answer["pods"]]


def with_claim(claim: str) -> JsonObject:
    pods = deployment()
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    pods["spec"]["template"]["spec"]["volumes"] = [volume]
    return pods


async def test_a_claim_and_its_class_of_the_same_manifest_are_used(api: Api) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }

    without = await simulated(api, objects=[with_claim("data")], namespace="default")
    beside = await simulated(api, objects=[claim, with_claim("data"), storage_class()], namespace="default")

    assert (3, 0, []) == (without["waiting"], beside["waiting"], beside["ignored"])


EPHEMERAL: Final = {
    "name": "scratch",
    "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}},
}
"""A generic ephemeral volume."""


def storage_class() -> JsonObject:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def bound_claim(pod: JsonObject) -> JsonObject:
    """The claim of the ephemeral volume of a pod that runs."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    name = f"{metadata['name']}-scratch"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "uid": name,
            "ownerReferences": [owner],
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"storageClassName": "fast", "volumeName": "pv-of-a1"},
    }


def volume_on(name: str) -> JsonObject:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-of-{name}"},
        "spec": {"storageClassName": "fast", "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }


async def test_claims_of_ephemeral_volumes_are_made_for_new_pods(tmp_path: Path) -> None:
    """For the pods of a manifest, of a scale-up, and for those that a drain creates again."""
    pods = deployment()
    pods["spec"]["template"]["spec"]["volumes"] = [EPHEMERAL]
    runs = web(0, "a1")
    runs["spec"]["volumes"] = [EPHEMERAL]
    runs["metadata"]["uid"] = "web-0"
    nodes = [it for it in OBJECTS if it["kind"] == "Node"]
    for it in nodes:
        it["metadata"]["labels"]["kubernetes.io/hostname"] = it["metadata"]["name"]
    path = tmp_path / "cluster.json"
    items = [*nodes, runs, bound_claim(runs), volume_on("a1"), storage_class()]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    async with serving(Settings(cluster=str(path)), SHIPPED, DEFAULT_WEIGHTS) as api:
        scale = {"namespace": "default", "kind": "Deployment", "name": "web", "replicas": 2}
        made = await simulated(api, objects=[pods])
        scaled = await simulated(api, scale=[scale])
        drained = (await api.get("/api/v1/drain?node=a1"))["items"][0]

    assert [(3, 0), (1, 0), (1, 0)] == [(it["placed"], it["waiting"]) for it in (made, scaled, drained)]


async def test_labels_of_a_namespace_of_the_same_manifest_are_used(api: Api) -> None:
    """Pods that keep away from all namespaces of a team keep away from those that are made beside them."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"team": "a"}}}
    taken = deployment()
    taken["metadata"]["namespace"] = "team-a"
    alone = deployment(1)
    alone["metadata"]["name"] = "alone"
    alone["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "new"}},
                    "namespaceSelector": {"matchLabels": {"team": "a"}},
                }
            ]
        }
    }

    plan = await simulated(api, objects=[taken, alone, space])

    (apart,) = [it for it in plan["pods"] if it["pod"].startswith("alone")]
    assert apart["nodeName"] not in {it["nodeName"] for it in plan["pods"] if it is not apart}


async def test_a_scale_down_names_the_pods_that_go(api: Api) -> None:
    answer = await simulated(api, scale=[{"namespace": "default", "kind": "Deployment", "name": "web", "replicas": 1}])

    assert (1, []) == (len(answer["removed"]), answer["pods"])
    assert 1 == sum(answer["spread"][0]["after"].values())


async def test_the_service_is_unchanged(api: Api) -> None:
    before = api.service.snapshot.generation

    await simulated(api, objects=[deployment(3)])

    assert before == api.service.snapshot.generation


@pytest.mark.parametrize(
    ("request_", "field", "message"),
    [
        ({"objects": [{**deployment(), "spec": {}}]}, "objects[0].spec", ""),
        ({"objects": [deployment(-1)]}, "objects[0].spec.replicas", ""),
        ({"objects": [deployment(10_000)]}, "objects[0].spec", "more than 5,000 pods"),
        ({"scale": [{"namespace": "default", "kind": "Deployment", "name": "wbe", "replicas": 2}]}, "scale[0]", ""),
        ({"scale": [{"namespace": "default", "kind": "Deployment", "name": "web"}]}, "scale[0].replicas", "required"),
        ({"preempt": "yes"}, "preempt", ""),
        ({"unknown": 1}, "unknown", ""),
    ],
)
async def test_mistakes_name_the_field(api: Api, request_: JsonObject, field: str, message: str) -> None:
    answer = await api.http.post("/api/v1/simulate", json=request_)

    assert (422, "Status") == (answer.status_code, answer.json()["kind"])
    (cause,) = answer.json()["details"]["causes"]
    assert cause["field"].startswith(field)
    assert message in cause["message"]


async def test_one_at_a_time(api: Api) -> None:
    """The second request is told when to try again."""
    both = await asyncio.gather(
        *(api.http.post("/api/v1/simulate", json={"objects": [deployment(200)]}) for _ in range(2))
    )

    assert [200, 503] == sorted(it.status_code for it in both)
    (busy,) = (it for it in both if it.status_code == 503)
    assert "1" == busy.headers["retry-after"]


async def test_an_old_snapshot_is_said(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    explain = api.service._explain
    monkeypatch.setattr(explain, "problem", lambda: "pods: no contact for 90 s")

    assert "pods: no contact for 90 s" == (await simulated(api, objects=[deployment(1)]))["stale"]

    monkeypatch.setattr(explain, "is_listed", lambda: False)
    assert 503 == (await api.http.post("/api/v1/simulate", json={})).status_code


async def test_what_does_not_fit_into_the_time_is_left_out(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.service._what_if, "_seconds", 0.0)

    answer = await simulated(api, objects=[deployment(3)])

    assert (True, 2) == (answer["incomplete"], answer["notReached"])


def told(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str, str]:
    code = homeport(command)
    return code, *capsys.readouterr()


class TestCommand:
    """In this process, about a saved cluster."""

    def run(self, capsys: pytest.CaptureFixture[str], saved: Path, *more: str) -> tuple[int, str, str]:
        return told(capsys, "simulate", *more, "--saved", str(saved), "-q")

    def manifest(self, saved: Path, *objects: JsonObject) -> str:
        path = saved.parent / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    def test_all_are_placed(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        code, out, err = self.run(capsys, saved, self.manifest(saved, deployment(2)))

        assert (0, "", "2 of 2 pods would be placed") == (code, err, out.splitlines()[0])

    def test_one_waits(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        code, out, _ = self.run(capsys, saved, "-f", self.manifest(saved, deployment(1, cpu="7")))

        assert (1, "0 of 1 pods would be placed, 1 would wait") == (code, out.splitlines()[0])
        assert "  3 nodes: NodeResourcesFit: Insufficient cpu" in out.splitlines()

    @pytest.mark.parametrize("replicas", ["3", "1"])
    def test_scale(self, capsys: pytest.CaptureFixture[str], saved: Path, replicas: str) -> None:
        code, out, _ = self.run(capsys, saved, "scale", f"deploy/web={replicas}", "-n", "default", "-o", "json")

        assert (0, "Simulation") == (code, json.loads(out)["kind"])

    def test_scale_from_zero_uses_the_manifest(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        """The object is only a template: its own replicas are not created."""
        manifest = self.manifest(saved, deployment(0))
        command = ("scale", "deploy/new=2", "-n", "default", "-f", manifest, "-o", "json")

        code, out, err = self.run(capsys, saved, *command)

        pods = json.loads(out)["pods"]
        assert (0, "", 2) == (code, err, len(pods))
        assert {"from the manifest, because the workload has no pod"} == {it["approximate"] for it in pods}

    def test_a_mistake_has_file_and_line(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        path = self.manifest(saved, deployment(1), {**deployment(1), "spec": {"replicas": "three"}})
        line = Path(path).read_text().splitlines().index("  replicas: three") + 1

        code, out, err = self.run(capsys, saved, path)

        assert (2, "") == (code, out)
        assert err.startswith(f"homeport: {path}:{line}: spec.replicas: ")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ([], "nothing to simulate"),
            (["scale"], "needs a workload"),
            (["scale", "web=3"], "does not say what to scale"),
            (["scale", "widget/web=3"], "widget"),
            (["no-such-file.yaml"], "cannot be read"),
            (["scale", "deploy/web=9999"], "'deploy/web=9999': the request has more than 5,000 pods"),
            (["scale", "ds/x=3"], "'ds/x=3': the number of pods of a DaemonSet cannot be changed"),
            (["scale", "deploy/web=4", "deploy/web=5"], "another part of the request changes too"),
        ],
    )
    def test_wrong_usage(
        self, capsys: pytest.CaptureFixture[str], saved: Path, given: Sequence[str], message: str
    ) -> None:
        code, out, err = self.run(capsys, saved, *given)

        assert (2, "") == (code, out)
        assert message in err

    @pytest.mark.parametrize("value", ["2026-11-24", ".nan"])
    def test_a_value_that_is_not_json(self, capsys: pytest.CaptureFixture[str], saved: Path, value: str) -> None:
        path = saved.parent / "dated.yaml"
        path.write_text(f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  annotations: {{released: {value}}}\n")

        code, _, err = self.run(capsys, saved, str(path))

        assert 2 == code
        assert err.startswith(f"homeport: {path}:1: cannot be written as JSON: ")

    def test_a_workload_that_does_not_exist(self, capsys: pytest.CaptureFixture[str], saved: Path) -> None:
        code, _, err = self.run(capsys, saved, "scale", "deploy/wbe=3", "-n", "default")

        assert 3 == code
        assert "wbe" in err

    def test_progress_can_be_cancelled(self, monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
        """Ctrl-C between two steps ends the command."""

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(running.InlineRunner, "_shown", interrupted)

        assert 130 == homeport(["simulate", "scale", "deploy/web=3", "-n", "default", "--saved", str(saved), "-q"])


@pytest.fixture
def cordoned(saved: Path) -> Path:
    """The cluster with zone c cordoned."""
    objects = [*OBJECTS[:2], {**OBJECTS[2], "spec": {"unschedulable": True}}, *OBJECTS[3:]]
    saved.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return saved


async def test_options_of_the_profile_decide_and_are_named(cordoned: Path) -> None:
    """In-tree, no zone takes a second pod while zone c is empty."""
    scale = {"namespace": "default", "kind": "Deployment", "name": "web", "replicas": 6}
    found = {}
    for name, beyond in (("in-tree", None), ("options", {"untoleratedDomains": "Ignore"})):
        args = [{"name": "PodTopologySpread", "args": {"beyond": beyond}}]
        settings = Settings(
            cluster=str(cordoned), profiles=[{"schedulerName": "default-scheduler", "pluginConfig": args}]
        )
        async with serving(settings, SHIPPED, DEFAULT_WEIGHTS) as api:
            answer = await simulated(api, scale=[scale])
        found[name] = (answer["placed"], answer["waiting"], answer["spread"][0]["options"])

    assert found == {"in-tree": (0, 4, []), "options": (4, 0, ["untoleratedDomains Ignore by profile"])}
