"""What metrics count of the picture: as this replica sees it, and a fault in it takes nothing else with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from app.config.settings import Settings
from app.main import Service
from app.server.ops import TOLD_SECONDS, ops_router
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, IN_TREE
from tests.api.service import SAMPLE, VERSION, example
from tests.fakes import ManualClock


@pytest.fixture
def service() -> Service:
    return Service(Settings(cluster=str(SAMPLE)), IN_TREE, DEFAULT_WEIGHTS, version=VERSION)


def waiting(service: Service) -> Mapping[tuple[str, str], int]:
    for _ in service.counting():
        pass
    return service._counted.unschedulable


async def test_who_no_longer_leads_knows_of_no_refused_pod(service: Service) -> None:
    web = service.web()
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http,
    ):
        asked = {**example("filter-spread"), "NodeNames": ["node-a1"]}
        (await http.post("/filter", json=asked)).raise_for_status()
        assert {("PodTopologySpread", "*"): 1} == waiting(service)

        service._lead_changed(True)
        assert 1 == sum(waiting(service).values())
        service._lead_changed(False)
        assert {} == waiting(service)


async def test_a_fault_in_counting_takes_no_other_metric_with_it_and_is_told_once_an_hour() -> None:
    clock, fails = ManualClock(), [True]

    def counting() -> Iterator[None]:
        yield
        if fails[0]:
            raise LookupError("no such count")

    app = FastAPI()
    app.include_router(ops_router(str, Metrics(), counting=counting, clock=clock))

    async def scraped() -> tuple[int, bool]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://homeport") as http:
            found = await http.get("/metrics")
        return found.status_code, "homeport_picture_checks_total" in found.text

    with capture_logs() as said:
        assert [(200, True)] * 3 == [await scraped() for _ in range(3)]
        assert 1 == len(said)
        clock.now += TOLD_SECONDS
        assert (200, True) == await scraped()
        assert 2 == len(said)
        clock.now += TOLD_SECONDS
        fails[0] = False
        assert (200, True) == await scraped()

    assert ["figures not counted"] * 2 == [line["event"] for line in said]
    assert "LookupError: no such count" in said[0]["traceback"]


def test_what_was_counted_last_stays_where_counting_fails(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(service)
    before = service._counted.gauges
    assert "homeport_homes" in before

    def fails(*_: object) -> Iterator[None]:
        yield
        raise LookupError("no such count")

    monkeypatch.setattr(service._refused, "count", fails)
    with pytest.raises(LookupError):
        waiting(service)

    assert before is service._counted.gauges
