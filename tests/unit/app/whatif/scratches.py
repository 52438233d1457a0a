"""Scratch clusters of small worlds, with kube-scheduler's whole default profile."""

from __future__ import annotations

from typing import Any, Final

from app.config.profile import Profile
from app.kube.core_v1 import Node, Pod
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.whatif.scratch import ScratchCluster
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject, container, encoded, node_object, pod_object
from tests.harness import World

COMPLETE: Final = {"schedulerName": "*", "preset": "complete"}


def node(name: str, cpu: str = "4", zone: str | None = None, **fields: Any) -> JsonObject:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return node_object(name, zone=zone, status={"allocatable": allocatable}, **fields)


def pod(name: str, cpu: str = "1", **fields: Any) -> JsonObject:
    return pod_object(name, containers=[container(resources={"requests": {"cpu": cpu}})], **fields)


def scratch_of(*objects: Node | Pod | JsonObject, profile: JsonObject = COMPLETE) -> ScratchCluster:
    """A filled scratch cluster with all objects that the profile reads."""
    (resolved,) = resolve([Profile.model_validate(profile)], Registry(SHIPPED, DEFAULT_WEIGHTS))
    world = World(*objects, profile=profile)
    kinds = {(kind.api_version, kind.kind): kind for kind in resolved.kinds()}
    for found in objects:
        kind = kinds.get((found["apiVersion"], found["kind"])) if isinstance(found, dict) else None
        if kind is not None:
            world.cluster.others.upsert(kind, world.cluster.decoder(kind)(encoded(found)))
    scratch = ScratchCluster(world.cluster, {"*": resolved}, "*")
    for _ in scratch.copying():
        pass
    return scratch


def decoded(scratch: ScratchCluster, *objects: JsonObject) -> list[Pod]:
    """Pods with all parts that the plugins read."""
    world = World(cluster=scratch.cluster, profile=COMPLETE)
    return [world.pod(it) for it in objects]
