"""The pods that wait at Permit, as an operator sees and settles them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.config.profile import Profile
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.points import PermitPlugin
from app.framework.spec import PluginSpec
from app.framework.status import Code, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import RESOURCE_CLAIMS
from app.kube.resource_v1 import EXTENDED_RESOURCE_CLAIM
from app.main import HomeportService
from app.replicas.leadership import ALONE, Alone
from app.verbs.bind import SHUTTING_DOWN
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import Api, Reply, serving
from tests.api.small import NEW, TOO_MANY, binding, by_name, filtered, saved
from tests.builders import JsonObject, constraint, container, encoded, pod_object
from tests.fakes import NoArgs

UID: Final = NEW["metadata"]["uid"]
WAITING: Final = {
    "uid": UID,
    "namespace": "default",
    "name": "web-new",
    "node": "n2",
    "pending": ["Budget", "Licence"],
}
ALSO: Final = pod_object("web-also", labels={"app": "web"}, spread=[constraint(app="web")])


class Budget(PermitPlugin):
    """Makes every pod wait for a minute, which is clipped to the caller's limit."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return Status(Code.WAIT), 60.0


class Licence(Budget):
    """So does this one."""


SPECS: Final[tuple[PluginSpec[Any], ...]] = tuple(PluginSpec(it.__name__, NoArgs, it) for it in (Budget, Licence))
PROFILE: Final = Profile.model_validate(
    {"plugins": {"multiPoint": {"enabled": [{"name": "Budget"}, {"name": "Licence"}]}}}
)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    settings = Settings(cluster=saved(tmp_path, ALSO), profiles=(PROFILE,))
    async with serving(settings, (*SHIPPED, *SPECS), DEFAULT_WEIGHTS) as api:
        yield api


@pytest.fixture
async def bind(api: Api) -> AsyncIterator[asyncio.Task[Reply]]:
    """A bind whose pod waits."""
    call = asyncio.create_task(api.post("bind", binding()))
    while not await api.get("/api/v1/waiting"):
        assert not call.done()
        await asyncio.sleep(0)
    yield call
    await call


async def settle(api: Api, action: str, uid: str = UID, **body: str) -> tuple[int, JsonObject]:
    response = await api.http.post(f"/api/v1/waiting/{uid}/{action}", json=body)
    return response.status_code, response.json()


async def test_a_pod_that_waits_is_shown_and_holds_its_node(api: Api, bind: asyncio.Task[Reply]) -> None:
    assert [WAITING] == await api.get("/api/v1/waiting")
    assert Reply(200, filtered(["n3"], {"n1": TOO_MANY, "n2": TOO_MANY}), "feasible") == await api.post(
        "filter", by_name(ALSO)
    )

    await settle(api, "reject", plugin="Budget", message="enough")


async def test_explain_says_what_holds_a_pod(api: Api, bind: asyncio.Task[Reply]) -> None:
    found = (await api.http.post("/api/v1/explain", json={"pod": NEW})).json()

    assert ("HeldAtPermit", {"node": "n2", "plugins": ["Budget", "Licence"]}, []) == (
        found["verdict"],
        found["heldAtPermit"],
        found["remedies"],
    )
    assert "held at Permit by Budget, Licence: it is bound to n2 once they allow it" == found["summary"]

    await settle(api, "reject", plugin="Budget", message="enough")


async def test_it_is_bound_once_it_is_allowed_in_the_name_of_every_plugin(api: Api, bind: asyncio.Task[Reply]) -> None:
    first = await settle(api, "allow", plugin="Licence")
    shown = await api.get("/api/v1/waiting")
    second = await settle(api, "allow", plugin="Budget")

    assert (200, {"outcome": "waiting", "pending": ["Budget"]}) == first
    assert [{**WAITING, "pending": ["Budget"]}] == shown
    assert (200, {"outcome": "allowed", "pending": []}) == second
    assert Reply(200, {"Error": ""}, "bound") == await bind
    assert [] == await api.get("/api/v1/waiting")


async def test_a_rejected_pod_goes_back_to_its_scheduler_with_the_message(api: Api, bind: asyncio.Task[Reply]) -> None:
    found = await settle(api, "reject", plugin="Budget", message="the budget is spent")

    assert (200, {"outcome": "rejected", "pending": []}) == found
    assert Reply(200, {"Error": "homeport: Budget: the budget is spent"}, "bind_conflict") == await bind
    assert {"": 0} == await api.samples("homeport_assumed_pods")


@pytest.mark.parametrize(
    ("action", "body"), [("allow", {"plugin": "Budget"}), ("reject", {"plugin": "Budget", "message": "no"})]
)
async def test_a_pod_that_does_not_wait(api: Api, action: str, body: dict[str, str]) -> None:
    code, found = await settle(api, action, "nobody", **body)

    assert (404, "no pod with UID nobody is waiting") == (code, found["message"])


async def test_a_plugin_it_does_not_wait_for(api: Api, bind: asyncio.Task[Reply]) -> None:
    await settle(api, "allow", plugin="Licence")

    code, found = await settle(api, "allow", plugin="Licence")
    assert (409, "default/web-new does not wait for plugin Licence") == (code, found["message"])
    await settle(api, "reject", plugin="Budget", message="enough")


@pytest.mark.parametrize(
    ("action", "body", "fields"),
    [
        pytest.param("allow", {}, ["plugin"], id="in nobody's name"),
        pytest.param("allow", {"plugin": "Budget", "message": "yes"}, ["message"], id="a field that nobody knows"),
        pytest.param("reject", {"plugin": "Budget"}, ["message"], id="without a reason"),
    ],
)
async def test_a_request_that_says_too_little_or_too_much(
    api: Api, action: str, body: dict[str, str], fields: list[str]
) -> None:
    status, found = await settle(api, action, **body)

    assert (422, fields) == (status, [it["field"] for it in found["details"]["causes"]])


async def test_a_pod_may_wait_for_as_long_as_who_binds_does(tmp_path: Path) -> None:
    """That can be another entry of the scheduler's than the one that filters, which waits for half a second."""
    settings = Settings(cluster=saved(tmp_path), profiles=(PROFILE,), http_timeout=0.5, bind_timeout=900.0)
    async with serving(settings, (*SHIPPED, *SPECS), DEFAULT_WEIGHTS) as api:
        call = asyncio.create_task(api.post("bind", binding()))
        await asyncio.sleep(0.6)
        found = await api.get("/api/v1/waiting")
        for plugin in ("Licence", "Budget"):
            await settle(api, "allow", plugin=plugin)

        assert ([WAITING], Reply(200, {"Error": ""}, "bound")) == (found, await call)


def device_object(kind: str, name: str, version: str = "1", **fields: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    more = metadata | fields.pop("metadata", {})
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": more, **fields}


GPU: Final = pod_object("gpu", containers=[container(requests={"example.com/gpu": "1"})])
POOL: Final[Any] = {"name": "n2", "generation": 1, "resourceSliceCount": 1}
DEVICES: Final = (
    device_object("DeviceClass", "gpu", spec={"extendedResourceName": "example.com/gpu"}),
    device_object(
        "ResourceSlice", "s", spec={"driver": "g", "nodeName": "n2", "pool": POOL, "devices": [{"name": "d"}]}
    ),
)


def made_for_gpu(version: str, **status: Any) -> JsonObject:
    """The claim that a scheduler makes for the pod's extended resources."""
    owner = {"name": "gpu", "uid": GPU["metadata"]["uid"], "controller": True}
    metadata = {"annotations": {EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [owner]}
    return device_object("ResourceClaim", "made", version, metadata=metadata, spec={}, status=status)


FINISHED: Final = made_for_gpu(
    "2", allocation={"devices": {"results": []}}, reservedFor=[{"uid": GPU["metadata"]["uid"]}]
)


@pytest.mark.parametrize(
    "heard_of",
    [
        pytest.param([made_for_gpu("1"), FINISHED], id="as it is made, then as it is finished"),
        pytest.param([FINISHED], id="as it is finished"),
    ],
)
async def test_a_pod_goes_on_once_its_claim_is_its_own(tmp_path: Path, heard_of: list[JsonObject]) -> None:
    """Whatever was heard of the claim before."""
    profile = Profile.model_validate({"plugins": {"multiPoint": {"enabled": [{"name": "DynamicResources"}]}}})
    settings = Settings(cluster=saved(tmp_path, GPU, *DEVICES), profiles=(profile,), bind_timeout=900.0)
    service = HomeportService(settings, SHIPPED, DEFAULT_WEIGHTS, version="test")
    web = service.web()
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http,
    ):
        api = Api(http, service)
        call = asyncio.create_task(api.post("bind", binding(GPU)))
        while not (shown := await api.get("/api/v1/waiting")):
            assert not call.done()
            await asyncio.sleep(0)
        for it in heard_of:
            service.snapshot.others.upsert(RESOURCE_CLAIMS, RESOURCE_CLAIMS.decode(encoded(it)))
        left = await api.get("/api/v1/waiting")
        if left:
            await settle(api, "reject", GPU["metadata"]["uid"], plugin="DynamicResources", message="still there")

        assert [["DynamicResources"]] == [it["pending"] for it in shown]
        assert ([], Reply(200, {"Error": ""}, "bound")) == (left, await call)


class _Follower(Alone):
    """Of several replicas, not the one that decides."""

    leads = False  # type: ignore[misc]  # what a test may say


class TestWhoMayNotBind:
    """A process that ends, or no longer leads, keeps no pod waiting."""

    @pytest.fixture
    async def served(self, tmp_path: Path) -> AsyncIterator[tuple[HomeportService, Api]]:
        settings = Settings(cluster=saved(tmp_path), profiles=(PROFILE,), bind_timeout=900.0)
        service = HomeportService(settings, (*SHIPPED, *SPECS), DEFAULT_WEIGHTS, version="test")
        web = service.web()
        async with (
            web.router.lifespan_context(web),
            httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http,
        ):
            yield service, Api(http, service)

    @staticmethod
    async def waiting(api: Api) -> asyncio.Task[Reply]:
        call = asyncio.create_task(api.post("bind", binding()))
        while not await api.get("/api/v1/waiting"):
            assert not call.done()
            await asyncio.sleep(0)
        return call

    async def test_before_the_end_of_a_process_alone_its_pods_go_back(
        self, served: tuple[HomeportService, Api]
    ) -> None:
        service, api = served
        call = await self.waiting(api)

        await service.leave()

        refused = Reply(200, {"Error": f"homeport: {SHUTTING_DOWN}"}, "bind_conflict")
        assert (refused, {"": 0}) == (await call, await api.samples("homeport_assumed_pods"))
        assert refused == await api.post("bind", binding())

    async def test_a_lead_that_is_lost_gives_back_who_waits_and_who_would(
        self, served: tuple[HomeportService, Api]
    ) -> None:
        service, api = served
        call = await self.waiting(api)

        service._leadership = _Follower()
        service._lead_changed(False)

        refused = Reply(200, {"Error": "homeport: this replica no longer leads"}, "bind_conflict")
        assert (refused, {"": 0}) == (await call, await api.samples("homeport_assumed_pods"))
        assert refused == await api.post("bind", binding())

    async def test_a_lead_that_is_won_again_lets_pods_wait_again(self, served: tuple[HomeportService, Api]) -> None:
        service, api = served
        service._leadership = _Follower()
        service._lead_changed(False)
        service._leadership = ALONE
        service._lead_changed(True)

        call = await self.waiting(api)

        await settle(api, "reject", plugin="Budget", message="enough")
        assert "homeport: Budget: enough" == (await call).answer["Error"]
