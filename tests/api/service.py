"""Homeport in process: the composition root of production behind an ASGI transport, with a saved cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from msgspec import Struct

from app.config.settings import Settings
from app.framework.spec import PluginSpec
from app.main import HomeportService
from app.verbs.outcome import Verb
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.contract import breaches
from tests.builders import JsonObject

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = ROOT / "examples" / "sample-cluster.yaml"
VERSION: Final = "1.2.3"
NODES: Final = [f"node-{zone}{number}" for zone in "abc" for number in "1234"]
"""The nodes of the sample cluster."""


class Reply(Struct, frozen=True):
    """``answer`` is the JSON of the body, ``None`` where there is no body; ``outcome`` is what was counted."""

    status: int
    answer: Any
    outcome: str


class Api:
    """A running service, called as kube-scheduler calls it. Every answer is held against the contract."""

    def __init__(self, http: httpx.AsyncClient, service: HomeportService) -> None:
        self.http = http
        self.service = service
        self._metrics = service._metrics

    async def post(self, verb: Verb, request: JsonObject | bytes, **headers: str) -> Reply:
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        before = self.outcomes(verb)
        response = await self.http.post(f"/{verb}", content=body, headers=headers)
        assert [] == breaches(verb, body, response)
        counted = {name: count - before.get(name, 0) for name, count in self.outcomes(verb).items()}
        (outcome,) = [name for name, count in counted.items() if count]
        assert counted[outcome] == 1
        return Reply(response.status_code, json.loads(response.content) if response.content else None, outcome)

    def outcomes(self, verb: Verb) -> dict[str, int]:
        """How often each outcome of a verb was counted."""
        self._metrics._settling.collect()
        (family,) = self._metrics.requests.collect()
        found = [it for it in family.samples if it.name.endswith("_total") and it.labels["verb"] == verb]
        return {it.labels["outcome"]: int(it.value) for it in found}

    async def samples(self, metric: str) -> Mapping[str, float]:
        """The samples of one metric by their labels, as they are exposed."""
        text = (await self.http.get("/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith((f"{metric}{{", f"{metric} "))]
        return {line[len(metric) :].rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    async def get(self, path: str) -> Any:
        return (await self.http.get(path)).raise_for_status().json()


@asynccontextmanager
async def serving(
    settings: Settings | None = None,
    specs: Iterable[PluginSpec[Any]] = SHIPPED,
    defaults: Mapping[str, int] = DEFAULT_WEIGHTS,
) -> AsyncIterator[Api]:
    """A service for the length of its lifespan; of the sample cluster unless ``settings`` say otherwise."""
    service = HomeportService(settings or Settings(cluster=str(SAMPLE)), specs, defaults, version=VERSION)
    web = service.web()
    transport = httpx.ASGITransport(web)
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=transport, base_url="http://homeport") as http,
    ):
        yield Api(http, service)


def example(name: str) -> JsonObject:
    """A request of examples/requests."""
    found: JsonObject = json.loads((ROOT / "examples" / "requests" / f"{name}.json").read_bytes())
    return found
