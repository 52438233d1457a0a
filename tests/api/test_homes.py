"""Homes through the whole service: a crash is healed from the start, and an eviction elsewhere is no help."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.config.settings import Settings
from plugins import IN_TREE
from tests.api.faulty import faulty, with_faulty
from tests.api.service import Api, serving
from tests.api.small import VICTIMS, by_name, eviction, saved
from tests.builders import JsonObject, controller, pod_object

KUBEVIRT = "kubevirt.io/v1"
OWNER = controller("VirtualMachineInstance", "db", api_version=KUBEVIRT)
BOUND = pod_object("launcher-1", node="n3", owner=OWNER, annotations={"homeport.dev/home": "n3"})
NEXT = pod_object("launcher-2", owner=OWNER)


def machine(kind: str, **metadata: object) -> JsonObject:
    named = {"name": "db", "namespace": "default", "uid": "uid-db"}
    return {"apiVersion": KUBEVIRT, "kind": kind, "metadata": {**named, **metadata}}


MACHINES = [
    machine("VirtualMachine"),
    machine("VirtualMachineInstance", ownerReferences=[controller("VirtualMachine", "db", api_version=KUBEVIRT)]),
]


async def home(api: Api) -> list[str]:
    """Where the machine's next pod may go."""
    names: list[str] = (await api.post("filter", by_name(NEXT))).answer["NodeNames"]
    return names


async def candidates(api: Api, pod: JsonObject) -> list[str]:
    return list((await api.post("preempt", eviction(pod, n1=VICTIMS, n3=VICTIMS))).answer["NodeNameToMetaVictims"])


async def test_a_home_that_was_never_copied_is_copied_at_the_start(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path, BOUND, *MACHINES))) as api:
        await asyncio.sleep(0)

        assert ["n3"] == await home(api)


async def test_an_eviction_away_from_home_would_not_help(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path, BOUND, *MACHINES))) as api:
        await asyncio.sleep(0)

        assert ["n3"] == await candidates(api, NEXT)


async def test_an_eviction_for_a_pod_whose_owner_is_unknown_would_not_help(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path, BOUND))) as api:
        assert [] == await candidates(api, NEXT)


async def test_a_plugin_whose_repair_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = Settings(cluster=saved(tmp_path, BOUND, *MACHINES), profiles=with_faulty())
    async with serving(settings, (faulty("repair"), *IN_TREE)) as api:
        await asyncio.sleep(0)

        assert ["n3"] == await home(api)
        assert {'{plugin="Faulty",point="Repair"}': 1} == await api.samples("homeport_plugin_faults_total")
