"""A cluster from a file: what kubectl writes is taken, what is wrong is named."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cache.cluster import Cluster
from app.feeds.feed import FeedState, SavedFeed
from app.feeds.saved import MemoryBinder, MemoryWriter, SavedClusterError, load_saved, objects_in
from app.framework.objects import ObjectGone
from app.framework.status import SUCCESS, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, REPLICA_SETS, SERVICES, Kind, owner_kind
from app.writes.bind_guard import BindGuard, NotBound, passed_down
from tests.builders import JsonObject, make_node, make_pod, node_object, pod_object, service_object, workload_object
from tests.unit.app.writes.test_bind_guard import Words

NODE = node_object("n1", zone="z1")
POD = pod_object("web-1", node="n1", labels={"app": "web"})
SERVICE = service_object("web", {"app": "web"})
MACHINE: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {"name": "db", "namespace": "default", "uid": "u", "annotations": {"homeport.dev/home": "n1"}},
}
MACHINES = owner_kind("kubevirt.io/v1", "VirtualMachine")
KINDS: list[Kind[Any]] = [SERVICES, MACHINES]
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 9))]
)


def listed(*items: JsonObject, kind: str = "List", api_version: str = "v1") -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": ""}, "items": list(items)}


def untyped(found: JsonObject) -> JsonObject:
    """An item of a typed list carries neither kind nor version."""
    return {key: value for key, value in found.items() if key not in ("apiVersion", "kind")}


def loaded(folder: Path, text: str | bytes) -> Cluster:
    path = folder / "cluster"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    cluster = Cluster()
    load_saved(path, cluster, KINDS)
    return cluster


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(yaml.safe_dump(listed(NODE, POD, SERVICE, MACHINE)), id="a List in YAML"),
        pytest.param(json.dumps(listed(NODE, POD, SERVICE, MACHINE)), id="a List in JSON"),
        pytest.param(yaml.safe_dump_all([NODE, POD, SERVICE, MACHINE]), id="many documents"),
        pytest.param("---\n" + yaml.safe_dump_all([NODE, None, POD, SERVICE, MACHINE]) + "---\n", id="empty documents"),
        pytest.param(
            yaml.safe_dump_all(
                [
                    listed(untyped(NODE), kind="NodeList"),
                    listed(untyped(POD), kind="PodList"),
                    listed(untyped(SERVICE), kind="ServiceList"),
                    listed(untyped(MACHINE), kind="VirtualMachineList", api_version="kubevirt.io/v1"),
                ]
            ),
            id="typed lists",
        ),
        pytest.param(yaml.safe_dump_all([listed(NODE, POD), SERVICE, MACHINE]), id="lists and documents"),
        pytest.param("\n---\n".join(map(json.dumps, [NODE, POD, SERVICE, MACHINE])), id="many documents in JSON"),
        pytest.param("# saved\n" + yaml.safe_dump(listed(NODE, POD, SERVICE, MACHINE)), id="a comment first"),
        pytest.param(yaml.safe_dump(listed(NODE, POD, SERVICE, MACHINE)).encode("utf-16"), id="UTF-16"),
        pytest.param(
            yaml.safe_dump(listed(NODE, POD, SERVICE, MACHINE, {"kind": "x", "a": [MACHINE] * 3, "b": {"c": MACHINE}})),
            id="aliases",
        ),
    ],
)
def test_every_form_gives_the_same_cluster(tmp_path: Path, text: str | bytes) -> None:
    cluster = loaded(tmp_path, text)

    assert make_node("n1", zone="z1") == cluster.nodes["n1"].node
    assert [make_pod("web-1", node="n1", labels={"app": "web"})] == list(cluster.pods())
    assert 1 == cluster.count_of(SERVICES)
    machine = cluster.get(MACHINES, "default", "db")
    assert machine is not None
    assert {"homeport.dev/home": "n1"} == machine.annotations
    assert [] == cluster.check()


def test_kinds_that_nobody_reads_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text(
        json.dumps(listed(NODE, workload_object(), {"apiVersion": "v1", "kind": "Secret"}))
    )

    assert 1 == load_saved(tmp_path / "cluster", Cluster(), KINDS)


def metadata(**fields: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", **fields}, "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(metadata(), ("default", "web-1", "default/web-1", "1"), id="only a name"),
        pytest.param(metadata(namespace="shop"), ("shop", "web-1", "shop/web-1", "1"), id="a namespace"),
        pytest.param(metadata(uid="u"), ("default", "web-1", "u", "1"), id="a UID"),
        pytest.param(metadata(uid=""), ("default", "web-1", "default/web-1", "1"), id="an empty UID"),
        pytest.param(metadata(namespace=None), ("default", "web-1", "default/web-1", "1"), id="a null namespace"),
        pytest.param(metadata(resourceVersion="7"), ("default", "web-1", "default/web-1", "7"), id="a version"),
    ],
)
def test_what_an_object_written_by_hand_lacks_is_made_up(
    tmp_path: Path, found: JsonObject, expected: tuple[str, ...]
) -> None:
    (pod,) = loaded(tmp_path, json.dumps(listed(NODE, found))).pods()

    assert expected == (pod.namespace, pod.name, pod.uid, pod.resource_version)


def test_a_time_that_yaml_reads_as_one_is_a_time(tmp_path: Path) -> None:
    text = yaml.safe_dump(NODE) + (
        "---\n{apiVersion: v1, kind: Pod, spec: {nodeName: n1},"
        " metadata: {name: web-1, deletionTimestamp: 2026-11-21T10:00:00Z, creationTimestamp: 2026-11-21}}\n"
    )

    (pod,) = loaded(tmp_path, text).pods()

    assert pod.terminating


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(yaml.safe_dump(POD), "it has no Node: there is nothing to schedule to", id="no node"),
        pytest.param("a: [", "is neither YAML nor JSON: ", id="neither YAML nor JSON"),
        pytest.param('{"kind": "List"', "the JSON is cut off: it ends in line 1, at byte 15", id="JSON cut short"),
        pytest.param(
            '{"kind": "List",\n"items": [\n{"kind": "Node"},\n{"ki',
            "the JSON is cut off: it ends in line 4, at byte 50",
            id="a list cut short",
        ),
        pytest.param(
            b'{"kind": "List", "items": [{"kind": "\xff"}]}', "is neither YAML nor JSON: ", id="no text in a list"
        ),
        pytest.param(b"\xff\xfe\x00", "is neither YAML nor JSON: ", id="no text"),
        pytest.param("a: !!python/object:os.system x", "is neither YAML nor JSON: ", id="YAML that would run code"),
        pytest.param("- " * 200_000, "nested too deeply", id="nested so deeply that libyaml would crash"),
        pytest.param(
            BOMB, "is neither YAML nor JSON: aliases add more than 2,000,000 keys", id="aliases that multiply"
        ),
        pytest.param("a: &a [*a, *a]", "is neither YAML nor JSON: an alias refers to its own parent", id="a cycle"),
        pytest.param("a: &a [[b], [*a]]", "is neither YAML nor JSON: an alias refers to its own parent", id="a ring"),
        pytest.param("a: 2026-02-31", "is neither YAML nor JSON: day is out of range", id="no date"),
        pytest.param("just words", "expected Kubernetes objects with apiVersion and kind", id="words"),
        pytest.param("metadata: {name: x}", "expected Kubernetes objects with apiVersion and kind", id="no kind"),
        pytest.param(
            json.dumps(listed(NODE, {"apiVersion": "v1", "kind": "Pod"})),
            "object 1: Pod without metadata",
            id="no metadata",
        ),
        pytest.param(
            json.dumps(listed(NODE, {"apiVersion": "v1", "kind": "Pod", "metadata": {}})),
            "object 1: Pod default/None: metadata.name: required",
            id="no name",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {gpu: yes}}",
            "object 0: Node default/n1: metadata.labels: Expected `str | null`, got `bool`",
            id="a label that YAML takes for a truth value",
        ),
        pytest.param(
            json.dumps(listed(NODE, "web-1")),  # type: ignore[arg-type]
            "expected Kubernetes objects with apiVersion and kind",
            id="an item that is no object",
        ),
    ],
)
def test_a_bad_file_is_named_with_the_object_and_the_cause(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(SavedClusterError) as refused:
        loaded(tmp_path, text)

    assert str(refused.value).startswith(f"{tmp_path / 'cluster'}: {said}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SavedClusterError, match=r"cannot be read: .*No such file"):
        load_saved(tmp_path / "none", Cluster(), KINDS)


class TestMemory:
    """Binds and homes stay in memory."""

    @staticmethod
    def cluster(*pods: Pod) -> Cluster:
        cluster = Cluster()
        cluster.upsert_node(make_node("n1"))
        for pod in pods:
            cluster.upsert_pod(pod)
        return cluster

    async def test_a_bind_is_in_the_picture(self) -> None:
        pod = make_pod("web-1", annotations={"homeport.dev/a": "1"}, nominated="n2")
        cluster = self.cluster(pod)

        with passed_down(pod, "n1", lambda: None):
            assert await MemoryBinder(cluster, BindGuard()).bind(pod, "n1", {"homeport.dev/home": "n1"}) == SUCCESS
        assert make_pod(
            "web-1",
            node="n1",
            phase="Pending",
            annotations={"homeport.dev/a": "1", "homeport.dev/home": "n1"},
            resource_version="2",
        ) == cluster.pod("default", "web-1")
        assert [] == cluster.check()

    @pytest.mark.parametrize(
        "pods", [pytest.param([], id="gone"), pytest.param([make_pod("web-1", uid="x")], id="anew")]
    )
    async def test_a_pod_that_is_not_there(self, pods: list[Pod]) -> None:
        binder = MemoryBinder(self.cluster(*pods), BindGuard())

        with passed_down(make_pod("web-1"), "n1", lambda: None):
            assert await binder.bind(make_pod("web-1"), "n1", {}) == error('pods "web-1" not found')

    async def test_what_is_held_back_changes_nothing(self) -> None:
        pod = make_pod("web-1")
        cluster = self.cluster(pod)

        with passed_down(pod, "n1", Words(NotBound(unschedulable("no longer possible")))):
            status = await MemoryBinder(cluster, BindGuard()).bind(pod, "n1", {})

        assert (unschedulable("no longer possible"), pod) == (status, cluster.pod("default", "web-1"))

    @pytest.mark.parametrize(
        ("annotations", "expected"),
        [
            pytest.param({"homeport.dev/home": "n1"}, {"homeport.dev/old": "x", "homeport.dev/home": "n1"}, id="set"),
            pytest.param({"homeport.dev/old": None}, {}, id="remove"),
            pytest.param({"homeport.dev/other": None}, {"homeport.dev/old": "x"}, id="remove what is not there"),
        ],
    )
    async def test_annotations(self, annotations: Mapping[str, str | None], expected: dict[str, str]) -> None:
        cluster = self.cluster()
        owner = workload_object("ReplicaSet", "web")
        owner["metadata"]["annotations"] = {"homeport.dev/old": "x"}
        found = REPLICA_SETS.decode(json.dumps(owner).encode())
        cluster.others.upsert(REPLICA_SETS, found)

        await MemoryWriter(cluster).annotate(REPLICA_SETS, found, annotations)

        written = cluster.get(REPLICA_SETS, "default", "web")
        assert written is not None
        assert (expected, "2") == (written.annotations, written.resource_version)

    async def test_an_owner_that_is_not_there(self) -> None:
        found = REPLICA_SETS.decode(json.dumps(workload_object("ReplicaSet", "web")).encode())

        with pytest.raises(ObjectGone, match=r"^ReplicaSet default/web$"):
            await MemoryWriter(self.cluster()).annotate(REPLICA_SETS, found, {})


def test_the_items_of_a_list_in_json_are_decoded_one_at_a_time() -> None:
    """Decoded, all of them would take several times the memory of the file."""
    labels = {f"label-{number}": f"value-{number}" for number in range(100)}
    pods = [{**POD, "metadata": {**POD["metadata"], "name": f"p{number}", "labels": labels}} for number in range(500)]
    text = json.dumps(listed(NODE, *pods)).encode()
    tracemalloc.start()
    try:
        number = sum(1 for _ in objects_in(text, "file"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 501 == number
    assert peak < len(text) / 4


async def test_a_saved_feed_is_complete_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "cluster"
    path.write_text(json.dumps(listed(NODE, POD, SERVICE)))
    feed = SavedFeed(partial(load_saved, path), Cluster(), KINDS)

    await feed.start()
    await feed.complete()

    assert "" == feed.problem()
    assert {
        repr(kind): FeedState("saved", count, 0.0, True)
        for kind, count in ((NODES, 1), (PODS, 1), (SERVICES, 1), (MACHINES, 0))
    } == feed.states()
    await feed.stop()


@pytest.mark.parametrize("levels", [1_200, 9_000])
@pytest.mark.parametrize("form", ["{}", "# in YAML\n{}", "---\n{}\n---\n"], ids=["JSON", "YAML", "YAML documents"])
def test_objects_nested_as_deeply_as_the_api_server_stores_them(tmp_path: Path, form: str, levels: int) -> None:
    pod = {**POD, "metadata": {**POD["metadata"], "managedFields": [{"fieldsV1": "DEEP"}]}}
    text = json.dumps(listed(NODE, pod)).replace('"DEEP"', '{"f:a": ' * levels + "{}" + "}" * levels)

    found = list(loaded(tmp_path, form.replace("{}", text)).pods())

    assert [make_pod("web-1", node="n1", labels={"app": "web"})] == found
