"""A projected object decodes to what the whole one decodes to, and holds no field that no decoder reads."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec import Struct

import app.kube
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from app.kube.kinds import NODES, PODS, REPLICA_SETS, RESOURCE_CLAIMS, Kind, partial_kind
from app.kube.projection import ANNOTATIONS, EACH, PARTIAL, READ_ANNOTATIONS, SCALAR, SCHEMAS, projected
from app.kube.resource_claims import decode_resource_claim
from app.kube.resource_v1 import EXTENDED_RESOURCE_CLAIM
from tests.builders import JsonObject, claim_object, class_object, csi_node_object, volume_object
from tests.fuzz.world import cluster

VECTORS: Final = Path(__file__).parents[3] / "conformance" / "vectors"
CASES: Final = 8
"""Number of cases of each file of vectors: the files differ, their cases vary."""

KINDS: Final = {(kind.api_version, kind.kind): kind for kind in SCHEMAS}
NODE_ANNOTATION: Final = "example.com/rack"
WHOLE: Final = core_v1([*Extra], (NODE_ANNOTATION,))
SECRET: Final = "s3cr3t"


def decoded(kind: Kind[Any], found: JsonObject) -> Any:
    raw = msgspec.json.encode(found)
    if kind == PODS:
        return WHOLE.decode_pod(raw)
    return WHOLE.decode_node(raw) if kind == NODES else kind.decode(raw)


def objects_of(path: Path) -> Iterator[JsonObject]:
    with gzip.open(path) as lines:
        for line, _ in zip(lines, range(CASES), strict=False):
            case = json.loads(line)
            yield from case["objects"]
            yield {"apiVersion": "v1", "kind": "Pod", **case["pod"]}


def of_storage() -> list[JsonObject]:
    """Objects with the annotations that are read of volumes and drivers."""
    return [
        claim_object(volume="pv-1", class_name="local", node="n1"),
        volume_object(claim="data", zone="z1", class_name="local"),
        class_object("local"),
        csi_node_object("n1", migrated="kubernetes.io/cinder", example=3),
    ]


@pytest.mark.parametrize(
    "objects",
    [
        *(pytest.param(path, id=path.stem) for path in sorted(VECTORS.rglob("*.cases.jsonl.gz"))),
        pytest.param(of_storage(), id="storage"),
        pytest.param(cluster(), id="the sample"),
    ],
)
def test_no_decoder_misses_a_field(objects: Path | Sequence[JsonObject]) -> None:
    for found in objects_of(objects) if isinstance(objects, Path) else objects:
        kind = KINDS.get((found["apiVersion"], found["kind"]))
        if kind is None:
            continue
        try:
            expected = decoded(kind, found)
        except msgspec.DecodeError:
            continue  # an absurd one: no feed takes it either
        assert expected == decoded(kind, projected(kind, found, (NODE_ANNOTATION,))), found


def wire_structs() -> Iterator[tuple[str, type[Struct]]]:
    for module in pkgutil.iter_modules(app.kube.__path__):
        for name, it in vars(importlib.import_module(f"app.kube.{module.name}")).items():
            if (
                isinstance(it, type)
                and issubclass(it, Struct)
                and name.endswith(("Object", "Sources"))
                and name != "PartialObject"
            ):
                yield f"{module.name}.{name}", it


def names_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        yield from names_in(schema[0])
    elif isinstance(schema, dict):
        for key, part in schema.items():
            yield key
            yield from names_in(part)


def test_each_field_that_is_decoded_is_in_a_schema() -> None:
    """A field that a decoder begins to read would be missing in saved clusters."""
    known = {name for schema in SCHEMAS.values() for name in names_in(schema)}
    structs = dict(wire_structs())

    assert "pod_decoding.WholePodObject" in structs
    assert {} == {
        where: missing for where, it in structs.items() if (missing := set(it.__struct_encode_fields__) - known)
    }


def tainted(schema: Any, value: Any) -> Any:
    """Copy of a value with a secret at every place that no decoder reads."""
    if isinstance(schema, list) and isinstance(value, list):
        return [*(tainted(schema[0], it) for it in value), *([{"x": SECRET}] if schema[0] is SCALAR else [])]
    if schema is ANNOTATIONS and isinstance(value, dict):
        return {**value, "kubectl.kubernetes.io/last-applied-configuration": SECRET, "cloud-init": SECRET}
    if not isinstance(schema, dict) or not isinstance(value, dict):
        return value
    each = schema.get(EACH)
    parts = {key: tainted(schema.get(key, each), part) for key, part in value.items()}
    missing = {name: {"deep": {SECRET: SECRET}} for name, of in schema.items() if of is SCALAR and name not in value}
    if each is not None:
        return {**parts, "x": {SECRET: SECRET} if each is SCALAR else SECRET}
    unread = ("env", "envFrom", "command", "args", "data", "stringData", "userData", "managedFields", "secretRef")
    return {**parts, **missing, **{name: [{"name": SECRET, "value": SECRET}] for name in unread}, "userdata": SECRET}


@pytest.mark.parametrize("path", [pytest.param(it, id=it.stem) for it in sorted(VECTORS.glob("*/everything.cases*"))])
def test_nothing_else_gets_in(path: Path) -> None:
    seen: set[Kind[Any]] = set()
    for found in (*objects_of(path), *cluster(), *of_storage(), *(bare(kind) for kind in SCHEMAS)):
        kind = KINDS.get((found["apiVersion"], found["kind"])) or partial_kind(found["apiVersion"], found["kind"])
        found["metadata"].setdefault("annotations", {})
        spoiled = tainted(SCHEMAS.get(kind, PARTIAL), found)
        seen.add(kind)

        assert SECRET in json.dumps(spoiled)
        assert SECRET not in json.dumps(projected(kind, spoiled, (NODE_ANNOTATION,)))
    assert set(SCHEMAS) <= seen


def bare(kind: Kind[Any]) -> JsonObject:
    """An object with every part that its schema has, each of one element and without scalars."""

    def filled(schema: Any) -> Any:
        if isinstance(schema, list):
            return [filled(schema[0])] if schema[0] is not SCALAR else []
        if not isinstance(schema, dict):
            return {}
        return {("x" if key == EACH else key): filled(part) for key, part in schema.items() if part is not SCALAR}

    made: JsonObject = {**filled(SCHEMAS[kind]), "apiVersion": kind.api_version, "kind": kind.kind}
    return made


def test_annotations() -> None:
    """Those of Homeport's own domain, those of volumes and drivers, and on nodes those that profiles declare."""
    every = dict.fromkeys(("homeport.dev/home", NODE_ANNOTATION, "example.com/other", *READ_ANNOTATIONS), "x")
    found = {"metadata": {"name": "x", "annotations": every}}

    kept = {
        kind: set(projected(kind, found, (NODE_ANNOTATION,))["metadata"]["annotations"])
        for kind in (NODES, REPLICA_SETS)
    }

    always = {"homeport.dev/home", *READ_ANNOTATIONS}
    assert {NODES: {*always, NODE_ANNOTATION}, REPLICA_SETS: always} == kept


def test_a_saved_claim_still_says_for_which_pod_it_has_extended_resources() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "u1", "controller": True}
    metadata = {"name": "claim", "namespace": "default", "annotations": {EXTENDED_RESOURCE_CLAIM: "true"}}
    claim = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {}}

    saved = decode_resource_claim(msgspec.json.encode(projected(RESOURCE_CLAIMS, claim)))

    assert (("train", "u1"),) == saved.extended_for


def test_an_item_of_a_list_has_no_kind_of_its_own() -> None:
    found = {"metadata": {"name": "db01", "namespace": "default"}, "kind": "PartialObjectMetadata", "spec": {"x": 1}}

    assert {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db01", "namespace": "default"},
    } == projected(partial_kind("kubevirt.io/v1", "VirtualMachine"), found)
