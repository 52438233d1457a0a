"""What metrics count of the picture: as this replica sees it, and a fault in it takes nothing else with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from app.config.settings import Settings
from app.feeds.live import LiveFeed
from app.main import HomeportService
from app.server.ops import LOG_SECONDS, ops_router
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import SAMPLE, VERSION, example
from tests.certificates import Authority
from tests.fakes import ManualClock


@pytest.fixture
def service() -> HomeportService:
    return HomeportService(Settings(cluster=str(SAMPLE)), SHIPPED, DEFAULT_WEIGHTS, version=VERSION)


def waiting(service: HomeportService) -> Mapping[tuple[str, str], int]:
    for _ in service.counting():
        pass
    return service._counted.unschedulable


async def test_who_no_longer_leads_knows_of_no_refused_pod(service: HomeportService) -> None:
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
        return found.status_code, "homeport_snapshot_checks_total" in found.text

    with capture_logs() as said:
        assert [(200, True)] * 3 == [await scraped() for _ in range(3)]
        assert 1 == len(said)
        clock.now += LOG_SECONDS
        assert (200, True) == await scraped()
        assert 2 == len(said)
        clock.now += LOG_SECONDS
        fails[0] = False
        assert (200, True) == await scraped()

    assert ["metrics not updated"] * 2 == [line["event"] for line in said]
    assert "LookupError: no such count" in said[0]["traceback"]


def test_what_was_counted_last_stays_where_counting_fails(
    service: HomeportService, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_the_end_of_the_certificate_shown_to_the_api_server(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("me", not_after=datetime(2031, 1, 1, tzinfo=UTC))
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://api.test"}}],
        "users": [{"name": "me", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    service = HomeportService(Settings(kubeconfig=str(tmp_path / "config")), SHIPPED, DEFAULT_WEIGHTS, version=VERSION)

    def end() -> float | None:
        name = "homeport_certificate_expiration_timestamp_seconds"
        return service.metrics.registry.get_sample_value(name, {"certificate": "kubeconfig"})

    assert end() is None
    assert isinstance(service._feed, LiveFeed)
    await service._feed.client._credentials.access()
    assert datetime(2031, 1, 1, tzinfo=UTC).timestamp() == end()
