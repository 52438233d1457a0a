"""Homes through the whole service: a crash is healed from the start, and an eviction elsewhere is no help."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from app.config.profile import Profile
from app.config.settings import Settings
from app.kube.kinds import SERVICES
from app.main import HomeportService
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.faulty import faulty, with_faulty
from tests.api.service import Api, serving
from tests.api.small import VICTIMS, by_name, eviction, saved
from tests.api.virtual import settle
from tests.builders import JsonObject, controller, make_service, pod_object
from tests.fakes import Alpha, spec_of

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
        await settle()

        assert ["n3"] == await home(api)


async def test_an_eviction_away_from_home_would_not_help(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path, BOUND, *MACHINES))) as api:
        await settle()

        assert ["n3"] == await candidates(api, NEXT)


async def test_a_plugin_whose_background_work_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = Settings(cluster=saved(tmp_path, BOUND, *MACHINES), profiles=with_faulty())
    async with serving(settings, (faulty("run"), *SHIPPED)) as api:
        await settle()

        assert ["n3"] == await home(api)
        faults = await api.samples("homeport_plugin_faults_total")
        assert {'{extension_point="Run",plugin="Faulty"}': 1} == {it: count for it, count in faults.items() if count}


def test_a_plugin_that_fails_on_a_change_spoils_nothing(tmp_path: Path) -> None:
    class Fails(Alpha):
        def object_changed(self, kind: object, old: object, new: object) -> None:
            raise LookupError("no")

    spec = spec_of(Fails, kinds=lambda _: (SERVICES,))
    plugins = {"multiPoint": {"enabled": [{"name": "Fails"}]}}
    profiles = (Profile.model_validate({"plugins": plugins}),)
    settings = Settings(cluster=saved(tmp_path), explain="profile", profiles=profiles)
    service = HomeportService(settings, (spec, *SHIPPED), DEFAULT_WEIGHTS, version="1")

    with capture_logs() as said:
        for selector in ({"app": "web"}, {"app": "db"}):
            service.snapshot.others.upsert(SERVICES, make_service(selector=selector))

    assert make_service(selector={"app": "db"}) == service.snapshot.get(SERVICES, "default", "web")
    assert [("plugin fault", "Fails", "Changed")] == [(it["event"], it["plugin"], it["point"]) for it in said]
