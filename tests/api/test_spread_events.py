"""A refusal by filter leads to an Event on the pod, from the replica that leads and with the numbers of its domains."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import app.main
from app.config.settings import Settings
from app.controllers.spread_events import FIRST_SECONDS, SEARCH_SECONDS
from app.feeds import live
from app.main import HomeportService
from app.writes.events import IDLE_SECONDS
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, client_of, kubeconfig
from tests.builders import JsonObject, constraint, node_object, pod_object

WEB: Final = {"app": "web"}
SOON: Final = SEARCH_SECONDS + FIRST_SECONDS + 5.0
LEASE_SECONDS: Final = 60
NAMES: Final = ["n1", "n2"]


class Running:
    """A service on a live cluster in virtual time: two zones, of which the one that is shown has too many pods."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.waits = pod_object("new", labels=WEB, spread=[constraint(app="web")])
        nodes = [node_object(f"n{number}", zone="a" if number < 3 else "b") for number in range(1, 4)]
        self.plane = ApiServer(*nodes, pod_object("web-1", labels=WEB, node="n1"), self.waits)
        for module in (live, app.main):
            monkeypatch.setattr(module, "KubeClient", lambda *_, **__: client_of(self.plane))
            monkeypatch.setattr(module, "monotonic", now)
        monkeypatch.setattr(app.main, "never_stopping", now)
        election = {"leader_elect": True, "resource_namespace": "here", "resource_name": "homeport"}
        found = Settings(
            kubeconfig=str(kubeconfig(folder)),
            leader_election=election,
            advertise_address="10.0.0.1:8888",
            port=0,
            sampling_guard=False,
            **settings,
        )
        self.service = HomeportService(found, SHIPPED, DEFAULT_WEIGHTS, version="1")
        self.web = self.service.web()

    async def refuse(self) -> list[str]:
        """Ask as a scheduler does whose own filters pass the nodes of zone a alone."""
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.web), base_url="http://homeport") as http:
            answer = await http.post("/filter", json={"Pod": self.waits, "NodeNames": NAMES})
        passed: list[str] = answer.json()["NodeNames"] or []
        return passed

    @property
    def told(self) -> list[JsonObject]:
        return [it for it in self.plane.all("Event") if it["reason"] == "SpreadBlocked"]


@virtual_time
async def test_a_refused_pod_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path, monkeypatch)

    async with running.web.router.lifespan_context(running.web):
        await asyncio.sleep(5)
        passed = await running.refuse()
        at_once = running.told
        for number in range(2, 5):
            await asyncio.sleep(max(SOON, IDLE_SECONDS))
            running.plane.put(pod_object(f"web-{number}", labels=WEB, node="n2"))
            await running.refuse()

    (event,) = running.told
    assert ([], []) == (passed, at_once)
    assert ("Normal", "Pod", "new", "zone: b 0, a 1; maxSkew 1", None) == (
        event["type"],
        event["regarding"]["kind"],
        event["regarding"]["name"],
        event["note"],
        event.get("series"),
    )


@virtual_time
async def test_a_replica_that_does_not_lead_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path, monkeypatch)
    running.plane.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "homeport", "namespace": "here"},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": LEASE_SECONDS},
        }
    )

    async with running.web.router.lifespan_context(running.web):
        await asyncio.sleep(5)
        pod = running.service.snapshot.pod("default", "new")
        assert pod is not None
        running.service._refused.refused(pod, "*", (("PodTopologySpread", "too many"),))
        await asyncio.sleep(LEASE_SECONDS / 2)
        follows = running.told
        await asyncio.sleep(LEASE_SECONDS)

    assert ([], 1) == (follows, len(running.told))


@virtual_time
async def test_nothing_is_told_without_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(tmp_path, monkeypatch, events=False)

    async with running.web.router.lifespan_context(running.web):
        await asyncio.sleep(5)
        passed = await running.refuse()
        await asyncio.sleep(2 * SOON)

    assert ([], []) == (passed, running.told)
